//! Arguments from Python, with messages that name them where they are of a wrong type or out of range.

use crate::errors;
use mopqdb::ModelId;
use numpy::{PyArray1, PyArray2, PyArrayMethods as _, PyUntypedArrayMethods as _};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyString;

/// Declares a struct that Python gives as a tuple of its fields. (What pyo3 derives would hide the exception of a field.)
macro_rules! from_tuple {
    ($(#[$about:meta])* $name:ident { $($(#[$note:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        pub(crate) struct $name {
            $($(#[$note])* $field: $type,)*
        }

        impl pyo3::FromPyObject<'_, '_> for $name {
            type Error = pyo3::PyErr;

            fn extract(
                given: pyo3::Borrowed<'_, '_, pyo3::PyAny>,
            ) -> pyo3::PyResult<Self> {
                let ($($field,)*): ($($type,)*) = given.extract()?;
                Ok(Self { $($field,)* })
            }
        }
    };
}
pub(crate) use from_tuple;

/// A number of things.
#[derive(Clone, Copy)]
pub(crate) struct Count(pub(crate) usize);

impl FromPyObject<'_, '_> for Count {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let py = given.py();
        match given.extract::<usize>() {
            Ok(number) => Ok(Self(number)),
            Err(why) if why.is_instance_of::<PyOverflowError>(py) => {
                let message = format!("{} is not a number of things", given.repr()?);
                Err(errors::invalid(py, message))
            }
            Err(_) => Err(errors::wrong_type(
                py,
                format!("{} is not a whole number", shown(&given)),
            )),
        }
    }
}

/// A score.
#[derive(Clone, Copy)]
pub(crate) struct Score(pub(crate) f32);

impl FromPyObject<'_, '_> for Score {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let number = given.extract::<f32>();
        number.map(Self).map_err(|_| {
            let message = format!("{} is not a number", shown(&given));
            errors::wrong_type(given.py(), message)
        })
    }
}

/// A text, borrowed from Python.
pub(crate) struct Text(pub(crate) PyBackedStr);

impl FromPyObject<'_, '_> for Text {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let py = given.py();
        let Ok(text) = given.cast::<PyString>() else {
            let message = format!("{} is not a str", shown(&given));
            return Err(errors::wrong_type(py, message));
        };
        match PyBackedStr::try_from(text.to_owned()) {
            Ok(text) => Ok(Self(text)),
            Err(why) => {
                let message = format!("{} is not valid Unicode: {why}", shown(&given));
                Err(errors::invalid(py, message))
            }
        }
    }
}

impl Text {
    /// Borrows texts, as the engine takes them.
    pub(crate) fn all(texts: &[Self]) -> Vec<&str> {
        texts.iter().map(|text| &*text.0).collect()
    }
}

/// Returns texts of a sequence, each of which is called `what` in messages.
pub(crate) fn texts(given: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<Text>> {
    let py = given.py();
    if given.is_instance_of::<PyString>() {
        let message = format!("one str instead of a list of {what}s");
        return Err(errors::wrong_type(py, message));
    }
    let Ok(iterator) = given.try_iter() else {
        let message = format!("{} is not a list of {what}s", shown(given));
        return Err(errors::wrong_type(py, message));
    };
    let mut texts = Vec::with_capacity(given.len().unwrap_or(0));
    for (at, text) in iterator.enumerate() {
        let text: PyResult<Text> = text?.extract();
        texts.push(text.map_err(|why| errors::within(py, &format!("{what} {at}"), &why))?);
    }
    Ok(texts)
}

/// One vector or a text.
pub(crate) enum Asked {
    Text(Text),
    Vector(Vec<f32>),
}

impl Asked {
    pub(crate) fn of(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        match given.is_instance_of::<PyString>() {
            true => given.extract().map(Self::Text),
            false => vector(given).map(Self::Vector),
        }
    }

    pub(crate) fn query(&self) -> mopqdb::Query<'_> {
        match self {
            Self::Text(text) => mopqdb::Query::Text(&text.0),
            Self::Vector(vector) => vector.into(),
        }
    }

    pub(crate) fn value(self) -> mopqdb::Value {
        match self {
            Self::Text(text) => mopqdb::Value::Text(text.0.to_string()),
            Self::Vector(vector) => mopqdb::Value::Vector(vector),
        }
    }
}

/// One vector. An array of float32 is copied at once; what else is an array to numpy is converted first.
pub(crate) fn vector(given: &Bound<'_, PyAny>) -> PyResult<Vec<f32>> {
    if let Ok(array) = given.cast::<PyArray1<f32>>()
        && array.is_c_contiguous()
    {
        return Ok(array.to_vec()?);
    }
    let arrays = given.py().import("mopqdb._arrays")?;
    let array = arrays.call_method1("vector", (given,))?;
    Ok(array.cast_into::<PyArray1<f32>>()?.to_vec()?)
}

/// Vectors: their values one after the other, and the width.
pub(crate) fn vectors(given: &Bound<'_, PyAny>) -> PyResult<(Vec<f32>, usize)> {
    let converted;
    let array = match given.cast::<PyArray2<f32>>() {
        Ok(array) if array.is_c_contiguous() => array,
        _ => {
            let arrays = given.py().import("mopqdb._arrays")?;
            converted = arrays.call_method1("vectors", (given,))?;
            converted.cast::<PyArray2<f32>>()?
        }
    };
    Ok((array.to_vec()?, array.shape()[1]))
}

/// Returns a value's name in messages: its type and, where it is short, itself.
fn shown(given: &Bound<'_, PyAny>) -> String {
    let kind = given.get_type();
    let kind = kind.name().map_or("?".into(), |name| name.to_string());
    match given.repr() {
        Ok(repr) if repr.len().is_ok_and(|len| len <= 60) => format!("{repr} ({kind})"),
        _ => format!("a {kind}"),
    }
}

/// Returns a setting that has a name, or an exception that lists the names.
pub(crate) fn setting<T: Copy>(
    py: Python<'_>,
    what: &str,
    given: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> PyResult<T> {
    let found = all.iter().copied().find(|value| name(*value) == given);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|value| name(*value)).collect();
        let message = format!("{given:?} is not a {what}; use one of {}", names.join(", "));
        errors::invalid(py, message)
    })
}

/// Returns the model whose id begins so.
pub(crate) fn model(
    dir: &std::path::Path,
    prefix: Option<&Text>,
) -> mopqdb::Result<Option<ModelId>> {
    let found = prefix.map(|prefix| mopqdb::find_model(dir, &prefix.0));
    found.transpose()
}
