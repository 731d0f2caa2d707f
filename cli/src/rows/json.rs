//! A JSON value of any type. Parsing accepts all JSON, so that later checks can name the field and the expected type.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A JSON value.
pub(super) enum Json {
    Null,
    Bool,
    /// An integer that fits 64 bits, signed or unsigned.
    Whole(i128),
    Fraction(f64),
    Text(String),
    Object,
    Array(Numbers),
}

/// The numbers of an array, up to the first invalid element.
#[derive(Default)]
pub(super) struct Numbers {
    pub(super) values: Vec<f32>,
    /// A description of the first invalid element.
    pub(super) bad: Option<String>,
}

impl Json {
    /// Returns a description of the type, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Whole(_) | Self::Fraction(_) => "a number",
            Self::Text(_) => "a string",
            Self::Object => "an object",
            Self::Array(_) => "an array",
        }
    }
}

impl Numbers {
    fn push(&mut self, element: Json) {
        let value = match element {
            Json::Whole(number) => number as f32,
            Json::Fraction(number) => number as f32,
            ref other => {
                self.bad = Some(format!("{}; a vector is an array of numbers", other.kind()));
                return;
            }
        };
        match element {
            // Integers of 64 bits are always within the range.
            Json::Fraction(number) if value.is_infinite() => {
                self.bad = Some(format!("{number:e}; a 32-bit float is at most 3.4e38"));
            }
            _ => self.values.push(value),
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(AnyJson)
    }
}

struct AnyJson;

impl<'de> Visitor<'de> for AnyJson {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Json, E> {
        Ok(Json::Bool)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Whole(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Whole(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Json, E> {
        Ok(Json::Fraction(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Json::Object)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut numbers = Numbers::default();
        while numbers.bad.is_none() {
            match seq.next_element()? {
                Some(element) => numbers.push(element),
                None => return Ok(Json::Array(numbers)),
            }
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Json::Array(numbers))
    }
}
