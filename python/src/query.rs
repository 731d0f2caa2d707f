//! Queries: hits for one, arrays for many.

use crate::call::detached;
use crate::errors;
use crate::hit::Hit;
use crate::input::{Asked, Count, Score, Text, setting, texts, vectors};
use mopqdb::{Filter, Fusion, Query, QueryOptions, Search, Snapshot};
use numpy::{IntoPyArray as _, PyArray2, PyArrayMethods as _};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

/// The options of a query, as a tuple, which is made faster than keywords are passed.
pub(crate) struct Options(QueryOptions);

type Given<'py> = (
    Count,
    Option<Text>,
    Option<Count>,
    Option<Count>,
    Option<Score>,
    Option<Score>,
    Option<Text>,
    Option<Bound<'py, PyAny>>,
    Option<Text>,
);

impl<'py> FromPyObject<'_, 'py> for Options {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = given.py();
        let (k, search, candidates, offset, min_score, min_similarity, fusion, keys, prefix): Given<
            'py,
        > = given.extract()?;
        let mut options = QueryOptions::top(k.0);
        if let Some(name) = search {
            options.search = setting(py, "way to search", &name.0, &Search::ALL, Search::name)?;
        }
        options.candidates = candidates.map(|count| count.0);
        options.offset = offset.map_or(0, |count| count.0);
        options.min_score = min_score.map(|score| score.0);
        options.min_similarity = min_similarity.map(|score| score.0);
        if let Some(name) = fusion {
            let all = [Fusion::Weighted, Fusion::ReciprocalRank];
            options.fusion = setting(py, "fusion", &name.0, &all, |fusion| match fusion {
                Fusion::ReciprocalRank => "rrf",
                _ => "weighted",
            })?;
        }
        options.filter = match (keys, prefix) {
            (None, None) => None,
            (Some(keys), None) => {
                let keys = texts(&keys, "key")?;
                Some(Filter::Keys(
                    keys.iter().map(|key| key.0.to_string()).collect(),
                ))
            }
            (None, Some(prefix)) => Some(Filter::Prefix(prefix.0.to_string())),
            (Some(_), Some(_)) => {
                let message = "keys and prefix are two restrictions; give one of them";
                return Err(errors::invalid(py, message));
            }
        };
        Ok(Self(options))
    }
}

/// Hits as a list.
fn listed(py: Python<'_>, hits: Vec<mopqdb::Hit>) -> PyResult<Bound<'_, PyList>> {
    PyList::new(py, hits.into_iter().map(Hit::from))
}

/// Answers one query.
pub(crate) fn one<'py>(
    snapshot: &Snapshot,
    asked: &Bound<'py, PyAny>,
    options: Options,
) -> PyResult<Bound<'py, PyList>> {
    let py = asked.py();
    let asked = Asked::of(asked)?;
    listed(
        py,
        detached(py, || snapshot.query_with(asked.query(), &options.0))?,
    )
}

/// Answers several queries, which share one pass over the rows.
pub(crate) fn batch<'py>(
    py: Python<'py>,
    snapshot: &Snapshot,
    asked: &[Bound<'py, PyAny>],
    options: Options,
) -> PyResult<Vec<Bound<'py, PyList>>> {
    let asked: Vec<Asked> = asked.iter().map(Asked::of).collect::<PyResult<_>>()?;
    let answers = detached(py, || {
        let queries: Vec<Query<'_>> = asked.iter().map(Asked::query).collect();
        snapshot.query_batch(&queries, &options.0)
    })?;
    answers.into_iter().map(|hits| listed(py, hits)).collect()
}

/// Answers many vectors by arrays (queries, k) of scores and keys. Where there are fewer hits, scores are NaN and keys None.
pub(crate) fn arrays<'py>(
    py: Python<'py>,
    snapshot: &Snapshot,
    asked: &Bound<'py, PyAny>,
    options: Options,
) -> PyResult<Bound<'py, PyTuple>> {
    let (values, dim) = vectors(asked)?;
    let answers = detached(py, || {
        let queries: Vec<Query<'_>> = values.chunks_exact(dim.max(1)).map(Query::Vector).collect();
        snapshot.query_batch(&queries, &options.0)
    })?;
    let k = options.0.k;
    let mut scores = vec![f32::NAN; answers.len() * k];
    let mut keys: Vec<Py<PyAny>> = Vec::with_capacity(answers.len() * k);
    for (hits, scores) in answers.iter().zip(scores.chunks_exact_mut(k)) {
        for (hit, score) in hits.iter().zip(scores) {
            *score = hit.score;
            keys.push(hit.key.as_str().into_pyobject(py)?.into_any().unbind());
        }
        keys.extend((hits.len()..k).map(|_| py.None()));
    }
    let shape = [answers.len(), k];
    let scores: Bound<'py, PyArray2<f32>> = scores.into_pyarray(py).reshape(shape)?;
    let keys: Bound<'py, PyArray2<Py<PyAny>>> = keys.into_pyarray(py).reshape(shape)?;
    (scores, keys).into_pyobject(py)
}
