//! Ranking: counting, chunk by chunk, the rows that score more than a right row, and those that score the same.

use super::{Answers, EvalOptions, Place, Places, SAMPLE_HITS};
use crate::error::Result;
use crate::metric::Metric;
use crate::quantizer::{LookupTable, Quantizer};
use crate::scan::{BlockSource, Found, InMemory, Scanner, VectorSource};
use std::ops::Range;

/// Queries that share a pass.
const TOGETHER: usize = 32;

/// Some rows in memory, to be scanned for any of the queries.
pub(super) trait Chunk {
    fn rows(&self) -> usize;

    fn scan(&self, scanner: &Scanner, queries: Range<usize>, k: usize) -> Result<Vec<Vec<Found>>>;

    /// How many rows have this score for a query, where a scan for `k` rows ended among them.
    fn count_equal(&self, scanner: &Scanner, query: usize, score: f32, k: usize) -> Result<usize>;
}

/// The places of all right rows, as far as rows have been seen.
pub(super) struct Ranking<'a> {
    answers: &'a [Answers],
    depth: usize,
    /// The score of each right row, per query.
    right: Vec<Vec<f32>>,
    /// The score of each excluded row, per query.
    excluded: Vec<Vec<f32>>,
    places: Vec<Vec<Place>>,
    /// The best rows of the first queries.
    samples: Vec<Vec<(f32, u32)>>,
}

impl<'a> Ranking<'a> {
    /// `scores` gives the scores of some rows for a query, bit-equal to what the scan gives.
    pub(super) fn new(
        answers: &'a [Answers],
        options: &EvalOptions<'_>,
        scores: impl Fn(usize, &[u32]) -> Result<Vec<f32>>,
    ) -> Result<Self> {
        let (mut right, mut excluded) = (Vec::new(), Vec::new());
        for (query, answers) in answers.iter().enumerate() {
            let mut all = scores(query, &[&answers.right[..], &answers.excluded].concat())?;
            excluded.push(all.split_off(answers.right.len()));
            right.push(all);
        }
        let unseen = Place {
            greater: 0,
            equal: 0,
        };
        // Excluded rows may stand before the right ones, and are taken out in the end.
        let excluded_at_most = excluded.iter().map(Vec::len).max().unwrap_or(0);
        Ok(Self {
            depth: options.depth + excluded_at_most,
            places: right.iter().map(|all| vec![unseen; all.len()]).collect(),
            samples: vec![Vec::new(); options.samples.min(answers.len())],
            answers,
            right,
            excluded,
        })
    }

    /// Counts a chunk in; `first` is the number of its first row.
    pub(super) fn add(&mut self, scanner: &Scanner, first: u32, chunk: &dyn Chunk) -> Result<()> {
        let count = self.answers.len();
        for start in (0..count).step_by(TOGETHER) {
            let queries = start..(start + TOGETHER).min(count);
            let found = chunk.scan(scanner, queries.clone(), self.depth)?;
            for (query, found) in queries.zip(found) {
                self.keep(query, &found, first);
                self.count(scanner, query, chunk, &found)?;
            }
        }
        Ok(())
    }

    fn count(
        &mut self,
        scanner: &Scanner,
        query: usize,
        chunk: &dyn Chunk,
        found: &[Found],
    ) -> Result<()> {
        for (own, place) in self.right[query].iter().zip(&mut self.places[query]) {
            // Ties with the last one found may go on past it.
            let cut =
                found.len() < chunk.rows() && found.last().is_some_and(|last| last.score == *own);
            let equal = match cut {
                true => chunk.count_equal(scanner, query, *own, found.len())?,
                false => found.iter().filter(|hit| hit.score == *own).count(),
            };
            place.greater += found.iter().filter(|hit| hit.score > *own).count() as u64;
            place.equal += equal as u64;
        }
        Ok(())
    }

    fn keep(&mut self, query: usize, found: &[Found], first: u32) {
        let Some(best) = self.samples.get_mut(query) else {
            return;
        };
        let excluded = &self.answers[query].excluded;
        best.extend(
            found
                .iter()
                .map(|hit| (hit.score, first + hit.row))
                .filter(|(_, row)| !excluded.contains(row)),
        );
        best.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        best.truncate(SAMPLE_HITS);
    }

    /// Places without the excluded rows, and the samples' hits.
    pub(super) fn finish(mut self) -> (Places, Vec<Vec<(f32, u32)>>) {
        for (query, places) in self.places.iter_mut().enumerate() {
            let Answers { right, excluded } = &self.answers[query];
            for ((row, own), place) in right.iter().zip(&self.right[query]).zip(places) {
                let others = excluded.iter().zip(&self.excluded[query]);
                for (_, score) in others.filter(|(excluded, _)| *excluded != row) {
                    place.greater -= u64::from(score > own && place.greater > 0);
                    place.equal -= u64::from(score == own && place.equal > 1);
                }
            }
        }
        (Places(self.places), self.samples)
    }
}

/// Codes in memory.
pub(super) struct CodesChunk<'a> {
    quantizer: &'a Quantizer,
    /// (queries, input dim)
    queries: &'a [f32],
    /// (rows, subspaces)
    codes: &'a [u8],
    packed: Vec<u8>,
}

impl<'a> CodesChunk<'a> {
    /// `codes` is (rows, subspaces).
    pub(super) fn new(quantizer: &'a Quantizer, queries: &'a [f32], codes: &'a [u8]) -> Self {
        let mut packed = Vec::new();
        quantizer.shape().pack(codes, &mut packed);
        Self {
            quantizer,
            queries,
            codes,
            packed,
        }
    }

    fn table(&self, query: usize) -> Result<LookupTable> {
        let dim = self.quantizer.input_dim();
        self.quantizer.table(&self.queries[query * dim..][..dim])
    }
}

impl BlockSource for CodesChunk<'_> {
    fn rows(&self) -> usize {
        self.codes.len() / self.quantizer.shape().subspaces()
    }

    fn blocks(&self, blocks: Range<usize>) -> Result<&[u8]> {
        let bytes = self.quantizer.shape().block_bytes();
        Ok(&self.packed[blocks.start * bytes..blocks.end * bytes])
    }

    fn live(&self) -> Option<&[u64]> {
        None
    }
}

impl Chunk for CodesChunk<'_> {
    fn rows(&self) -> usize {
        BlockSource::rows(self)
    }

    fn scan(&self, scanner: &Scanner, queries: Range<usize>, k: usize) -> Result<Vec<Vec<Found>>> {
        let tables: Vec<LookupTable> = queries
            .map(|query| self.table(query))
            .collect::<Result<_>>()?;
        scanner.scan(&[self], &tables, k)
    }

    /// One look at each row: early in training most rows may have one code, and the best k of them are dear to keep.
    fn count_equal(&self, _: &Scanner, query: usize, score: f32, _: usize) -> Result<usize> {
        let table = self.table(query)?;
        let codes = self.codes.chunks_exact(self.quantizer.shape().subspaces());
        Ok(codes.filter(|codes| table.score(codes) == score).count())
    }
}

/// Whole vectors in memory.
pub(super) struct ExactChunk<'a> {
    pub(super) rows: InMemory<'a>,
    /// (queries, dim)
    pub(super) queries: &'a [f32],
    pub(super) metric: Metric,
}

impl Chunk for ExactChunk<'_> {
    fn rows(&self) -> usize {
        VectorSource::rows(&self.rows)
    }

    fn scan(&self, scanner: &Scanner, queries: Range<usize>, k: usize) -> Result<Vec<Vec<Found>>> {
        let dim = self.rows.dim;
        let queries = &self.queries[queries.start * dim..queries.end * dim];
        scanner.scan_exact(&[&self.rows], queries, self.metric, k)
    }

    /// By deeper scans: only the scan gives scores that are bit-equal to its own.
    fn count_equal(&self, scanner: &Scanner, query: usize, score: f32, k: usize) -> Result<usize> {
        let mut deeper = k;
        loop {
            deeper *= 4;
            let found = self.scan(scanner, query..query + 1, deeper)?.swap_remove(0);
            if found.len() < deeper || found.last().is_some_and(|last| last.score < score) {
                return Ok(found.iter().filter(|hit| hit.score == score).count());
            }
        }
    }
}

/// The scores of rows (n, dim) for one query, as the scan computes them.
pub(super) fn scores(
    scanner: &Scanner,
    rows: &[f32],
    query: &[f32],
    metric: Metric,
) -> Result<Vec<f32>> {
    let dim = query.len();
    let n = rows.len() / dim;
    if n == 0 {
        return Ok(Vec::new());
    }
    let chunk = ExactChunk {
        rows: InMemory { values: rows, dim },
        queries: query,
        metric,
    };
    let found = chunk.scan(scanner, 0..1, n)?.swap_remove(0);
    let mut scores = vec![f32::NEG_INFINITY; n];
    for hit in found {
        scores[hit.row as usize] = hit.score;
    }
    Ok(scores)
}
