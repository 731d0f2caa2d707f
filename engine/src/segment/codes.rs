//! The packed codes of a segment under one model, in the order in which the kernels read them: by row, or by cell where the
//! quantizer has cells.

use super::file::SegmentFile;
use super::names::{FileName, ShortId};
use super::output::Output;
use super::{RowsFile, RowsHash};
use crate::disk::files::{Files, Storage};
use crate::format::{Check, Decode, Encode, FormatError, Kind, Part, Put, Section, Take, Written};
use crate::quantizer::{Bits, CellOrder, CellStarts, CodeShape, MAX_CELLS};
use crate::{CodesId, Error, Result, SegmentId};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The metadata of a codes file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodesMeta {
    /// The segment.
    pub segment: SegmentId,
    /// The rows file whose rows were quantized.
    pub rows_hash: RowsHash,
    /// What they depend on.
    pub codes: CodesId,
    /// Rows, as many as the rows file has.
    pub rows: u32,
    /// Subspaces and codewords.
    pub shape: CodeShape,
}

impl CodesMeta {
    /// Returns the number of blocks of 64 rows; the last may have fewer, and is then filled with
    /// code 0.
    pub fn blocks(&self) -> usize {
        self.shape.blocks(self.rows as usize)
    }

    fn name(&self) -> FileName {
        FileName::Codes(self.segment, ShortId::of(&self.codes.0))
    }
}

fn bits(shape: CodeShape) -> u32 {
    match shape.bits() {
        Bits::Four => 4,
        Bits::Eight => 8,
    }
}

impl Encode for CodesMeta {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.segment.0);
        out.put_u64(self.rows_hash.0);
        out.extend_from_slice(&self.codes.0);
        out.put_u32(self.rows);
        out.put_u32(self.shape.subspaces() as u32);
        out.put_u32(self.shape.codewords() as u32);
        out.put_u32(bits(self.shape));
    }
}

impl Decode for CodesMeta {
    fn decode(fields: &mut Take<'_>) -> Result<Self, FormatError> {
        let segment = SegmentId(fields.u64()?);
        let rows_hash = RowsHash(fields.u64()?);
        let codes = CodesId(fields.array()?);
        let rows = fields.u32()?;
        let (subspaces, codewords, found) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let shape = CodeShape::new(subspaces as usize, codewords as usize);
        let Some(shape) = shape.ok().filter(|&shape| bits(shape) == found) else {
            return Err(fields.wrong(format!(
                "{subspaces} subspaces of {codewords} codewords in {found} bits"
            )));
        };
        Ok(Self {
            segment,
            rows_hash,
            codes,
            rows,
            shape,
        })
    }
}

/// The section CELLS.
#[derive(Debug)]
struct Cells {
    /// Cells of the quantizer.
    cells: u32,
    /// Cell and first position of each that has rows.
    entries: Vec<(u32, u32)>,
}

impl Encode for Cells {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.cells);
        out.put_u32(self.entries.len() as u32);
        for (cell, first) in &self.entries {
            out.put_u32(*cell);
            out.put_u32(*first);
        }
    }
}

impl Decode for Cells {
    fn decode(fields: &mut Take<'_>) -> Result<Self, FormatError> {
        let (cells, count) = (fields.u32()?, fields.u32()?);
        if cells as usize > MAX_CELLS || count > cells {
            return Err(fields.wrong(format!("{count} of {cells} cells")));
        }
        let mut entries = Vec::with_capacity(count as usize);
        for _ in 0..count {
            entries.push((fields.u32()?, fields.u32()?));
        }
        Ok(Self { cells, entries })
    }
}

/// Writes a codes file, block after block.
pub struct CodesWriter {
    output: Output,
    meta: CodesMeta,
    /// Blocks so far.
    pushed: usize,
}

impl CodesWriter {
    /// Begins a file. `path` is where it will be once finished.
    pub fn create(files: Arc<dyn Files>, path: &Path, meta: CodesMeta) -> Result<Self> {
        let mut output = Output::create(files, path, Kind::Codes)?;
        output.begin(Section::Codes, Check::Chunks)?;
        Ok(Self {
            output,
            meta,
            pushed: 0,
        })
    }

    /// Appends whole blocks, packed.
    pub fn push_blocks(&mut self, blocks: &[u8]) -> Result<()> {
        let bytes = self.meta.shape.block_bytes();
        assert_eq!(blocks.len() % bytes, 0, "whole blocks are pushed");
        self.pushed += blocks.len() / bytes;
        self.output.write(blocks)
    }

    /// The same, for codes that were pushed in this order.
    pub(crate) fn finish_ordered(mut self, order: &CellOrder) -> Result<Written> {
        assert_eq!(
            order.rows.len(),
            self.meta.rows as usize,
            "a position per row"
        );
        let cells = Cells {
            cells: order.cells,
            entries: order.starts.entries().to_vec(),
        };
        let output = &mut self.output;
        output.section(Section::Cells, Check::Chunks, &cells.encoded())?;
        let rows = bytemuck::cast_slice(&order.rows);
        output.section(Section::Order, Check::Chunks, rows)?;
        self.finish_meta()
    }

    /// Syncs the file and gives it its name; the caller syncs the directory.
    pub fn finish(self) -> Result<Written> {
        self.finish_meta()
    }

    fn finish_meta(mut self) -> Result<Written> {
        let Self {
            output,
            meta,
            pushed,
        } = &mut self;
        assert_eq!(*pushed, meta.blocks(), "every row has codes");
        output.section(Section::Meta, Check::Chunks, &meta.encoded())?;
        self.output.finish()
    }
}

/// The packed codes of a segment under one model, read in place.
#[derive(Debug)]
pub struct CodesFile {
    file: SegmentFile,
    meta: CodesMeta,
    codes: Part,
    order: Option<Order>,
}

/// How the codes are ordered, where that is not by row.
#[derive(Debug)]
struct Order {
    cells: u32,
    starts: CellStarts,
    /// The row of each position.
    rows: Part,
}

impl CodesFile {
    /// Opens a file, checking its frame and lengths.
    pub fn open(files: &dyn Storage, path: &Path) -> Result<Self> {
        let file = SegmentFile::open(files, path, Kind::Codes)?;
        let meta: CodesMeta = file.decode(Section::Meta)?;
        file.expect_name(meta.name())?;
        let codes = file.sized(
            Section::Codes,
            (meta.blocks() as u64).checked_mul(meta.shape.block_bytes() as u64),
        )?;
        let order = match file.container().has(Section::Cells) {
            true => Some(Order::open(&file, &meta)?),
            false => None,
        };
        Ok(Self {
            file,
            meta,
            codes,
            order,
        })
    }

    /// Returns the number of cells of the quantizer, if codes are ordered by cell.
    pub(crate) fn cells(&self) -> Option<u32> {
        self.order.as_ref().map(|order| order.cells)
    }

    /// Returns where the cells begin, if codes are ordered by cell.
    pub(crate) fn starts(&self) -> Option<&CellStarts> {
        self.order.as_ref().map(|order| &order.starts)
    }

    /// Returns the rows of a range of positions, each below the number of rows.
    ///
    /// Requires: codes are ordered by cell.
    #[inline]
    pub(crate) fn rows_at(&self, positions: Range<usize>) -> Result<&[u32]> {
        let order = self.order.as_ref().expect("codes are ordered by cell");
        let first = positions.start;
        let rows: &[u32] = self.file.numbers(&order.rows, positions)?;
        match rows.iter().position(|&row| row >= self.meta.rows) {
            None => Ok(rows),
            Some(at) => Err(self.wrong_order(first + at, rows[at])),
        }
    }

    #[cold]
    fn wrong_order(&self, position: usize, row: u32) -> Error {
        let detail = format!("position {position} has row {row} of {}", self.meta.rows);
        Error::corrupt(
            self.path(),
            Section::Order.name(),
            position as u64 * 4,
            detail,
        )
    }

    /// Returns what the file is about.
    pub fn meta(&self) -> &CodesMeta {
        &self.meta
    }

    /// Returns `Corrupt` unless the file was made from these rows.
    pub fn expect_rows(&self, rows: &RowsFile) -> Result<()> {
        let meta = &self.meta;
        (self.file).expect_rows((meta.segment, meta.rows_hash, meta.rows), rows)
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    #[cfg(any(test, feature = "testing"))]
    /// Returns the length of the file.
    pub fn file_len(&self) -> u64 {
        self.file.container().file_len()
    }

    #[cfg(any(test, feature = "testing"))]
    /// Returns the number of rows.
    pub fn row_count(&self) -> usize {
        self.meta.rows as usize
    }

    /// Returns a range of blocks of 64 positions, packed, 64-byte aligned. Positions are rows unless codes are ordered by cell. Panics if the range is not within the
    /// blocks.
    #[inline]
    pub fn blocks(&self, blocks: Range<usize>) -> Result<&[u8]> {
        let count = self.meta.blocks();
        assert!(blocks.end <= count, "blocks {blocks:?} of {count}");
        let bytes = self.meta.shape.block_bytes();
        (self.file).checked(&self.codes, blocks.start * bytes..blocks.end * bytes)
    }

    /// Reads everything and returns what is damaged.
    pub fn verify(&self) -> Vec<Error> {
        let mut damage = self.file.damaged_chunks();
        if self.order.is_some() && damage.is_empty() {
            damage.extend(self.verify_order().err());
        }
        damage
    }

    /// Returns an error unless each row has one position.
    ///
    /// Requires: codes are ordered by cell.
    pub(crate) fn verify_order(&self) -> Result<()> {
        let mut seen = vec![false; self.meta.rows as usize];
        for (position, &row) in self.rows_at(0..seen.len())?.iter().enumerate() {
            if std::mem::replace(&mut seen[row as usize], true) {
                return Err(self.wrong_order(position, row));
            }
        }
        Ok(())
    }
}

impl Order {
    fn open(file: &SegmentFile, meta: &CodesMeta) -> Result<Self> {
        let Cells { cells, entries } = file.decode(Section::Cells)?;
        let rows = file.sized(Section::Order, Some(u64::from(meta.rows) * 4))?;
        let starts = CellStarts::checked(entries, meta.rows, cells).ok_or_else(|| {
            let what = "cells and their first positions do not ascend";
            Error::corrupt(file.path(), Section::Cells.name(), 0, what.to_owned())
        })?;
        Ok(Self {
            cells,
            starts,
            rows,
        })
    }
}
