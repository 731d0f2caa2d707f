//! What a search reads of rows, wherever they are.

use super::part::Part;
use crate::error::Result;
use crate::ids::{RowId, Seq};
use crate::quantizer::CellStarts;
use crate::stored::StoredRef;
use crate::words::{Indexed, Words};
use std::ops::Range;

/// Rows with codes and vectors under one model: a [`Part`] of a snapshot, or what an evaluation holds in memory.
pub(crate) trait Searchable: Sync {
    /// Returns the number of rows, dead ones included.
    fn len(&self) -> usize;

    /// Returns a bit per row: set if it lives. `None`: all do.
    fn live(&self) -> Option<&[u64]>;

    /// Returns where the cells begin, if codes are ordered by cell.
    fn cell_starts(&self) -> Option<&CellStarts> {
        None
    }

    /// Returns the rows of a range of positions, checked.
    ///
    /// Requires: codes are ordered by cell.
    fn rows_at(&self, positions: Range<usize>) -> Result<&[u32]> {
        panic!("the row at {positions:?} is asked of codes that are ordered by row")
    }

    /// Returns the packed codes of a range of blocks, checked: of rows, or of positions where codes are ordered by cell.
    ///
    /// Requires: the model has a quantizer.
    fn blocks(&self, blocks: Range<usize>) -> Result<&[u8]>;

    /// Begins to read the stored vectors of rows, all at once, where they are not in memory. Requires: rows ascend.
    fn prefetch(&self, rows: &[u32]);

    /// Returns the stored vectors of a range of rows, checked.
    fn vectors(&self, rows: Range<usize>) -> Result<StoredRef<'_>>;

    /// Returns the word index, made now if the rows are in memory; `None` if they lack it.
    fn words(&self, _: &Words) -> Option<&dyn Indexed> {
        None
    }

    /// Returns `true` if there is a word index, or one can be made.
    fn has_words(&self) -> bool {
        false
    }

    /// Returns the sequence number of a row.
    fn seq(&self, row: RowId) -> Result<Seq>;
}

impl Searchable for Part<'_> {
    fn len(&self) -> usize {
        Part::len(*self)
    }

    fn live(&self) -> Option<&[u64]> {
        Part::live(*self).words()
    }

    fn cell_starts(&self) -> Option<&CellStarts> {
        Part::cell_starts(*self)
    }

    fn rows_at(&self, positions: Range<usize>) -> Result<&[u32]> {
        Part::rows_at(*self, positions)
    }

    fn blocks(&self, blocks: Range<usize>) -> Result<&[u8]> {
        Part::blocks(*self, blocks)
    }

    fn prefetch(&self, rows: &[u32]) {
        Part::prefetch(*self, rows);
    }

    fn vectors(&self, rows: Range<usize>) -> Result<StoredRef<'_>> {
        Part::vectors(*self, rows)
    }

    fn words(&self, words: &Words) -> Option<&dyn Indexed> {
        Part::words(*self, words)
    }

    fn has_words(&self) -> bool {
        Part::has_words(*self)
    }

    fn seq(&self, row: RowId) -> Result<Seq> {
        Part::seq(*self, row)
    }
}
