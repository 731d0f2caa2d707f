//! Keys, one per line: how `keys` writes them, and `delete` and `query` read them.
//!
//! A line is the key, unchanged. A key that can't be a line, or would be read differently, is written as a JSON string:
//! a key that contains a line end or begins with a double quote. So every key survives a pipe, and lists from other
//! programs need no escapes.

use crate::rows::Lines;
use anyhow::{Context, Result};
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Returns the line of a key, without its end.
pub fn line(key: &str) -> Cow<'_, str> {
    match key.starts_with('"') || key.contains(['\n', '\r']) {
        true => serde_json::Value::from(key).to_string().into(),
        false => key.into(),
    }
}

/// Returns the key of a line.
fn key(line: &str) -> String {
    let quoted = line.starts_with('"').then(|| serde_json::from_str(line));
    match quoted {
        Some(Ok(key)) => key,
        // It begins with a quote but is not JSON, so it is a literal key.
        _ => line.to_owned(),
    }
}

/// Reads keys from standard input.
pub fn from_stdin() -> Result<Vec<String>> {
    read("stdin".into(), Box::new(BufReader::new(std::io::stdin())))
}

/// Reads keys from a file.
pub fn from_file(path: &Path) -> Result<Vec<String>> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    read(path.display().to_string(), Box::new(BufReader::new(file)))
}

fn read(name: String, source: Box<dyn BufRead + Send>) -> Result<Vec<String>> {
    let mut lines = Lines::new(name, source);
    let mut keys = Vec::new();
    while let Some(line) = lines.read()? {
        let line = line?;
        if !line.is_empty() {
            keys.push(key(line));
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::{key, line};

    #[test]
    fn every_key_is_written_as_a_line_that_is_read_as_the_key() {
        for plain in [
            "a",
            "two words",
            "C:\\new",
            "a\tb",
            "it's \"x\"",
            "\u{1b}[0m",
            "{\"key\":1}",
        ] {
            assert_eq!(line(plain), plain);
            assert_eq!(key(plain), plain);
        }
        for odd in ["a\nb", "\r", "\"", "\"quoted\"", "\"a\n\\b"] {
            let line = line(odd);
            assert!(
                line.starts_with('"') && !line.contains(['\n', '\r']),
                "{line}"
            );
            assert_eq!(key(&line), odd);
        }
        assert_eq!(key("\"half"), "\"half");
    }
}
