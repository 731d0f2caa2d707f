//! One query's search, on one thread: filter, rescore what is left, tighten.

use super::topk::TopK;
use crate::kernel::{Filter, Kernel, Verdict};
use crate::quantizer::{LookupTable, ROWS_PER_BLOCK};

/// Most blocks that [`Search::tile`] takes.
pub(super) const MAX_TILE: usize = 64;

/// Blocks on which a plan is made.
const PLAN_BLOCKS: usize = 16;

/// The tables are made anew once the range of deficits could be this much narrower.
const SHARPER: f64 = 0.97;

/// How rows are scored at present.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Plan {
    /// Not decided.
    None,
    /// All in f32.
    Floats,
    /// By the filter at its level, which let this many rows of a block through when it was chosen.
    Filter { expected: f32 },
}

#[derive(Debug)]
pub(super) struct Search<'a> {
    kernel: Kernel,
    table: &'a LookupTable,
    pub(super) top: TopK,
    filter: Filter,
    verdict: Verdict,
    /// The score that the filter's tables were made for. Requires: never above the cutoff when they are used.
    aimed_at: f32,
    plan: Plan,
    /// Range at which the plan was made, relative to which it is made again.
    planned_at: f64,
    /// Rows let through and blocks looked at since the plan was made.
    measured: (usize, usize),
}

impl<'a> Search<'a> {
    pub(super) fn new(kernel: Kernel, table: &'a LookupTable, k: usize) -> Self {
        Self {
            kernel,
            table,
            top: TopK::new(k),
            filter: Filter::new(table.entries(), table.shape().codewords()),
            verdict: Verdict::Everything,
            aimed_at: f32::NEG_INFINITY,
            plan: Plan::None,
            planned_at: 1.0,
            measured: (0, 0),
        }
    }

    /// Offers the rows of some blocks, of the source that was entered last. `live` has a word a block; a tile
    /// without live rows is not worth a call.
    pub(super) fn tile(&mut self, bytes: &[u8], first_block: usize, live: &[u64]) {
        self.aim();
        match self.verdict {
            Verdict::Nothing => return,
            Verdict::Everything => return self.score_all(bytes, first_block, live),
            Verdict::Some => {}
        }
        if self.needs_plan() {
            self.make_plan(bytes, live.len());
        }
        match self.plan {
            Plan::Filter { .. } => self.filter(bytes, first_block, live),
            Plan::Floats | Plan::None => {
                self.measured.1 += live.len();
                self.score_all(bytes, first_block, live);
            }
        }
    }

    /// Makes the tables anew if the threshold has risen enough, or if they ask too much: a source that has its k
    /// rows wants better ones than the next source does.
    fn aim(&mut self) {
        let cutoff = self.top.cutoff();
        if cutoff == f32::NEG_INFINITY {
            return;
        }
        let sharpness = self.filter.sharpness(cutoff);
        let stale = match self.verdict {
            Verdict::Everything => true,
            Verdict::Some => cutoff < self.aimed_at || sharpness < SHARPER,
            Verdict::Nothing => cutoff < self.aimed_at,
        };
        if stale {
            if self.verdict == Verdict::Some {
                self.planned_at *= sharpness;
            }
            let codewords = self.table.shape().codewords();
            self.verdict = self.filter.aim(self.table.entries(), codewords, cutoff);
            self.aimed_at = cutoff;
        }
    }

    fn needs_plan(&self) -> bool {
        let (survivors, blocks) = self.measured;
        match self.plan {
            Plan::None => true,
            // The data may have changed its character: look again now and then.
            Plan::Floats => blocks >= 64 * MAX_TILE || self.planned_at < 0.9,
            Plan::Filter { expected } => {
                self.planned_at < 0.9
                    || blocks >= 4 * PLAN_BLOCKS
                        && survivors as f32 > (2.0 * expected + 2.0) * blocks as f32
            }
        }
    }

    /// Tries every level on a few blocks and takes what costs least.
    fn make_plan(&mut self, bytes: &[u8], blocks: usize) {
        let shape = self.table.shape();
        let (subspaces, costs) = (shape.subspaces() as f32, self.kernel.costs());
        let blocks = blocks.min(PLAN_BLOCKS);
        let bytes = &bytes[..blocks * shape.block_bytes()];
        let mut best = (subspaces * costs.sum, Plan::Floats, self.filter.level());
        for level in self.filter.levels() {
            let lookups = subspaces * costs.lookup[level as usize - 4];
            if lookups >= best.0 {
                continue;
            }
            self.filter.set_level(level);
            let mut masks = [0; PLAN_BLOCKS];
            self.kernel
                .survivors(&self.filter, bytes, &mut masks[..blocks]);
            let survivors: u32 = masks.iter().map(|m| m.count_ones()).sum();
            let expected = survivors as f32 / blocks as f32;
            let cost = lookups + expected * (costs.survivor.0 + subspaces * costs.survivor.1);
            // At the same cost the sharper one: it has room for data that is harder than the sample.
            if cost <= best.0 {
                best = (cost, Plan::Filter { expected }, level);
            }
        }
        self.plan = best.1;
        self.filter.set_level(best.2);
        self.planned_at = 1.0;
        self.measured = (0, 0);
    }

    fn filter(&mut self, bytes: &[u8], first_block: usize, live: &[u64]) {
        let mut masks = [0; MAX_TILE];
        let masks = &mut masks[..live.len()];
        self.kernel.survivors(&self.filter, bytes, masks);
        let block_bytes = self.table.shape().block_bytes();
        self.measured.1 += live.len();
        for (i, (mask, live)) in masks.iter().zip(live).enumerate() {
            let mut rows = mask & live;
            if rows == 0 {
                continue;
            }
            self.measured.0 += rows.count_ones() as usize;
            let block = &bytes[i * block_bytes..][..block_bytes];
            let first_row = ((first_block + i) * ROWS_PER_BLOCK) as u32;
            while rows != 0 {
                let row = rows.trailing_zeros();
                rows &= rows - 1;
                let score = self.kernel.score(self.table.entries(), block, row as usize);
                if score >= self.top.cutoff() {
                    self.top.push(score, first_row + row);
                }
            }
        }
    }

    fn score_all(&mut self, bytes: &[u8], first_block: usize, live: &[u64]) {
        let block_bytes = self.table.shape().block_bytes();
        let mut scores = [0.0; ROWS_PER_BLOCK];
        for (i, (block, &live)) in bytes.chunks_exact(block_bytes).zip(live).enumerate() {
            if live == 0 {
                continue;
            }
            self.kernel.scores(self.table.entries(), block, &mut scores);
            let cutoff = self.top.cutoff();
            let mut rows = scores.iter().enumerate().fold(0, |rows, (row, score)| {
                rows | u64::from(*score >= cutoff) << row
            }) & live;
            let first_row = ((first_block + i) * ROWS_PER_BLOCK) as u32;
            while rows != 0 {
                let row = rows.trailing_zeros();
                rows &= rows - 1;
                let score = scores[row as usize];
                if score >= self.top.cutoff() {
                    self.top.push(score, first_row + row);
                }
            }
        }
    }
}
