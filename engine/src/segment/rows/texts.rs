//! The texts of rows, in compressed blocks, each with its checksum.

use super::strings::{self, Strings};
use crate::format::{Check, Part, Put, Section, checksum};
use crate::segment::file::SegmentFile;
use crate::segment::output::Output;
use crate::{Error, Result, RowId};
use std::io;
use std::path::Path;
use zstd::bulk::{Compressor, Decompressor};

/// The maximum size of a block; a longer text has a block of its own. Larger blocks compress slightly better, but
/// reading one text takes decompressing its whole block.
const BLOCK_BYTES: usize = 16 * 1024;
const LEVEL: i32 = 3;
/// A block that compresses better than this is stored uncompressed, so that a small hostile file can't require much
/// memory.
const MAX_RATIO: u64 = 128;
pub(super) const ENTRY_BYTES: usize = 32;

const STORED: u32 = 0;
const ZSTD: u32 = 1;

/// Compresses texts block by block into the current section.
pub(super) struct TextsWriter {
    strings: Strings,
    raw: Vec<u8>,
    compressor: Compressor<'static>,
    table: Vec<u8>,
    /// The number of rows in finished blocks.
    rows: u32,
}

impl TextsWriter {
    /// Begins TEXTS.
    pub(super) fn begin(output: &mut Output, path: &Path) -> Result<Self> {
        output.begin(Section::Texts, Check::Blocks)?;
        Ok(Self {
            strings: Strings::default(),
            raw: Vec::new(),
            compressor: Compressor::new(LEVEL).map_err(Error::io("compressing", path))?,
            table: Vec::new(),
            rows: 0,
        })
    }

    pub(super) fn push(&mut self, output: &mut Output, text: &str) -> Result<()> {
        // A long text gets a block of its own, so that its neighbours stay cheap to read.
        let after = self.strings.len() + text.len();
        if self.strings.count() > 0 && after > BLOCK_BYTES {
            self.put_block(output)?;
        }
        self.strings.push(text);
        Ok(())
    }

    /// Ends TEXTS and writes TEXT_BLOCKS.
    pub(super) fn finish(mut self, output: &mut Output) -> Result<()> {
        if self.strings.count() > 0 {
            self.put_block(output)?;
        }
        output.section(Section::TextBlocks, Check::Chunks, &self.table)
    }

    fn put_block(&mut self, output: &mut Output) -> Result<()> {
        let rows = self.strings.count() as u32;
        self.raw.clear();
        self.strings.take(&mut self.raw);
        let compressed = (self.compressor.compress(&self.raw))
            .map_err(Error::io("compressing", output.path()))?;
        let fits = compressed.len() < self.raw.len()
            && self.raw.len() as u64 <= compressed.len() as u64 * MAX_RATIO;
        let (how, bytes) = match fits {
            true => (ZSTD, &compressed),
            false => (STORED, &self.raw),
        };
        self.table.put_u64(output.section_len());
        self.table.put_u64(checksum(bytes));
        self.table.put_u32(self.rows);
        self.table.put_u32(self.raw.len() as u32);
        self.table.put_u32(how);
        self.table.put_u32(0);
        self.rows += rows;
        output.write(bytes)?;
        if self.raw.capacity() > 16 * BLOCK_BYTES {
            self.raw = Vec::new();
            self.strings = Strings::default();
        }
        Ok(())
    }
}

/// The texts of a file.
#[derive(Debug)]
pub(super) struct Texts {
    texts: Part,
    table: Part,
    blocks: usize,
    rows: u32,
}

/// A block of texts, decompressed.
#[derive(Debug)]
pub(super) struct TextBlock {
    raw: Vec<u8>,
    first: u32,
    count: u32,
    at: usize,
}

impl TextBlock {
    pub(super) fn contains(&self, row: u32) -> bool {
        row.wrapping_sub(self.first) < self.count
    }
}

struct Entry {
    offset: u64,
    sum: u64,
    first: u32,
    raw_len: u32,
    how: u32,
}

impl Texts {
    pub(super) fn open(file: &SegmentFile, rows: u32) -> Result<Self> {
        let texts = file.part(Section::Texts, Check::Blocks)?;
        let table = file.part(Section::TextBlocks, Check::Chunks)?;
        let blocks = table.len() / ENTRY_BYTES;
        if table.len() % ENTRY_BYTES != 0
            || (blocks == 0) != (rows == 0)
            || blocks > rows as usize
            || (blocks == 0 && !texts.is_empty())
        {
            let what = format!("{} bytes of blocks for {rows} rows", table.len());
            return Err(file.wrong(table.wrong(0, what)));
        }
        Ok(Self {
            texts,
            table,
            blocks,
            rows,
        })
    }

    /// Returns the block of a row, after checking and decompressing it. Requires: the row is in the file.
    pub(super) fn block_of(
        &self,
        file: &SegmentFile,
        row: RowId,
        decompressor: &mut Decompressor<'_>,
    ) -> Result<TextBlock> {
        let (mut low, mut high) = (0, self.blocks);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(file, middle)?.first <= row.0 {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let wrong = |index: usize, what: String| {
            Err(file.wrong(self.table.wrong(index * ENTRY_BYTES, what)))
        };
        let Some(index) = low.checked_sub(1) else {
            return wrong(0, format!("no block contains row {row}"));
        };
        let this = self.entry(file, index)?;
        let (end, end_row) = match index + 1 {
            next if next == self.blocks => (self.texts.len() as u64, self.rows),
            next => self
                .entry(file, next)
                .map(|next| (next.offset, next.first))?,
        };
        // The first block begins with the section and the first row, so that every byte and row is in a block.
        if (index == 0 && (this.offset, this.first) != (0, 0))
            || this.offset > end
            || end > self.texts.len() as u64
            || !(this.first..end_row).contains(&row.0)
            || end_row > self.rows
        {
            return wrong(
                index,
                format!("block {index} is not between its neighbours"),
            );
        }
        let stored_len = end - this.offset;
        let (at, raw_len) = (this.offset as usize, this.raw_len as usize);
        let bytes = file.block(&self.texts, at..end as usize, this.sum)?;
        let raw = match this.how {
            STORED => bytes.to_vec(),
            ZSTD if u64::from(this.raw_len) <= stored_len * MAX_RATIO => {
                match decompressor.decompress(bytes, raw_len) {
                    Ok(raw) => raw,
                    Err(e) => return wrong(index, format!("block {index}: {e}")),
                }
            }
            how => {
                let what = format!(
                    "block {index}: {raw_len} bytes in {stored_len}, packed by the unknown method {how}"
                );
                return wrong(index, what);
            }
        };
        if raw.len() != raw_len {
            return wrong(
                index,
                format!("block {index}: {} bytes, expected {raw_len}", raw.len()),
            );
        }
        Ok(TextBlock {
            raw,
            first: this.first,
            count: end_row - this.first,
            at,
        })
    }

    /// Returns a text of a block. Requires: the block contains the row.
    pub(super) fn in_block<'a>(
        &self,
        file: &SegmentFile,
        block: &'a TextBlock,
        row: u32,
    ) -> Result<&'a str> {
        strings::at(
            &block.raw,
            block.count as usize,
            (row - block.first) as usize,
        )
        .map_err(|what| file.wrong(self.texts.wrong(block.at, what)))
    }

    fn entry(&self, file: &SegmentFile, index: usize) -> Result<Entry> {
        let bytes = file.checked(&self.table, index * ENTRY_BYTES..(index + 1) * ENTRY_BYTES)?;
        let words: &[u64] = bytemuck::cast_slice(bytes);
        Ok(Entry {
            offset: words[0],
            sum: words[1],
            first: words[2] as u32,
            raw_len: (words[2] >> 32) as u32,
            // The upper half must be zero; any other value is an unknown packing.
            how: u32::try_from(words[3]).unwrap_or(u32::MAX),
        })
    }
}

pub(super) fn decompressor(path: &Path) -> Result<Decompressor<'static>> {
    let new: io::Result<_> = Decompressor::new();
    new.map_err(Error::io("decompressing", path))
}
