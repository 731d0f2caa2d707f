//! The scan over packed codes.

use super::scanner::{Chunk, Scanner, chunks};
use super::source::{BlockSource, live_rows};
use super::topk::{Found, SharedThreshold, TopK, merge};
use crate::error::{Error, Result};
use crate::quantizer::{LookupTable, ROWS_PER_BLOCK};

/// Bytes of codes that a thread takes at a time.
const CHUNK_BYTES: usize = 256 << 10;

pub(super) fn scan(
    scanner: &Scanner,
    sources: &[&dyn BlockSource],
    tables: &[LookupTable],
    k: usize,
) -> Result<Vec<Vec<Found>>> {
    let shape = tables[0].shape();
    let chunks = chunks(
        sources.iter().map(|s| shape.blocks(s.rows())),
        (CHUNK_BYTES / shape.block_bytes()).max(1),
    );
    let shared: Vec<_> = tables.iter().map(|_| SharedThreshold::new()).collect();
    let states = scanner.sweep(
        &chunks,
        || tables.iter().map(|_| TopK::new(k)).collect::<Vec<_>>(),
        |tops, chunk| {
            let source = sources[chunk.source as usize];
            let bytes = blocks_of(source, chunk, shape.block_bytes())?;
            for ((table, top), shared) in tables.iter().zip(tops).zip(&shared) {
                top.enter(chunk.source, shared.get());
                scan_chunk(scanner, source, chunk, bytes, table, top);
                shared.raise(top.threshold());
            }
            Ok(())
        },
    )?;
    let mut queries: Vec<Vec<TopK>> = tables.iter().map(|_| Vec::new()).collect();
    for state in states {
        for (query, top) in queries.iter_mut().zip(state) {
            query.push(top);
        }
    }
    Ok(queries.into_iter().map(|tops| merge(tops, k)).collect())
}

fn blocks_of<'a>(
    source: &'a dyn BlockSource,
    chunk: &Chunk,
    block_bytes: usize,
) -> Result<&'a [u8]> {
    let bytes = source.blocks(chunk.range.clone())?;
    if bytes.len() != chunk.range.len() * block_bytes {
        return Err(Error::invalid(format!(
            "source {} gave {} bytes for {} blocks of {block_bytes}",
            chunk.source,
            bytes.len(),
            chunk.range.len()
        )));
    }
    Ok(bytes)
}

fn scan_chunk(
    scanner: &Scanner,
    source: &dyn BlockSource,
    chunk: &Chunk,
    bytes: &[u8],
    table: &LookupTable,
    top: &mut TopK,
) {
    let mut scores = [0.0; ROWS_PER_BLOCK];
    for (block, bytes) in chunk
        .range
        .clone()
        .zip(bytes.chunks_exact(table.shape().block_bytes()))
    {
        let mut live = live_rows(source.live(), source.rows(), block);
        if live == 0 {
            continue;
        }
        scanner.kernel.scores(table.entries(), bytes, &mut scores);
        while live != 0 {
            let row = live.trailing_zeros() as usize;
            live &= live - 1;
            if scores[row] >= top.cutoff() {
                top.push(scores[row], (block * ROWS_PER_BLOCK + row) as u32);
            }
        }
    }
}
