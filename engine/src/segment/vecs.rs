//! One encoder's output for the texts of a segment.

use super::file::SegmentFile;
use super::names::{FileName, ShortId};
use super::output::Output;
use super::{RowsFile, RowsHash};
use crate::disk::files::Files;
use crate::format::{Check, Decode, Encode, FormatError, Kind, Part, Put, Section, Take, Written};
use crate::{Error, Result, SegmentId};
use half::f16;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// What a vecs file is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VecsMeta {
    /// The segment.
    pub segment: SegmentId,
    /// The rows file whose texts were encoded.
    pub rows_hash: RowsHash,
    /// The encoder, its whole id.
    pub encoder: [u8; 32],
    /// Rows, as many as the rows file has.
    pub rows: u32,
    /// Numbers a row.
    pub dim: u32,
}

impl VecsMeta {
    fn name(&self) -> FileName {
        FileName::Vecs(self.segment, ShortId::of(&self.encoder))
    }
}

impl Encode for VecsMeta {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.segment.0);
        out.put_u64(self.rows_hash.0);
        out.extend_from_slice(&self.encoder);
        out.put_u32(self.rows);
        out.put_u32(self.dim);
    }
}

impl Decode for VecsMeta {
    fn decode(fields: &mut Take<'_>) -> Result<Self, FormatError> {
        let meta = Self {
            segment: SegmentId(fields.u64()?),
            rows_hash: RowsHash(fields.u64()?),
            encoder: fields.array()?,
            rows: fields.u32()?,
            dim: fields.u32()?,
        };
        if meta.dim == 0 {
            return Err(fields.wrong("vectors of no dimensions"));
        }
        Ok(meta)
    }
}

/// Writes a vecs file, row after row.
pub struct VecsWriter {
    output: Output,
    meta: VecsMeta,
}

impl VecsWriter {
    /// Begins a file. `path` is where it will be once finished.
    pub fn create(files: Arc<dyn Files>, path: &Path, meta: VecsMeta) -> Result<Self> {
        assert!(meta.dim > 0, "vectors have dimensions");
        let mut output = Output::create(files, path, Kind::Vecs)?;
        output.begin(Section::Vectors, Check::Chunks)?;
        Ok(Self { output, meta })
    }

    /// Appends rows. `vectors`: (rows, dim).
    pub fn push(&mut self, vectors: &[f16]) -> Result<()> {
        assert_eq!(
            vectors.len() % self.meta.dim as usize,
            0,
            "whole rows are pushed"
        );
        self.output.write(bytemuck::cast_slice(vectors))
    }

    /// Syncs the file and gives it its name; the caller syncs the directory.
    pub fn finish(mut self) -> Result<Written> {
        let row = u64::from(self.meta.dim) * 2;
        let rows = self.output.section_len() / row;
        assert_eq!(rows, u64::from(self.meta.rows), "every row has a vector");
        (self.output).section(Section::Meta, Check::Chunks, &self.meta.encoded())?;
        self.output.finish()
    }
}

/// One encoder's output for the texts of a segment, read in place.
#[derive(Debug)]
pub struct VecsFile {
    file: SegmentFile,
    meta: VecsMeta,
    vectors: Part,
}

impl VecsFile {
    /// Opens a file, checking its frame and lengths.
    pub fn open(files: &dyn Files, path: &Path) -> Result<Self> {
        let file = SegmentFile::open(files, path, Kind::Vecs)?;
        let meta: VecsMeta = file.decode(Section::Meta)?;
        file.expect_name(meta.name())?;
        let len = (u64::from(meta.rows) * u64::from(meta.dim)).checked_mul(2);
        let vectors = file.sized(Section::Vectors, len)?;
        Ok(Self {
            file,
            meta,
            vectors,
        })
    }

    /// What the file is about.
    pub fn meta(&self) -> &VecsMeta {
        &self.meta
    }

    /// That the file was made from these rows; `Corrupt` otherwise.
    pub fn expect_rows(&self, rows: &RowsFile) -> Result<()> {
        let meta = &self.meta;
        (self.file).expect_rows((meta.segment, meta.rows_hash, meta.rows), rows)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Its bytes on disk.
    pub fn file_len(&self) -> u64 {
        self.file.container().file_len()
    }

    /// Rows.
    pub fn row_count(&self) -> usize {
        self.meta.rows as usize
    }

    /// Numbers a row.
    pub fn dim(&self) -> usize {
        self.meta.dim as usize
    }

    /// Vectors of a range of rows: (rows, dim). Panics if the range is not within the rows.
    #[inline]
    pub fn vectors(&self, rows: Range<usize>) -> Result<&[f16]> {
        assert!(
            rows.end <= self.row_count(),
            "rows {rows:?} of {}",
            self.row_count()
        );
        let dim = self.dim();
        (self.file).numbers(&self.vectors, rows.start * dim..rows.end * dim)
    }

    /// Gives back the memory of what was read, for those who read all of it once.
    pub fn release(&self) {
        self.file.container().file().release();
    }

    /// Reads everything and tells what is damaged.
    pub fn verify(&self) -> Vec<Error> {
        self.file.damaged_chunks()
    }
}
