//! The fields of a row besides its key, text and vector: they become columns.

use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;

/// The values of the other fields, by name. Fields of nested objects are named `a.b`.
#[derive(Default)]
pub(super) struct Attributes {
    values: Map<String, Value>,
    objects: BTreeSet<String>,
    /// The first field that occurs twice.
    pub(super) twice: Option<String>,
    /// A number without a fraction that only a float can hold: what was written may have more digits.
    pub(super) is_large: bool,
}

impl Attributes {
    pub(super) fn into_values(self) -> Map<String, Value> {
        self.values
    }

    /// Returns the reader of the field with this name.
    pub(super) fn field(&mut self, path: String) -> Field<'_> {
        Field { all: self, path }
    }
}

/// Reads one field.
pub(super) struct Field<'a> {
    all: &'a mut Attributes,
    path: String,
}

impl Field<'_> {
    fn put<E>(self, value: impl Into<Value>) -> Result<(), E> {
        let again = self.all.objects.contains(&self.path);
        let before = self.all.values.insert(self.path.clone(), value.into());
        if again || before.is_some() {
            self.all.twice.get_or_insert(self.path);
        }
        Ok(())
    }
}

impl<'de> serde::de::DeserializeSeed<'de> for Field<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Field<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.put(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.put(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.put(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.put(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        // From 2^63 on, in either direction.
        self.all.is_large |= value.abs() >= 9_223_372_036_854_775_808.0;
        self.put(value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.put(value)
    }

    fn visit_string<E: Error>(self, value: String) -> Result<(), E> {
        self.put(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut items: Vec<Value> = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        self.put(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { all, path } = self;
        let again = all.values.contains_key(&path) || !all.objects.insert(path.clone());
        if again {
            all.twice.get_or_insert(path.clone());
        }
        while let Some(name) = map.next_key::<String>()? {
            map.next_value_seed(all.field(format!("{path}.{name}")))?;
        }
        Ok(())
    }
}

/// Returns the first integer in a line of JSON that has more than 64 bits.
pub fn long_integer(line: &str) -> Option<&str> {
    let mut rest = line;
    loop {
        let start = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit())?;
        rest = &rest[start..];
        if rest.starts_with('"') {
            rest = &rest[string_len(rest)?..];
            continue;
        }
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        if !number.contains(['.', 'e', 'E']) && number.parse::<i64>().is_err() {
            return Some(number);
        }
        rest = after;
    }
}

/// Returns the length in bytes of the string in quotes with which a text begins.
fn string_len(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::long_integer;

    #[test]
    fn long_integers_are_found_outside_of_strings_only() {
        for (line, found) in [
            (
                r#"{"a":18446744073709551616}"#,
                Some("18446744073709551616"),
            ),
            (
                r#"{"a":1e30,"b":-99999999999999999999}"#,
                Some("-99999999999999999999"),
            ),
            (
                r#"{"a":9223372036854775807,"b":1.0e30,"c":123456789012345678901.5}"#,
                None,
            ),
            (
                r#"{"99999999999999999999":"9999999999\"9999999999999","ключ":1}"#,
                None,
            ),
        ] {
            assert_eq!(long_integer(line), found, "{line}");
        }
    }
}
