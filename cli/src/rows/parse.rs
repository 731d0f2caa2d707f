//! One line of TSV to one row, and what is asked of the rows of every format.

use mopqdb::{Row, Value};

/// `key TAB text`. Tabs after the first belong to the text.
pub fn tsv(line: &str) -> Result<Row, String> {
    let (key, text) = line
        .split_once('\t')
        .ok_or("has no tab; a line is `key TAB text` (for one text per line: --format txt)")?;
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
