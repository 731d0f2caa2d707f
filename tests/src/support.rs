//! What the tests of the storage engine and of its faults share: small databases, and an oracle of their contents.

use mopqdb::bundle::BundleWriter;
use mopqdb::quantizer::{TrainPq, train_opq, train_pq};
use mopqdb::{
    Bundle, CreateOptions, Database, Hit, Metric, Options, QueryOptions, Row, Search, Snapshot,
};
use std::collections::BTreeMap;
use std::path::Path;

/// A small generator of reproducible numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator and prints the seed, so that a failure can be reproduced.
    pub fn new(seed: u64) -> Self {
        println!("seed {seed}");
        Self::quiet(seed)
    }

    /// Creates a generator without printing the seed, for one of many seeds.
    pub fn quiet(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1)
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() >> 11) as usize % n
    }

    /// Returns a number from -0.5 to 0.5.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 24) as f32 - 0.5
    }

    /// Returns a vector of such numbers.
    pub fn vector(&mut self, dim: usize) -> Vec<f32> {
        (0..dim).map(|_| self.unit()).collect()
    }
}

/// Returns options that seal early, so that a few rows make several segments, and that disable automatic work.
pub fn small() -> Options {
    Options::default()
        .threads(2)
        .seal_rows(50)
        .seal_in_background(false)
        .auto_compact(false)
}

/// Creates a database of vectors, with [`small`] options.
pub fn vectors(dir: &Path, dim: usize, metric: Metric) -> Database {
    Database::create(dir, &CreateOptions::vectors(dim, metric), small()).unwrap()
}

/// Returns a bundle of codebooks trained on these vectors.
pub fn codebooks(
    dir: &Path,
    vectors: &[f32],
    dim: usize,
    metric: Metric,
    opq: bool,
    seed: u64,
) -> Bundle {
    let options = TrainPq::default()
        .subspaces(4)
        .codewords(16)
        .iterations(4)
        .seed(seed);
    let quantizer = if opq {
        train_opq(vectors, dim, metric, &options)
    } else {
        train_pq(vectors, dim, metric, &options)
    };
    BundleWriter::new(dir.join(format!("bundle-{opq}-{seed}")))
        .metric(metric)
        .vectors(dim)
        .method(if opq { "opq" } else { "pq" })
        .quantizer(&quantizer.unwrap().quantizer)
        .finish()
        .unwrap()
}

/// The expected contents of a database, in the simplest form.
#[derive(Debug, Clone, Default)]
pub struct Oracle {
    /// The order of insertion and the vector of each key.
    pub rows: BTreeMap<String, (u64, Vec<f32>)>,
    next: u64,
}

impl Oracle {
    /// Inserts or replaces a row; a row that is equal already keeps its place.
    pub fn put(&mut self, key: &str, vector: Vec<f32>) {
        if self.rows.get(key).is_some_and(|(_, old)| *old == vector) {
            return;
        }
        self.next += 1;
        self.rows.insert(key.into(), (self.next, vector));
    }

    /// Returns `true` if there was such a key.
    pub fn remove(&mut self, key: &str) -> bool {
        self.rows.remove(key).is_some()
    }

    /// Returns the k best keys by a plain scan, under the bundle's codes if there is a bundle.
    pub fn query(
        &self,
        query: &[f32],
        k: usize,
        metric: Metric,
        bundle: Option<&Bundle>,
    ) -> Vec<(String, f32)> {
        let quantizer = bundle.map(|b| b.quantizer().unwrap().unwrap());
        let mut scored: Vec<_> = (self.rows.iter())
            .map(|(key, (order, vector))| {
                let score = match &quantizer {
                    Some(quantizer) => {
                        let mut codes = vec![0; quantizer.shape().subspaces()];
                        quantizer.quantize(vector, &mut codes).unwrap();
                        quantizer.table(query).unwrap().score(&codes)
                    }
                    None => exact(query, vector, metric),
                };
                (key.clone(), score, *order)
            })
            .collect();
        scored.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.2.cmp(&b.2)));
        scored.truncate(k);
        scored
            .into_iter()
            .map(|(key, score, _)| (key, score))
            .collect()
    }

    /// Checks that a database gives the same results as this oracle in every search mode.
    pub fn check(
        &self,
        snapshot: &Snapshot,
        queries: &[Vec<f32>],
        metric: Metric,
        bundle: Option<&Bundle>,
    ) {
        for query in queries {
            for k in [1, 7, 1000] {
                let top = QueryOptions::top(k);
                let ask = |search| snapshot.query_with(query, &top.clone().search(search));
                if bundle.is_some() {
                    let expected = self.query(query, k, metric, bundle);
                    let hits = ask(Search::Codes).unwrap();
                    let found = hits.iter().map(|hit| (hit.key.clone(), hit.score));
                    assert_eq!(found.collect::<Vec<_>>(), expected, "k {k}");
                }
                let expected = self.query(query, k, metric, None);
                let exact_hits = ask(Search::Exact).unwrap();
                // Exact scores are summed in another order than here, so they are equal up to rounding.
                assert_eq!(exact_hits.len(), expected.len(), "k {k}");
                for (hit, (_, score)) in exact_hits.iter().zip(&expected) {
                    assert!((hit.score - score).abs() < 1e-5, "k {k}: {hit:?} {score}");
                    let own = exact(query, &self.rows[&hit.key].1, metric);
                    assert!((hit.score - own).abs() < 1e-5, "k {k}: {hit:?} {own}");
                }
                // If all rows are candidates, their codes do not matter.
                if bundle.is_none() || self.rows.len() <= QueryOptions::default_candidates(k) {
                    assert_eq!(ask(Search::Auto).unwrap(), exact_hits, "k {k}");
                }
            }
        }
    }
}

fn exact(query: &[f32], vector: &[f32], metric: Metric) -> f32 {
    let pairs = query.iter().zip(vector);
    match metric {
        Metric::L2 => -pairs.map(|(a, b)| (a - b) * (a - b)).sum::<f32>(),
        _ => pairs.map(|(a, b)| a * b).sum(),
    }
}

/// Returns a row with a vector.
pub fn put(key: &str, vector: &[f32]) -> Row {
    Row::vector(key, vector.to_vec())
}

/// Returns the keys of the hits.
pub fn keys(hits: &[Hit]) -> Vec<&str> {
    hits.iter().map(|hit| hit.key.as_str()).collect()
}
