//! Parsing a line of TSV into a row, and checks for rows of every format.

use mopqdb::{Row, Value};

/// Parses `key TAB text`. Tabs after the first belong to the text.
pub fn tsv(line: &str) -> Result<Row, String> {
    let (key, text) = line
        .split_once('\t')
        .ok_or("has no tab; a line is `key TAB text` (for one text per line: --format txt)")?;
    check(Row::text(key, text))
}

/// Makes the checks of the engine here, where the line is known.
pub(super) fn check(row: Row) -> Result<Row, String> {
    row.check().map_err(|error| error.to_string())?;
    match &row.value {
        Value::Vector(vector) => match vector.iter().position(|value| !value.is_finite()) {
            Some(at) => Err(format!("value {at} of the vector is {}", vector[at])),
            None if vector.is_empty() => Err("the vector is empty".into()),
            None => Ok(row),
        },
        Value::Text(_) => Ok(row),
    }
}
