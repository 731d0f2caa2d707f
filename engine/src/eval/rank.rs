//! Ranking: counting, chunk by chunk, the rows that score more than a right row, and those that score the same.

use super::{EvalOptions, Place, Places, Questions, SAMPLE_HITS};
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
}

/// The places of all right rows, as far as rows have been seen.
pub(super) struct Ranking<'a> {
    questions: &'a Questions,
    depth: usize,
    samples: usize,
    /// The score of each right row, a question.
    right: Vec<Vec<f32>>,
    /// The score of each excluded row, a question.
    excluded: Vec<Vec<f32>>,
    places: Vec<Vec<Place>>,
    top: Vec<Vec<(f32, u32)>>,
}

impl<'a> Ranking<'a> {
    /// `scores` gives the scores of some rows for a question, bit-equal to what the scan gives.
    pub(super) fn new(
        questions: &'a Questions,
        options: &EvalOptions<'_>,
        scores: impl Fn(usize, &[u32]) -> Result<Vec<f32>>,
    ) -> Result<Self> {
        let (mut right, mut excluded) = (Vec::new(), Vec::new());
        for (n, question) in questions.all.iter().enumerate() {
            right.push(scores(n, &question.right)?);
            excluded.push(scores(n, &question.excluded)?);
        }
        let places = right
            .iter()
            .map(|scores| {
                vec![
                    Place {
                        greater: 0,
                        equal: 0
                    };
                    scores.len()
                ]
            })
            .collect();
        let samples = options.samples.min(questions.all.len());
        Ok(Self {
            // Excluded rows may stand before the right ones, and are taken out in the end.
            depth: options.depth
                + questions
                    .all
                    .iter()
                    .map(|question| question.excluded.len())
                    .max()
                    .unwrap_or(0),
            top: vec![Vec::new(); samples],
            questions,
            samples,
            right,
            excluded,
            places,
        })
    }

    /// Counts a chunk in; `first` is the number of its first row.
    pub(super) fn add(&mut self, scanner: &Scanner, first: u32, chunk: &dyn Chunk) -> Result<()> {
        let count = self.questions.all.len();
        for start in (0..count).step_by(TOGETHER) {
            let queries = start..(start + TOGETHER).min(count);
            let found = chunk.scan(scanner, queries.clone(), self.depth)?;
            for (query, found) in queries.zip(found) {
                self.count(scanner, query, chunk, found, first)?;
            }
        }
        Ok(())
    }

    fn count(
        &mut self,
        scanner: &Scanner,
        query: usize,
        chunk: &dyn Chunk,
        mut found: Vec<Found>,
        first: u32,
    ) -> Result<()> {
        if query < self.samples {
            self.keep(query, &found, first);
        }
        let mut depth = self.depth;
        for (own, place) in self.right[query].iter().zip(&mut self.places[query]) {
            // Ties with the last one found may go on past it: look further.
            while found.len() < chunk.rows() && found.last().is_some_and(|last| last.score == *own)
            {
                depth = (depth * 4).min(chunk.rows());
                found = chunk.scan(scanner, query..query + 1, depth)?.swap_remove(0);
            }
            place.greater += found.iter().filter(|hit| hit.score > *own).count() as u64;
            place.equal += found.iter().filter(|hit| hit.score == *own).count() as u64;
        }
        Ok(())
    }

    fn keep(&mut self, query: usize, found: &[Found], first: u32) {
        let excluded = &self.questions.all[query].excluded;
        let top = &mut self.top[query];
        top.extend(
            found
                .iter()
                .map(|hit| (hit.score, first + hit.row))
                .filter(|(_, row)| !excluded.contains(row)),
        );
        top.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        top.truncate(SAMPLE_HITS);
    }

    /// Places without the excluded rows, and the samples' hits.
    pub(super) fn finish(mut self) -> (Places, Vec<Vec<(f32, u32)>>) {
        for (query, places) in self.places.iter_mut().enumerate() {
            for (own, place) in self.right[query].iter().zip(places) {
                for excluded in &self.excluded[query] {
                    place.greater -= u64::from(excluded > own && place.greater > 0);
                    place.equal -= u64::from(excluded == own && place.equal > 1);
                }
            }
        }
        (Places(self.places), self.top)
    }
}

/// Codes in memory.
pub(super) struct CodesChunk<'a> {
    quantizer: &'a Quantizer,
    /// (queries, input dim)
    queries: &'a [f32],
    rows: usize,
    packed: Vec<u8>,
}

impl<'a> CodesChunk<'a> {
    /// `codes` is (rows, subspaces).
    pub(super) fn new(quantizer: &'a Quantizer, queries: &'a [f32], codes: &[u8]) -> Self {
        let mut packed = Vec::new();
        quantizer.shape().pack(codes, &mut packed);
        Self {
            quantizer,
            queries,
            rows: codes.len() / quantizer.shape().subspaces(),
            packed,
        }
    }
}

impl BlockSource for CodesChunk<'_> {
    fn rows(&self) -> usize {
        self.rows
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
        self.rows
    }

    fn scan(&self, scanner: &Scanner, queries: Range<usize>, k: usize) -> Result<Vec<Vec<Found>>> {
        let dim = self.quantizer.input_dim();
        let tables: Vec<LookupTable> = self.queries[queries.start * dim..queries.end * dim]
            .chunks_exact(dim)
            .map(|query| self.quantizer.table(query))
            .collect::<Result<_>>()?;
        scanner.scan(&[self], &tables, k)
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
