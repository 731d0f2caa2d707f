//! A stored row.

use crate::columns::{self, Fields};
use mopqdb::Value;
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// A row of a database: its key with its text or vector.
#[pyclass(frozen, eq, module = "mopqdb")]
#[derive(Clone, PartialEq)]
pub(crate) struct Row {
    /// The key.
    #[pyo3(get)]
    key: String,
    /// The text, in a database of texts.
    #[pyo3(get)]
    text: Option<String>,
    values: Option<Vec<f32>>,
    fields: Fields,
}

impl From<mopqdb::Row> for Row {
    fn from(row: mopqdb::Row) -> Self {
        let (text, values) = match row.value {
            Value::Text(text) => (Some(text), None),
            Value::Vector(values) => (None, Some(values)),
        };
        Self {
            key: row.key,
            text,
            values,
            fields: row.columns,
        }
    }
}

#[pymethods]
impl Row {
    #[new]
    #[pyo3(signature = (key, text=None, vector=None, columns=None))]
    fn new(
        key: String,
        text: Option<String>,
        vector: Option<&Bound<'_, PyAny>>,
        columns: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Ok(Self {
            key,
            text,
            values: vector.map(crate::input::vector).transpose()?,
            fields: columns
                .map(columns::fields)
                .transpose()?
                .unwrap_or_default(),
        })
    }

    /// The values of columns, by name; a column that is not there is null.
    #[getter]
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        columns::dict(py, &self.fields)
    }

    /// Returns the value of a column.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        columns::item(py, &self.fields, name)
    }

    /// The vector as it was given, up to rounding, in a database of vectors.
    #[getter]
    fn vector<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<f32>>> {
        let values = self.values.as_ref()?;
        Some(PyArray1::from_slice(py, values))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let key = self.key.as_str().into_pyobject(py)?.repr()?;
        Ok(match (&self.text, &self.values) {
            (Some(text), _) => {
                let short: String = text.chars().take(60).collect();
                let dots = if short.len() < text.len() { "..." } else { "" };
                let text = short.into_pyobject(py)?.repr()?;
                format!("Row(key={key}, text={text}{dots})")
            }
            (None, Some(values)) => format!("Row(key={key}, vector of {})", values.len()),
            (None, None) => format!("Row(key={key})"),
        })
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let row = slf.get();
        let py = slf.py();
        let fields = (
            &row.key,
            row.text.as_deref(),
            row.vector(py),
            row.columns(py)?,
        );
        Ok((slf.get_type().into_any(), fields.into_pyobject(slf.py())?))
    }
}
