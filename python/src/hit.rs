//! A found row.

use crate::columns::{self, Fields};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// A row that a query found.
#[pyclass(frozen, eq, module = "mopqdb")]
#[derive(Clone, PartialEq)]
pub(crate) struct Hit {
    /// The key of the row.
    #[pyo3(get)]
    key: String,
    /// What hits are ordered by; larger is better.
    #[pyo3(get)]
    score: f32,
    /// The metric between the query and the stored vector; `None` where only codes or words were searched.
    #[pyo3(get)]
    similarity: Option<f32>,
    /// The BM25 score of the words, where words were searched.
    #[pyo3(get)]
    words: Option<f32>,
    /// `"codes"`, `"vectors"`, `"words"` or `"both"`, where words were searched.
    #[pyo3(get)]
    found_by: Option<String>,
    /// The text, in a database of texts.
    #[pyo3(get)]
    text: Option<String>,
    /// The place of the row in the order in which rows were accepted; decides between equal scores.
    #[pyo3(get)]
    seq: u64,
    fields: Fields,
}

impl From<mopqdb::Hit> for Hit {
    fn from(hit: mopqdb::Hit) -> Self {
        Self {
            key: hit.key,
            score: hit.score,
            similarity: hit.similarity,
            words: hit.words,
            found_by: hit.found_by.map(|by| by.name().into()),
            text: hit.text,
            seq: hit.seq.0,
            fields: hit.columns,
        }
    }
}

type Parts<'a, 'py> = (
    &'a str,
    f32,
    Option<f32>,
    Option<f32>,
    Option<&'a str>,
    Option<&'a str>,
    u64,
    Bound<'py, PyDict>,
);

#[pymethods]
impl Hit {
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a field of the hit, given by name"
    )]
    #[new]
    #[pyo3(signature = (key, score, similarity=None, words=None, found_by=None, text=None, seq=0, columns=None))]
    fn new(
        key: String,
        score: f32,
        similarity: Option<f32>,
        words: Option<f32>,
        found_by: Option<String>,
        text: Option<String>,
        seq: u64,
        columns: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Ok(Self {
            key,
            score,
            similarity,
            words,
            found_by,
            text,
            seq,
            fields: columns
                .map(columns::fields)
                .transpose()?
                .unwrap_or_default(),
        })
    }

    /// The values of columns, by name.
    #[getter]
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        columns::dict(py, &self.fields)
    }

    /// Returns the value of a column.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        columns::item(py, &self.fields, name)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let key = self.key.as_str().into_pyobject(py)?.repr()?;
        let text = match &self.text {
            None => String::new(),
            Some(text) => {
                let short: String = text.chars().take(60).collect();
                let dots = if short.len() < text.len() { "..." } else { "" };
                format!(", text={}{dots}", short.into_pyobject(py)?.repr()?)
            }
        };
        Ok(format!("Hit(key={key}, score={:.4}{text})", self.score))
    }

    fn __hash__(&self) -> u64 {
        self.seq
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let hit = slf.get();
        let fields: Parts<'_, 'py> = (
            &hit.key,
            hit.score,
            hit.similarity,
            hit.words,
            hit.found_by.as_deref(),
            hit.text.as_deref(),
            hit.seq,
            hit.columns(slf.py())?,
        );
        Ok((slf.get_type().into_any(), fields.into_pyobject(slf.py())?))
    }
}
