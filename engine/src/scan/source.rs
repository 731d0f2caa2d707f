//! Sources of a scan.

use super::scanner::Chunk;
use crate::error::{Error, Result};
use crate::quantizer::CellStarts;
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

/// Codes that are ordered by cell. A position is a place in this order.
pub(crate) trait CellSource: Sync {
    /// Returns where the cells are.
    fn starts(&self) -> &CellStarts;
    /// Returns the bytes of a range of blocks of 64 positions, checked.
    fn blocks(&self, blocks: Range<usize>) -> Result<&[u8]>;
    /// Returns the row of each position, checked: below the number of rows.
    fn rows_at(&self, positions: Range<usize>) -> Result<&[u32]>;
    /// Returns a word for 64 positions: a set bit is one whose row may be returned. `None`: all may.
    fn live(&self) -> Option<&[u64]>;
}

/// Which positions of a source may be returned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alive<'a> {
    words: Option<&'a [u64]>,
    /// The first position that is looked at, and the one behind the last.
    start: usize,
    end: usize,
}

impl<'a> Alive<'a> {
    /// Creates the filter of a source with `rows` rows; without `words` all rows are live.
    pub(super) fn new(words: Option<&'a [u64]>, rows: usize) -> Self {
        Self::within(words, 0..rows)
    }

    /// Only these positions may be returned.
    pub(super) fn within(words: Option<&'a [u64]>, positions: Range<usize>) -> Self {
        Self {
            words,
            start: positions.start,
            end: positions.end,
        }
    }

    /// Those of one block: alive, and among the positions.
    #[inline]
    pub(super) fn of(&self, block: usize) -> u64 {
        let first = block * 64;
        let below = |position: usize| match position.saturating_sub(first) {
            inside @ 0..64 => (1 << inside) - 1,
            _ => u64::MAX,
        };
        let present = below(self.end) & !below(self.start);
        self.words.map_or(present, |words| words[block] & present)
    }

    /// Returns `true` if all positions of these blocks are live.
    pub(super) fn all(&self, blocks: Range<usize>) -> bool {
        self.words.is_none() && self.start <= blocks.start * 64 && blocks.end * 64 <= self.end
    }

    /// Returns `true` if any position of these blocks is live.
    pub(super) fn any(&self, blocks: Range<usize>) -> bool {
        self.words.is_none() || blocks.into_iter().any(|block| self.of(block) != 0)
    }
}
