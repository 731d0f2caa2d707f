//! Immutable rows with live bits: a segment, or a run of the tail. Code outside [`view`](crate::view) does not
//! distinguish them.

use super::segment::{ReadOnce, SegmentView};
use super::tail::RunView;
use crate::columns::{
    self, BoundExpr, Column, ColumnBatch, ColumnId, ColumnRead, ColumnSource, ColumnValue, KeyRead,
    MaskCache, Schema,
};
use crate::error::Result;
use crate::ids::{RowId, Seq};
use crate::quantizer::{CellStarts, CodeShape, ROWS_PER_BLOCK};
use crate::row::ValueRef;
use crate::segment::KeyHash;
use crate::stored::StoredRef;
use crate::view::live::Live;
use crate::words::{Indexed, Words};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Immutable rows, ascending by `Seq`, and which of them live.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part<'a> {
    Segment(&'a SegmentView),
    Run(&'a RunView),
}

/// A live row during iteration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartRow<'a> {
    pub(crate) row: RowId,
    pub(crate) seq: Seq,
    pub(crate) key: &'a str,
    /// What the user gave.
    pub(crate) value: ValueRef<'a>,
}

impl<'a> Part<'a> {
    /// Returns the rows that live.
    pub(crate) fn live(self) -> &'a Live {
        match self {
            Self::Segment(view) => &view.live,
            Self::Run(view) => &view.live,
        }
    }

    /// Returns `true` if this has the same rows as another part, dead or alive.
    pub(crate) fn has_rows_of(self, other: Part<'_>) -> bool {
        match (self, other) {
            (Self::Segment(view), Part::Segment(other)) => view.sealed.id == other.sealed.id,
            (Self::Run(view), Part::Run(other)) => Arc::ptr_eq(&view.run, &other.run),
            _ => false,
        }
    }

    /// Returns the number of rows, dead ones included.
    pub(crate) fn len(self) -> usize {
        self.live().row_count() as usize
    }

    /// Returns the sequence number of a row.
    pub(crate) fn seq(self, row: RowId) -> Result<Seq> {
        match self {
            Self::Segment(view) => view.sealed.rows.seq(row),
            Self::Run(view) => Ok(view.run.seq(row)),
        }
    }

    /// Returns the `Seq`s of the first and the last row.
    pub(crate) fn seqs(self) -> Option<(Seq, Seq)> {
        match self {
            Self::Segment(view) => view.sealed.rows.summary().seqs,
            Self::Run(view) => Some(view.run.seqs()),
        }
    }

    /// Returns the user's key of a row.
    pub(crate) fn key(self, row: RowId) -> Result<&'a str> {
        match self {
            Self::Segment(view) => view.sealed.rows.key(row),
            Self::Run(view) => Ok(view.run.key(row)),
        }
    }

    /// Returns the columns of the rows; `None` if all values are null.
    pub(crate) fn columns(self) -> Option<&'a dyn ColumnSource> {
        match self {
            Self::Segment(view) => view.sealed.columns.as_ref().map(|columns| columns as _),
            Self::Run(view) => Some(view.run.columns()),
        }
    }

    /// Returns the values of a column, which may be of a type that it had before; `None` if all are null.
    pub(crate) fn column(self, id: ColumnId) -> Option<&'a dyn ColumnRead> {
        self.columns()?.column(id)
    }

    /// Returns the value that a row has of a column.
    pub(crate) fn value(self, column: &Column, row: RowId) -> Result<ColumnValue> {
        let Some(read) = self.column(column.id) else {
            return Ok(ColumnValue::Null);
        };
        columns::value_as(read, row.0 as usize, column.kind)
    }

    /// Returns the values of a row that are not null, by name.
    pub(crate) fn values(
        self,
        schema: &Schema,
        row: RowId,
    ) -> Result<BTreeMap<String, ColumnValue>> {
        let mut values = BTreeMap::new();
        for column in schema.columns() {
            match self.value(column, row)? {
                ColumnValue::Null => {}
                value => drop(values.insert(column.name.clone(), value)),
            }
        }
        Ok(values)
    }

    /// Returns a bit for each row for which an expression is true, dead ones among them; of a segment from the cache.
    pub(crate) fn passing(self, expr: &BoundExpr, kept: &MaskCache) -> Result<Arc<[u64]>> {
        let nulls = ColumnBatch::nulls(self.len());
        let source = self.columns().unwrap_or(&nulls);
        match self {
            Self::Segment(view) => {
                let id = view.sealed.id;
                let (mask, _) = kept.get_or_make(id, expr, || expr.mask(source, &self))?;
                Ok(mask)
            }
            Self::Run(_) => Ok(expr.mask(source, &self)?.into()),
        }
    }

    /// Replaces `out` by the codes of one row.
    ///
    /// Requires: the snapshot's model has a quantizer of this shape, and no cells.
    pub(crate) fn codes_of_row(self, row: RowId, shape: CodeShape, out: &mut [u8]) -> Result<()> {
        let (block, at) = (
            row.0 as usize / ROWS_PER_BLOCK,
            row.0 as usize % ROWS_PER_BLOCK,
        );
        shape.unpack_row(self.blocks(block..block + 1)?, at, out);
        Ok(())
    }

    /// Returns the text of a row; `None` in a database of vectors.
    pub(crate) fn text(self, row: RowId) -> Result<Option<String>> {
        match self {
            Self::Segment(view) => view.sealed.rows.text(row),
            Self::Run(view) => Ok(view.run.text(row).map(|text| text.to_string())),
        }
    }

    /// Returns `true` if there is a word index, or one can be made.
    pub(crate) fn has_words(self) -> bool {
        match self {
            Self::Segment(view) => view.sealed.words.is_some(),
            Self::Run(_) => true,
        }
    }

    /// Returns the word index, which a run of the tail makes when it is first asked for; `None` if a segment lacks it.
    pub(crate) fn words(self, words: &Words) -> Option<&'a dyn Indexed> {
        match self {
            Self::Segment(view) => {
                let words = view.sealed.words.as_ref()?;
                Some(words)
            }
            Self::Run(view) => Some(view.run.words(&words.tokenizer)),
        }
    }

    /// Begins to read the stored vectors of rows that are on disk, all at once. Requires: rows ascend.
    pub(crate) fn prefetch(self, rows: &[u32]) {
        if let Self::Segment(view) = self {
            view.sealed.prefetch(rows);
        }
    }

    /// Returns the stored vectors of a range of rows, checked.
    pub(crate) fn vectors(self, rows: Range<usize>) -> Result<StoredRef<'a>> {
        match self {
            Self::Segment(view) => view.sealed.vectors(rows),
            Self::Run(view) => Ok(view.run.vectors(rows)),
        }
    }

    /// Returns the length that the vector of a row had before it was normalised, where that is
    /// known.
    pub(crate) fn norm(self, row: RowId) -> Result<Option<f64>> {
        match self {
            Self::Segment(view) => view.sealed.rows.norm(row),
            Self::Run(view) => Ok(view.run.norm(row)),
        }
    }

    /// Replaces `out` by the stored vector of a row, widened.
    pub(crate) fn vector_into(self, row: RowId, out: &mut Vec<f32>) -> Result<()> {
        let at = row.0 as usize;
        out.clear();
        self.vectors(at..at + 1)?.widen_into(out);
        Ok(())
    }

    /// Returns where the cells begin, if codes are ordered by cell.
    pub(crate) fn cell_starts(self) -> Option<&'a CellStarts> {
        match self {
            Self::Segment(view) => view.sealed.codes.as_ref()?.starts(),
            Self::Run(view) => view.run.order().map(|(starts, _)| starts),
        }
    }

    /// Returns the rows of a range of positions of codes that are ordered by cell, checked.
    pub(crate) fn rows_at(self, positions: Range<usize>) -> Result<&'a [u32]> {
        match self {
            Self::Segment(view) => {
                let codes = view.sealed.codes.as_ref();
                codes.expect("ordered codes are there").rows_at(positions)
            }
            Self::Run(view) => {
                let order = view.run.order();
                Ok(&order.expect("codes are ordered by cell").1[positions])
            }
        }
    }

    /// Returns the packed codes of a range of blocks, checked: of 64 rows each, or of 64 positions where they are ordered by
    /// cell.
    ///
    /// Requires: the snapshot's model has a quantizer.
    pub(crate) fn blocks(self, blocks: Range<usize>) -> Result<&'a [u8]> {
        match self {
            Self::Segment(view) => {
                let codes = view.sealed.codes.as_ref();
                let codes = codes.expect("opened with codes under a quantizer");
                codes.blocks(blocks)
            }
            Self::Run(view) => Ok(view.run.blocks(blocks)),
        }
    }

    /// Replaces `out` by the codes of the rows of one block, row-major.
    ///
    /// Requires: the snapshot's model has a quantizer of this shape, and no cells.
    pub(crate) fn codes_of_block(
        self,
        block: usize,
        shape: CodeShape,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let packed = self.blocks(block..block + 1)?;
        let rows = (self.len() - block * ROWS_PER_BLOCK).min(ROWS_PER_BLOCK);
        let width = shape.subspaces();
        out.resize(rows * width, 0);
        for (at, code) in out.chunks_exact_mut(width).enumerate() {
            shape.unpack_row(packed, at, code);
        }
        Ok(())
    }

    /// Calls `each` with cell, row and code of every row, dead ones included, in the order of positions.
    ///
    /// Requires: the snapshot's model has a quantizer of this shape, and cells.
    pub(crate) fn for_each_position(
        self,
        shape: CodeShape,
        mut each: impl FnMut(u32, u32, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let Some(starts) = self.cell_starts() else {
            debug_assert_eq!(self.len(), 0, "codes are ordered by cell");
            return Ok(());
        };
        if let Self::Segment(view) = self
            && let Some(codes) = &view.sealed.codes
        {
            codes.verify_order()?;
        }
        let mut code = vec![0; shape.subspaces()];
        let mut cells = starts.each_position();
        for start in (0..self.len()).step_by(ROWS_PER_BLOCK) {
            let block = start / ROWS_PER_BLOCK;
            let packed = self.blocks(block..block + 1)?;
            let positions = start..(start + ROWS_PER_BLOCK).min(self.len());
            for (at, &row) in self.rows_at(positions)?.iter().enumerate() {
                shape.unpack_row(packed, at, &mut code);
                each(cells.next().expect("a cell per position"), row, &code)?;
            }
        }
        Ok(())
    }

    /// Returns the live row with this key.
    pub(crate) fn find(self, hash: KeyHash, key: &str) -> Result<Option<RowId>> {
        let found = match self {
            Self::Segment(view) => view.sealed.rows.find_hashed(hash, key)?,
            Self::Run(view) => view.run.find(hash, key),
        };
        Ok(found.filter(|&row| self.live().contains(row)))
    }

    /// Calls `each` with the key of every live row that begins with `prefix`, in `Seq` order. With `resident`, about
    /// this many bytes of a segment stay in memory; without, all that was read does, for queries to come.
    pub(crate) fn for_each_key(
        self,
        prefix: &str,
        resident: Option<usize>,
        mut each: impl FnMut(RowId, &str) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Segment(view) => {
                let rows = &view.sealed.rows;
                let mut pages = resident.map(|limit| view.sealed.read_once(limit));
                for block in 0..rows.key_blocks() {
                    let bytes = rows.keys_of_block(block, prefix, |row, key| {
                        match view.live.contains(row) {
                            true => each(row, key),
                            false => Ok(()),
                        }
                    })?;
                    passed(&mut pages, bytes);
                }
            }
            Self::Run(view) => {
                for row in view.live.iter() {
                    let key = view.run.key(row);
                    if key.starts_with(prefix) {
                        each(row, key)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Calls `each` with every live row, in `Seq` order. `resident` is as for [`for_each_key`](Self::for_each_key).
    pub(crate) fn for_each_row(
        self,
        resident: Option<usize>,
        each: impl FnMut(PartRow<'_>) -> Result<()>,
    ) -> Result<()> {
        self.walk(0..self.live().row_count(), resident, each)
    }

    /// Calls `each` with the live rows of a range, in `Seq` order.
    pub(crate) fn for_rows(
        self,
        rows: Range<u32>,
        each: impl FnMut(PartRow<'_>) -> Result<()>,
    ) -> Result<()> {
        self.walk(rows, None, each)
    }

    fn walk(
        self,
        rows: Range<u32>,
        resident: Option<usize>,
        mut each: impl FnMut(PartRow<'_>) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Segment(view) => {
                let mut pages = resident.map(|limit| view.sealed.read_once(limit));
                let range = rows.start as usize..rows.end as usize;
                let mut cursor = view.sealed.rows.cursor_at(range);
                while let Some(row) = cursor.next()? {
                    passed(&mut pages, row.key.len() + row.value.bytes() as usize);
                    if view.live.contains(row.row) {
                        each(PartRow {
                            row: row.row,
                            seq: row.seq,
                            key: row.key,
                            value: row.value,
                        })?;
                    }
                }
            }
            Self::Run(view) => {
                for row in rows.map(RowId).filter(|&row| view.live.contains(row)) {
                    each(PartRow {
                        row,
                        seq: view.run.seq(row),
                        key: view.run.key(row),
                        value: view.run.value(row),
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Calls `each` with every block of 64 rows, in order, each row of which has `row_bytes` that are read. `resident` is
    /// as for [`for_each_key`](Self::for_each_key).
    pub(crate) fn for_each_block(
        self,
        resident: Option<usize>,
        row_bytes: usize,
        mut each: impl FnMut(usize, Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let mut pages = match self {
            Self::Segment(view) => resident.map(|limit| view.sealed.read_once(limit)),
            Self::Run(_) => None,
        };
        for (block, start) in (0..self.len()).step_by(ROWS_PER_BLOCK).enumerate() {
            let rows = start..(start + ROWS_PER_BLOCK).min(self.len());
            let bytes = rows.len() * row_bytes;
            each(block, rows)?;
            passed(&mut pages, bytes);
        }
        Ok(())
    }
}

fn passed(pages: &mut Option<ReadOnce<'_>>, bytes: usize) {
    if let Some(pages) = pages {
        pages.passed(bytes);
    }
}

impl KeyRead for Part<'_> {
    fn find(&self, key: &str) -> Result<Option<usize>> {
        let hash = KeyHash::of(key);
        let found = match self {
            Self::Segment(view) => view.sealed.rows.find_hashed(hash, key)?,
            Self::Run(view) => view.run.find(hash, key),
        };
        Ok(found.map(|row| row.0 as usize))
    }

    fn for_each(&self, prefix: &str, each: &mut dyn FnMut(usize, &str)) -> Result<()> {
        match self {
            Self::Segment(view) => {
                let rows = &view.sealed.rows;
                for block in 0..rows.key_blocks() {
                    rows.keys_of_block(block, prefix, |row, key| {
                        each(row.0 as usize, key);
                        Ok(())
                    })?;
                }
            }
            Self::Run(view) => {
                let keys = view.run.keys().iter().enumerate();
                let keys = keys.filter(|(_, key)| key.starts_with(prefix));
                keys.for_each(|(row, key)| each(row, key));
            }
        }
        Ok(())
    }
}
