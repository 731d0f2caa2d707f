//! The initial threshold of a scan, from a sample.

use super::one_query::{Scratch, Search};
use super::scanner::Chunk;
use super::source::{Alive, BlockSource, blocks_of};
use crate::error::Result;
use crate::kernel::Kernel;
use crate::quantizer::{LookupTable, ROWS_PER_BLOCK};

/// Where the scan of each table begins.
pub(super) struct Seeds<'a> {
    /// What the sample has taught a search, and the score that rows of the scan must reach.
    pub(super) starts: Vec<(Search<'a>, f32)>,
    /// Whether k rows are known to reach it. If it is only likely, by the sample, then a scan that finds fewer has to start
    /// again.
    pub(super) certain: bool,
}

/// At most one block in this many is sampled.
const SPARSITY: usize = 16;

/// Blocks of a sample that are looked at with one threshold. The first of them, which are all scored, are fewer.
const TILE: usize = 16;
const FIRST: usize = 4;

/// Blocks evenly spread over all sources, one after another.
struct Sample {
    blocks: Vec<u8>,
    /// One word per block.
    live: Vec<u64>,
}

/// Searches some blocks for each table.
pub(super) fn seeds<'a>(
    kernel: Kernel,
    sources: &[&dyn BlockSource],
    tables: &'a [LookupTable],
    k: usize,
) -> Result<Seeds<'a>> {
    let total = sources.iter().map(|source| blocks(*source)).sum();
    // A large k takes a good estimate of a quantile.
    let wanted = if k <= 50 { 16 } else { 256 };
    let count = wanted.min(total / SPARSITY);
    if count == 0 {
        let starts = tables.iter().map(|table| from_nothing(kernel, table, k));
        return Ok(Seeds {
            starts: starts.collect(),
            certain: true,
        });
    }
    // Of the k best rows this many fall into the sample, plus or minus the square root. Three roots and three more
    // make a second scan rare.
    let expected = k as f64 * count as f64 / total as f64;
    let rank = (expected + 3.0 * expected.sqrt() + 3.0).ceil() as usize;
    let block_bytes = tables[0].shape().block_bytes();
    let sample = Sample::new(sources, total, count, block_bytes)?;
    let mut scratch = Scratch::of_thread();
    let starts = tables.iter().map(|table| {
        let mut search = Search::new(kernel, table, rank.min(k));
        sample.offer(&mut search, block_bytes, &mut scratch);
        let score = search.again(k).unwrap_or(f32::NEG_INFINITY);
        (search, score)
    });
    let seeds = Seeds {
        starts: starts.collect(),
        certain: rank >= k,
    };
    scratch.put_back();
    Ok(seeds)
}

/// Returns a start for the k best that takes any row.
pub(super) fn from_nothing(kernel: Kernel, table: &LookupTable, k: usize) -> (Search<'_>, f32) {
    (Search::new(kernel, table, k), f32::NEG_INFINITY)
}

impl Sample {
    fn new(
        sources: &[&dyn BlockSource],
        total: usize,
        count: usize,
        block_bytes: usize,
    ) -> Result<Self> {
        let mut sample = Self {
            blocks: Vec::with_capacity(count * block_bytes),
            live: Vec::with_capacity(count),
        };
        let (mut number, mut before) = (0, 0);
        for i in 0..count {
            let at = (2 * i + 1) * total / (2 * count);
            while at - before >= blocks(sources[number]) {
                before += blocks(sources[number]);
                number += 1;
            }
            let (source, block) = (sources[number], at - before);
            let chunk = Chunk {
                source: number as u32,
                range: block..block + 1,
            };
            let bytes = blocks_of(source, &chunk, block_bytes)?;
            sample.blocks.extend_from_slice(bytes);
            let alive = Alive::new(source.live(), source.rows());
            sample.live.push(alive.of(block));
        }
        Ok(sample)
    }

    fn offer(&self, search: &mut Search<'_>, block_bytes: usize, scratch: &mut Scratch) {
        let alive = Alive::new(Some(&self.live), self.live.len() * ROWS_PER_BLOCK);
        let mut first = 0;
        while first < self.live.len() {
            let end = (first + if first == 0 { FIRST } else { TILE }).min(self.live.len());
            let tile = &self.blocks[first * block_bytes..end * block_bytes];
            (search.tile(tile, first, alive, None, scratch))
                .expect("positions of a sample are its rows");
            first = end;
        }
    }
}

fn blocks(source: &dyn BlockSource) -> usize {
    source.rows().div_ceil(ROWS_PER_BLOCK)
}
