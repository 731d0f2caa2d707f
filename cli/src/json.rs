//! JSON that is safe to print on a terminal and has the same meaning: characters that a terminal would act on are
//! written `
//! uXXXX`.

use crate::visible::acts;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;
use std::io::{Result, Write};

/// Writes an object on one line, without its end.
pub fn write(out: impl Write, object: &impl Serialize) -> Result<()> {
    let mut serializer = Serializer::with_formatter(out, Escaping);
    Ok(object.serialize(&mut serializer)?)
}

/// Compact JSON, with additional escapes for terminals.
struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, part: &str) -> Result<()> {
        let mut rest = part;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| acts(*c)) {
            out.write_all(&rest.as_bytes()[..at])?;
            // All of these characters are in the basic plane, so each is one escape.
            write!(out, "\\u{:04x}", u32::from(c))?;
            rest = &rest[at + c.len_utf8()..];
        }
        out.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn output_is_plain_and_parses_to_the_exact_value() {
        let value =
            serde_json::json!({"key\u{202e}": "a\u{1b}[31m\u{7f}\u{9b}\n\"\\ ключ 😀\u{2066}"});
        let mut written = Vec::new();
        super::write(&mut written, &value).unwrap();
        let written = String::from_utf8(written).unwrap();
        assert_eq!(
            written,
            r#"{"key\u202e":"a\u001b[31m\u007f\u009b\n\"\\ ключ 😀\u2066"}"#
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&written).unwrap(),
            value
        );
    }
}
