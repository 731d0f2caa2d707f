//! A threshold to begin with, from a sample.

use super::source::{Alive, BlockSource};
use super::topk::{score, upside_down};
use crate::error::Result;
use crate::kernel::Kernel;
use crate::quantizer::{LookupTable, ROWS_PER_BLOCK};

/// Scores that a scan may begin with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seed {
    /// k rows of the sample reach it: it holds.
    pub(super) certain: f32,
    /// Likely, by the sample, that k rows of all reach it: if the scan then finds fewer, it has to start again.
    pub(super) likely: f32,
}

impl Seed {
    const NOTHING: Self = Self {
        certain: f32::NEG_INFINITY,
        likely: f32::NEG_INFINITY,
    };
}

/// One block in so many is sampled, at most.
const SPARSITY: usize = 16;

/// Scores some blocks, evenly spread over the sources, for each table.
pub(super) fn seeds(
    kernel: Kernel,
    sources: &[&dyn BlockSource],
    tables: &[LookupTable],
    k: usize,
) -> Result<Vec<Seed>> {
    let blocks = |source: &&dyn BlockSource| source.rows().div_ceil(ROWS_PER_BLOCK);
    let total: usize = sources.iter().map(blocks).sum();
    // A small k needs the best of a few thousand rows; a larger one a good estimate of a quantile.
    let wanted = if k <= 50 { 16 } else { 128 };
    let count = wanted.min(total / SPARSITY);
    if count == 0 {
        return Ok(vec![Seed::NOTHING; tables.len()]);
    }
    let mut sampled = Vec::with_capacity(count);
    let mut sampled_rows = 0;
    let (mut source, mut before) = (0, 0);
    for i in 0..count {
        let at = (2 * i + 1) * total / (2 * count);
        while at - before >= blocks(&sources[source]) {
            before += blocks(&sources[source]);
            source += 1;
        }
        let block = at - before;
        let live = Alive::new(sources[source].live(), sources[source].rows()).of(block);
        if live != 0 {
            sampled.push((sources[source].blocks(block..block + 1)?, live));
            sampled_rows += live.count_ones() as usize;
        }
    }
    let fraction = count as f64 / total as f64;
    let expected = k as f64 * fraction;
    let mut merits = Vec::with_capacity(sampled_rows);
    let mut block_scores = [0.0; ROWS_PER_BLOCK];
    Ok(tables
        .iter()
        .map(|table| {
            merits.clear();
            for &(bytes, live) in &sampled {
                kernel.scores(table.entries(), bytes, &mut block_scores);
                match live {
                    u64::MAX => merits.extend(block_scores.map(upside_down)),
                    _ => {
                        let alive = (0..ROWS_PER_BLOCK).filter(|row| live >> row & 1 == 1);
                        merits.extend(alive.map(|row| upside_down(block_scores[row])));
                    }
                }
            }
            // The k best come to the front, so that a smaller rank is looked for among them.
            let certain = nth_best(&mut merits, k);
            let best = merits.len().min(k);
            // Of the k best rows `expected` fall into the sample, give or take its root. Three roots and three
            // more make a second scan a rare thing.
            let likely = match expected >= 4.0 {
                true => nth_best(
                    &mut merits[..best],
                    (expected + 3.0 * expected.sqrt() + 3.0).ceil() as usize,
                ),
                false => certain,
            };
            Seed {
                certain,
                likely: likely.max(certain),
            }
        })
        .collect())
}

/// The n-th best score of merits, or none at all.
fn nth_best(merits: &mut [u32], n: usize) -> f32 {
    match n <= merits.len() {
        true => score(*merits.select_nth_unstable(n - 1).1),
        false => f32::NEG_INFINITY,
    }
}
