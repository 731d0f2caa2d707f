//! Ranks rows by their codes, whether the rows come from a snapshot or from memory.

use super::codes::{CodeCounter, CodeReport, Usage};
use super::held::Held;
use super::numbers::Numbers;
use super::rank::{ByCodes, ByVectors, Named, Pool, Ranking};
use super::{CodePlaces, EvalOptions, Evaluation, Places, Steps, VectorQuestions, inner};
use crate::error::Result;
use crate::quantizer::{Quantizer, ROWS_PER_BLOCK, RowCodes};
use crate::query::searched::Searched;
use crate::threads;
use crate::view::searchable::Searchable;

/// Rows and questions, ranked by the codes of the rows.
pub(super) struct Coded<'a> {
    pub(super) searched: &'a Searched<'a, Held<'a>>,
    pub(super) quantizer: &'a Quantizer,
    pub(super) questions: &'a VectorQuestions,
    pub(super) options: &'a EvalOptions,
    pub(super) steps: &'a Steps,
}

impl Coded<'_> {
    /// Returns places among the codes, places among the unquantized projections if there is a head, and a report on the
    /// codes.
    pub(super) fn evaluate(&self) -> Result<Evaluation> {
        let numbers = Numbers::of(&self.searched.parts, 0);
        let places = self.places(&numbers)?;
        let (codes, head) = self.report()?;
        Ok(Evaluation {
            places,
            head,
            codes,
        })
    }

    /// Returns the report on the codes and, if there is a head, places among its projections.
    pub(super) fn report(&self) -> Result<(CodeReport, Option<Places>)> {
        let mut counter = CodeCounter::new(self.quantizer);
        let mut head = match self.quantizer.head() {
            Some(_) => Some(Projected::new(self)?),
            None => None,
        };
        self.for_each_chunk(|projected, codes| {
            counter.add(projected, codes);
            match &mut head {
                Some(head) => head.add(projected),
                None => Ok(()),
            }
        })?;
        Ok((counter.finish(), head.map(|head| head.ranking.finish().0)))
    }

    /// Returns places among the codes and the codewords in use. Does not project the rows separately.
    pub(super) fn rank(&self) -> Result<CodePlaces> {
        let numbers = Numbers::of(&self.searched.parts, 0);
        let mut usage = Usage::new(self.quantizer.shape());
        self.for_each_code(|_, _, _, code| {
            usage.add(code);
            Ok(())
        })?;
        Ok(CodePlaces {
            places: self.places(&numbers)?,
            used: usage.used(),
        })
    }

    fn places(&self, numbers: &Numbers) -> Result<Places> {
        let pool = ByCodes {
            searched: self.searched,
            numbers,
            queries: &self.questions.vectors,
        };
        let depth = self.options.depth();
        let ranked = Ranking::of(&pool, &self.questions.answers, depth, 0, self.steps);
        Ok(ranked?.0)
    }

    /// Calls `each` with part, row, cell and code of every live row, in order.
    fn for_each_code(
        &self,
        mut each: impl FnMut(&Held<'_>, usize, Option<u32>, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let shape = self.quantizer.shape();
        let mut code = vec![0; shape.subspaces()];
        for part in &self.searched.parts {
            let live = part.live();
            for row in 0..part.len() {
                if live.is_none_or(|live| live[row / 64] >> (row % 64) & 1 == 1) {
                    let position = part.position(row)?;
                    let block = position / ROWS_PER_BLOCK;
                    let packed = part.blocks(block..block + 1)?;
                    shape.unpack_row(packed, position % ROWS_PER_BLOCK, &mut code);
                    each(part, row, part.cell_at(position), &code)?;
                }
            }
        }
        Ok(())
    }

    /// Calls `each` with the projections (n, dim) and the codes of live rows, in order.
    fn for_each_chunk(&self, mut each: impl FnMut(&[f32], &RowCodes) -> Result<()>) -> Result<()> {
        // Vectors, projections and codes.
        let values = self.quantizer.input_dim() + self.quantizer.dim() + 64;
        let rows = self.options.chunk(4 * values);
        let (mut vectors, mut codes) = (Vec::new(), RowCodes::default());
        let mut flush = |vectors: &mut Vec<f32>, codes: &mut RowCodes| -> Result<()> {
            each(&self.project(vectors)?, codes)?;
            self.steps
                .add((vectors.len() / self.quantizer.input_dim()) as u64)?;
            vectors.clear();
            codes.clear();
            Ok(())
        };
        self.for_each_code(|part, row, cell, code| {
            part.vectors(row..row + 1)?.widen_into(&mut vectors);
            codes.codes.extend_from_slice(code);
            codes.cells.extend(cell);
            match codes.codes.len() / code.len() == rows {
                true => flush(&mut vectors, &mut codes),
                false => Ok(()),
            }
        })?;
        flush(&mut vectors, &mut codes)
    }

    /// Returns the vectors as the head projects them: (n, dim).
    fn project(&self, vectors: &[f32]) -> Result<Vec<f32>> {
        let width = self.quantizer.input_dim();
        let mut projected = vec![0.0; vectors.len() / width * self.quantizer.dim()];
        let threads = self.searched.scanner.threads();
        in_parallel(threads, vectors, width, &mut projected, |rows, out| {
            self.quantizer.project(rows, out)
        })?;
        Ok(projected)
    }
}

/// The places of right rows among the projections of a head.
struct Projected<'a> {
    coded: &'a Coded<'a>,
    /// (queries, dim)
    queries: Vec<f32>,
    ranking: Ranking<'a>,
    /// The number of the next row.
    next: u32,
}

impl<'a> Projected<'a> {
    fn new(coded: &'a Coded<'a>) -> Result<Self> {
        let numbers = Numbers::of(&coded.searched.parts, 0);
        let (parts, dim) = (&coded.searched.parts, coded.quantizer.dim());
        let queries = coded.project(&coded.questions.vectors)?;
        let answers = &coded.questions.answers;
        let named = Named::of(answers, |query, number| {
            let (mut key, mut projected) = (Vec::new(), vec![0.0; dim]);
            let place = numbers.place(number);
            let row = place.row.0 as usize;
            parts[place.part]
                .vectors(row..row + 1)?
                .widen_into(&mut key);
            coded.quantizer.project(&key, &mut projected)?;
            let query = &queries[query * dim..][..dim];
            in_space(coded, &projected, query, 0, |pool| pool.score(0, 0))
        })?;
        let ranking = Ranking::new(answers, named, coded.options.depth(), 0);
        Ok(Self {
            coded,
            queries,
            ranking,
            next: 0,
        })
    }

    /// Adds keys of shape (n, dim).
    fn add(&mut self, keys: &[f32]) -> Result<()> {
        let (ranking, first) = (&mut self.ranking, self.next);
        self.next += (keys.len() / self.coded.quantizer.dim()) as u32;
        in_space(self.coded, keys, &self.queries, first, |pool| {
            ranking.add(&pool, self.coded.steps)
        })
    }
}

/// Calls `with` with keys (n, dim) and queries (m, dim) in the head's space. The keys are numbered from `first`.
fn in_space<T>(
    coded: &Coded<'_>,
    keys: &[f32],
    queries: &[f32],
    first: u32,
    with: impl FnOnce(ByVectors<'_, Held<'_>>) -> T,
) -> T {
    let dim = coded.quantizer.dim();
    let searched = Searched {
        parts: vec![Held::values(keys, dim)],
        quantizer: None,
        scorer: None,
        words: None,
        statistics: None,
        serving: None,
        metric: inner(coded.quantizer.metric()),
        dim,
        scanner: coded.searched.scanner,
    };
    with(ByVectors {
        numbers: &Numbers::of(&searched.parts, first),
        searched: &searched,
        queries,
    })
}

/// Maps rows (n, width) to `out` (n, anything), with one share per thread.
pub(super) fn in_parallel<T: Send>(
    threads: usize,
    rows: &[f32],
    width: usize,
    out: &mut [T],
    map: impl Fn(&[f32], &mut [T]) -> Result<()> + Sync,
) -> Result<()> {
    let n = rows.len() / width;
    if n == 0 {
        return Ok(());
    }
    let out_width = out.len() / n;
    let share = n.div_ceil(threads.max(1));
    let parts = rows
        .chunks(share * width)
        .zip(out.chunks_mut(share * out_width));
    threads::share_out("mopqdb-eval", parts, |(rows, out)| map(rows, out))?;
    Ok(())
}
