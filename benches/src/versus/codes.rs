//! Rows as codes: ours of eight bits, and codes of four bits in as many bytes, which faiss's fast scan wants.

use super::DIM;
use crate::data::{Blocks, Stream};
use anyhow::Result;
use mopqdb::Metric;
use mopqdb::quantizer::{LookupTable, Quantizer, TrainPq, train_pq};

/// Queries of a case.
const QUERIES: usize = 16;

/// Rows under one quantizer.
pub struct Coded {
    /// Their quantizer.
    pub quantizer: Quantizer,
    /// (rows, subspaces)
    pub codes: Vec<u8>,
    /// The same as they are scanned.
    pub blocks: Blocks,
    /// A table for each query.
    pub tables: Vec<LookupTable>,
}

/// The same rows under both, and queries.
pub struct Case {
    /// `isotropic` or `clustered`
    pub data: &'static str,
    /// How many there are.
    pub rows: usize,
    /// (queries, DIM)
    pub queries: Vec<f32>,
    /// A byte a subspace.
    pub eight: Coded,
    /// Twice as many subspaces of 16 codewords.
    pub four: Coded,
}

/// Vectors of a kind.
pub fn stream(data: &str, seed: u64) -> Stream {
    match data {
        "clustered" => Stream::clustered(seed, DIM),
        _ => Stream::isotropic(seed, DIM),
    }
}

impl Case {
    /// Makes rows, trains both quantizers on the first, and quantizes all.
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

    /// `8x256`
    pub fn name(&self) -> String {
        let shape = self.quantizer.shape();
        format!("{}x{}", shape.subspaces(), shape.codewords())
    }
}
