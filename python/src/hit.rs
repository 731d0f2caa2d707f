//! A found row.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

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
        }
    }
}

type Fields<'a> = (
    &'a str,
    f32,
    Option<f32>,
    Option<f32>,
    Option<&'a str>,
    Option<&'a str>,
    u64,
);

#[pymethods]
impl Hit {
    #[new]
    #[pyo3(signature = (key, score, similarity=None, words=None, found_by=None, text=None, seq=0))]
    fn new(
        key: String,
        score: f32,
        similarity: Option<f32>,
        words: Option<f32>,
        found_by: Option<String>,
        text: Option<String>,
        seq: u64,
    ) -> Self {
        Self {
            key,
            score,
            similarity,
            words,
            found_by,
            text,
            seq,
        }
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
        let fields: Fields<'_> = (
            &hit.key,
            hit.score,
            hit.similarity,
            hit.words,
            hit.found_by.as_deref(),
            hit.text.as_deref(),
            hit.seq,
        );
        Ok((slf.get_type().into_any(), fields.into_pyobject(slf.py())?))
    }
}
