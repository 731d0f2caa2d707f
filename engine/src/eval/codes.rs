//! What a model's codes are like: how far from the rows, how evenly used.

use crate::quantizer::Quantizer;
use serde::Serialize;
use std::collections::HashSet;
use xxhash_rust::xxh3::xxh3_64;

/// What a model's codes are like.
#[derive(Debug, Clone, Serialize)]
pub struct CodeReport {
    /// Mean of |k - k^|^2 over all rows, k being the row's embedding and k^ what its code stands for.
    pub distortion: f64,
    /// The same over the mean of |k - mean k|^2: comparable between models whose embeddings differ in length.
    pub relative_distortion: f64,
    /// Mean of |k|^2.
    pub mean_norm: f64,
    /// Codewords that some row uses, a subspace.
    pub used: Vec<usize>,
    /// Entropy of the codes in bits, a subspace.
    pub entropy: Vec<f64>,
    /// Different codes among the rows.
    pub distinct: usize,
    /// How many rows use each codeword: (subspaces, codewords).
    #[serde(skip)]
    pub usage: Vec<Vec<u64>>,
}

/// Adds up rows.
pub(super) struct CodeCounter<'a> {
    quantizer: &'a Quantizer,
    rows: u64,
    error: f64,
    norm: f64,
    sum: Vec<f64>,
    usage: Vec<Vec<u64>>,
    seen: HashSet<u64>,
}

impl<'a> CodeCounter<'a> {
    pub(super) fn new(quantizer: &'a Quantizer) -> Self {
        let shape = quantizer.shape();
        Self {
            quantizer,
            rows: 0,
            error: 0.0,
            norm: 0.0,
            sum: vec![0.0; quantizer.dim()],
            usage: vec![vec![0; shape.codewords()]; shape.subspaces()],
            seen: HashSet::new(),
        }
    }

    /// Embeddings (n, dim) and their codes (n, subspaces).
    pub(super) fn add(&mut self, embeddings: &[f32], codes: &[u8]) {
        let (dim, subspaces) = (self.quantizer.dim(), self.quantizer.shape().subspaces());
        let mut decoded = vec![0.0; dim];
        for (row, code) in embeddings
            .chunks_exact(dim)
            .zip(codes.chunks_exact(subspaces))
        {
            self.quantizer.decode(code, &mut decoded);
            let (mut error, mut norm) = (0.0, 0.0);
            for ((&x, &y), sum) in row.iter().zip(&decoded).zip(&mut self.sum) {
                error += f64::from(x - y) * f64::from(x - y);
                norm += f64::from(x) * f64::from(x);
                *sum += f64::from(x);
            }
            self.error += error;
            self.norm += norm;
            for (book, &codeword) in self.usage.iter_mut().zip(code) {
                book[usize::from(codeword)] += 1;
            }
            self.seen.insert(xxh3_64(code));
            self.rows += 1;
        }
    }

    pub(super) fn finish(self) -> CodeReport {
        let rows = self.rows.max(1) as f64;
        let centre: f64 = self.sum.iter().map(|sum| (sum / rows) * (sum / rows)).sum();
        let spread = self.norm / rows - centre;
        let entropy = |book: &Vec<u64>| -> f64 {
            let shares = book
                .iter()
                .filter(|&&count| count > 0)
                .map(|&count| count as f64 / rows);
            shares.map(|share| -share * share.log2()).sum()
        };
        CodeReport {
            distortion: self.error / rows,
            relative_distortion: if spread > 0.0 {
                self.error / rows / spread
            } else {
                0.0
            },
            mean_norm: self.norm / rows,
            used: self
                .usage
                .iter()
                .map(|book| book.iter().filter(|&&count| count > 0).count())
                .collect(),
            entropy: self.usage.iter().map(entropy).collect(),
            distinct: self.seen.len(),
            usage: self.usage,
        }
    }
}
