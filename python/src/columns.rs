//! Values of columns, from Python and to it.

use crate::errors;
use crate::input::Text;
use mopqdb::ColumnValue;
use pyo3::exceptions::{PyKeyError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::collections::BTreeMap;

/// Columns of a row by name.
pub(crate) type Fields = BTreeMap<String, ColumnValue>;

/// Returns a value as a column holds it. `bool` is not a number here, and an instant without a zone is of UTC.
pub(crate) fn value(given: &Bound<'_, PyAny>) -> PyResult<ColumnValue> {
    let py = given.py();
    if given.is_none() {
        Ok(ColumnValue::Null)
    } else if let Ok(truth) = given.cast::<PyBool>() {
        Ok(ColumnValue::Bool(truth.is_true()))
    } else if given.is_instance_of::<PyInt>() {
        let number: PyResult<i64> = given.extract();
        number.map(ColumnValue::Int).map_err(|why| {
            match why.is_instance_of::<PyOverflowError>(py) {
                true => errors::invalid(py, format!("{given} does not fit an integer of 64 bits")),
                false => why,
            }
        })
    } else if given.is_instance_of::<PyFloat>() {
        given.extract().map(ColumnValue::Float)
    } else if given.is_instance_of::<PyString>() {
        Ok(ColumnValue::String(given.extract::<Text>()?.0.to_string()))
    } else if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
        let items = crate::input::texts(given, "item")?;
        Ok(ColumnValue::Strings(
            items.iter().map(|item| item.0.to_string()).collect(),
        ))
    } else if given.hasattr("isoformat")? {
        instant(given)
    } else if given.hasattr("item")? {
        // A scalar of numpy.
        value(&given.call_method0("item")?)
    } else {
        let kind = given.get_type();
        Err(errors::wrong_type(
            py,
            format!(
                "a {} can't be the value of a column; give a bool, int, float, str, list of str, or datetime",
                kind.name()?
            ),
        ))
    }
}

/// A `date` or `datetime`.
fn instant(given: &Bound<'_, PyAny>) -> PyResult<ColumnValue> {
    let mut text: String = given.call_method0("isoformat")?.extract()?;
    let zone = given.getattr_opt("tzinfo")?;
    if zone.is_some_and(|zone| zone.is_none()) {
        text.push('Z');
    }
    ColumnValue::timestamp(&text).map_err(|why| errors::exception(given.py(), &why))
}

/// Returns the columns of one row, and names the column that has a value that can't be one.
pub(crate) fn fields(given: &Bound<'_, PyDict>) -> PyResult<Fields> {
    let py = given.py();
    let mut fields = Fields::new();
    for (name, given) in given.iter() {
        let name = name.extract::<Text>()?.0.to_string();
        let value = value(&given);
        let value = value.map_err(|why| errors::within(py, &format!("column {name:?}"), &why))?;
        fields.insert(name, value);
    }
    Ok(fields)
}

/// Returns a value as Python has it; an instant as a `datetime` of UTC.
pub(crate) fn python<'py>(py: Python<'py>, value: &ColumnValue) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        ColumnValue::Bool(truth) => PyBool::new(py, *truth).to_owned().into_any(),
        ColumnValue::Int(number) => number.into_pyobject(py)?.into_any(),
        ColumnValue::Float(number) => number.into_pyobject(py)?.into_any(),
        ColumnValue::String(text) => text.into_pyobject(py)?.into_any(),
        ColumnValue::Strings(texts) => PyList::new(py, texts)?.into_any(),
        ColumnValue::Timestamp(micros) => {
            let datetime = py.import("datetime")?;
            let utc = datetime.getattr("timezone")?.getattr("utc")?;
            let epoch = datetime
                .getattr("datetime")?
                .call1((1970, 1, 1, 0, 0, 0, 0, utc))?;
            let since = datetime.getattr("timedelta")?.call1((0, 0, *micros))?;
            epoch.add(since)?
        }
        _ => py.None().into_bound(py),
    })
}

/// Returns columns as a dict.
pub(crate) fn dict<'py>(py: Python<'py>, fields: &Fields) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in fields {
        dict.set_item(name, python(py, value)?)?;
    }
    Ok(dict)
}

/// Returns the value of one column, or raises `KeyError`.
pub(crate) fn item<'py>(
    py: Python<'py>,
    fields: &Fields,
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    match fields.get(name) {
        Some(value) => python(py, value),
        None => Err(PyKeyError::new_err(name.to_owned())),
    }
}
