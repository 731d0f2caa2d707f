//! One value of a column: its type, and the value, owned or borrowed.

use super::time;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The maximum length of a string in a column, in bytes. Longer strings belong in the text.
pub const MAX_STRING: usize = 1 << 20;
/// The maximum number of strings in a list.
pub const MAX_LIST: usize = 10_000;

/// The type of a column's values. Any value may be null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnType {
    /// True or false.
    Bool,
    /// A signed integer of 64 bits.
    Int,
    /// A finite `f64`.
    Float,
    /// A string, UTF-8.
    String,
    /// A list of strings.
    Strings,
    /// A point in time: microseconds since 1970 in UTC, as text in RFC 3339.
    Timestamp,
}

impl ColumnType {
    /// All types.
    pub const ALL: [Self; 6] = [
        Self::Bool,
        Self::Int,
        Self::Float,
        Self::String,
        Self::Strings,
        Self::Timestamp,
    ];

    /// Returns the name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Float => "float",
            Self::String => "string",
            Self::Strings => "strings",
            Self::Timestamp => "timestamp",
        }
    }

    /// Returns the number of the type on disk.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Bool => 1,
            Self::Int => 2,
            Self::Float => 3,
            Self::String => 4,
            Self::Strings => 5,
            Self::Timestamp => 6,
        }
    }

    /// Returns the type with this number on disk.
    pub(crate) fn of_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Returns the name with its article, for messages.
    pub(crate) fn described(self) -> &'static str {
        match self {
            Self::Bool => "a bool",
            Self::Int => "an int",
            Self::Float => "a float",
            Self::String => "a string",
            Self::Strings => "a list of strings",
            Self::Timestamp => "a timestamp",
        }
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ColumnType {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no column type {name:?}; the types are {names}")
        })
    }
}

/// A value of a column.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ColumnValue {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A finite number.
    Float(f64),
    /// A string.
    String(String),
    /// A list of strings.
    Strings(Vec<String>),
    /// Microseconds since 1970 in UTC.
    Timestamp(i64),
}

/// A [`ColumnValue`], borrowed.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ColumnValueRef<'a> {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A finite number.
    Float(f64),
    /// A string.
    String(&'a str),
    /// A list of strings.
    Strings(Vec<&'a str>),
    /// Microseconds since 1970 in UTC.
    Timestamp(i64),
}

impl ColumnValue {
    /// Returns the type; `None` for null.
    pub fn kind(&self) -> Option<ColumnType> {
        self.as_ref().kind()
    }

    /// Parses a point in time in RFC 3339: `2024-05-01T12:00:00.25+02:00`, or a date alone, which means midnight in
    /// UTC.
    ///
    /// # Errors
    /// [`Error::Invalid`], with what is expected.
    pub fn timestamp(text: &str) -> Result<Self> {
        time::parse(text)
            .map(Self::Timestamp)
            .map_err(Error::invalid)
    }

    /// Returns the value as JSON, in which a timestamp is a string in RFC 3339.
    pub fn to_json(&self) -> serde_json::Value {
        self.as_ref().to_json()
    }

    /// Returns the value, borrowed.
    pub fn as_ref(&self) -> ColumnValueRef<'_> {
        match self {
            Self::Null => ColumnValueRef::Null,
            Self::Bool(value) => ColumnValueRef::Bool(*value),
            Self::Int(value) => ColumnValueRef::Int(*value),
            Self::Float(value) => ColumnValueRef::Float(*value),
            Self::String(value) => ColumnValueRef::String(value),
            Self::Strings(values) => {
                ColumnValueRef::Strings(values.iter().map(String::as_str).collect())
            }
            Self::Timestamp(value) => ColumnValueRef::Timestamp(*value),
        }
    }

    /// Checks the requirements of stored values: numbers are finite, and nothing exceeds the limits.
    ///
    /// # Errors
    /// A message about what is wrong, without row and column.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.as_ref().check()
    }

    /// Returns the same value as another type, or `None` if the type can't hold it exactly. Null is a value of every
    /// type.
    pub(crate) fn convert(self, to: ColumnType) -> Option<Self> {
        use ColumnType as Type;
        Some(match (self, to) {
            (Self::Null, _) => Self::Null,
            (value, to) if value.kind() == Some(to) => value,
            (Self::Int(value), Type::Float) => Self::Float(exact_float(value)?),
            (Self::Float(value), Type::Int) => Self::Int(exact_int(value)?),
            (Self::Bool(value), Type::String) => Self::String(value.to_string()),
            (Self::Int(value), Type::String) => Self::String(value.to_string()),
            (Self::Timestamp(value), Type::String) => Self::String(time::format(value)),
            (Self::String(value), Type::Strings) => Self::Strings(vec![value]),
            (Self::String(value), Type::Timestamp) => Self::Timestamp(time::parse(&value).ok()?),
            (Self::String(value), Type::Int) => {
                let number: i64 = value.parse().ok()?;
                // "007" and "+7" would become "7".
                (number.to_string() == value).then_some(Self::Int(number))?
            }
            // A column may have had several types since the value was stored.
            (value @ (Self::Bool(_) | Self::Int(_) | Self::Timestamp(_)), Type::Strings) => {
                return value.convert(Type::String)?.convert(to);
            }
            (value @ Self::Float(_), Type::String | Type::Strings)
            | (value @ Self::String(_), Type::Float) => {
                return value.convert(Type::Int)?.convert(to);
            }
            _ => return None,
        })
    }
}

impl ColumnValueRef<'_> {
    /// Returns the type; `None` for null.
    pub fn kind(&self) -> Option<ColumnType> {
        Some(match self {
            Self::Null => return None,
            Self::Bool(_) => ColumnType::Bool,
            Self::Int(_) => ColumnType::Int,
            Self::Float(_) => ColumnType::Float,
            Self::String(_) => ColumnType::String,
            Self::Strings(_) => ColumnType::Strings,
            Self::Timestamp(_) => ColumnType::Timestamp,
        })
    }

    /// Returns the value, owned.
    pub fn to_value(&self) -> ColumnValue {
        match self {
            Self::Null => ColumnValue::Null,
            Self::Bool(value) => ColumnValue::Bool(*value),
            Self::Int(value) => ColumnValue::Int(*value),
            Self::Float(value) => ColumnValue::Float(*value),
            Self::String(value) => ColumnValue::String((*value).to_owned()),
            Self::Strings(values) => {
                ColumnValue::Strings(values.iter().map(|&value| value.to_owned()).collect())
            }
            Self::Timestamp(value) => ColumnValue::Timestamp(*value),
        }
    }

    /// Returns the value as JSON, in which a timestamp is a string in RFC 3339.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Bool(value) => (*value).into(),
            Self::Int(value) => (*value).into(),
            Self::Float(value) => (*value).into(),
            Self::String(value) => (*value).into(),
            Self::Strings(values) => values.clone().into(),
            Self::Timestamp(value) => time::format(*value).into(),
        }
    }

    /// Checks the requirements of stored values.
    ///
    /// # Errors
    /// A message about what is wrong, without row and column.
    pub(crate) fn check(&self) -> Result<(), String> {
        let string = |value: &str| match value.len() {
            len if len > MAX_STRING => Err(format!(
                "a string of {len} bytes is too long; at most {MAX_STRING} can be stored in a column, more in the text"
            )),
            _ => Ok(()),
        };
        match self {
            Self::Float(value) if !value.is_finite() => {
                Err(format!("{value} can't be stored; omit it"))
            }
            Self::String(value) => string(value),
            Self::Strings(values) if values.len() > MAX_LIST => Err(format!(
                "a list of {} strings is too long; at most {MAX_LIST} can be stored",
                values.len()
            )),
            Self::Strings(values) => values.iter().try_for_each(|value| string(value)),
            Self::Timestamp(value) if !time::is_storable(*value) => Err(format!(
                "{value} microseconds since 1970 are outside the years 0000 to 9999"
            )),
            _ => Ok(()),
        }
    }
}

/// Returns the float that equals an integer, if there is one.
pub(crate) fn exact_float(value: i64) -> Option<f64> {
    let float = value as f64;
    (exact_int(float) == Some(value)).then_some(float)
}

/// Returns the integer that equals a float, if there is one.
pub(crate) fn exact_int(value: f64) -> Option<i64> {
    // -2^63 is a float, 2^63 - 1 is not, so the range is half open.
    let within = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value);
    (within && value.fract() == 0.0).then_some(value as i64)
}

macro_rules! from {
    ($($from:ty => |$value:ident| $to:expr;)*) => {$(
        impl From<$from> for ColumnValue {
            fn from($value: $from) -> Self {
                $to
            }
        }
    )*};
}

from! {
    bool => |value| Self::Bool(value);
    i64 => |value| Self::Int(value);
    i32 => |value| Self::Int(value.into());
    u32 => |value| Self::Int(value.into());
    f64 => |value| Self::Float(value);
    f32 => |value| Self::Float(value.into());
    &str => |value| Self::String(value.to_owned());
    String => |value| Self::String(value);
    Vec<String> => |values| Self::Strings(values);
    Vec<&str> => |values| Self::Strings(values.into_iter().map(str::to_owned).collect());
}

impl<T: Into<Self>> From<Option<T>> for ColumnValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read_as_they_are_written() {
        for kind in ColumnType::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(ColumnType::of_number(kind.number()), Some(kind));
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("{:?}", kind.name()));
        }
        let error = "number".parse::<ColumnType>().unwrap_err();
        assert!(
            error.contains("bool, int, float, string, strings, timestamp"),
            "{error}"
        );
        assert_eq!(ColumnType::of_number(0), None);
    }

    #[test]
    fn a_conversion_loses_nothing_or_is_refused() {
        use ColumnType as Type;
        let exact = 1_i64 << 53;
        for (from, to, expected) in [
            (exact.into(), Type::Float, Some((exact as f64).into())),
            ((exact + 1).into(), Type::Float, None),
            (i64::MAX.into(), Type::Float, None),
            (i64::MIN.into(), Type::Float, Some((i64::MIN as f64).into())),
            (10.0.into(), Type::Int, Some(10_i64.into())),
            (10.5.into(), Type::Int, None),
            (9.3e18.into(), Type::Int, None),
            (true.into(), Type::String, Some("true".into())),
            (7.into(), Type::String, Some("7".into())),
            ("7".into(), Type::Int, Some(7.into())),
            ("007".into(), Type::Int, None),
            ("x".into(), Type::Strings, Some(vec!["x"].into())),
            (vec!["x"].into(), Type::String, None),
            (
                "1970-01-01T00:00:01Z".into(),
                Type::Timestamp,
                Some(ColumnValue::Timestamp(1_000_000)),
            ),
            ("yesterday".into(), Type::Timestamp, None),
            (ColumnValue::Null, Type::Bool, Some(ColumnValue::Null)),
        ] {
            let given: ColumnValue = from;
            assert_eq!(given.clone().convert(to), expected, "{given:?} as {to}");
        }
    }

    #[test]
    fn what_cannot_be_stored_is_refused() {
        for (value, why) in [
            (f64::NAN.into(), "NaN"),
            (f64::INFINITY.into(), "inf"),
            ("x".repeat(MAX_STRING + 1).into(), "1048577 bytes"),
            (vec!["x"; MAX_LIST + 1].into(), "10001 strings"),
            (ColumnValue::Timestamp(i64::MAX), "9999"),
        ] {
            let value: ColumnValue = value;
            assert!(value.check().unwrap_err().contains(why));
        }
        assert_eq!(ColumnValue::from(vec!["x"; MAX_LIST]).check(), Ok(()));
    }
}
