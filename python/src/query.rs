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
pub(crate) struct Options {
    options: QueryOptions,
    columns: Option<Vec<Text>>,
}

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
    Option<Text>,
    Option<Bound<'py, PyAny>>,
);

impl<'py> FromPyObject<'_, 'py> for Options {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = given.py();
        let given: Given<'py> = given.extract()?;
        let (k, search, candidates, offset, min_score, min_similarity, fusion, ..) = given;
        let (.., keys, prefix, condition, columns) = given;
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
        options.filter = filter(py, keys.as_ref(), prefix.as_ref(), condition.as_ref())?;
        Ok(Self {
            options,
            columns: columns.map(|names| texts(&names, "column")).transpose()?,
        })
    }
}

impl Options {
    /// Returns the options for a database: hits come with all columns where none are named.
    fn on(self, snapshot: &Snapshot) -> QueryOptions {
        let names: Vec<String> = match self.columns {
            Some(names) => names.iter().map(|name| name.0.to_string()).collect(),
            None => snapshot
                .columns()
                .iter()
                .map(|column| column.name.clone())
                .collect(),
        };
        self.options.columns(names)
    }
}

/// Returns a filter of all restrictions that are given.
pub(crate) fn filter(
    py: Python<'_>,
    keys: Option<&Bound<'_, PyAny>>,
    prefix: Option<&Text>,
    condition: Option<&Text>,
) -> PyResult<Option<Filter>> {
    let keys = keys.map(|keys| texts(keys, "key")).transpose()?;
    let keys = keys.map(|keys| Filter::Keys(keys.iter().map(|key| key.0.to_string()).collect()));
    let prefix = prefix.map(|prefix| Filter::Prefix(prefix.0.to_string()));
    let condition = condition.map(|text| Filter::sql(&text.0)).transpose();
    let condition = condition.map_err(|why| errors::exception(py, &why))?;
    let given = [keys, prefix, condition].into_iter().flatten();
    Ok(given.reduce(Filter::and))
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
    let (asked, options) = (Asked::of(asked)?, options.on(snapshot));
    listed(
        py,
        detached(py, || snapshot.query_with(asked.query(), &options))?,
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
    let options = options.on(snapshot);
    let answers = detached(py, || {
        let queries: Vec<Query<'_>> = asked.iter().map(Asked::query).collect();
        snapshot.query_batch(&queries, &options)
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
    // Arrays have no place for columns.
    let (values, dim) = vectors(asked)?;
    let options = options.options;
    let answers = detached(py, || {
        let queries: Vec<Query<'_>> = values.chunks_exact(dim.max(1)).map(Query::Vector).collect();
        snapshot.query_batch(&queries, &options)
    })?;
    let k = options.k;
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

/// Returns the keys of the rows that pass a filter, in the order in which they were accepted.
pub(crate) fn keys(
    py: Python<'_>,
    snapshot: &Snapshot,
    filter: Option<&Filter>,
) -> PyResult<Vec<String>> {
    detached(py, || {
        let mut keys = Vec::new();
        let mut each = |key: &str| {
            keys.push(key.to_owned());
            Ok(())
        };
        match filter {
            Some(filter) => snapshot.for_each_key_where(filter, &mut each)?,
            None => snapshot.for_each_key("", &mut each)?,
        }
        Ok(keys)
    })
}
