//! Properties of a model's codes: distortion and codeword use.

use crate::quantizer::{CodeShape, Quantizer, RowCodes};
use serde::Serialize;
use std::collections::HashSet;
use xxhash_rust::xxh3::xxh3_64;

/// Properties of a model's codes.
#[derive(Debug, Clone, Serialize)]
pub struct CodeReport {
    /// Mean of |k - k^|^2 over all rows, where k is the row's embedding and k^ the reconstruction from its code.
    pub distortion: f64,
    /// `distortion` divided by the mean of |k - mean k|^2: comparable between models whose embeddings differ in length.
    pub relative_distortion: f64,
    /// Mean of |k|^2.
    pub mean_norm: f64,
    /// The number of codewords that some row uses, per subspace.
    pub used: Vec<usize>,
    /// Entropy of the codes in bits, per subspace: the width of a codeword in bits if all codewords are used equally,
    /// else less.
    pub entropy: Vec<f64>,
    /// The number of different codes among the rows.
    pub distinct: usize,
    /// The number of rows that use each codeword: (subspaces, codewords).
    #[serde(skip)]
    pub usage: Vec<Vec<u64>>,
}

/// Counts how many rows use each codeword.
pub(super) struct Usage {
    /// (subspaces, codewords)
    counts: Vec<Vec<u64>>,
}

impl Usage {
    pub(super) fn new(shape: CodeShape) -> Self {
        Self {
            counts: vec![vec![0; shape.codewords()]; shape.subspaces()],
        }
    }

    /// Adds codes of shape (n, subspaces).
    pub(super) fn add(&mut self, codes: &[u8]) {
        for code in codes.chunks_exact(self.counts.len()) {
            for (book, &codeword) in self.counts.iter_mut().zip(code) {
                book[usize::from(codeword)] += 1;
            }
        }
    }

    /// Returns the number of codewords that some row uses, per subspace.
    pub(super) fn used(&self) -> Vec<usize> {
        let used = |book: &Vec<u64>| book.iter().filter(|&&count| count > 0).count();
        self.counts.iter().map(used).collect()
    }

    /// Returns the entropy in bits, per subspace.
    fn entropy(&self) -> Vec<f64> {
        let entropy = |book: &Vec<u64>| -> f64 {
            let rows = book.iter().sum::<u64>() as f64;
            let used = book.iter().filter(|&&count| count > 0);
            let shares = used.map(|&count| count as f64 / rows);
            shares.map(|share| -share * share.log2()).sum()
        };
        self.counts.iter().map(entropy).collect()
    }
}

/// Accumulates a [`CodeReport`] over rows.
pub(super) struct CodeCounter<'a> {
    quantizer: &'a Quantizer,
    rows: u64,
    error: f64,
    norm: f64,
    sum: Vec<f64>,
    usage: Usage,
    seen: HashSet<u64>,
}

impl<'a> CodeCounter<'a> {
    pub(super) fn new(quantizer: &'a Quantizer) -> Self {
        Self {
            quantizer,
            rows: 0,
            error: 0.0,
            norm: 0.0,
            sum: vec![0.0; quantizer.dim()],
            usage: Usage::new(quantizer.shape()),
            seen: HashSet::new(),
        }
    }

    /// Adds embeddings (n, dim) and their codes. The same codes in two cells count as two.
    pub(super) fn add(&mut self, embeddings: &[f32], codes: &RowCodes) {
        let (dim, subspaces) = (self.quantizer.dim(), self.quantizer.shape().subspaces());
        let mut decoded = vec![0.0; dim];
        let mut one = RowCodes::default();
        self.usage.add(&codes.codes);
        for (row, at) in embeddings.chunks_exact(dim).zip(0..) {
            one.clear();
            one.push_row_of(codes, at, subspaces);
            self.quantizer.decode_rows(&one, &mut decoded);
            let (mut error, mut norm) = (0.0, 0.0);
            for ((&x, &y), sum) in row.iter().zip(&decoded).zip(&mut self.sum) {
                error += f64::from(x - y) * f64::from(x - y);
                norm += f64::from(x) * f64::from(x);
                *sum += f64::from(x);
            }
            self.error += error;
            self.norm += norm;
            let cell = one.cells.first().map_or([0; 4], |cell| cell.to_le_bytes());
            one.codes.extend_from_slice(&cell);
            self.seen.insert(xxh3_64(&one.codes));
            self.rows += 1;
        }
    }

    pub(super) fn finish(self) -> CodeReport {
        let rows = self.rows.max(1) as f64;
        let centre: f64 = self.sum.iter().map(|sum| (sum / rows) * (sum / rows)).sum();
        let spread = self.norm / rows - centre;
        CodeReport {
            distortion: self.error / rows,
            relative_distortion: if spread > 0.0 {
                self.error / rows / spread
            } else {
                0.0
            },
            mean_norm: self.norm / rows,
            used: self.usage.used(),
            entropy: self.usage.entropy(),
            distinct: self.seen.len(),
            usage: self.usage.counts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_counts_codewords_and_bits() {
        let mut usage = Usage::new(CodeShape::new(2, 4).unwrap());
        usage.add(&[0, 1, 0, 2]);
        usage.add(&[1, 3, 1, 0]);
        assert_eq!(usage.counts, [[2, 2, 0, 0], [1, 1, 1, 1]]);
        assert_eq!(usage.used(), [2, 4]);
        assert_eq!(usage.entropy(), [1.0, 2.0]);
    }
}
