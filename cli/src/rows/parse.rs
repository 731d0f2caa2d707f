//! One line of JSONL or TSV to one row.

use mopqdb::{Row, Value};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonRow {
    key: Key,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    vector: Option<Vec<f32>>,
}

/// People's ids are often numbers: taken as their digits.
#[derive(Deserialize)]
#[serde(untagged)]
enum Key {
    Text(String),
    Whole(u64),
    Negative(i64),
}

/// `{"key": "...", "text": "..."}` or `{"key": "...", "vector": [...]}`.
pub fn jsonl(line: &str) -> Result<Row, String> {
    let row: JsonRow = serde_json::from_str(line).map_err(|error| {
        let what = error.to_string();
        // serde_json ends with "at line 1 column 7"; the line is ours to say.
        match what.split_once(" at line 1 column ") {
            Some((what, column)) => format!("{what}, at column {column}"),
            None => what,
        }
    })?;
    let key = match row.key {
        Key::Text(key) => key,
        Key::Whole(number) => number.to_string(),
        Key::Negative(number) => number.to_string(),
    };
    let value = match (row.text, row.vector) {
        (Some(text), None) => Value::Text(text),
        (None, Some(vector)) => Value::Vector(vector),
        (None, None) => return Err("has neither \"text\" nor \"vector\"".into()),
        (Some(_), Some(_)) => return Err("has both \"text\" and \"vector\"; give one".into()),
    };
    check(Row { key, value })
}

/// `key TAB text`. Tabs after the first belong to the text.
pub fn tsv(line: &str) -> Result<Row, String> {
    let (key, text) = line
        .split_once('\t')
        .ok_or("has no tab; a line is `key TAB text` (for a text a line: --format txt)")?;
    check(Row::text(key, text))
}

/// What the engine would refuse is refused here, where the line is known.
pub(super) fn check(row: Row) -> Result<Row, String> {
    if row.key.is_empty() {
        return Err("the key is empty".into());
    }
    if row.key.len() > mopqdb::MAX_KEY {
        return Err(format!(
            "the key has {} bytes; {} at most can be stored",
            row.key.len(),
            mopqdb::MAX_KEY
        ));
    }
    match &row.value {
        Value::Text(text) if text.len() > mopqdb::MAX_TEXT => Err(format!(
            "the text has {} bytes; {} at most can be stored",
            text.len(),
            mopqdb::MAX_TEXT
        )),
        Value::Vector(vector) => match vector.iter().position(|value| !value.is_finite()) {
            Some(at) => Err(format!("value {at} of the vector is {}", vector[at])),
            None if vector.is_empty() => Err("the vector is empty".into()),
            None => Ok(row),
        },
        Value::Text(_) => Ok(row),
    }
}
