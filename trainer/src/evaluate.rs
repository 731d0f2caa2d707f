//! Recall over all keys, through the engine's own quantizer and scan: the recall that queries will have.
//!
//! Keys with equal codes have equal scores, and are common. A right key among ties counts with the probability that
//! it is within the first n if ties fall at random, clamp((n - greater) / equal, 0, 1): never by its position.

use anyhow::Result;
use mopqdb::Metric;
use mopqdb::quantizer::{LookupTable, Quantizer};
use mopqdb::scan::{BlockSource, Found, InMemory, Scanner};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// What is asked and what is right.
#[derive(Debug, Clone, Default)]
pub struct Questions {
    /// (queries, hidden)
    pub vectors: Vec<f32>,
    /// The right rows of each query.
    pub answers: Vec<Vec<u32>>,
    /// A row that is no answer to this query, and is left out of its result: the query itself.
    pub excluded: Vec<Option<u32>>,
}

impl Questions {
    /// How many.
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}

/// Where a right key stands: how many keys score more, how many the same (itself among them).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Keys that score more; `u32::MAX` when it was not among the rows looked at.
    pub greater: u32,
    /// Keys that score the same.
    pub equal: u32,
}

impl Place {
    const FAR: Self = Self {
        greater: u32::MAX,
        equal: 1,
    };

    /// The probability that it is within the first n.
    pub fn within(self, n: usize) -> f64 {
        ((n as f64 - f64::from(self.greater)) / f64::from(self.equal)).clamp(0.0, 1.0)
    }
}

/// The places of each query's right keys.
#[derive(Debug, Clone)]
pub struct Places(pub Vec<Vec<Place>>);

impl Places {
    /// |truth and first n| / |truth| of each query.
    pub fn recalls(&self, n: usize) -> Vec<f64> {
        self.0
            .iter()
            .map(|places| {
                places.iter().map(|place| place.within(n)).sum::<f64>() / places.len().max(1) as f64
            })
            .collect()
    }

    /// Their mean.
    pub fn recall(&self, n: usize) -> f64 {
        let recalls = self.recalls(n);
        recalls.iter().sum::<f64>() / recalls.len().max(1) as f64
    }
}

/// The mean of each query's recall over several runs (seeds) of one system.
pub fn over_runs(runs: &[Vec<f64>]) -> Vec<f64> {
    let queries = runs.first().map_or(0, Vec::len);
    (0..queries)
        .map(|query| runs.iter().map(|run| run[query]).sum::<f64>() / runs.len() as f64)
        .collect()
}

/// All keys under one quantizer.
#[derive(Debug)]
pub struct Encoded {
    /// (rows, subspaces)
    pub codes: Vec<u8>,
    packed: Packed,
}

impl Encoded {
    /// Quantizes keys (rows, hidden), over `threads` threads.
    pub fn new(quantizer: &Quantizer, keys: &[f32], threads: usize) -> Result<Self> {
        let shape = quantizer.shape();
        let rows = keys.len() / quantizer.input_dim();
        let mut codes = vec![0; rows * shape.subspaces()];
        let share = rows.div_ceil(threads.max(1)).max(1);
        std::thread::scope(|scope| {
            let parts: Vec<_> = keys
                .chunks(share * quantizer.input_dim())
                .zip(codes.chunks_mut(share * shape.subspaces()))
                .map(|(keys, codes)| scope.spawn(move || quantizer.quantize(keys, codes)))
                .collect();
            parts
                .into_iter()
                .try_for_each(|part| part.join().expect("quantize returns its errors"))
        })?;
        let mut bytes = Vec::new();
        shape.pack(&codes, &mut bytes);
        let packed = Packed {
            bytes,
            rows,
            block_bytes: shape.block_bytes(),
        };
        Ok(Self { codes, packed })
    }

    /// The places of the right keys, exact for places below `depth`.
    pub fn places(
        &self,
        quantizer: &Quantizer,
        questions: &Questions,
        scanner: &Scanner,
        depth: usize,
    ) -> Result<Places> {
        let hidden = quantizer.input_dim();
        let subspaces = quantizer.shape().subspaces();
        let code = |row: u32| &self.codes[row as usize * subspaces..][..subspaces];
        let mut places = Vec::with_capacity(questions.len());
        // Some tables share one pass over the codes.
        const TOGETHER: usize = 16;
        for (group, vectors) in questions.vectors.chunks(TOGETHER * hidden).enumerate() {
            let tables: Vec<LookupTable> = vectors
                .chunks(hidden)
                .map(|query| quantizer.table(query))
                .collect::<mopqdb::Result<_>>()?;
            let found = scanner.scan(&[&self.packed], &tables, depth + 2)?;
            for (offset, (table, found)) in tables.iter().zip(found).enumerate() {
                let query = group * TOGETHER + offset;
                let count_equal = |score: f32| {
                    let codes = self.codes.chunks_exact(subspaces);
                    Ok(codes.filter(|codes| table.score(codes) == score).count())
                };
                let score = |row| table.score(code(row));
                places.push(place(questions, query, depth, &found, score, count_equal)?);
            }
        }
        Ok(Places(places))
    }
}

/// The places of the right keys by inner product of whole vectors: keys (rows, dim) and queries (questions, dim), as a
/// head projects them; exact for places below `depth`. What quantization has to lose.
pub fn dense_places(
    keys: &[f32],
    queries: &[f32],
    dim: usize,
    questions: &Questions,
    scanner: &Scanner,
    depth: usize,
) -> Result<Places> {
    let all = InMemory { values: keys, dim };
    let mut places = Vec::with_capacity(questions.len());
    // Some queries share one pass over the keys.
    const TOGETHER: usize = 48;
    for (group, some) in queries.chunks(TOGETHER * dim).enumerate() {
        let found = scanner.scan_exact(&[&all], some, Metric::Ip, depth + 2)?;
        for (offset, (vector, found)) in some.chunks(dim).zip(found).enumerate() {
            let query = group * TOGETHER + offset;
            let scan = |keys: &[f32], k: usize| -> Result<Vec<Found>> {
                let some = InMemory { values: keys, dim };
                let found = scanner.scan_exact(&[&some], vector, Metric::Ip, k)?;
                Ok(found.into_iter().flatten().collect())
            };
            // By the scan itself, so that equal scores have equal bits.
            let mut rows = questions.answers[query].clone();
            rows.extend(questions.excluded.get(query).copied().flatten());
            let gathered: Vec<f32> = rows
                .iter()
                .flat_map(|&row| &keys[row as usize * dim..][..dim])
                .copied()
                .collect();
            let scores: HashMap<u32, f32> = scan(&gathered, rows.len().max(1))?
                .iter()
                .map(|hit| (rows[hit.row as usize], hit.score))
                .collect();
            let count_equal = |score: f32| {
                let mut more = 4 * (depth + 2);
                loop {
                    let found = scan(keys, more)?;
                    if found.len() < more || found.last().is_some_and(|last| last.score < score) {
                        return Ok(found.iter().filter(|hit| hit.score == score).count());
                    }
                    more *= 4;
                }
            };
            places.push(place(
                questions,
                query,
                depth,
                &found,
                |row| scores[&row],
                count_equal,
            )?);
        }
    }
    Ok(Places(places))
}

/// The places of one query's answers among the best rows found, two more than `depth`.
fn place(
    questions: &Questions,
    query: usize,
    depth: usize,
    found: &[Found],
    score: impl Fn(u32) -> f32,
    count_equal: impl Fn(f32) -> Result<usize>,
) -> Result<Vec<Place>> {
    let excluded = questions.excluded.get(query).copied().flatten();
    let last = found.last().map_or(f32::INFINITY, |hit| hit.score);
    questions.answers[query]
        .iter()
        .map(|&answer| {
            let own = score(answer);
            if own < last {
                return Ok(Place::FAR);
            }
            let greater = found.iter().filter(|hit| hit.score > own).count();
            // Even without the excluded row.
            if greater > depth {
                return Ok(Place::FAR);
            }
            let equal = if own > last {
                found.iter().filter(|hit| hit.score == own).count()
            } else {
                count_equal(own)? // the ties go on past the rows found
            };
            let (mut greater, mut equal) = (greater as u32, equal.max(1) as u32);
            if let Some(own_row) = excluded.filter(|&row| row != answer) {
                let other = score(own_row);
                if other > own {
                    greater -= 1;
                } else if other == own && equal > 1 {
                    equal -= 1;
                }
            }
            Ok(Place { greater, equal })
        })
        .collect()
}

/// What is told of a quantizer beside its recall.
#[derive(Debug, Clone, Serialize)]
pub struct CodeReport {
    /// Mean of |k - k^|² over all keys.
    pub distortion: f64,
    /// The same divided by the mean of |k - mean k|².
    pub relative_distortion: f64,
    /// Mean of |k|².
    pub mean_norm: f64,
    /// Codewords that some key uses, a codebook.
    pub used: Vec<usize>,
    /// Entropy of the codes in bits, a codebook.
    pub entropy: Vec<f64>,
    /// Different codes among the keys.
    pub distinct: usize,
}

impl CodeReport {
    /// Looks at every key (rows, hidden) and its codes.
    pub fn new(quantizer: &Quantizer, keys: &[f32], codes: &[u8]) -> Result<Self> {
        let (hidden, dim, subspaces) = (
            quantizer.input_dim(),
            quantizer.dim(),
            quantizer.shape().subspaces(),
        );
        let rows = keys.len() / hidden;
        let (mut error, mut norm) = (0.0f64, 0.0f64);
        let mut mean = vec![0.0f64; dim];
        for (keys, codes) in keys
            .chunks(4096 * hidden)
            .zip(codes.chunks(4096 * subspaces))
        {
            let n = keys.len() / hidden;
            let (mut projected, mut decoded) = (vec![0.0; n * dim], vec![0.0; n * dim]);
            quantizer.project(keys, &mut projected)?;
            quantizer.decode(codes, &mut decoded);
            for (row, hat) in projected.chunks_exact(dim).zip(decoded.chunks_exact(dim)) {
                for ((&x, &y), sum) in row.iter().zip(hat).zip(&mut mean) {
                    error += f64::from(x - y).powi(2);
                    norm += f64::from(x).powi(2);
                    *sum += f64::from(x);
                }
            }
        }
        let n = rows as f64;
        let centre: f64 = mean.iter().map(|sum| (sum / n).powi(2)).sum();
        let spread = norm / n - centre;
        let (used, entropy) = usage(codes, subspaces, quantizer.shape().codewords());
        Ok(Self {
            distortion: error / n,
            relative_distortion: error / n / spread,
            mean_norm: norm / n,
            used,
            entropy,
            distinct: codes.chunks_exact(subspaces).collect::<HashSet<_>>().len(),
        })
    }
}

/// Codewords used and entropy in bits, a codebook.
pub fn usage(codes: &[u8], subspaces: usize, codewords: usize) -> (Vec<usize>, Vec<f64>) {
    let mut counts = vec![vec![0u64; codewords]; subspaces];
    for row in codes.chunks_exact(subspaces) {
        for (book, &code) in counts.iter_mut().zip(row) {
            book[usize::from(code)] += 1;
        }
    }
    let rows = (codes.len() / subspaces) as f64;
    let used = counts
        .iter()
        .map(|book| book.iter().filter(|&&count| count > 0).count())
        .collect();
    let entropy = counts
        .iter()
        .map(|book| {
            book.iter()
                .filter(|&&count| count > 0)
                .map(|&count| count as f64 / rows)
                .map(|p| -p * p.log2())
                .sum()
        })
        .collect();
    (used, entropy)
}

/// Packed codes in memory.
#[derive(Debug)]
struct Packed {
    bytes: Vec<u8>,
    rows: usize,
    block_bytes: usize,
}

impl BlockSource for Packed {
    fn rows(&self) -> usize {
        self.rows
    }

    fn blocks(&self, blocks: Range<usize>) -> mopqdb::Result<&[u8]> {
        Ok(&self.bytes[blocks.start * self.block_bytes..blocks.end * self.block_bytes])
    }

    fn live(&self) -> Option<&[u64]> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use mopqdb::Metric;
    use mopqdb::quantizer::{CodeShape, Codebook};

    #[test]
    fn a_tie_counts_by_its_chance() {
        let place = Place {
            greater: 9,
            equal: 4,
        };
        assert_eq!(place.within(9), 0.0);
        assert_eq!(place.within(10), 0.25);
        assert_eq!(place.within(13), 1.0);
        assert_eq!(Place::FAR.within(10_000), 0.0);
    }

    /// Few codewords, so that ties abound; places by sorting every score.
    #[test]
    fn places_are_those_of_brute_force_ties_and_exclusions_included() {
        let mut random = Random::new(3, "places", 0);
        let mut normal = |n: usize| (0..n).map(|_| random.normal() as f32).collect::<Vec<f32>>();
        let (dim, rows, queries) = (4, 500, 40);
        let codebook = Codebook::new(CodeShape::new(2, 3).unwrap(), 2, normal(12)).unwrap();
        let quantizer = Quantizer::builder(codebook, Metric::Ip).build().unwrap();
        let keys = normal(rows * dim);
        let questions = Questions {
            vectors: normal(queries * dim),
            answers: (0..queries as u32)
                .map(|q| vec![q, q + 100, q + 200])
                .collect(),
            excluded: (0..queries as u32)
                .map(|q| (q % 2 == 0).then_some(q + 300))
                .collect(),
        };
        let encoded = Encoded::new(&quantizer, &keys, 2).unwrap();
        let scanner = Scanner::new(1).unwrap();
        let places = encoded
            .places(&quantizer, &questions, &scanner, 100)
            .unwrap();
        for query in 0..queries {
            let table = quantizer
                .table(&questions.vectors[query * dim..][..dim])
                .unwrap();
            let scores: Vec<f32> = encoded
                .codes
                .chunks_exact(2)
                .map(|code| table.score(code))
                .collect();
            let others = || (0..rows as u32).filter(|&row| questions.excluded[query] != Some(row));
            for (answer, place) in questions.answers[query].iter().zip(&places.0[query]) {
                let own = scores[*answer as usize];
                let expected = Place {
                    greater: others().filter(|&row| scores[row as usize] > own).count() as u32,
                    equal: others().filter(|&row| scores[row as usize] == own).count() as u32,
                };
                for n in [1, 10, 50, 100] {
                    assert_eq!(
                        place.within(n),
                        expected.within(n),
                        "query {query}, {place:?} {expected:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn dense_places_are_those_of_brute_force() {
        let mut random = Random::new(4, "places", 0);
        // Small whole numbers, so that sums are exact and ties abound.
        let mut small = |n: usize| (0..n).map(|_| random.below(3) as f32).collect::<Vec<f32>>();
        let (dim, rows, queries) = (3, 60, 150);
        let (keys, asked) = (small(rows * dim), small(queries * dim));
        let questions = Questions {
            vectors: Vec::new(),
            answers: (0..queries as u32)
                .map(|q| (0..=q % 3).map(|a| (q + a) % 50).collect())
                .collect(),
            excluded: (0..queries as u32)
                .map(|q| (q % 2 == 0).then_some(50 + q % 10))
                .collect(),
        };
        let scanner = Scanner::new(1).unwrap();
        let places = dense_places(&keys, &asked, dim, &questions, &scanner, 100).unwrap();
        let near = dense_places(&keys, &asked, dim, &questions, &scanner, 5).unwrap();
        for query in 0..queries {
            let score = |row: u32| -> f32 {
                let key = &keys[row as usize * dim..][..dim];
                key.iter()
                    .zip(&asked[query * dim..][..dim])
                    .map(|(a, b)| a * b)
                    .sum()
            };
            let others = || (0..rows as u32).filter(|&row| questions.excluded[query] != Some(row));
            for (&answer, place) in questions.answers[query].iter().zip(&places.0[query]) {
                let own = score(answer);
                let expected = Place {
                    greater: others().filter(|&row| score(row) > own).count() as u32,
                    equal: others().filter(|&row| score(row) == own).count() as u32,
                };
                assert_eq!(*place, expected, "query {query}");
            }
            for (place, near) in places.0[query].iter().zip(&near.0[query]) {
                for n in 1..=5 {
                    assert_eq!(near.within(n), place.within(n), "query {query}");
                }
            }
        }
    }

    #[test]
    fn runs_are_averaged_query_by_query() {
        assert_eq!(over_runs(&[vec![1.0, 0.0], vec![0.0, 0.0]]), [0.5, 0.0]);
    }

    #[test]
    fn usage_counts_codewords_and_bits() {
        let (used, entropy) = usage(&[0, 1, 0, 2, 1, 3, 1, 0], 2, 4);
        assert_eq!(used, [2, 4]);
        assert_eq!(entropy, [1.0, 2.0]);
    }
}
