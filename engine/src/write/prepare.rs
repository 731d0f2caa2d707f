//! From a caller's rows to the changes of a batch: checked, encoded and quantized, with no lock held.

use crate::columns::{Columns, Conflict};
use crate::error::{Error, Result};
use crate::log::Change;
use crate::quantizer::RowCodes;
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
    /// Codes of the rows put; empty without a quantizer.
    pub(crate) codes: RowCodes,
    /// The columns of the rows put. They are bound to the schema when the batch is logged.
    pub(crate) columns: Columns,
    /// For each change, the row of the snapshot that has its key.
    pub(crate) found: Vec<Option<Place>>,
    /// Whether the batch is void if another one has changed one of its rows meanwhile.
    pub(crate) only_if_unchanged: bool,
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
    let mut vectors = Vectors::default();
    let mut numbers = Vec::new();
    for at in 0..rows.len() {
        let key = rows.key(at);
        if prepared.inserted.replaced > 0 && last[key] != at {
            continue;
        }
        let found = snapshot.find(key)?;
        // The place of a row with the same text or vector, whose stored vector is taken over.
        let mut same = None;
        let mut own = Stored::none(model.precision());
        let (text, norm) = match rows.given(at) {
            Given::Text(text) => {
                if let Some(place) = found
                    && snapshot.text(place)?.as_deref() == Some(text)
                {
                    same = Some(place);
                }
                (Some(text), None)
            }
            Given::Vector(vector) => {
                let (unit, norm) = model.check_norm(vector, || describe(at, key))?;
                own = model.round(&unit, |_| describe(at, key))?;
                if let Some(place) = found
                    && snapshot.holds(place, vector, own.as_ref(), norm)?
                {
                    same = Some(place);
                }
                (None, norm)
            }
        };
        if let Some(place) = same
            && snapshot.has_columns(place, rows.columns(at))?
        {
            prepared.inserted.unchanged += 1;
            continue;
        }
        let norm = match same {
            Some(place) => snapshot.norm(place)?,
            None => norm,
        };
        (prepared.columns.push(rows.columns(at))).map_err(|conflict| refuse(at, key, &conflict))?;
        vectors.push(same, text, own);
        prepared.changes.push(Change::Put {
            key: key.into(),
            text: text.map(Into::into),
            norm,
        });
        prepared.found.push(found);
        numbers.push(at);
    }
    // A conflict that is known now is one before anything is encoded.
    (prepared.columns.fit(&snapshot.schema)).map_err(|conflict| {
        let at = numbers[conflict.row];
        refuse(at, rows.key(at), &conflict)
    })?;
    (prepared.vectors, prepared.codes) = vectors.stored(snapshot, watch)?;
    Ok(prepared)
}

fn refuse(at: usize, key: &str, conflict: &Conflict) -> Error {
    Error::invalid(format!("{}: {conflict}", describe(at, key)))
}

/// The vectors of the rows put: taken over, given, or to be encoded.
#[derive(Default)]
pub(super) struct Vectors<'t> {
    sources: Vec<Source>,
    texts: Vec<&'t str>,
}

enum Source {
    /// That of a row of the snapshot.
    Kept(Place),
    Given(Stored),
    /// What the encoder makes of the next text.
    Encoded,
}

impl<'t> Vectors<'t> {
    /// Takes over the stored vector of a row, with its codes.
    pub(super) fn keep(&mut self, place: Place) {
        self.sources.push(Source::Kept(place));
    }

    fn push(&mut self, same: Option<Place>, text: Option<&'t str>, own: Stored) {
        self.sources.push(match (same, text) {
            (Some(place), _) => Source::Kept(place),
            (None, None) => Source::Given(own),
            (None, Some(text)) => {
                self.texts.push(text);
                Source::Encoded
            }
        });
    }

    /// Returns the stored vectors and the codes of all rows, row-major.
    pub(super) fn stored(self, snapshot: &Snapshot, watch: &Watch) -> Result<(Stored, RowCodes)> {
        let (model, dim) = (&snapshot.model, snapshot.model.dim());
        let encoded = match self.texts.is_empty() {
            true => Stored::none(model.precision()),
            false => model.encode_keys_watched(&self.texts, watch)?,
        };
        let mut vectors = Stored::none(model.precision());
        let mut fresh = Stored::none(model.precision());
        vectors.reserve(self.sources.len(), dim);
        let mut next = 0;
        for source in &self.sources {
            let vector = match source {
                Source::Kept(place) => {
                    vectors.extend(snapshot.stored(*place)?);
                    continue;
                }
                Source::Given(own) => own.as_ref(),
                Source::Encoded => {
                    next += 1;
                    encoded.as_ref().rows(next - 1..next, dim)
                }
            };
            fresh.extend(vector);
            vectors.extend(vector);
        }
        // Codes that are ordered by cell are not found by row: there, kept rows are quantized again.
        let again = match model.cells() {
            Some(_) => &vectors,
            None => &fresh,
        };
        let quantized = match again.as_ref() {
            StoredRef::F32(values) => model.quantize_batch(values)?,
            rounded => model.quantize_batch(&rounded.widen())?,
        };
        let Some(shape) = model.shape().filter(|_| model.cells().is_none()) else {
            return Ok((vectors, quantized));
        };
        let width = shape.subspaces();
        let mut codes = vec![0; self.sources.len() * width];
        let mut quantized = quantized.codes.chunks_exact(width);
        for (source, code) in self.sources.iter().zip(codes.chunks_exact_mut(width)) {
            match source {
                Source::Kept(place) => {
                    (snapshot.part(place.part)).codes_of_row(place.row, shape, code)?;
                }
                Source::Given(_) | Source::Encoded => {
                    code.copy_from_slice(quantized.next().expect("a code for each new vector"));
                }
            }
        }
        let codes = RowCodes {
            codes,
            cells: Vec::new(),
        };
        Ok((vectors, codes))
    }
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
    pub(super) fn new(snapshot: &Arc<Snapshot>) -> Self {
        Self {
            snapshot: Arc::clone(snapshot),
            changes: Vec::new(),
            vectors: Stored::none(snapshot.model.precision()),
            codes: RowCodes::default(),
            columns: Columns::default(),
            found: Vec::new(),
            only_if_unchanged: false,
            inserted: Inserted::default(),
        }
    }
}

/// Describes a row for messages, with a shortened key.
fn describe(at: usize, key: &str) -> String {
    let key: String = key.chars().take(80).collect();
    format!("row {at} of the batch (key {key:?})")
}
