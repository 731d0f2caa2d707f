//! Inserting rows, and learning codes from them.

use crate::call::watched;
use crate::columns;
use crate::errors;
use crate::handle::Open;
use crate::input::{self, Count, Text, from_tuple};
use mopqdb::quantizer::TrainPq;
use mopqdb::{Inserted, LearnOptions, Row, RowBatch, RowsKind, Value};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// New, replaced and unchanged rows.
pub(crate) type Counts = (u64, u64, u64);

pub(crate) fn counts(inserted: Inserted) -> Counts {
    (inserted.new, inserted.replaced, inserted.unchanged)
}

/// Inserts rows with their columns; Ctrl-C stops it before the rows are written.
pub(crate) fn rows(
    py: Python<'_>,
    open: &Open,
    keys: &Bound<'_, PyAny>,
    values: &Bound<'_, PyAny>,
    fields: &[Bound<'_, PyDict>],
) -> PyResult<Counts> {
    let keys = input::texts(keys, "key")?;
    let values: Vec<Value> = match open.snapshot().model().kind() {
        RowsKind::Text => {
            let texts = input::texts(values, "text")?.into_iter();
            texts.map(|text| Value::Text(text.0.to_string())).collect()
        }
        RowsKind::Vector => {
            let (values, dim) = input::vectors(values)?;
            let vectors = values.chunks_exact(dim.max(1));
            vectors
                .map(|vector| Value::Vector(vector.to_vec()))
                .collect()
        }
    };
    let mut rows = Vec::with_capacity(keys.len());
    for ((key, value), given) in keys.iter().zip(values).zip(fields) {
        let mut row = Row::new(&*key.0, value);
        let fields = columns::fields(given);
        row.columns =
            fields.map_err(|why| errors::within(py, &format!("key {:?}", &*key.0), &why))?;
        rows.push(row);
    }
    watched(py, None, |watch| {
        open.writer()?
            .insert_watched(RowBatch::from(&rows[..]), watch)
    })
    .map(counts)
}

/// Inserts vectors.
pub(crate) fn vectors(
    py: Python<'_>,
    open: &Open,
    keys: &Bound<'_, PyAny>,
    vectors: &Bound<'_, PyAny>,
) -> PyResult<Counts> {
    let keys = input::texts(keys, "key")?;
    let (values, dim) = input::vectors(vectors)?;
    if values.len() != keys.len() * dim {
        let message = format!(
            "{} vectors for {} keys",
            values.len() / dim.max(1),
            keys.len()
        );
        return Err(errors::invalid(py, message));
    }
    watched(py, None, |watch| {
        let keys = Text::all(&keys);
        let rows = RowBatch::vectors(&keys, &values)?;
        open.writer()?.insert_watched(rows, watch).map(counts)
    })
}

from_tuple! {
    /// What is learned from rows alone. What is not given has the engine's default.
    Learning {
        rotate: bool,
        subspaces: Option<Count>,
        codewords: Option<Count>,
        iterations: Option<Count>,
        seed: Option<Count>,
    }
}

/// Learns a quantizer from the rows, and returns the id of the model.
pub(crate) fn learn(
    py: Python<'_>,
    open: &Open,
    given: Learning,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    watched(py, progress, |watch| {
        let db = open.writer()?;
        let mut options = LearnOptions::automatic(db.model().dim()).rotate(given.rotate);
        let pq: &mut TrainPq = &mut options.pq;
        pq.subspaces = given.subspaces.map_or(pq.subspaces, |count| count.0);
        pq.codewords = given.codewords.map_or(pq.codewords, |count| count.0);
        pq.iterations = given.iterations.map_or(pq.iterations, |count| count.0);
        pq.seed = given.seed.map_or(pq.seed, |seed| seed.0 as u64);
        pq.watch = watch.clone();
        Ok(db.learn(&options)?.to_string())
    })
}
