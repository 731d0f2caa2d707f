//! Rows as codes: mopqdb's of eight bits, and codes of four bits with the same bytes per row, which faiss's fast scan
//! needs.

use super::DIM;
use crate::data::{Blocks, Stream};
use anyhow::Result;
use mopqdb::Metric;
use mopqdb::quantizer::{LookupTable, Quantizer, TrainPq, train_pq};

/// Queries per case.
const QUERIES: usize = 16;

/// Rows under one quantizer.
pub struct Coded {
    /// The quantizer of the rows.
    pub quantizer: Quantizer,
    /// The codes: (rows, subspaces).
    pub codes: Vec<u8>,
    /// The codes in the layout that is scanned.
    pub blocks: Blocks,
    /// A table for each query.
    pub tables: Vec<LookupTable>,
}

/// The same rows under both quantizers, and queries.
pub struct Case {
    /// The kind of data: `isotropic` or `clustered`.
    pub data: &'static str,
    /// The number of rows.
    pub rows: usize,
    /// The queries: (queries, DIM).
    pub queries: Vec<f32>,
    /// The rows with one byte per subspace.
    pub eight: Coded,
    /// The rows with twice as many subspaces of 16 codewords.
    pub four: Coded,
}

/// Returns vectors of a kind.
pub fn stream(data: &str, seed: u64) -> Stream {
    match data {
        "clustered" => Stream::clustered(seed, DIM),
        _ => Stream::isotropic(seed, DIM),
    }
}

impl Case {
    /// Creates rows, trains both quantizers on the first ones, and quantizes all.
    pub fn new(data: &'static str, bytes: usize, rows: usize) -> Result<Self> {
        let mut vectors = stream(data, 7);
        let sample = vectors.take(30_000);
        let queries = vectors.take(QUERIES);
        let train = |subspaces, codewords| {
            let options = TrainPq::default()
                .subspaces(subspaces)
                .codewords(codewords)
                .iterations(12);
            train_pq(&sample, DIM, Metric::Ip, &options).map(|trained| trained.quantizer)
        };
        let quantizers = [train(bytes, 256)?, train(2 * bytes, 16)?];
        let mut codes = quantizers
            .each_ref()
            .map(|q| vec![0; rows * q.shape().subspaces()]);
        for first in (0..rows).step_by(10_000) {
            let some = vectors.take(10_000.min(rows - first));
            for (quantizer, codes) in quantizers.iter().zip(&mut codes) {
                let subspaces = quantizer.shape().subspaces();
                let count = some.len() / DIM * subspaces;
                quantizer.quantize(&some, &mut codes[first * subspaces..][..count])?;
            }
        }
        let [eight, four] = quantizers;
        let [eight_codes, four_codes] = codes;
        Ok(Self {
            data,
            rows,
            eight: Coded::new(eight, eight_codes, &queries)?,
            four: Coded::new(four, four_codes, &queries)?,
            queries,
        })
    }
}

impl Coded {
    fn new(quantizer: Quantizer, codes: Vec<u8>, queries: &[f32]) -> Result<Self> {
        let tables = queries.chunks_exact(DIM).map(|q| quantizer.table(q));
        Ok(Self {
            tables: tables.collect::<mopqdb::Result<_>>()?,
            blocks: Blocks::new(quantizer.shape(), &codes),
            quantizer,
            codes,
        })
    }

    /// Returns a name such as `8x256`.
    pub fn name(&self) -> String {
        let shape = self.quantizer.shape();
        format!("{}x{}", shape.subspaces(), shape.codewords())
    }
}
