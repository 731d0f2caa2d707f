//! The rows of a database as a query would search them under any model. Codes and vectors of the active model are read
//! in place. For another model, codes are computed and held in memory, and so are vectors if its encoder differs.

use super::Steps;
use super::coded::in_parallel;
use crate::error::{Error, Result};
use crate::ids::{RowId, Seq};
use crate::model::Model;
use crate::quantizer::{CellOrder, CellStarts, Quantizer, RowCodes};
use crate::query::searched::Searched;
use crate::scan::Scanner;
use crate::snapshot::Snapshot;
use crate::stored::{Stored, StoredRef};
use crate::threads;
use crate::view::part::Part;
use crate::view::searchable::Searchable;
use crate::words::{Indexed, Words};
use std::ops::Range;
use std::sync::OnceLock;

/// Texts encoded per batch.
const TEXTS: usize = 256;
/// Rows quantized per batch; a multiple of the block size.
const QUANTIZED: usize = 1 << 14;

/// Some rows, with what is held in memory for them.
pub(super) struct Held<'a> {
    rows: Rows<'a>,
    dim: usize,
    /// Packed codes, and their order where the quantizer has cells; `None` means that the part's own
    /// codes are used.
    coded: Option<(Vec<u8>, Option<CellOrder>)>,
    /// The position of each row, where codes are ordered by cell; found when it is first needed.
    positions: OnceLock<Vec<u32>>,
}

enum Rows<'a> {
    /// The vectors that are stored.
    Part(Part<'a>),
    /// Vectors (rows, dim) of another encoder.
    Encoded(Part<'a>, Stored),
    /// Rows that are in no database: (rows, dim).
    Values(&'a [f32]),
}

impl<'a> Held<'a> {
    /// Returns the vectors in memory (rows, dim), in the order of their numbers.
    pub(super) fn values(values: &'a [f32], dim: usize) -> Self {
        Self {
            rows: Rows::Values(values),
            dim,
            coded: None,
            positions: OnceLock::new(),
        }
    }

    /// Computes and holds the codes that a quantizer gives these rows.
    pub(super) fn quantized(
        mut self,
        quantizer: &Quantizer,
        scanner: &Scanner,
        steps: &Steps,
    ) -> Result<Self> {
        let subspaces = quantizer.shape().subspaces();
        let (mut vectors, mut codes, mut blocks) = (Vec::new(), Vec::new(), Vec::new());
        let (mut all, mut cells) = (RowCodes::default(), Vec::new());
        for start in (0..self.len()).step_by(QUANTIZED) {
            let rows = start..(start + QUANTIZED).min(self.len());
            vectors.clear();
            self.vectors(rows.clone())?.widen_into(&mut vectors);
            codes.resize(rows.len() * subspaces, 0);
            let threads = scanner.threads();
            match quantizer.cells() {
                None => {
                    in_parallel(threads, &vectors, self.dim, &mut codes, |rows, codes| {
                        quantizer.quantize(rows, codes)
                    })?;
                    quantizer.shape().pack(&codes, &mut blocks);
                }
                Some(_) => {
                    let share = rows.len().div_ceil(threads.max(1)).max(1) * self.dim;
                    let parts = threads::share_out("mopqdb-eval", vectors.chunks(share), |rows| {
                        quantizer.row_codes(rows)
                    })?;
                    for part in &parts {
                        all.codes.extend_from_slice(&part.codes);
                        cells.extend_from_slice(&part.cells);
                    }
                }
            }
            steps.add(rows.len() as u64)?;
        }
        let order = quantizer.cells().map(|of| {
            let order = CellOrder::of(&cells, of.len() as u32);
            quantizer
                .shape()
                .pack(&all.gather(&order.rows, subspaces), &mut blocks);
            order
        });
        self.coded = Some((blocks, order));
        Ok(self)
    }
}

impl Held<'_> {
    /// Returns the position of a row among the codes.
    pub(super) fn position(&self, row: usize) -> Result<usize> {
        if self.cell_starts().is_none() {
            return Ok(row);
        }
        let positions = match self.positions.get() {
            Some(positions) => positions,
            None => {
                let mut positions = vec![0; self.len()];
                for (&row, position) in self.rows_at(0..self.len())?.iter().zip(0..) {
                    positions[row as usize] = position;
                }
                self.positions.get_or_init(|| positions)
            }
        };
        Ok(positions[row] as usize)
    }

    /// Returns the cell of a position; `None` without cells.
    pub(super) fn cell_at(&self, position: usize) -> Option<u32> {
        let starts = self.cell_starts()?;
        let before = starts
            .entries()
            .partition_point(|entry| entry.1 as usize <= position);
        Some(starts.cell(before - 1))
    }
}

impl Searchable for Held<'_> {
    fn len(&self) -> usize {
        match &self.rows {
            Rows::Part(part) | Rows::Encoded(part, _) => part.len(),
            Rows::Values(values) => values.len() / self.dim,
        }
    }

    fn live(&self) -> Option<&[u64]> {
        match &self.rows {
            Rows::Part(part) | Rows::Encoded(part, _) => (*part).live().words(),
            Rows::Values(_) => None,
        }
    }

    fn cell_starts(&self) -> Option<&CellStarts> {
        match (&self.coded, &self.rows) {
            (Some((_, order)), _) => order.as_ref().map(|order| &order.starts),
            (None, Rows::Part(part) | Rows::Encoded(part, _)) => part.cell_starts(),
            (None, Rows::Values(_)) => None,
        }
    }

    fn rows_at(&self, positions: Range<usize>) -> Result<&[u32]> {
        match (&self.coded, &self.rows) {
            (Some((_, Some(order))), _) => Ok(&order.rows[positions]),
            (None, Rows::Part(part) | Rows::Encoded(part, _)) => part.rows_at(positions),
            _ => panic!("an order is asked of codes that have none"),
        }
    }

    fn blocks(&self, blocks: Range<usize>) -> Result<&[u8]> {
        match (&self.coded, &self.rows) {
            (Some((all, _)), _) => {
                let bytes = all.len() / self.len().div_ceil(64);
                Ok(&all[blocks.start * bytes..blocks.end * bytes])
            }
            (None, Rows::Part(part) | Rows::Encoded(part, _)) => part.blocks(blocks),
            (None, Rows::Values(_)) => panic!("rows without codes were ranked by codes"),
        }
    }

    fn prefetch(&self, rows: &[u32]) {
        if let Rows::Part(part) = &self.rows {
            part.prefetch(rows);
        }
    }

    fn vectors(&self, rows: Range<usize>) -> Result<StoredRef<'_>> {
        match &self.rows {
            Rows::Part(part) => part.vectors(rows),
            Rows::Encoded(_, encoded) => Ok(encoded.as_ref().rows(rows, self.dim)),
            Rows::Values(all) => Ok(StoredRef::F32(all).rows(rows, self.dim)),
        }
    }

    fn words(&self, words: &Words) -> Option<&dyn Indexed> {
        match &self.rows {
            Rows::Part(part) | Rows::Encoded(part, _) => (*part).words(words),
            Rows::Values(_) => None,
        }
    }

    fn has_words(&self) -> bool {
        match &self.rows {
            Rows::Part(part) | Rows::Encoded(part, _) => (*part).has_words(),
            Rows::Values(_) => false,
        }
    }

    fn seq(&self, row: RowId) -> Result<Seq> {
        match &self.rows {
            Rows::Part(part) | Rows::Encoded(part, _) => part.seq(row),
            Rows::Values(_) => Ok(Seq(u64::from(row.0))),
        }
    }
}

/// Returns the rows of a snapshot as this model searches them.
pub(super) fn under<'a>(
    snapshot: &'a Snapshot,
    model: &'a Model,
    memory_limit: usize,
    steps: &Steps,
) -> Result<Searched<'a, Held<'a>>> {
    let scanner = &*snapshot.scanner;
    let active = snapshot.model();
    let encodes = model.encoder_id() != active.encoder_id();
    if !encodes && model.dim() != active.dim() {
        return Err(Error::model(
            "the model takes vectors of a different width than the stored vectors",
        ));
    }
    if encodes {
        let bytes = snapshot.rows() as usize * model.dim() * model.precision().width();
        if bytes > memory_limit {
            return Err(Error::invalid(format!(
                "the vectors of another encoder take {} MB of memory, and the limit is {} MB; raise it, or rebuild to the model first",
                bytes >> 20,
                memory_limit >> 20
            )));
        }
    }
    let held = |part: Part<'a>| {
        let held = Held {
            rows: match encodes {
                true => Rows::Encoded(part, encoded(part, model, steps)?),
                false => Rows::Part(part),
            },
            dim: model.dim(),
            coded: None,
            positions: OnceLock::new(),
        };
        match model.quantizer() {
            Some(quantizer) if are_codes_made(snapshot, model) => {
                held.quantized(quantizer, scanner, steps)
            }
            _ => Ok(held),
        }
    };
    Ok(Searched {
        parts: snapshot.parts().map(held).collect::<Result<_>>()?,
        quantizer: model.quantizer(),
        scorer: model.scorer(),
        words: active.words().map(|words| &**words),
        statistics: model.statistics(),
        serving: match model.model_id() == snapshot.model().model_id() {
            true => snapshot.serving,
            false => model.serving(),
        },
        metric: model.metric(),
        dim: model.dim(),
        scanner,
    })
}

/// Returns how many steps [`under`] takes. Encoding a row is one step, and so is quantizing it.
pub(super) fn work(snapshot: &Snapshot, model: &Model) -> u64 {
    let rows: u64 = snapshot.parts().map(|part| part.len() as u64).sum();
    let encodes = model.encoder_id() != snapshot.model().encoder_id();
    let quantizes = are_codes_made(snapshot, model);
    u64::from(encodes) * snapshot.rows() + u64::from(quantizes) * rows
}

/// Returns `true` if codes must be computed for this model. Those of the active model are stored.
fn are_codes_made(snapshot: &Snapshot, model: &Model) -> bool {
    model.quantizer().is_some() && model.codes_id() != snapshot.model().codes_id()
}

/// Returns the vectors of a part's texts; those of dead rows are zero.
fn encoded(part: Part<'_>, model: &Model, steps: &Steps) -> Result<Stored> {
    let (dim, precision) = (model.dim(), model.precision());
    let zero = precision.round(&vec![0.0; dim], dim, false);
    let mut vectors = Stored::none(precision);
    vectors.reserve(part.len(), dim);
    let mut filled = 0;
    let mut texts: Vec<(RowId, String)> = Vec::with_capacity(TEXTS);
    let mut encode = |texts: &mut Vec<(RowId, String)>| {
        let borrowed: Vec<&str> = texts.iter().map(|(_, text)| text.as_str()).collect();
        let encoded = model.encode_keys(&borrowed)?;
        for (at, (row, _)) in texts.iter().enumerate() {
            let row = row.0 as usize;
            (filled..row).for_each(|_| vectors.extend(zero.as_ref()));
            vectors.extend(encoded.as_ref().rows(at..at + 1, dim));
            filled = row + 1;
        }
        steps.add(texts.len() as u64)?;
        texts.clear();
        Ok(())
    };
    part.for_each_row(None, |row| {
        let text = row.value.text().ok_or_else(|| {
            Error::model("the model has another encoder, and the rows have no texts to encode")
        })?;
        texts.push((row.row, text.to_owned()));
        match texts.len() {
            TEXTS => encode(&mut texts),
            _ => Ok(()),
        }
    })?;
    if !texts.is_empty() {
        encode(&mut texts)?;
    }
    (filled..part.len()).for_each(|_| vectors.extend(zero.as_ref()));
    Ok(vectors)
}
