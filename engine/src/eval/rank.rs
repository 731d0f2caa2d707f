//! Ranking: counts the rows that score more than a right row, and those that score the same.

use super::held::Held;
use super::numbers::Numbers;
use super::{Answers, Place, Places, SAMPLE_HITS, Samples, Steps};
use crate::error::Result;
use crate::quantizer::{Asked, CellStarts, LookupTable};
use crate::query::candidates;
use crate::query::filter::Masks;
use crate::query::searched::Searched;
use crate::scan::{Found, VectorSource};
use crate::stored::StoredRef;
use crate::view::searchable::Searchable;
use std::ops::Range;

/// Queries per pass.
const TOGETHER: usize = 32;

/// Rows that a query stage ranks by one kind of score.
pub(super) trait Pool {
    /// Returns the number of live rows.
    fn rows(&self) -> usize;

    /// Returns the number of a row that was found.
    fn number(&self, found: &Found) -> u32;

    /// Returns the score of a row for a query, bit-equal to what [`best`](Self::best) gives.
    fn score(&self, query: usize, number: u32) -> Result<f32>;

    /// Returns the k best rows for each of some queries, best first. More may follow that tie with the last.
    fn best(&self, queries: Range<usize>, k: usize) -> Result<Vec<Vec<Found>>>;

    /// Returns how many rows have this score for a query, if a search for `k` rows ended among rows of that score.
    fn count_equal(&self, query: usize, score: f32, k: usize) -> Result<usize>;
}

/// The scores of the rows that a query's answers name.
#[derive(Default)]
pub(super) struct Named {
    /// The score of each right row.
    right: Vec<f32>,
    /// The score of each excluded row.
    excluded: Vec<f32>,
}

impl Named {
    /// Returns the scores for each query.
    pub(super) fn of(
        answers: &[Answers],
        score: impl Fn(usize, u32) -> Result<f32>,
    ) -> Result<Vec<Self>> {
        let each = |(query, answers): (usize, &Answers)| {
            let scores = |rows: &[u32]| -> Result<Vec<f32>> {
                rows.iter().map(|row| score(query, *row)).collect()
            };
            Ok(Self {
                right: scores(&answers.right)?,
                excluded: scores(&answers.excluded)?,
            })
        };
        answers.iter().enumerate().map(each).collect()
    }
}

/// The places of all right rows, over the rows added so far.
pub(super) struct Ranking<'a> {
    answers: &'a [Answers],
    depth: usize,
    named: Vec<Named>,
    places: Vec<Vec<Place>>,
    /// The best rows of the first queries.
    samples: Samples,
}

impl<'a> Ranking<'a> {
    /// Distinguishes the first `depth` places, and keeps the hits of the first `samples` queries.
    pub(super) fn new(
        answers: &'a [Answers],
        named: Vec<Named>,
        depth: usize,
        samples: usize,
    ) -> Self {
        let unseen = Place {
            greater: 0,
            equal: 0,
        };
        // Excluded rows may rank above the right ones; `finish` removes them.
        let excluded_at_most = (named.iter()).map(|named| named.excluded.len()).max();
        Self {
            depth: depth + excluded_at_most.unwrap_or(0),
            places: (named.iter())
                .map(|named| vec![unseen; named.right.len()])
                .collect(),
            samples: vec![Vec::new(); samples.min(answers.len())],
            answers,
            named,
        }
    }

    /// Ranks all rows of a pool at once.
    pub(super) fn of(
        pool: &impl Pool,
        answers: &'a [Answers],
        depth: usize,
        samples: usize,
        steps: &Steps,
    ) -> Result<(Places, Samples)> {
        let named = Named::of(answers, |query, row| pool.score(query, row))?;
        let mut ranking = Self::new(answers, named, depth, samples);
        ranking.add(pool, steps)?;
        Ok(ranking.finish())
    }

    /// Adds the rows of a pool.
    pub(super) fn add(&mut self, pool: &impl Pool, steps: &Steps) -> Result<()> {
        let count = self.answers.len();
        for start in (0..count).step_by(TOGETHER) {
            let queries = start..(start + TOGETHER).min(count);
            let found = pool.best(queries.clone(), self.depth)?;
            for (query, found) in queries.clone().zip(found) {
                self.keep(query, pool, &found);
                self.count(query, pool, &found)?;
            }
            steps.add(queries.len() as u64)?;
        }
        Ok(())
    }

    fn count(&mut self, query: usize, pool: &impl Pool, found: &[Found]) -> Result<()> {
        let right = &self.named[query].right;
        for (own, place) in right.iter().zip(&mut self.places[query]) {
            // Rows that tie with the last one found may not have been found.
            let cut =
                found.len() < pool.rows() && found.last().is_some_and(|last| last.score == *own);
            let equal = match cut {
                true => pool.count_equal(query, *own, found.len())?,
                false => found.iter().filter(|hit| hit.score == *own).count(),
            };
            place.greater += found.iter().filter(|hit| hit.score > *own).count() as u64;
            place.equal += equal as u64;
        }
        Ok(())
    }

    fn keep(&mut self, query: usize, pool: &impl Pool, found: &[Found]) {
        let Some(best) = self.samples.get_mut(query) else {
            return;
        };
        let excluded = &self.answers[query].excluded;
        best.extend(
            (found.iter())
                .map(|hit| (hit.score, pool.number(hit)))
                .filter(|(_, row)| !excluded.contains(row)),
        );
        best.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        best.truncate(SAMPLE_HITS);
    }

    /// Returns the places without the excluded rows, and the hits of the samples.
    pub(super) fn finish(mut self) -> (Places, Samples) {
        for (query, places) in self.places.iter_mut().enumerate() {
            let Answers { right, excluded } = &self.answers[query];
            let named = &self.named[query];
            for ((row, own), place) in right.iter().zip(&named.right).zip(places) {
                let others = excluded.iter().zip(&named.excluded);
                for (_, score) in others.filter(|(excluded, _)| *excluded != row) {
                    place.greater -= u64::from(score > own && place.greater > 0);
                    place.equal -= u64::from(score == own && place.equal > 1);
                }
            }
        }
        (Places(self.places), self.samples)
    }
}

/// Rows ranked by their codes: all of them, whatever cells they are in.
pub(super) struct ByCodes<'a> {
    pub(super) searched: &'a Searched<'a, Held<'a>>,
    pub(super) numbers: &'a Numbers,
    /// (queries, dim)
    pub(super) queries: &'a [f32],
}

impl ByCodes<'_> {
    fn scored(&self, query: usize) -> Result<Scored> {
        let quantizer = self.searched.quantizer.expect("rows have codes");
        let Asked { table, query } =
            quantizer.ask(of(self.queries, query..query + 1, self.searched.dim))?;
        let cells = match quantizer.is_residual() {
            true => quantizer.scores_of_cells(&query)?,
            false => Vec::new(),
        };
        Ok(Scored { table, cells })
    }
}

/// What scores codes for a query.
struct Scored {
    table: LookupTable,
    /// The score of each cell, where rows' scores begin with it.
    cells: Vec<f32>,
}

impl Scored {
    fn score(&self, cell: Option<u32>, code: &[u8]) -> f32 {
        let first = cell.and_then(|cell| self.cells.get(cell as usize));
        self.table.score_from(first.copied().unwrap_or(0.0), code)
    }
}

impl Pool for ByCodes<'_> {
    fn rows(&self) -> usize {
        self.numbers.len()
    }

    fn number(&self, found: &Found) -> u32 {
        self.numbers.number(found)
    }

    fn score(&self, query: usize, number: u32) -> Result<f32> {
        let scored = self.scored(query)?;
        let place = self.numbers.place(number);
        let part = &self.searched.parts[place.part];
        let position = part.position(place.row.0 as usize)?;
        let packed = part.blocks(position / 64..position / 64 + 1)?;
        let shape = scored.table.shape();
        let mut code = vec![0; shape.subspaces()];
        shape.unpack_row(packed, position % 64, &mut code);
        Ok(scored.score(part.cell_at(position), &code))
    }

    fn best(&self, queries: Range<usize>, k: usize) -> Result<Vec<Vec<Found>>> {
        let queries = of(self.queries, queries, self.searched.dim);
        candidates::by_all_codes(self.searched, queries, &Masks::none(), k)
    }

    /// Scores each row once. Early in training most rows may have the same code, and keeping the best k of them would
    /// be expensive.
    fn count_equal(&self, query: usize, score: f32, _: usize) -> Result<usize> {
        let scored = self.scored(query)?;
        let shape = scored.table.shape();
        let mut code = vec![0; shape.subspaces()];
        let mut equal = 0;
        for part in &self.searched.parts {
            let live = part.live();
            let mut cells = part.cell_starts().map(CellStarts::each_position);
            for block in 0..shape.blocks(part.len()) {
                let packed = part.blocks(block..block + 1)?;
                let positions = block * 64..(block * 64 + 64).min(part.len());
                let rows = match cells {
                    Some(_) => part.rows_at(positions.clone())?,
                    None => &[],
                };
                for (at, position) in positions.enumerate() {
                    let cell = cells.as_mut().and_then(Iterator::next);
                    let row = rows.get(at).map_or(position, |&row| row as usize);
                    if live.is_none_or(|live| live[row / 64] >> (row % 64) & 1 == 1) {
                        shape.unpack_row(packed, at, &mut code);
                        equal += usize::from(scored.score(cell, &code) == score);
                    }
                }
            }
        }
        Ok(equal)
    }
}

/// Rows ranked by their vectors.
pub(super) struct ByVectors<'a, P> {
    pub(super) searched: &'a Searched<'a, P>,
    pub(super) numbers: &'a Numbers,
    /// (queries, dim)
    pub(super) queries: &'a [f32],
}

impl<P: Searchable> Pool for ByVectors<'_, P> {
    fn rows(&self) -> usize {
        self.numbers.len()
    }

    fn number(&self, found: &Found) -> u32 {
        self.numbers.number(found)
    }

    fn score(&self, query: usize, number: u32) -> Result<f32> {
        let Searched {
            dim,
            scanner,
            metric,
            ref parts,
            ..
        } = *self.searched;
        let place = self.numbers.place(number);
        let row = place.row.0 as usize;
        let alone = Alone(parts[place.part].vectors(row..row + 1)?, dim);
        let query = of(self.queries, query..query + 1, dim);
        let found = scanner.scan_exact(&[&alone], query, metric, 1)?;
        Ok(found[0][0].score)
    }

    fn best(&self, queries: Range<usize>, k: usize) -> Result<Vec<Vec<Found>>> {
        let queries = of(self.queries, queries, self.searched.dim);
        candidates::by_vectors(self.searched, queries, &Masks::none(), k)
    }

    /// Searches deeper. Only the scan gives scores that are bit-equal to its own.
    fn count_equal(&self, query: usize, score: f32, k: usize) -> Result<usize> {
        let mut deeper = k;
        loop {
            deeper *= 4;
            let found = self.best(query..query + 1, deeper)?.swap_remove(0);
            if found.len() < deeper || found.last().is_some_and(|last| last.score < score) {
                return Ok(found.iter().filter(|hit| hit.score == score).count());
            }
        }
    }
}

/// Returns a range of the queries (queries, dim).
fn of(queries: &[f32], range: Range<usize>, dim: usize) -> &[f32] {
    &queries[range.start * dim..range.end * dim]
}

/// A single stored vector, and its width.
struct Alone<'a>(StoredRef<'a>, usize);

impl VectorSource for Alone<'_> {
    fn rows(&self) -> usize {
        1
    }

    fn dim(&self) -> usize {
        self.1
    }

    fn live(&self) -> Option<&[u64]> {
        None
    }

    fn rows_at(&self, _: Range<usize>) -> Result<StoredRef<'_>> {
        Ok(self.0)
    }
}
