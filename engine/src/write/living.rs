//! The live rows of some parts, one after the other, as the rows of a new segment.

use super::write_segment::{CodedRows, Rows, TakeCodes, TakePlaced, TakeRow, TakeVectors};
use crate::columns::{ColumnBatch, ColumnSource};
use crate::error::Result;
use crate::ids::RowId;
use crate::model::Model;
use crate::view::part::Part;

/// The live rows of neighbouring parts. Parts are listed in the order of their `Seq`s, and only neighbours become
/// one segment, so one after the other is by `Seq`.
pub(super) struct Living<'a> {
    parts: Vec<Part<'a>>,
    model: &'a Model,
    /// Bytes of a segment that may stay in memory while it is read.
    resident: usize,
    /// The columns of parts that have none.
    nulls: Vec<ColumnBatch>,
}

impl<'a> Living<'a> {
    pub(super) fn new(parts: Vec<Part<'a>>, model: &'a Model, resident: usize) -> Self {
        Self {
            nulls: parts
                .iter()
                .map(|part| ColumnBatch::nulls(part.len()))
                .collect(),
            parts,
            model,
            resident,
        }
    }
}

impl Rows for Living<'_> {
    fn each_row(&self, take: TakeRow<'_>) -> Result<()> {
        for part in &self.parts {
            part.for_each_row(Some(self.resident), |row| take(row.seq, row.key, row.value))?;
        }
        Ok(())
    }

    fn each_vector(&self, take: TakeVectors<'_>) -> Result<()> {
        let dim = self.model.dim();
        for part in &self.parts {
            part.for_each_block(Some(self.resident), dim * 2, |_, rows| {
                let vectors = part.vectors(rows.clone())?;
                for (at, row) in rows.enumerate() {
                    if part.live().contains(RowId(row as u32)) {
                        take(vectors.rows(at..at + 1, dim))?;
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

impl CodedRows for Living<'_> {
    fn columns(&self) -> Vec<(&dyn ColumnSource, Option<&[u64]>)> {
        let parts = self.parts.iter().zip(&self.nulls);
        let columns = parts.map(|(part, nulls)| {
            let columns: &dyn ColumnSource = part.columns().unwrap_or(nulls);
            (columns, part.live().words())
        });
        columns.collect()
    }

    fn each_code(&self, take: TakeCodes<'_>) -> Result<()> {
        let shape = self.model.shape();
        let shape = shape.expect("only a model with a quantizer has codes");
        let width = shape.subspaces();
        let mut codes = Vec::new();
        for part in &self.parts {
            part.for_each_block(Some(self.resident), width, |block, rows| {
                part.codes_of_block(block, shape, &mut codes)?;
                for (at, row) in rows.enumerate() {
                    if part.live().contains(RowId(row as u32)) {
                        take(&codes[at * width..(at + 1) * width])?;
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn each_placed(&self, take: TakePlaced<'_>) -> Result<()> {
        let shape = self.model.shape();
        let shape = shape.expect("only a model with a quantizer has codes");
        let mut first = 0;
        for part in &self.parts {
            let live = part.live();
            // The number of live rows before each 64.
            let mut before = Vec::with_capacity(part.len().div_ceil(64));
            let mut alive = first;
            for words in live.words().unwrap_or_default() {
                before.push(alive);
                alive += words.count_ones();
            }
            part.for_each_position(shape, |cell, row, codes| {
                let place = match live.words() {
                    None => first + row,
                    Some(words) => {
                        let (word, bit) = (row as usize / 64, row % 64);
                        if words[word] >> bit & 1 == 0 {
                            return Ok(());
                        }
                        before[word] + (words[word] & ((1 << bit) - 1)).count_ones()
                    }
                };
                take(place, cell, codes)
            })?;
            first += live.alive();
        }
        Ok(())
    }
}
