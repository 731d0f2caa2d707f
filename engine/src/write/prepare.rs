//! From a caller's rows to the changes of a batch: checked, encoded and quantized, with no lock held.

use crate::error::{Error, Result};
use crate::log::Change;
use crate::row::{Given, Inserted, RowBatch};
use crate::snapshot::{Place, Snapshot};
use crate::stored::{Stored, StoredRef};
use crate::watch::Watch;
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
    /// The counts known so far: unchanged rows, and rows replaced within the batch.
    pub(crate) inserted: Inserted,
}

/// Prepares an insert. Every row is checked before anything is encoded.
pub(crate) fn insert(
    snapshot: &Arc<Snapshot>,
    rows: RowBatch<'_>,
    watch: &Watch,
) -> Result<Prepared> {
    let model = &snapshot.model;
    let mut prepared = Prepared::new(snapshot);
    // Of rows with the same key the last counts.
    let mut last = HashMap::with_capacity(rows.len());
    for at in 0..rows.len() {
        (rows.check(at))
            .and_then(|()| model.check_kind(rows.given(at)))
            .map_err(|why| Error::invalid(format!("{}: {why}", describe(at, rows.key(at)))))?;
        if last.insert(rows.key(at), at).is_some() {
            prepared.inserted.replaced += 1;
        }
    }
    let mut texts = Vec::new();
    let mut vectors = Stored::none(model.precision());
    for at in 0..rows.len() {
        let key = rows.key(at);
        if prepared.inserted.replaced > 0 && last[key] != at {
            continue;
        }
        let found = snapshot.find(key)?;
        let (text, norm) = match rows.given(at) {
            Given::Text(text) => {
                if let Some(place) = found
                    && snapshot.text(place)?.as_deref() == Some(text)
                {
                    prepared.inserted.unchanged += 1;
                    continue;
                }
                texts.push(text);
                (Some(text.into()), None)
            }
            Given::Vector(vector) => {
                let (unit, norm) = model.check_norm(vector, || describe(at, key))?;
                let stored = model.round(&unit, |_| describe(at, key))?;
                if let Some(place) = found
                    && snapshot.holds(place, vector, stored.as_ref(), norm)?
                {
                    prepared.inserted.unchanged += 1;
                    continue;
                }
                vectors.extend(stored.as_ref());
                (None, norm)
            }
        };
        prepared.changes.push(Change::Put {
            key: key.into(),
            text,
            norm,
        });
        prepared.found.push(found);
    }
    prepared.vectors = match texts.is_empty() {
        true => vectors,
        false => model.encode_keys_watched(&texts, watch)?,
    };
    prepared.codes = match prepared.vectors.as_ref() {
        StoredRef::F32(values) => model.quantize_batch(values)?,
        rounded => model.quantize_batch(&rounded.widen())?,
    };
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
            vectors: Stored::none(snapshot.model.precision()),
            codes: Vec::new(),
            found: Vec::new(),
            inserted: Inserted::default(),
        }
    }
}

/// Describes a row for messages, with a shortened key.
fn describe(at: usize, key: &str) -> String {
    let key: String = key.chars().take(80).collect();
    format!("row {at} of the batch (key {key:?})")
}
