//! What the stages of a query did, and how long they took.

use crate::row::{Probes, Search};
use std::iter::Sum;
use std::ops::AddAssign;
use std::time::Instant;

/// What the stages of one or several queries asked together did. `rows` and `bytes` are of all queries; a batch reads
/// codes once for all of them.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// What was searched by: never [`Search::Auto`] where rows have no codes, which is [`Search::Exact`].
    pub search: Search,
    /// Candidates per query, where they are re-scored.
    pub candidates: Option<usize>,
    /// Cells that were asked for, under a model that has cells.
    pub probes: Option<Probes>,
    /// The stages, in the order in which they ran.
    pub stages: Vec<Stage>,
}

/// What a stage of a query did.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Stage {
    /// `vectors`, `filter`, `cells`, `candidates`, `words`, `score` or `hits`.
    pub name: &'static str,
    /// Rows that came out: queries, rows that passed, rows of the cells looked at, candidates, rows scored, hits.
    pub rows: u64,
    /// Cells that are looked at.
    pub cells: u64,
    /// Bytes of codes or vectors that it read.
    pub bytes: u64,
    /// Pages of 4 KiB that these bytes are in, where rows are read one by one.
    pub pages: u64,
    /// How long it took, in microseconds.
    pub micros: f64,
}

/// What a stage counts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) rows: u64,
    pub(crate) cells: u64,
    pub(crate) bytes: u64,
    pub(crate) pages: u64,
}

impl Counts {
    /// Returns counts of rows only.
    pub(super) fn rows(rows: impl TryInto<u64>) -> Self {
        Self {
            rows: rows.try_into().unwrap_or(u64::MAX),
            ..Self::default()
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.rows += more.rows;
        self.cells += more.cells;
        self.bytes += more.bytes;
        self.pages += more.pages;
    }
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum += one;
            sum
        })
    }
}

/// Notes the stages of a query as they end.
pub(super) struct Trace {
    stages: Vec<Stage>,
    last: Instant,
}

impl Trace {
    pub(super) fn start() -> Self {
        Self {
            stages: Vec::with_capacity(7),
            last: Instant::now(),
        }
    }

    /// Ends a stage, which began where the one before ended.
    pub(super) fn stage(&mut self, name: &'static str, counts: Counts) {
        let now = Instant::now();
        self.stages.push(Stage {
            name,
            rows: counts.rows,
            cells: counts.cells,
            bytes: counts.bytes,
            pages: counts.pages,
            micros: (now - self.last).as_secs_f64() * 1e6,
        });
        self.last = now;
    }

    pub(super) fn finish(self) -> Vec<Stage> {
        self.stages
    }
}
