//! What the tests of the storage engine and of its faults share: small databases, and an oracle of their contents.

use mopqdb::bundle::BundleWriter;
use mopqdb::quantizer::{Cells, Quantizer, TrainPq, train_opq, train_pq};
use mopqdb::{
    Bundle, CreateOptions, Database, Hit, Metric, Options, Probes, QueryOptions, Row, Search,
    Snapshot,
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

/// A bundle of codebooks with cells: trained on these vectors if they are few, else drawn at random, with groups.
pub fn in_cells(
    dir: &Path,
    vectors: &[f32],
    dim: usize,
    metric: Metric,
    cells: usize,
    seed: u64,
) -> Bundle {
    let options = TrainPq::default()
        .subspaces(4)
        .codewords(16)
        .iterations(4)
        .seed(seed);
    let quantizer = if cells <= 20 {
        let trained = train_opq(vectors, dim, metric, &options.cells(cells));
        trained.unwrap().quantizer
    } else {
        let trained = train_pq(vectors, dim, metric, &options).unwrap();
        let mut random = Random::quiet(seed);
        let mut values =
            |rows: usize| -> Vec<f32> { (0..rows).flat_map(|_| random.vector(dim)).collect() };
        let residual = metric != Metric::L2;
        let cells = Cells::new(dim, values(cells), values(cells / 20), residual).unwrap();
        Quantizer::builder(trained.quantizer.codebook().clone(), metric)
            .cells(Some(cells))
            .build()
            .unwrap()
    };
    BundleWriter::new(dir.join(format!("bundle-{cells}-cells-{seed}")))
        .metric(metric)
        .vectors(dim)
        .method("opq")
        .quantizer(&quantizer)
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
        self.query_among(query, k, metric, bundle, None, &|_| true)
    }

    /// The same, among the rows that pass a filter and are in the cells that a query with so many probes looks at.
    pub fn query_among(
        &self,
        query: &[f32],
        k: usize,
        metric: Metric,
        bundle: Option<&Bundle>,
        probes: Option<Probes>,
        passes: &dyn Fn(&str) -> bool,
    ) -> Vec<(String, f32)> {
        let quantizer = bundle.map(|b| b.quantizer().unwrap().unwrap());
        let cells = quantizer
            .as_ref()
            .map(|quantizer| quantizer.cell_scores(query).unwrap());
        let cells = cells.unwrap_or_default();
        let mut scored: Vec<_> = (self.rows.iter())
            .filter(|(key, _)| passes(key))
            .map(|(key, (order, vector))| {
                let (score, cell) = match &quantizer {
                    Some(quantizer) => {
                        let row = quantizer.row_codes(vector).unwrap();
                        let table = quantizer.table(query).unwrap();
                        let cell = row.cells.first().copied();
                        let residual = quantizer.cells().is_some_and(Cells::is_residual);
                        let first = cell.filter(|_| residual);
                        let first = first.map_or(0.0, |cell| cells[cell as usize]);
                        (table.score_from(first, &row.codes), cell)
                    }
                    None => (exact(query, vector, metric), None),
                };
                (key.clone(), score, *order, cell)
            })
            .collect();
        let probes = match probes {
            Some(Probes::Cells(probes)) => probes,
            Some(Probes::All) => cells.len(),
            None => QueryOptions::default_probes(cells.len()),
        };
        let mut best: Vec<u32> = (0..cells.len() as u32).collect();
        best.sort_by(|&a, &b| {
            cells[b as usize]
                .total_cmp(&cells[a as usize])
                .then(a.cmp(&b))
        });
        let mut looked_at = Vec::new();
        for (at, cell) in best.into_iter().enumerate() {
            let found = scored.iter().filter(|row| looked_at.contains(&row.3));
            if at >= probes && found.count() >= k {
                break;
            }
            looked_at.push(Some(cell));
        }
        scored.retain(|row| row.3.is_none() || looked_at.contains(&row.3));
        scored.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.2.cmp(&b.2)));
        scored.truncate(k);
        scored
            .into_iter()
            .map(|(key, score, _, _)| (key, score))
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
                let has_cells = snapshot
                    .model()
                    .quantizer()
                    .is_some_and(|q| q.cells().is_some());
                let by_cells = [
                    None,
                    Some(Probes::Cells(1)),
                    Some(Probes::Cells(3)),
                    Some(Probes::All),
                ];
                for probes in by_cells.into_iter().take(if has_cells { 4 } else { 1 }) {
                    if bundle.is_some() {
                        let expected =
                            self.query_among(query, k, metric, bundle, probes, &|_| true);
                        let mut top = top.clone().search(Search::Codes);
                        top.probes = probes;
                        let hits = snapshot.query_with(query, &top).unwrap();
                        let found = hits.iter().map(|hit| (hit.key.clone(), hit.score));
                        assert_eq!(found.collect::<Vec<_>>(), expected, "k {k} {probes:?}");
                    }
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
