//! The packed codes of a segment under one model, in the order in which the kernels read them.

use super::file::SegmentFile;
use super::names::{FileName, ShortId};
use super::output::Output;
use super::{RowsFile, RowsHash};
use crate::disk::files::{Files, Storage};
use crate::format::{Check, Decode, Encode, FormatError, Kind, Part, Put, Section, Take, Written};
use crate::quantizer::{Bits, CodeShape};
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

/// Writes a codes file, block after block.
pub struct CodesWriter {
    output: Output,
    meta: CodesMeta,
}

impl CodesWriter {
    /// Begins a file. `path` is where it will be once finished.
    pub fn create(files: Arc<dyn Files>, path: &Path, meta: CodesMeta) -> Result<Self> {
        let mut output = Output::create(files, path, Kind::Codes)?;
        output.begin(Section::Codes, Check::Chunks)?;
        Ok(Self { output, meta })
    }

    /// Appends whole blocks, packed.
    pub fn push_blocks(&mut self, blocks: &[u8]) -> Result<()> {
        assert_eq!(
            blocks.len() % self.meta.shape.block_bytes(),
            0,
            "whole blocks are pushed"
        );
        self.output.write(blocks)
    }

    /// Syncs the file and gives it its name; the caller syncs the directory.
    pub fn finish(mut self) -> Result<Written> {
        let Self { output, meta } = &mut self;
        let blocks = output.section_len() / meta.shape.block_bytes() as u64;
        assert_eq!(blocks, meta.blocks() as u64, "every row has codes");
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
        Ok(Self { file, meta, codes })
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

    /// Returns a range of blocks, packed, 64-byte aligned. Panics if the range is not within the
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
        self.file.damaged_chunks()
    }
}
