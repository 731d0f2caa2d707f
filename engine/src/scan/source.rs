//! Sources of a scan.

use super::scanner::Chunk;
use crate::error::{Error, Result};
use crate::stored::StoredRef;
use std::ops::Range;

/// Packed codes in blocks of 64 rows, as [`CodeShape::pack`](crate::quantizer::CodeShape::pack) lays them out.
pub trait BlockSource: Sync {
    /// Rows; the last block is filled up with code 0, which is never returned.
    fn rows(&self) -> usize;

    /// Returns the bytes of a range of blocks, checked. Called with ascending ranges of some
    /// hundred KiB.
    fn blocks(&self, blocks: Range<usize>) -> Result<&[u8]>;

    /// One word per block: a set bit is a row that may be returned, deletions and filter combined. `None`: all
    /// may.
    fn live(&self) -> Option<&[u64]>;
}

/// Returns the bytes of a chunk of its source, as many as there should be.
pub(super) fn blocks_of<'a>(
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

/// Full-precision vectors, row-major.
pub trait VectorSource: Sync {
    /// Rows.
    fn rows(&self) -> usize;

    /// The number of values per row.
    fn dim(&self) -> usize;

    /// Returns a word for 64 rows: a set bit is a row that may be returned. `None`: all may.
    fn live(&self) -> Option<&[u64]>;

    /// Returns the vectors of a range of rows, checked.
    fn rows_at(&self, rows: Range<usize>) -> Result<StoredRef<'_>>;
}

#[cfg(any(test, feature = "testing"))]
/// Full-precision vectors in memory, all of which may be returned.
#[derive(Debug, Clone, Copy)]
pub struct InMemory<'a> {
    /// (rows, dim)
    pub values: &'a [f32],
    /// The number of values per row.
    pub dim: usize,
}

#[cfg(any(test, feature = "testing"))]
impl VectorSource for InMemory<'_> {
    fn rows(&self) -> usize {
        self.values.len() / self.dim
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn live(&self) -> Option<&[u64]> {
        None
    }

    fn rows_at(&self, rows: Range<usize>) -> Result<StoredRef<'_>> {
        Ok(StoredRef::F32(
            &self.values[rows.start * self.dim..rows.end * self.dim],
        ))
    }
}

/// Which rows of a source may be returned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alive<'a> {
    words: Option<&'a [u64]>,
    rows: usize,
}

impl<'a> Alive<'a> {
    /// Creates the filter of a source with `rows` rows; without `words` all rows are live.
    pub(super) fn new(words: Option<&'a [u64]>, rows: usize) -> Self {
        Self { words, rows }
    }

    /// Those of one block: alive, and not the padding of the last block.
    #[inline]
    pub(super) fn of(&self, block: usize) -> u64 {
        let inside = self.rows - block * 64;
        let present = if inside >= 64 {
            u64::MAX
        } else {
            (1 << inside) - 1
        };
        self.words.map_or(present, |words| words[block] & present)
    }

    /// Returns `true` if all rows of these blocks are live and none is padding.
    pub(super) fn all(&self, blocks: Range<usize>) -> bool {
        self.words.is_none() && blocks.end * 64 <= self.rows
    }

    /// Returns `true` if any row of these blocks is live.
    pub(super) fn any(&self, blocks: Range<usize>) -> bool {
        self.words.is_none() || blocks.into_iter().any(|block| self.of(block) != 0)
    }
}
