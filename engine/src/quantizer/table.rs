//! The lookup table of a query.

use super::shape::CodeShape;
use crate::error::{Error, Result};
use crate::kernel::Entries;

/// What each codeword of each subspace adds to a row's score for one query. A row's score is the f32 sum of
/// its entries in subspace order, beginning with 0. Entries and every possible sum are finite.
#[derive(Debug, Clone, PartialEq)]
pub struct LookupTable {
    shape: CodeShape,
    /// (subspaces, 16 or 256): codewords, then zeros, so that every stored byte or nibble is a valid index.
    entries: Vec<f32>,
}

impl LookupTable {
    /// Takes entries of shape (subspaces, codewords). Refuses NaN, infinities and sums that would overflow.
    pub fn new(shape: CodeShape, entries: &[f32]) -> Result<Self> {
        let (subspaces, codewords) = (shape.subspaces(), shape.codewords());
        if entries.len() != subspaces * codewords {
            return Err(Error::invalid(format!(
                "a table of {subspaces} x {codewords} has {} entries, got {}",
                subspaces * codewords,
                entries.len()
            )));
        }
        let stride = shape.bits().values();
        let mut padded = vec![0.0; subspaces * stride];
        let mut largest_sum = 0.0;
        for (m, row) in entries.chunks_exact(codewords).enumerate() {
            padded[m * stride..][..codewords].copy_from_slice(row);
            largest_sum += f64::from(row.iter().fold(0.0, |max: f32, e| max.max(e.abs())));
        }
        // Partial sums of f32 stay below (1 + 2^-24)^256 of the exact sum of magnitudes. The score of a cell, of at most 1e37, may
        // come first.
        if entries.iter().any(|e| !e.is_finite()) || largest_sum > f64::from(f32::MAX) * 0.95 {
            return Err(Error::invalid(
                "the query's scores are not finite: it holds NaN or infinity, or values too large for f32",
            ));
        }
        Ok(Self {
            shape,
            entries: padded,
        })
    }

    /// Returns the shape of the codes it scores.
    pub fn shape(&self) -> CodeShape {
        self.shape
    }

    /// Returns the score of one row's codes: the reference that every kernel equals, bit for bit.
    pub fn score(&self, codes: &[u8]) -> f32 {
        self.score_from(0.0, codes)
    }

    /// Returns the score of one row's residual codes in a cell with this score.
    pub fn score_from(&self, cell: f32, codes: &[u8]) -> f32 {
        assert_eq!(codes.len(), self.shape.subspaces(), "a code a subspace");
        codes.iter().enumerate().fold(cell, |sum, (m, &code)| {
            sum + self.entries().subspace(m)[usize::from(code)]
        })
    }

    /// Returns the table as the kernels see it.
    pub(crate) fn entries(&self) -> Entries<'_> {
        Entries {
            bits: self.shape.bits(),
            values: &self.entries,
        }
    }
}
