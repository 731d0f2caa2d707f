//! Parsing a line of JSONL into a row, with specific error messages; syntax errors give the column.

use super::attributes::{Attributes, long_integer};
use super::fields::{Fields, VECTOR};
use super::json::{Json, Numbers};
use super::parse;
use mopqdb::{Row, Value};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Map;
use std::fmt;

/// The message for a line that begins with `[`: usually the file is one array.
pub(super) const ARRAY: &str =
    "is a JSON array; give one JSON object per line (`jq -c '.[]'` makes such lines of an array)";

/// Reads `{"key": "...", "text": "..."}` or `{"key": "...", "vector": [...]}`, under the names of `fields`. Also returns
/// the values of the other fields, unless they are ignored.
pub fn jsonl(line: &str, fields: &Fields) -> Result<(Row, Map<String, serde_json::Value>), String> {
    match line.trim_start().as_bytes().first() {
        Some(b'{') => {}
        Some(b'[') => return Err(ARRAY.into()),
        _ => return Err(no_object(line)),
    }
    let mut reader = serde_json::Deserializer::from_str(line);
    let object = Wanted(fields)
        .deserialize(&mut reader)
        .map_err(|error| broken(line, &error))?;
    if let Err(error) = reader.end() {
        return Err(format!(
            "continues after its JSON object, at column {}; give one JSON object per line",
            column(line, &error)
        ));
    }
    if object.others.is_large
        && let Some(number) = long_integer(line)
    {
        return Err(format!(
            "{number} is beyond the integers of 64 bits; give it as a string"
        ));
    }
    object.row(fields)
}

/// Describes a line that begins with neither `{` nor `[`.
fn no_object(line: &str) -> String {
    match serde_json::from_str::<Json>(line) {
        Ok(json) => format!("is {}; give one JSON object per line", json.kind()),
        Err(error) => broken(line, &error),
    }
}

fn broken(line: &str, error: &serde_json::Error) -> String {
    let column = column(line, error);
    if error.is_eof() {
        return format!(
            "the line ends inside its JSON, at column {column}; give one JSON object per line (`jq -c .` makes such lines)"
        );
    }
    let said = error.to_string();
    // The message names the line already, and counts the column in characters.
    let what = match said.split(" at line ").next().unwrap_or_default() {
        "number out of range" => return format!("a number is too large, at column {column}"),
        "expected ident" | "expected value" => "not the beginning of a value",
        "recursion limit exceeded" => {
            return format!("has objects or arrays that nest too deeply, at column {column}");
        }
        "key must be a string" => "a field's name is not in double quotes",
        what if what.starts_with("control character") => "a control character inside a string",
        what => what,
    };
    format!("is not JSON: {what}, at column {column}")
}

/// Returns the column in characters, from 1; serde_json counts bytes.
fn column(line: &str, error: &serde_json::Error) -> usize {
    let before = &line.as_bytes()[..error.column().saturating_sub(1).min(line.len())];
    // Each character has exactly one byte that is not a continuation byte.
    1 + before.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

/// The requested fields of a JSON object.
#[derive(Default)]
struct Object {
    key: Option<Json>,
    text: Option<Json>,
    vector: Option<Json>,
    /// The other fields.
    others: Attributes,
    /// A field that is named as a part of every row, but is not read as that part.
    reserved: Option<String>,
    /// A field that occurs more than once.
    twice: Option<String>,
}

impl Object {
    /// Returns the row and its other fields. Missing fields are reported before others, because a misnamed field is both
    /// and the first message is more helpful.
    fn row(self, fields: &Fields) -> Result<(Row, Map<String, serde_json::Value>), String> {
        if let Some(name) = self.twice.or_else(|| self.others.twice.clone()) {
            return Err(format!("has the field {name:?} twice"));
        }
        let Some(key) = self.key else {
            return Err(format!(
                "has no field {:?}; --key-field NAME reads the key from another one",
                fields.key
            ));
        };
        let key = into_key(key, &fields.key)?;
        let value = value(self.text, self.vector, &fields.text)?;
        if let Some(name) = self.reserved {
            return Err(format!(
                "has the field {name:?}, and no column can have this name; rename the field, or give --ignore-unknown, which \
                 ignores all fields but {:?}, {:?} and {VECTOR:?}",
                fields.key, fields.text
            ));
        }
        let row = parse::check(Row::new(key, value))?;
        Ok((row, self.others.into_values()))
    }
}

fn value(text: Option<Json>, vector: Option<Json>, text_field: &str) -> Result<Value, String> {
    // Exports write null for missing values.
    let given = |json: &Json| !matches!(json, Json::Null);
    let is_null = text.is_some() || vector.is_some();
    match (text.filter(given), vector.filter(given)) {
        (Some(text), None) => into_text(text, text_field).map(Value::Text),
        (None, Some(vector)) => into_vector(vector).map(Value::Vector),
        (Some(_), Some(_)) => Err(format!("has both {text_field:?} and {VECTOR:?}; give one")),
        (None, None) if is_null => Err(format!("has only null in {text_field:?} and {VECTOR:?}")),
        (None, None) => Err(format!(
            "has neither {text_field:?} nor {VECTOR:?}; --text-field NAME reads the text from another field"
        )),
    }
}

/// Returns the key. Ids are often numbers; their digits become the key.
fn into_key(json: Json, field: &str) -> Result<String, String> {
    match json {
        Json::Text(key) => Ok(key),
        Json::Whole(number) => Ok(number.to_string()),
        Json::Fraction(number) => Err(format!(
            "{field:?} is the number {number}; a key is a string or an integer of 64 bits"
        )),
        other => Err(format!(
            "{field:?} is {}; a key is a string or an integer",
            other.kind()
        )),
    }
}

fn into_text(json: Json, field: &str) -> Result<String, String> {
    match json {
        Json::Text(text) => Ok(text),
        other => Err(format!("{field:?} is {}; a text is a string", other.kind())),
    }
}

fn into_vector(json: Json) -> Result<Vec<f32>, String> {
    match json {
        Json::Array(Numbers { values, bad: None }) => Ok(values),
        Json::Array(Numbers {
            values,
            bad: Some(bad),
        }) => Err(format!("value {} of {VECTOR:?} is {bad}", values.len())),
        other => Err(format!(
            "{VECTOR:?} is {}; a vector is an array of numbers",
            other.kind()
        )),
    }
}

/// Reads the requested fields of an object.
struct Wanted<'a>(&'a Fields);

impl<'de> DeserializeSeed<'de> for Wanted<'_> {
    type Value = Object;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Object, D::Error> {
        source.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Wanted<'_> {
    type Value = Object;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
        let mut object = Object::default();
        while let Some(name) = map.next_key::<String>()? {
            let field = match name.as_str() {
                name if name == self.0.key => &mut object.key,
                name if name == self.0.text => &mut object.text,
                VECTOR => &mut object.vector,
                _ if self.0.ignore_unknown => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                "key" | "text" => {
                    map.next_value::<IgnoredAny>()?;
                    object.reserved.get_or_insert(name);
                    continue;
                }
                _ => {
                    map.next_value_seed(object.others.field(name))?;
                    continue;
                }
            };
            if field.replace(map.next_value()?).is_some() {
                object.twice.get_or_insert(name);
            }
        }
        Ok(object)
    }
}
