//! Reading rows in order, each block once.

use super::keys::KeyBlock;
use super::reader::{RowsFile, Values};
use super::seqs::Run;
use super::texts::{TextBlock, decompressor};
use crate::row::ValueRef;
use crate::{Result, RowId, Seq};
use std::ops::Range;
use zstd::bulk::Decompressor;

/// A row, as it is stored in its file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowRef<'a> {
    /// Its position.
    pub row: RowId,
    /// When it was accepted.
    pub seq: Seq,
    /// Its key.
    pub key: &'a str,
    /// Its text or vector.
    pub value: ValueRef<'a>,
}

/// Reads rows in order, each block of keys and texts once.
pub struct RowsCursor<'a> {
    rows: &'a RowsFile,
    next: u32,
    end: u32,
    run: Option<(usize, Run)>,
    keys: Option<KeyBlock<'a>>,
    texts: Option<TextBlock>,
    decompressor: Option<Decompressor<'static>>,
}

impl<'a> RowsCursor<'a> {
    pub(super) fn new(rows: &'a RowsFile, range: Range<u32>) -> Self {
        Self {
            rows,
            next: range.start,
            end: range.end,
            run: None,
            keys: None,
            texts: None,
            decompressor: None,
        }
    }

    /// Returns the next row, which is valid until the following one is requested.
    #[expect(
        clippy::should_implement_trait,
        reason = "a row borrows from the cursor"
    )]
    pub fn next(&mut self) -> Result<Option<RowRef<'_>>> {
        if self.next >= self.end {
            return Ok(None);
        }
        let row = self.next;
        self.next += 1;
        let RowsFile { file, values, .. } = self.rows;
        let seq = self.seq(row)?;
        let block = match self.keys {
            Some(block) if block.contains(row) => block,
            _ => *self.keys.insert(self.rows.keys.block_of(file, RowId(row))?),
        };
        let key = self.rows.keys.in_block(file, block, row)?;
        let value = match values {
            Values::Vectors { .. } => self.rows.vector(RowId(row))?,
            Values::Texts(texts) => {
                if !self.texts.as_ref().is_some_and(|block| block.contains(row)) {
                    let decompressor = match &mut self.decompressor {
                        Some(decompressor) => decompressor,
                        none => none.insert(decompressor(file.path())?),
                    };
                    self.texts = Some(texts.block_of(file, RowId(row), decompressor)?);
                }
                let block = self.texts.as_ref().expect("the block was just read");
                ValueRef::Text(texts.in_block(file, block, row)?)
            }
        };
        Ok(Some(RowRef {
            row: RowId(row),
            seq,
            key,
            value,
        }))
    }

    fn seq(&mut self, row: u32) -> Result<Seq> {
        let RowsFile { file, seqs, .. } = self.rows;
        let run = match self.run {
            Some((_, run)) if row < run.end => run,
            // The run after the previous one, if the file is intact.
            Some((index, _)) if index + 1 < seqs.runs() => {
                let run = seqs.run(file, index + 1)?;
                self.run = Some((index + 1, run));
                run
            }
            _ => {
                let (index, run) = seqs.run_of(file, RowId(row))?;
                self.run = Some((index, run));
                run
            }
        };
        seqs.in_run(file, run, RowId(row))
    }
}
