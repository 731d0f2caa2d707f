//! The scan over some cells of codes that are ordered by cell.
//!
//! A query visits its cells in its own order, the best first, so that its threshold rises soon. Queries of a batch that visit
//! mostly the same cells take them one after the other instead, so that a cell is read once for all of them.

use super::one_query::{InCells, MAX_TILE, Scratch, Search};
use super::scanner::Scanner;
use super::source::{Alive, CellSource};
use super::topk::{Found, SharedThreshold, merge};
use crate::error::Result;
use crate::kernel::ROWS_PER_BLOCK;
use crate::quantizer::LookupTable;
use std::ops::Range;

/// Blocks of the first tile of a search; tiles grow with what has been seen.
const FIRST_TILE: usize = 32;

/// Some positions of a source that a query looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Visit {
    pub(crate) source: u32,
    /// The entries of the source whose positions these are, or among whose positions they are.
    pub(crate) entries: Range<u32>,
    pub(crate) positions: Range<usize>,
}

impl Visit {
    /// The most positions of a visit, so that threads can share the work.
    pub(crate) const MOST: usize = MAX_TILE * ROWS_PER_BLOCK;

    fn blocks(&self) -> Range<usize> {
        let Range { start, end } = self.positions;
        start / ROWS_PER_BLOCK..end.div_ceil(ROWS_PER_BLOCK)
    }

    /// Returns the number of blocks that are read for it.
    pub(crate) fn block_count(&self) -> usize {
        self.blocks().len()
    }
}

/// The scores of cells, with which the scores of their rows begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CellScores<'a> {
    /// By cell; of those that are looked at.
    pub(crate) scores: &'a [f32],
    /// The highest of them.
    pub(crate) top: f32,
}

/// A query and what it looks at, in order.
#[derive(Debug, Clone)]
pub(crate) struct Looked<'a> {
    pub(crate) table: &'a LookupTable,
    /// Where rows' scores begin with that of their cell.
    pub(crate) cells: Option<CellScores<'a>>,
    pub(crate) visits: &'a [Visit],
}

impl<'a> Looked<'a> {
    fn search(&self, scanner: &Scanner, k: usize) -> Search<'a> {
        Search::in_cells(scanner.kernel, self.table, self.cells, k)
    }
}

impl Scanner {
    /// For each query, the rows that can be among its k best of those that it visits, best first; as
    /// [`scan`](Self::scan) returns them.
    pub(crate) fn scan_cells(
        &self,
        sources: &[&dyn CellSource],
        queries: &[Looked<'_>],
        k: usize,
    ) -> Result<Vec<Vec<Found>>> {
        let lines = |looked: &Looked<'_>| {
            let blocks: usize = looked.visits.iter().map(Visit::block_count).sum();
            blocks * looked.table.shape().row_bytes()
        };
        let lines: usize = queries.iter().map(lines).sum();
        let threads = self.threads_for(lines as f64 * f64::from(self.kernel.costs().least()));
        if let [query] = queries
            && threads > 1
        {
            return Ok(vec![shared(self, sources, query, k, threads)?]);
        }
        self.in_parts(queries, threads, |queries| {
            match are_grouped(sources, queries) {
                true => grouped(self, sources, queries, k),
                false => {
                    let each = |query: &Looked<'_>| one_by_one(self, sources, query, k);
                    queries.iter().map(each).collect()
                }
            }
        })
    }
}

/// Whether most cells are visited by several queries.
fn are_grouped(sources: &[&dyn CellSource], queries: &[Looked<'_>]) -> bool {
    let visits: usize = queries.iter().map(|query| query.visits.len()).sum();
    let entries: usize = sources.iter().map(|source| source.starts().len()).sum();
    queries.len() > 1 && visits >= 2 * entries
}

fn one_by_one(
    scanner: &Scanner,
    sources: &[&dyn CellSource],
    query: &Looked<'_>,
    k: usize,
) -> Result<Vec<Found>> {
    let mut state = State::of(query.search(scanner, k));
    let mut scratch = Scratch::of_thread();
    for visit in query.visits {
        state.look(sources, visit, f32::NEG_INFINITY, &mut scratch)?;
    }
    scratch.put_back();
    Ok(merge([state.search.top], k))
}

/// Several threads share the visits of one query.
fn shared(
    scanner: &Scanner,
    sources: &[&dyn CellSource],
    query: &Looked<'_>,
    k: usize,
    threads: usize,
) -> Result<Vec<Found>> {
    let threshold = SharedThreshold::new(f32::NEG_INFINITY);
    let new = || State::of(query.search(scanner, k));
    let states = scanner.sweep(query.visits, threads, new, |state, visit| {
        let mut scratch = Scratch::of_thread();
        state.look(sources, visit, threshold.get(), &mut scratch)?;
        threshold.raise(state.search.top.threshold());
        scratch.put_back();
        Ok(())
    })?;
    Ok(merge(states.into_iter().map(|state| state.search.top), k))
}

/// Each cell is read once for all queries that visit it.
fn grouped(
    scanner: &Scanner,
    sources: &[&dyn CellSource],
    queries: &[Looked<'_>],
    k: usize,
) -> Result<Vec<Vec<Found>>> {
    let mut states: Vec<State<'_>> = queries
        .iter()
        .map(|query| State::of(query.search(scanner, k)))
        .collect();
    let mut scratch = Scratch::of_thread();
    let mut later: Vec<(u32, usize, usize, usize)> = Vec::new();
    for (number, (query, state)) in queries.iter().zip(&mut states).enumerate() {
        // Its best cells first, until it has a threshold.
        let mut seen = 0;
        for (at, visit) in query.visits.iter().enumerate() {
            if seen < 2 * k {
                seen += visit.positions.len();
                state.look(sources, visit, f32::NEG_INFINITY, &mut scratch)?;
            } else {
                later.push((visit.source, visit.positions.start, number, at));
            }
        }
    }
    later.sort_unstable();
    for (_, _, number, at) in later {
        let visit = &queries[number].visits[at];
        states[number].look(sources, visit, f32::NEG_INFINITY, &mut scratch)?;
    }
    scratch.put_back();
    let found = states.into_iter().map(|state| merge([state.search.top], k));
    Ok(found.collect())
}

/// A search on one thread.
struct State<'a> {
    search: Search<'a>,
    /// Blocks that it has seen.
    seen: usize,
}

impl<'a> State<'a> {
    fn of(search: Search<'a>) -> Self {
        Self { search, seen: 0 }
    }

    fn look(
        &mut self,
        sources: &[&dyn CellSource],
        visit: &Visit,
        threshold: f32,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let source = sources[visit.source as usize];
        let block_bytes = self.search.shape().block_bytes();
        let alive = Alive::within(source.live(), visit.positions.clone());
        let order = InCells {
            source,
            first: visit.entries.start as usize,
            count: visit.entries.len(),
        };
        self.search.top.enter(visit.source, threshold);
        let Range { mut start, end } = visit.blocks();
        while start < end {
            let next = (start + (self.seen / 4).clamp(FIRST_TILE, MAX_TILE)).min(end);
            if alive.any(start..next) {
                let bytes = source.blocks(start..next)?;
                debug_assert_eq!(bytes.len(), (next - start) * block_bytes);
                self.search
                    .tile(bytes, start, alive, Some(order), scratch)?;
            }
            self.seen += next - start;
            start = next;
        }
        Ok(())
    }
}
