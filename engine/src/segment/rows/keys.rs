//! The keys of rows, in blocks of 64, each with its checksum.

use super::strings::{self, Strings};
use crate::disk::files::Files;
use crate::format::{Check, Part, Put, Section, checksum};
use crate::segment::file::SegmentFile;
use crate::segment::output::{Output, Spill};
use crate::{Result, RowId};
use std::path::Path;
use std::sync::Arc;

pub(super) const ROWS_PER_BLOCK: u32 = 64;
pub(super) const ENTRY_BYTES: usize = 16;

/// Collects keys while the values are written, because the keys follow the values.
pub(super) struct KeysWriter {
    strings: Strings,
    block: Vec<u8>,
    spill: Spill,
    table: Vec<u8>,
    bytes: u64,
}

impl KeysWriter {
    pub(super) fn new(files: Arc<dyn Files>, path: &Path) -> Self {
        Self {
            strings: Strings::default(),
            block: Vec::new(),
            spill: Spill::new(files, path, "keys"),
            table: Vec::new(),
            bytes: 0,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, key: &str) -> Result<()> {
        self.strings.push(key);
        self.bytes += key.len() as u64;
        if self.strings.count() == ROWS_PER_BLOCK as usize {
            self.put_block()?;
        }
        Ok(())
    }

    /// Returns the number of bytes of all keys.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes KEYS and KEY_BLOCKS.
    pub(super) fn finish(mut self, output: &mut Output) -> Result<()> {
        if self.strings.count() > 0 {
            self.put_block()?;
        }
        output.begin(Section::Keys, Check::Blocks)?;
        self.spill.drain(|bytes| output.write(bytes))?;
        output.section(Section::KeyBlocks, Check::Chunks, &self.table)
    }

    fn put_block(&mut self) -> Result<()> {
        self.block.clear();
        self.strings.take(&mut self.block);
        self.table.put_u64(self.spill.len());
        self.table.put_u64(checksum(&self.block));
        self.spill.push(&self.block)
    }
}

/// The keys of a file.
#[derive(Debug)]
pub(super) struct Keys {
    keys: Part,
    table: Part,
    rows: u32,
}

/// A block of keys that was checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyBlock<'a> {
    bytes: &'a [u8],
    first: u32,
    count: u32,
    /// Its position in the section.
    at: usize,
}

impl<'a> KeyBlock<'a> {
    pub(super) fn contains(&self, row: u32) -> bool {
        row.wrapping_sub(self.first) < self.count
    }
}

impl Keys {
    pub(super) fn open(file: &SegmentFile, rows: u32) -> Result<Self> {
        let blocks = u64::from(rows.div_ceil(ROWS_PER_BLOCK));
        let table = file.sized(Section::KeyBlocks, Some(blocks * ENTRY_BYTES as u64))?;
        let keys = file.part(Section::Keys, Check::Blocks)?;
        // Even empty keys take four bytes. Without rows there must be no bytes, since no block would check them.
        if (keys.len() as u64) < u64::from(rows) * 4 || (rows == 0 && !keys.is_empty()) {
            let what = format!("{} bytes of keys for {rows} rows", keys.len());
            return Err(file.wrong(keys.wrong(0, what)));
        }
        Ok(Self { keys, table, rows })
    }

    pub(super) fn blocks(&self) -> usize {
        self.rows.div_ceil(ROWS_PER_BLOCK) as usize
    }

    /// Returns a block of keys, after checking it.
    pub(super) fn block<'a>(&self, file: &'a SegmentFile, index: usize) -> Result<KeyBlock<'a>> {
        let words = |index: usize| -> Result<&[u64]> {
            Ok(bytemuck::cast_slice(file.checked(
                &self.table,
                index * ENTRY_BYTES..(index + 1) * ENTRY_BYTES,
            )?))
        };
        let this = words(index)?;
        let end = match index + 1 {
            next if next == self.blocks() => self.keys.len() as u64,
            next => words(next)?[0],
        };
        let (start, sum) = (this[0], this[1]);
        // The first block begins with the section, so that every byte is in a block.
        if (index == 0 && start != 0) || start > end || end > self.keys.len() as u64 {
            let what = format!(
                "block {index} is at bytes {start}..{end} of {}",
                self.keys.len()
            );
            return Err(file.wrong(self.table.wrong(index * ENTRY_BYTES, what)));
        }
        let first = index as u32 * ROWS_PER_BLOCK;
        Ok(KeyBlock {
            bytes: file.block(&self.keys, start as usize..end as usize, sum)?,
            first,
            count: (self.rows - first).min(ROWS_PER_BLOCK),
            at: start as usize,
        })
    }

    pub(super) fn block_of<'a>(&self, file: &'a SegmentFile, row: RowId) -> Result<KeyBlock<'a>> {
        self.block(file, (row.0 / ROWS_PER_BLOCK) as usize)
    }

    /// Returns a key of a block. Requires: the block contains the row.
    pub(super) fn in_block<'a>(
        &self,
        file: &SegmentFile,
        block: KeyBlock<'a>,
        row: u32,
    ) -> Result<&'a str> {
        strings::at(
            block.bytes,
            block.count as usize,
            (row - block.first) as usize,
        )
        .map_err(|what| file.wrong(self.keys.wrong(block.at, what)))
    }

    /// Calls `each` with the rows of a block whose key begins with `prefix`, in order. Returns how many bytes were read.
    pub(super) fn with_prefix(
        &self,
        file: &SegmentFile,
        index: usize,
        prefix: &str,
        mut each: impl FnMut(RowId, &str) -> Result<()>,
    ) -> Result<usize> {
        let block = self.block(file, index)?;
        for row in 0..block.count {
            let key = strings::bytes_at(block.bytes, block.count as usize, row as usize)
                .map_err(|what| file.wrong(self.keys.wrong(block.at, what)))?;
            if key.starts_with(prefix.as_bytes()) {
                let row = block.first + row;
                each(RowId(row), self.in_block(file, block, row)?)?;
            }
        }
        Ok(block.bytes.len())
    }
}
