//! What columns there are in rows of JSON or of plain text, and their values.

use super::batch::{fit, mismatch};
use super::schema::{MAX_COLUMNS, check_name};
use super::value::{ColumnType, ColumnValue};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Rows from which types are inferred.
pub const SAMPLE_ROWS: usize = 4096;

/// What rows are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notation {
    /// A value says what it is. A string that looks like a point in time is a string.
    Json,
    /// CSV and TSV: every value is a string, and is what it looks like. An empty one is null.
    Text,
}

/// Finds the type of each column from the first rows.
#[derive(Debug)]
pub struct Inference {
    notation: Notation,
    /// In the order of their names; `None` while all values were null.
    columns: BTreeMap<String, Option<ColumnType>>,
}

impl Inference {
    /// Nothing is known yet.
    pub fn new(notation: Notation) -> Self {
        Self {
            notation,
            columns: BTreeMap::new(),
        }
    }

    /// Looks at a row: its fields except key, text and vector. A row that is refused leaves nothing behind.
    ///
    /// # Errors
    /// A value that no column can have, or one of another type than those before; what is wrong, with the name of the column.
    pub fn observe(&mut self, row: &Map<String, Value>) -> Result<(), String> {
        let mut seen = Vec::new();
        for (name, value) in flatten(row)? {
            let is = kind(value, self.notation).map_err(|why| format!("column {name:?}: {why}"))?;
            let known = self.columns.get(&name).copied().flatten();
            let known = match (known, is) {
                (known, None) => known,
                (None, is) => is,
                (Some(known), Some(is)) => Some(both(known, is, self.notation).ok_or_else(|| {
                    format!(
                        "column {name:?}: {value} is {}, and rows before have {} there; give all of them as strings, or declare the column",
                        is.described(),
                        known.described()
                    )
                })?),
            };
            seen.push((name, known));
        }
        let is_new = |(name, _): &&(String, _)| !self.columns.contains_key(name);
        let columns = self.columns.len() + seen.iter().filter(is_new).count();
        if columns > MAX_COLUMNS {
            return Err(format!(
                "the rows have {columns} columns, and {MAX_COLUMNS} are the most; leave some out"
            ));
        }
        self.columns.extend(seen);
        Ok(())
    }

    /// Returns the columns that had values, by name.
    pub fn finish(self) -> Vec<(String, ColumnType)> {
        let known = |(name, kind): (String, Option<ColumnType>)| Some((name, kind?));
        self.columns.into_iter().filter_map(known).collect()
    }
}

/// The type of two types of values.
fn both(a: ColumnType, b: ColumnType, notation: Notation) -> Option<ColumnType> {
    use ColumnType as Type;
    match (a, b) {
        (a, b) if a == b => Some(a),
        (Type::Int, Type::Float) | (Type::Float, Type::Int) => Some(Type::Float),
        // What looks like a number may still be a word.
        _ if notation == Notation::Text => Some(Type::String),
        _ => None,
    }
}

/// What a value is, `None` of null.
fn kind(value: &Value, notation: Notation) -> Result<Option<ColumnType>, String> {
    Ok(Some(match value {
        Value::Null => return Ok(None),
        Value::Bool(_) => ColumnType::Bool,
        Value::Number(number) if number.is_i64() => ColumnType::Int,
        Value::Number(number) if number.is_u64() => return Err(beyond(value)),
        Value::Number(_) => ColumnType::Float,
        Value::String(text) if notation == Notation::Text => match &text[..] {
            "" => return Ok(None),
            "true" | "false" => ColumnType::Bool,
            text if int(text).is_some() => ColumnType::Int,
            text if float(text).is_some() => ColumnType::Float,
            _ => ColumnType::String,
        },
        Value::String(_) => ColumnType::String,
        Value::Array(items) => {
            let other = items.iter().find(|item| !item.is_string());
            match other {
                None => ColumnType::Strings,
                Some(other) => {
                    return Err(format!(
                        "{} is in a list, and lists are of strings alone; give its items as strings, or leave it out",
                        shown(other)
                    ));
                }
            }
        }
        Value::Object(_) => {
            return Err("an object is no value; its fields are columns of their own".to_owned());
        }
    }))
}

fn beyond(value: &Value) -> String {
    format!("{value} is beyond the integers of 64 bits; give it as a string")
}

fn shown(value: &Value) -> &'static str {
    match value {
        Value::Null => "a null",
        Value::Bool(_) => "a bool",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// An int as we write it: `007` is none.
fn int(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// A float as JSON has it: neither `inf` nor `0x1p3`, nor an int with a sign or with zeros before it.
fn float(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let padded = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
    let has_mark = digits.contains(['.', 'e', 'E']);
    if padded || !has_mark || !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|float: &f64| float.is_finite())
}

/// The columns of a row: fields of objects within it are named `a.b`.
///
/// # Errors
/// Two fields that have one name, a name that can't be one of a column, or too many.
pub(crate) fn flatten(row: &Map<String, Value>) -> Result<Vec<(String, &Value)>, String> {
    let mut found = BTreeMap::new();
    // JSON was read before this, so objects nest no deeper than its reader lets them.
    fn walk<'v>(
        prefix: &str,
        fields: &'v Map<String, Value>,
        found: &mut BTreeMap<String, &'v Value>,
    ) -> Result<(), String> {
        for (name, value) in fields {
            let path = match prefix {
                "" => name.clone(),
                prefix => format!("{prefix}.{name}"),
            };
            match value {
                Value::Object(fields) => walk(&path, fields, found)?,
                value => {
                    check_name(&path)?;
                    if found.insert(path.clone(), value).is_some() {
                        return Err(format!("column {path:?} is there twice in one row"));
                    }
                }
            }
            if found.len() > MAX_COLUMNS {
                return Err(format!(
                    "the row has more than {MAX_COLUMNS} columns; leave some out"
                ));
            }
        }
        Ok(())
    }
    walk("", row, &mut found)?;
    Ok(found.into_iter().collect())
}

/// Turns a value of a row into one of a column of this type.
///
/// # Errors
/// What is wrong, and what to do instead; without the name of the column.
pub fn convert(value: &Value, kind: ColumnType, notation: Notation) -> Result<ColumnValue, String> {
    let given = match (value, kind) {
        (Value::Null, _) => ColumnValue::Null,
        (Value::String(text), kind) if notation == Notation::Text => {
            return of_text(text, kind);
        }
        (Value::Bool(value), _) => ColumnValue::Bool(*value),
        (Value::Number(number), _) => match (number.as_i64(), number.as_f64()) {
            (Some(value), _) => ColumnValue::Int(value),
            (None, Some(value)) if !number.is_u64() => ColumnValue::Float(value),
            _ => return Err(beyond(value)),
        },
        (Value::String(text), _) => ColumnValue::String(text.clone()),
        (Value::Array(items), _) => {
            let item = |item: &Value| match item {
                Value::String(text) => Ok(text.clone()),
                other => Err(format!(
                    "{} is in a list, and lists are of strings alone; give its items as strings, or leave it out",
                    shown(other)
                )),
            };
            ColumnValue::Strings(items.iter().map(item).collect::<Result<_, _>>()?)
        }
        (Value::Object(_), _) => {
            return Err("an object is no value; its fields are columns of their own".to_owned());
        }
    };
    match fit(given, kind) {
        Ok(value) => value.check().map(|()| value),
        Err(given) => Err(mismatch(&given, kind)),
    }
}

/// A value of CSV or TSV.
fn of_text(text: &str, kind: ColumnType) -> Result<ColumnValue, String> {
    use ColumnType as Type;
    let value = match (text, kind) {
        ("", _) => Some(ColumnValue::Null),
        ("true", Type::Bool) => Some(ColumnValue::Bool(true)),
        ("false", Type::Bool) => Some(ColumnValue::Bool(false)),
        (text, Type::Int) => int(text).map(ColumnValue::Int),
        (text, Type::Float) => match int(text) {
            Some(int) => ColumnValue::Int(int).convert(Type::Float),
            None => float(text).map(ColumnValue::Float),
        },
        (text, Type::String) => Some(text.into()),
        (text, Type::Timestamp) => Some(ColumnValue::Timestamp(super::time::parse(text)?)),
        (_, Type::Bool | Type::Strings) => None,
    };
    let value = value.ok_or_else(|| match kind {
        Type::Strings => {
            format!("{text:?} is a text, and the column is of type strings, which CSV and TSV do not have; use JSON")
        }
        kind => mismatch(&text.into(), kind),
    })?;
    value.check().map(|()| value)
}

/// Returns the columns of a row by name. Types are those that are known, else what a value is by itself; a null of a column
/// that is not known is left out.
///
/// # Errors
/// What is wrong, with the name of the column.
pub fn row(
    fields: &Map<String, Value>,
    known: &BTreeMap<String, ColumnType>,
    notation: Notation,
) -> Result<Vec<(String, ColumnValue)>, String> {
    let mut values = Vec::new();
    for (name, value) in flatten(fields)? {
        let wrong = |why: String| format!("column {name:?}: {why}");
        let is = match known.get(&name) {
            Some(&is) => is,
            None => match kind(value, notation).map_err(wrong)? {
                Some(is) => is,
                None => continue,
            },
        };
        let value = convert(value, is, notation).map_err(wrong)?;
        values.push((name, value));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(fields) => fields,
            other => panic!("{other}"),
        }
    }

    fn infer(notation: Notation, rows: &[Value]) -> Result<Vec<(String, ColumnType)>, String> {
        let mut inference = Inference::new(notation);
        for row in rows {
            inference.observe(&object(row.clone()))?;
        }
        Ok(inference.finish())
    }

    #[test]
    fn types_are_those_of_the_values() {
        let rows = [
            json!({"n": 10, "f": 1, "s": "2024-05-01T12:00:00Z", "o": {"a": true, "b": {"c": "x"}}}),
            json!({"n": null, "f": 10.5, "t": [], "nothing": null, "o": {}}),
            json!({"t": ["x"], "n": -3}),
        ];
        let named = |name: &str, kind| (name.to_owned(), kind);
        assert_eq!(
            infer(Notation::Json, &rows).unwrap(),
            [
                named("f", ColumnType::Float),
                named("n", ColumnType::Int),
                named("o.a", ColumnType::Bool),
                named("o.b.c", ColumnType::String),
                named("s", ColumnType::String),
                named("t", ColumnType::Strings),
            ]
        );
    }

    #[test]
    fn texts_are_what_they_look_like() {
        for (values, expected) in [
            (&["1", "", "-7"][..], Some(ColumnType::Int)),
            (&["1", "2.5"], Some(ColumnType::Float)),
            (&["1e3"], Some(ColumnType::Float)),
            (&["1", "x"], Some(ColumnType::String)),
            (&["true", "false"], Some(ColumnType::Bool)),
            (&["true", "1"], Some(ColumnType::String)),
            (&["007"], Some(ColumnType::String)),
            (&["+7"], Some(ColumnType::String)),
            (&["00.5"], Some(ColumnType::String)),
            (&["0.5", "0"], Some(ColumnType::Float)),
            (&["inf"], Some(ColumnType::String)),
            (&["9223372036854775808"], Some(ColumnType::String)),
            (&["", ""], None),
        ] {
            let rows: Vec<_> = values.iter().map(|value| json!({"c": value})).collect();
            let inferred = infer(Notation::Text, &rows).unwrap();
            assert_eq!(
                inferred.first().map(|(_, kind)| *kind),
                expected,
                "{values:?}"
            );
            for value in values.iter().filter(|_| expected.is_some()) {
                let kind = expected.unwrap();
                assert!(
                    convert(&json!(value), kind, Notation::Text).is_ok(),
                    "{value}"
                );
            }
        }
    }

    #[test]
    fn what_columns_cannot_have_is_named() {
        for (rows, why) in [
            (
                vec![json!({"a": 1}), json!({"a": "x"})],
                "column \"a\": \"x\" is a string, and rows before have an int",
            ),
            (
                vec![json!({"a": {"b": [1]}})],
                "column \"a.b\": a number is in a list",
            ),
            (vec![json!({"a": [["x"]]})], "a list is in a list"),
            (vec![json!({"a": ["x", null]})], "a null is in a list"),
            (vec![json!({"a": [{"b": 1}]})], "an object is in a list"),
            (vec![json!({"a": u64::MAX})], "beyond the integers"),
            (
                vec![json!({"a": {"b": 1}, "a.b": 2})],
                "\"a.b\" is there twice",
            ),
            (vec![json!({"text": 1})], "part of every row"),
            (vec![json!({"": 1})], "1 to 255 bytes"),
        ] {
            let error = infer(Notation::Json, &rows).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let wide: Map<String, Value> = (0..=MAX_COLUMNS)
            .map(|at| (format!("c{at}"), json!(1)))
            .collect();
        assert!(flatten(&wide).unwrap_err().contains("more than 1000"));
        let mut inference = Inference::new(Notation::Json);
        for at in 0..MAX_COLUMNS {
            inference
                .observe(&object(json!({format!("c{at}"): 1})))
                .unwrap();
        }
        assert!(inference.observe(&object(json!({"more": 1}))).is_err());
        let mut inference = Inference::new(Notation::Json);
        let refused = json!({"a": 1, "b": [1]});
        assert!(inference.observe(&object(refused)).is_err());
        inference.observe(&object(json!({"a": "x"}))).unwrap();
        assert_eq!(
            inference.finish(),
            [("a".to_owned(), ColumnType::String)],
            "what was refused counts for nothing"
        );
    }

    #[test]
    fn later_values_are_of_the_type_or_refused_with_a_remedy() {
        let is = |value: Value, kind| convert(&value, kind, Notation::Json);
        assert_eq!(is(json!(10), ColumnType::Float), Ok(10.0.into()));
        assert_eq!(is(json!(10.0), ColumnType::Int), Ok(10.into()));
        assert_eq!(is(json!(null), ColumnType::Int), Ok(ColumnValue::Null));
        let micros = ColumnValue::Timestamp(0);
        assert_eq!(is(json!("1970-01-01"), ColumnType::Timestamp), Ok(micros));
        for (value, kind, why) in [
            (json!(10.5), ColumnType::Int, "retype"),
            (json!("x"), ColumnType::Int, "give an int"),
            (json!(7), ColumnType::String, "give a string"),
            (json!("x"), ColumnType::Strings, "give a list of strings"),
            (json!("x"), ColumnType::Timestamp, "2024-05-01T12:00:00Z"),
            (json!(u64::MAX), ColumnType::Float, "beyond"),
            (json!([1]), ColumnType::Strings, "strings alone"),
            (
                json!("x".repeat(1 << 21)),
                ColumnType::String,
                "2097152 bytes",
            ),
        ] {
            let error = is(value, kind).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let error = convert(&json!("x"), ColumnType::Bool, Notation::Text).unwrap_err();
        assert!(error.contains("give a bool"), "{error}");
    }

    #[test]
    fn what_is_known_of_a_column_says_more_than_its_value() {
        let fields = object(json!({"at": "1970-01-01", "n": 1, "late": true, "none": null}));
        let known = [
            ("at".to_owned(), ColumnType::Timestamp),
            ("n".to_owned(), ColumnType::Float),
        ];
        let values = row(&fields, &known.into(), Notation::Json).unwrap();
        let expected = [
            ("at", ColumnValue::Timestamp(0)),
            ("late", true.into()),
            ("n", 1.0.into()),
        ];
        assert_eq!(
            values,
            expected.map(|(name, value)| (name.to_owned(), value))
        );
        let fields = object(json!({"n": "x"}));
        let values = row(&fields, &BTreeMap::new(), Notation::Json);
        assert!(values.is_ok());
        let known = [("n".to_owned(), ColumnType::Int)].into();
        let error = row(&fields, &known, Notation::Json).unwrap_err();
        assert!(
            error.starts_with("column \"n\": \"x\" is a string"),
            "{error}"
        );
    }
}
