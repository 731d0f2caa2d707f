//! One query's search, on one thread: filter, rescore what is left, tighten.

use super::cells::CellScores;
use super::source::{Alive, CellSource};
use super::topk::TopK;
use crate::error::Result;
use crate::kernel::{Filter, Kernel, Survivors, Verdict};
use crate::quantizer::{CodeShape, LookupTable, ROWS_PER_BLOCK};
use std::cell::Cell;

/// Most blocks that [`Search::tile`] takes.
pub(super) const MAX_TILE: usize = 1024;
const _: () = assert!(
    MAX_TILE * ROWS_PER_BLOCK <= 1 << 16,
    "a u16 counts its rows"
);

/// Survivors that are scored together.
const RESCORED: usize = 16;

/// Blocks on which a plan is made.
const PLAN_BLOCKS: usize = 16;

/// Blocks on which it is tried how much a first look has to read.
const LOOK_BLOCKS: usize = 64;

/// Returns the cost of scanning a block, in lines read in order: `first` lines for every block, and all lines for the
/// share that needs a second pass.
fn look_cost(first: usize, all: usize, again: f32) -> f32 {
    first as f32 + again * (all as f32 + SECOND_LOOK)
}

/// The cost of a second pass besides its lines.
const SECOND_LOOK: f32 = 4.0;

/// Above this share of second passes, a slightly higher threshold changes little.
const HOPELESS: f32 = 0.5;

/// The tables are built again when the range of deficits has shrunk to this share, and enough rows have been scored to
/// pay for it.
const SHARPER: f64 = 0.97;
const SCORED: usize = 16;

/// How rows are scored at present.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Plan {
    /// Not decided.
    None,
    /// All in f32.
    Floats,
    /// By the filter at its level, which let this many rows of a block through when it was chosen. If that is the
    /// cheapest level, a rising threshold leaves it the best.
    Filter { expected: f32, cheapest: bool },
}

#[derive(Debug, Clone)]
pub(super) struct Search<'a> {
    kernel: Kernel,
    table: &'a LookupTable,
    /// The score of each cell that is looked at, where rows' scores begin with it.
    cells: Option<&'a [f32]>,
    pub(super) top: TopK,
    filter: Filter,
    verdict: Verdict,
    /// The score that the filter's tables were made for. Requires: never above the cutoff when they are used.
    aimed_at: f32,
    plan: Plan,
    /// Rows scored in f32 since the tables were made.
    scored: usize,
    /// Range at which the plan was made, relative to which it is made again.
    planned_at: f64,
    /// Rows let through and blocks looked at since the plan was made.
    measured: (usize, usize),
    /// Range relative to that at which it was tried how much of a block is to be looked at first; and the one at which it is
    /// worth trying again.
    looked_at: f64,
    look_again_at: f64,
}

/// Blocks whose positions are ordered by cell.
#[derive(Clone, Copy)]
pub(super) struct InCells<'s> {
    pub(super) source: &'s dyn CellSource,
    /// The first entry that is looked at, and the number of entries.
    pub(super) first: usize,
    pub(super) count: usize,
}

impl InCells<'_> {
    /// Returns the highest of the cells' scores.
    fn best(&self, cells: &[f32]) -> f32 {
        let starts = self.source.starts();
        (self.first..self.first + self.count)
            .map(|entry| cells[starts.cell(entry) as usize])
            .fold(f32::NEG_INFINITY, f32::max)
    }

    /// Returns the score of the cell that a position is in. Positions of other entries have one too.
    fn score(&self, cells: &[f32], position: usize) -> f32 {
        let starts = self.source.starts();
        let entry = match self.count {
            1 => self.first,
            _ => {
                let entries = &starts.entries()[self.first..self.first + self.count];
                let before = entries.partition_point(|entry| entry.1 as usize <= position);
                self.first + before.max(1) - 1
            }
        };
        cells[starts.cell(entry) as usize]
    }
}

/// What the searches of one thread write to, one after the other. A thread keeps it from scan to scan: allocating it
/// again took 2% of a query over a million rows.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// What the filter let through of a tile, and the same as numbers of rows.
    survivors: Survivors,
    rows: Vec<u16>,
}

thread_local! {
    static SCRATCH: Cell<Scratch> = Cell::default();
}

impl Scratch {
    /// Takes this thread's scratch memory, to be returned by [`put_back`](Self::put_back); an empty one if it is
    /// in use.
    pub(super) fn of_thread() -> Self {
        SCRATCH.take()
    }

    pub(super) fn put_back(self) {
        SCRATCH.set(self);
    }
}

impl<'a> Search<'a> {
    pub(super) fn new(kernel: Kernel, table: &'a LookupTable, k: usize) -> Self {
        Self::from(kernel, table, None, TopK::new(k))
    }

    /// A search among codes that are ordered by cell. `cells`: rows' scores begin with these.
    pub(super) fn in_cells(
        kernel: Kernel,
        table: &'a LookupTable,
        cells: Option<CellScores<'a>>,
        k: usize,
    ) -> Self {
        Self::from(kernel, table, cells, TopK::new(k).in_any_order())
    }

    fn from(
        kernel: Kernel,
        table: &'a LookupTable,
        cells: Option<CellScores<'a>>,
        top: TopK,
    ) -> Self {
        let codewords = table.shape().codewords();
        let range = cells.map(|cells| {
            let magnitude = |scores: &[f32]| kernel.largest_magnitude(scores);
            (cells.top, magnitude(cells.scores))
        });
        Self {
            kernel,
            table,
            cells: cells.map(|cells| cells.scores),
            top,
            filter: Filter::new(kernel, table.entries(), codewords, range),
            verdict: Verdict::Everything,
            aimed_at: f32::NEG_INFINITY,
            plan: Plan::None,
            scored: 0,
            planned_at: 1.0,
            measured: (0, 0),
            looked_at: 1.0,
            look_again_at: 1.0,
        }
    }

    pub(super) fn shape(&self) -> CodeShape {
        self.table.shape()
    }

    /// Begins again, for the k best, with what it has learned of the rows' character. Returns the last score that it would have
    /// found, if it has seen enough rows.
    pub(super) fn again(&mut self, k: usize) -> Option<f32> {
        std::mem::replace(&mut self.top, TopK::new(k)).kth()
    }

    /// Offers the rows of some blocks, at most [`MAX_TILE`], of the source that was entered last. A tile without live
    /// rows is not worth a call. `order`: positions are not rows.
    ///
    /// # Errors
    /// Those of reading which row is at a position.
    pub(super) fn tile(
        &mut self,
        bytes: &[u8],
        first_block: usize,
        alive: Alive<'_>,
        order: Option<InCells<'_>>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        self.aim();
        match self.verdict {
            Verdict::Nothing => return Ok(()),
            Verdict::Everything => return self.score_all(bytes, first_block, alive, order),
            Verdict::Some => {}
        }
        if let (Some(cells), Some(order)) = (self.cells, &order)
            && !self.filter.enter(order.best(cells))
        {
            return Ok(());
        }
        if self.needs_plan() {
            self.make_plan(bytes, scratch);
        }
        match self.plan {
            Plan::Filter { .. } => {
                if self.looked_at <= self.look_again_at {
                    self.choose_look(bytes, scratch);
                }
                self.filter(bytes, first_block, alive, order, scratch)
            }
            Plan::Floats | Plan::None => {
                self.measured.1 += bytes.len() / self.table.shape().block_bytes();
                self.score_all(bytes, first_block, alive, order)
            }
        }
    }

    /// Builds the tables again if the threshold has risen enough, or if they are too strict: a source that
    /// already has k rows needs better ones than the next source does.
    fn aim(&mut self) {
        let cutoff = self.top.cutoff();
        if cutoff == f32::NEG_INFINITY {
            self.verdict = Verdict::Everything;
            return;
        }
        let sharpness = self.filter.sharpness(cutoff);
        let stale = match self.verdict {
            Verdict::Everything => true,
            Verdict::Some => cutoff < self.aimed_at || sharpness < SHARPER && self.scored >= SCORED,
            Verdict::Nothing => cutoff < self.aimed_at,
        };
        if stale {
            if self.verdict == Verdict::Some {
                self.planned_at *= sharpness;
                self.looked_at *= sharpness;
            }
            let codewords = self.table.shape().codewords();
            self.verdict = self.filter.aim(self.table.entries(), codewords, cutoff);
            self.aimed_at = cutoff;
            self.scored = 0;
        }
    }

    fn needs_plan(&self) -> bool {
        let (survivors, blocks) = self.measured;
        match self.plan {
            Plan::None => true,
            // The data may have changed its character: look again now and then.
            Plan::Floats => blocks >= 4096 || self.planned_at < 0.9,
            Plan::Filter { expected, cheapest } => {
                self.planned_at < 0.9 && !cheapest
                    || blocks >= 4 * PLAN_BLOCKS
                        && survivors as f32 > (2.0 * expected + 2.0) * blocks as f32
            }
        }
    }

    /// Tries every level on a few blocks and takes what costs least.
    fn make_plan(&mut self, bytes: &[u8], scratch: &mut Scratch) {
        let shape = self.table.shape();
        let (subspaces, costs) = (shape.subspaces() as f32, self.kernel.costs());
        let blocks = (bytes.len() / shape.block_bytes()).min(PLAN_BLOCKS);
        let bytes = &bytes[..blocks * shape.block_bytes()];
        let mut best = (subspaces * costs.sum, Plan::Floats, self.filter.level());
        let mut cheapest = true;
        for level in self.filter.levels() {
            let (lookup, sharper) = costs.lookups_from(level);
            let worth = sharper[..(self.filter.levels().end() - level) as usize]
                .iter()
                .all(|&cost| cost > lookup);
            let lookups = subspaces * lookup;
            if !worth || lookups >= best.0 {
                continue;
            }
            self.filter.set_level(level);
            self.kernel
                .survivors(&self.filter, bytes, &mut scratch.survivors);
            let expected = scratch.survivors.len() as f32 / blocks as f32;
            let cost = lookups + expected * (costs.survivor.0 + subspaces * costs.survivor.1);
            // At the same cost choose the sharper one, in case the data is harder than the sample.
            if cost <= best.0 {
                best = (cost, Plan::Filter { expected, cheapest }, level);
            }
            cheapest = false;
        }
        self.plan = best.1;
        self.filter.set_level(best.2);
        self.planned_at = 1.0;
        self.measured = (0, 0);
        (self.looked_at, self.look_again_at) = (1.0, 1.0);
    }

    /// Tries on some blocks how many lines a first look has to read, and takes what costs least.
    fn choose_look(&mut self, bytes: &[u8], scratch: &mut Scratch) {
        let block_bytes = self.table.shape().block_bytes();
        let Some(bytes) = bytes.get(..LOOK_BLOCKS * block_bytes) else {
            return;
        };
        let all = block_bytes / ROWS_PER_BLOCK;
        let (mut best, mut least) = (None, all as f32);
        (self.looked_at, self.look_again_at) = (1.0, 0.97);
        // The fewer lines, the more is looked at again.
        for &lines in self.filter.looks().iter().rev() {
            self.filter.set_first_look(Some(lines));
            self.kernel
                .survivors(&self.filter, bytes, &mut scratch.survivors);
            let again = scratch.survivors.blocks() as f32 / LOOK_BLOCKS as f32;
            let cost = look_cost(lines, all, again);
            if cost >= least {
                if again > HOPELESS {
                    self.look_again_at = 0.9;
                }
                break;
            }
            (best, least) = (Some(lines), cost);
        }
        self.filter.set_first_look(best);
    }

    fn filter(
        &mut self,
        bytes: &[u8],
        first_block: usize,
        alive: Alive<'_>,
        order: Option<InCells<'_>>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let blocks = bytes.len() / self.table.shape().block_bytes();
        self.measured.1 += blocks;
        let Scratch { survivors, rows } = scratch;
        self.kernel.survivors(&self.filter, bytes, survivors);
        if let Some(lines) = self.filter.first_look() {
            let again = survivors.blocks() as f32 / blocks as f32;
            self.kernel.look_again(&self.filter, bytes, survivors);
            // What was tried may have been unlike the rest.
            let all = self.table.shape().block_bytes() / ROWS_PER_BLOCK;
            if look_cost(lines, all, again) > all as f32 {
                let more = self.filter.looks().iter().find(|&&more| more > lines);
                self.filter.set_first_look(more.copied());
            }
        }
        if !alive.all(first_block..first_block + blocks) {
            survivors.retain(|block| alive.of(first_block + block));
        }
        survivors.list_rows(rows);
        self.measured.0 += rows.len();
        self.scored += rows.len();
        self.rescore(bytes, first_block, order, rows)
    }

    /// What the score of a position begins with.
    #[inline]
    fn first(&self, order: Option<InCells<'_>>, position: u32) -> f32 {
        match (self.cells, order) {
            (Some(cells), Some(order)) => order.score(cells, position as usize),
            _ => 0.0,
        }
    }

    /// Takes the row of a position, whose score reaches the cutoff.
    #[inline]
    fn push(&mut self, order: Option<InCells<'_>>, score: f32, position: u32) -> Result<()> {
        let row = match order {
            Some(order) => order
                .source
                .rows_at(position as usize..position as usize + 1)?[0],
            None => position,
        };
        self.top.push(score, row);
        Ok(())
    }

    /// Scores the survivors in f32. Several are scored before any is looked at, so that their sums overlap.
    fn rescore(
        &mut self,
        bytes: &[u8],
        first_block: usize,
        order: Option<InCells<'_>>,
        survivors: &[u16],
    ) -> Result<()> {
        let block_bytes = self.table.shape().block_bytes();
        let first_row = (first_block * ROWS_PER_BLOCK) as u32;
        for rows in survivors.chunks(RESCORED) {
            let mut scores = [0.0; RESCORED];
            for (score, &row) in scores.iter_mut().zip(rows) {
                let first = self.first(order, first_row + u32::from(row));
                let (block, row) = (
                    usize::from(row) / ROWS_PER_BLOCK,
                    usize::from(row) % ROWS_PER_BLOCK,
                );
                let block = &bytes[block * block_bytes..][..block_bytes];
                *score = self.kernel.score(self.table.entries(), first, block, row);
            }
            for (score, &row) in scores.into_iter().zip(rows) {
                if score >= self.top.cutoff() {
                    self.push(order, score, first_row + u32::from(row))?;
                }
            }
        }
        Ok(())
    }

    fn score_all(
        &mut self,
        bytes: &[u8],
        first_block: usize,
        alive: Alive<'_>,
        order: Option<InCells<'_>>,
    ) -> Result<()> {
        let block_bytes = self.table.shape().block_bytes();
        self.scored += bytes.len() / block_bytes * ROWS_PER_BLOCK;
        let mut scores = [0.0; ROWS_PER_BLOCK];
        for (i, block) in bytes.chunks_exact(block_bytes).enumerate() {
            let live = alive.of(first_block + i);
            if live == 0 {
                continue;
            }
            let first_row = ((first_block + i) * ROWS_PER_BLOCK) as u32;
            match self.cells {
                Some(_) => {
                    for (score, position) in scores.iter_mut().zip(first_row..) {
                        *score = self.first(order, position);
                    }
                }
                None => scores.fill(0.0),
            }
            self.kernel.scores(self.table.entries(), block, &mut scores);
            let cutoff = self.top.cutoff();
            let mut rows = scores.iter().enumerate().fold(0, |rows, (row, score)| {
                rows | u64::from(*score >= cutoff) << row
            }) & live;
            while rows != 0 {
                let row = rows.trailing_zeros();
                rows &= rows - 1;
                let score = scores[row as usize];
                if score >= self.top.cutoff() {
                    self.push(order, score, first_row + row)?;
                }
            }
        }
        Ok(())
    }
}
