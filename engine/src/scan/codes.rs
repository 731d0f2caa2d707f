//! The scan over packed codes.

use super::one_query::{MAX_TILE, Scratch, Search};
use super::scanner::{Scanner, chunks};
use super::seed::{from_nothing, seeds};
use super::source::{Alive, BlockSource, blocks_of};
use super::topk::{Found, SharedThreshold, merge};
use crate::error::Result;
use crate::quantizer::{LookupTable, ROWS_PER_BLOCK};

/// The number of bytes of codes that a thread takes at a time. With several queries, each one scans the chunk before
/// the next is read. A single query reads the whole chunk before it examines survivors, because examining them stalls
/// memory reads.
const CHUNK_BYTES: usize = 512 << 10;
const TILE_BYTES: usize = 128 << 10;
/// Blocks of a thread's first tile. Tiles grow with what has been seen, as thresholds come to rise more slowly.
const FIRST_TILE: usize = 32;

/// The state of a query on one thread.
struct State<'a> {
    searches: Vec<Search<'a>>,
    /// Blocks that it has seen.
    seen: usize,
}

pub(super) fn scan(
    scanner: &Scanner,
    sources: &[&dyn BlockSource],
    tables: &[LookupTable],
    k: usize,
) -> Result<Vec<Vec<Found>>> {
    let shape = tables[0].shape();
    let blocks = sources.iter().map(|source| shape.blocks(source.rows()));
    let bytes = blocks.sum::<usize>() * shape.block_bytes();
    let lines = (bytes / ROWS_PER_BLOCK * tables.len()) as f64;
    let threads = scanner.threads_for(lines * f64::from(scanner.kernel.costs().least()));
    // Threads share the queries, and sampling with them, if there are enough of them; else they share the codes, of which few
    // can't be shared evenly.
    let own = match bytes >= threads * 4 * CHUNK_BYTES {
        true => scanner.own_queries,
        false => scanner.own_queries / 16,
    };
    if threads == 1 || tables.len() < threads.saturating_mul(own.max(1)) {
        return best(scanner, sources, tables, k, threads);
    }
    scanner.in_parts(tables, threads, |tables| {
        best(scanner, sources, tables, k, 1)
    })
}

/// Scans all codes for several tables, with this many threads.
fn best(
    scanner: &Scanner,
    sources: &[&dyn BlockSource],
    tables: &[LookupTable],
    k: usize,
    threads: usize,
) -> Result<Vec<Vec<Found>>> {
    let seeds = seeds(scanner.kernel, sources, tables, k)?;
    let mut found = pass(scanner, sources, &seeds.starts, k, threads)?;
    if seeds.certain {
        return Ok(found);
    }
    // The threshold from the sample may be wrong; these queries start again without one.
    let again: Vec<usize> = (0..tables.len())
        .filter(|&q| found[q].len() < k && seeds.starts[q].1 > f32::NEG_INFINITY)
        .collect();
    if !again.is_empty() {
        let starts: Vec<_> = again
            .iter()
            .map(|&q| from_nothing(scanner.kernel, &tables[q], k))
            .collect();
        let rows = pass(scanner, sources, &starts, k, threads)?;
        for (q, rows) in again.into_iter().zip(rows) {
            found[q] = rows;
        }
    }
    Ok(found)
}

/// One pass over all codes. Each search comes with a score below which it wants nothing.
fn pass(
    scanner: &Scanner,
    sources: &[&dyn BlockSource],
    starts: &[(Search<'_>, f32)],
    k: usize,
    threads: usize,
) -> Result<Vec<Vec<Found>>> {
    let shape = starts[0].0.shape();
    let block_bytes = shape.block_bytes();
    let sizes = sources.iter().map(|s| shape.blocks(s.rows()));
    let blocks = match threads {
        1 => CHUNK_BYTES / block_bytes,
        // Small enough to be shared evenly.
        _ => (CHUNK_BYTES / block_bytes).min(sizes.clone().sum::<usize>() / (4 * threads)),
    };
    let chunks = chunks(sizes, blocks.max(1));
    let tile_bytes = match starts.len() {
        1 => CHUNK_BYTES,
        _ => TILE_BYTES,
    };
    let most = (tile_bytes / block_bytes).clamp(1, MAX_TILE);
    let shared: Vec<_> = starts
        .iter()
        .map(|(_, from)| SharedThreshold::new(*from))
        .collect();
    let states = scanner.sweep(
        &chunks,
        threads,
        || State {
            searches: starts.iter().map(|(search, _)| search.clone()).collect(),
            seen: 0,
        },
        |state, chunk| {
            let State { searches, seen } = state;
            let mut scratch = Scratch::of_thread();
            let source = sources[chunk.source as usize];
            let bytes = blocks_of(source, chunk, block_bytes)?;
            for (search, shared) in searches.iter_mut().zip(&shared) {
                search.top.enter(chunk.source, shared.get());
            }
            let alive = Alive::new(source.live(), source.rows());
            let mut first = chunk.range.start;
            while first < chunk.range.end {
                let blocks = (*seen / 4).max(FIRST_TILE).min(most);
                let end = (first + blocks).min(chunk.range.end);
                let at = |block: usize| (block - chunk.range.start) * block_bytes;
                let tile = &bytes[at(first)..at(end)];
                if alive.any(first..end) {
                    for search in searches.iter_mut() {
                        search.tile(tile, first, alive, None, &mut scratch)?;
                    }
                }
                *seen += end - first;
                first = end;
            }
            for (search, shared) in searches.iter().zip(&shared) {
                shared.raise(search.top.threshold());
            }
            scratch.put_back();
            Ok(())
        },
    )?;
    let mut by_query: Vec<Vec<_>> = starts.iter().map(|_| Vec::new()).collect();
    for state in states {
        for (query, search) in by_query.iter_mut().zip(state.searches) {
            query.push(search.top);
        }
    }
    Ok(by_query.into_iter().map(|tops| merge(tops, k)).collect())
}
