//! The living rows of several segments, one after the other, as the rows of a new one.

use super::write_segment::{CodedRows, Rows, TakeCodes, TakeRow, TakeVectors};
use crate::error::Result;
use crate::ids::RowId;
use crate::model::Model;
use crate::scan::Vectors;
use crate::snapshot::widen_into;
use crate::view::segment::{OncePast, SegmentView};

/// The living rows of neighbouring segments. Segments are listed in the order of their `Seq`s, and only neighbours are
/// merged, so one after the other is by `Seq`.
pub(super) struct Merged<'a> {
    pub(super) inputs: &'a [SegmentView],
    pub(super) model: &'a Model,
    /// Bytes of an input that may be resident.
    pub(super) resident: usize,
}

/// Vectors and codes are read so many rows at a time: a block.
const STEP: usize = 64;

impl Merged<'_> {
    /// Calls `take` with each step of each input.
    fn steps(
        &self,
        mut take: impl FnMut(&SegmentView, std::ops::Range<usize>) -> Result<()>,
    ) -> Result<()> {
        for input in self.inputs {
            let rows = input.sealed.rows.rows();
            let mut pages = OncePast::new(&input.sealed, self.resident);
            for start in (0..rows).step_by(STEP) {
                take(input, start..(start + STEP).min(rows))?;
                pages.read(STEP * self.model.dim() * 4);
            }
        }
        Ok(())
    }
}

impl Rows for Merged<'_> {
    fn each_row(&self, take: TakeRow<'_>) -> Result<()> {
        for input in self.inputs {
            let mut cursor = input.sealed.rows.cursor();
            let mut pages = OncePast::new(&input.sealed, self.resident);
            while let Some(row) = cursor.next()? {
                pages.read(row.key.len() + row.value.bytes() as usize);
                if input.live.contains(row.row) {
                    take(row.seq, row.key, row.value)?;
                }
            }
        }
        Ok(())
    }

    fn each_vector(&self, take: TakeVectors<'_>) -> Result<()> {
        let dim = self.model.dim();
        self.steps(|input, rows| {
            let start = rows.start;
            let Vectors::F16(vectors) = input.sealed.vectors(rows)? else {
                unreachable!("only texts have vecs files")
            };
            for (row, vector) in (start as u32..).zip(vectors.chunks_exact(dim)) {
                if input.live.contains(RowId(row)) {
                    take(vector)?;
                }
            }
            Ok(())
        })
    }
}

impl CodedRows for Merged<'_> {
    fn each_code(&self, take: TakeCodes<'_>) -> Result<()> {
        let shape = self
            .model
            .shape()
            .expect("only a model with a quantizer has codes");
        let dim = self.model.dim();
        let mut code = vec![0; shape.subspaces()];
        let mut wide = Vec::new();
        self.steps(|input, rows| {
            let codes = input
                .sealed
                .codes
                .as_ref()
                .expect("opened with codes under a quantizer");
            let block = rows.start / STEP;
            let packed = codes.blocks(block..block + 1)?;
            wide.clear();
            widen_into(input.sealed.vectors(rows.clone())?, &mut wide);
            for (at, row) in rows.enumerate() {
                if input.live.contains(RowId(row as u32)) {
                    shape.unpack_row(packed, at, &mut code);
                    take(&code, &wide[at * dim..(at + 1) * dim])?;
                }
            }
            Ok(())
        })
    }
}
