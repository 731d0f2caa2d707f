//! From a caller's rows to the changes of a batch: checked, encoded and quantized, with no lock held.

use crate::error::{Error, Result};
use crate::log::Change;
use crate::row::{Inserted, Row, Value};
use crate::snapshot::{Place, Snapshot};
use crate::stored::Stored;
use std::collections::HashMap;
use std::sync::Arc;

/// A batch that can be queued.
pub(crate) struct Prepared {
    /// What it was prepared under: its model encoded and quantized the rows.
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) changes: Vec<Change>,
    /// The stored vectors of the rows put, row-major.
    pub(crate) vectors: Stored,
    /// Codes of the rows put, row-major; empty without a quantizer.
    pub(crate) codes: Vec<u8>,
    /// For each change, the row of the snapshot that has its key.
    pub(crate) found: Vec<Option<Place>>,
    /// What is known already: unchanged rows, and rows that a later one of the same batch replaces.
    pub(crate) inserted: Inserted,
}

/// Prepares an insert. Every row is checked before anything is encoded.
pub(crate) fn insert(snapshot: &Arc<Snapshot>, rows: &[Row]) -> Result<Prepared> {
    let model = &snapshot.model;
    let mut prepared = Prepared::new(snapshot);
    // Of rows with the same key the last counts.
    let mut last = HashMap::with_capacity(rows.len());
    for (at, row) in rows.iter().enumerate() {
        (model.check_row(row))
            .map_err(|why| Error::invalid(format!("{}: {why}", describe(at, row))))?;
        if last.insert(row.key.as_str(), at).is_some() {
            prepared.inserted.replaced += 1;
        }
    }
    let mut texts = Vec::new();
    let mut vectors = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        if prepared.inserted.replaced > 0 && last[row.key.as_str()] != at {
            continue;
        }
        let found = snapshot.find(&row.key)?;
        let text = match &row.value {
            Value::Text(text) => {
                if let Some(place) = found
                    && snapshot.text(place)?.as_deref() == Some(text)
                {
                    prepared.inserted.unchanged += 1;
                    continue;
                }
                texts.push(text.as_str());
                Some(text.as_str().into())
            }
            Value::Vector(vector) => {
                let vector = model.check_vector(vector, || describe(at, row))?;
                if let Some(place) = found
                    && same_bits(&snapshot.vector(place)?, &vector)
                {
                    prepared.inserted.unchanged += 1;
                    continue;
                }
                vectors.extend_from_slice(&vector);
                None
            }
        };
        prepared.changes.push(Change::Put {
            key: row.key.as_str().into(),
            text,
        });
        prepared.found.push(found);
    }
    if texts.is_empty() {
        prepared.codes = model.quantize_batch(&vectors)?;
        prepared.vectors = Stored::F32(vectors);
    } else {
        prepared.vectors = Stored::F16(model.encode_keys(&texts)?);
        prepared.codes = model.quantize_batch(&prepared.vectors.as_ref().widen())?;
    }
    Ok(prepared)
}

/// Prepares a delete: keys that are not there need no change.
pub(crate) fn delete(snapshot: &Arc<Snapshot>, keys: &[&str]) -> Result<Prepared> {
    let mut prepared = Prepared::new(snapshot);
    let mut seen = HashMap::new();
    for &key in keys {
        if seen.insert(key, ()).is_some() {
            continue;
        }
        let Some(place) = snapshot.find(key)? else {
            continue;
        };
        prepared.found.push(Some(place));
        prepared.changes.push(Change::Delete { key: key.into() });
    }
    Ok(prepared)
}

impl Prepared {
    fn new(snapshot: &Arc<Snapshot>) -> Self {
        Self {
            snapshot: Arc::clone(snapshot),
            changes: Vec::new(),
            vectors: Stored::F32(Vec::new()),
            codes: Vec::new(),
            found: Vec::new(),
            inserted: Inserted::default(),
        }
    }
}

/// A row in words, its key cut to what a message can hold.
fn describe(at: usize, row: &Row) -> String {
    let key: String = row.key.chars().take(80).collect();
    format!("row {at} of the batch (key {key:?})")
}

/// The same to the bit: 0 and -0 are two values.
fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits())
}
