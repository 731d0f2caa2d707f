//! One encoder's output for the texts of a segment.

use super::file::SegmentFile;
use super::names::{FileName, ShortId};
use super::output::Output;
use super::vectors::{self, Vectors, VectorsWriter};
use super::{RowsFile, RowsHash};
use crate::disk::files::{Files, Storage};
use crate::format::{Check, Decode, Encode, FormatError, Kind, Put, Section, Take, Written};
use crate::stored::{Precision, StoredRef};
use crate::{Error, Result, SegmentId};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The metadata of a vecs file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VecsMeta {
    /// The segment.
    pub segment: SegmentId,
    /// The rows file whose texts were encoded.
    pub rows_hash: RowsHash,
    /// The id of the encoder, in full.
    pub encoder: [u8; 32],
    /// The number of rows, equal to that of the rows file.
    pub rows: u32,
    /// The number of values per vector.
    pub dim: u32,
    /// The precision of the stored values.
    pub precision: Precision,
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
        out.put_u32(vectors::number(self.precision));
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
            // Version 1 has only halves, and does not say so.
            precision: match fields.left() {
                0 => Precision::F16,
                _ => vectors::precision(fields.u32()?, fields)?,
            },
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
    vectors: VectorsWriter,
    meta: VecsMeta,
}

impl VecsWriter {
    /// Begins a file. `path` is its final path.
    pub fn create(files: Arc<dyn Files>, path: &Path, meta: VecsMeta) -> Result<Self> {
        let mut output = Output::create(files, path, Kind::Vecs)?;
        let vectors = VectorsWriter::begin(&mut output, meta.dim as usize, meta.precision)?;
        Ok(Self {
            output,
            vectors,
            meta,
        })
    }

    /// Appends vectors: (rows, dim).
    pub fn push(&mut self, vectors: StoredRef<'_>) -> Result<()> {
        self.vectors.push(&mut self.output, vectors)
    }

    /// Syncs the file and renames it to its final name; the caller syncs the directory.
    pub fn finish(mut self) -> Result<Written> {
        let rows = self.vectors.rows();
        assert_eq!(rows, u64::from(self.meta.rows), "every row has a vector");
        self.vectors.finish(&mut self.output)?;
        (self.output).section(Section::Meta, Check::Chunks, &self.meta.encoded())?;
        self.output.finish()
    }
}

/// One encoder's output for the texts of a segment, read in place.
#[derive(Debug)]
pub struct VecsFile {
    file: SegmentFile,
    meta: VecsMeta,
    vectors: Vectors,
}

impl VecsFile {
    /// Opens a file, checking its frame and lengths.
    pub fn open(files: &dyn Storage, path: &Path) -> Result<Self> {
        let file = SegmentFile::open(files, path, Kind::Vecs)?;
        let meta: VecsMeta = file.decode(Section::Meta)?;
        file.expect_name(meta.name())?;
        let vectors = Vectors::open(&file, meta.rows, meta.dim, meta.precision)?;
        Ok(Self {
            file,
            meta,
            vectors,
        })
    }

    /// Returns the metadata of the file.
    pub fn meta(&self) -> &VecsMeta {
        &self.meta
    }

    /// Returns an error unless the file was made from these rows.
    pub fn expect_rows(&self, rows: &RowsFile) -> Result<()> {
        let meta = &self.meta;
        (self.file).expect_rows((meta.segment, meta.rows_hash, meta.rows), rows)
    }

    #[cfg(any(test, feature = "testing"))]
    /// Returns the path.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    #[cfg(any(test, feature = "testing"))]
    /// Returns its bytes on disk.
    pub fn file_len(&self) -> u64 {
        self.file.container().file_len()
    }

    #[cfg(any(test, feature = "testing"))]
    /// Returns the number of rows.
    pub fn row_count(&self) -> usize {
        self.meta.rows as usize
    }

    #[cfg(any(test, feature = "testing"))]
    /// Returns the number of values per vector.
    pub fn dim(&self) -> usize {
        self.meta.dim as usize
    }

    /// Returns the vectors of a range of rows: (rows, dim). Panics if the range is not within the
    /// rows.
    #[inline]
    pub fn vectors(&self, rows: Range<usize>) -> Result<StoredRef<'_>> {
        self.vectors.read(&self.file, rows)
    }

    /// Begins to read the vectors of rows, all at once. Requires: rows ascend.
    pub fn prefetch(&self, rows: &[u32]) {
        self.vectors.prefetch(&self.file, rows);
    }

    /// Releases the memory of the pages that were read, for sequential readers.
    pub fn release(&self) {
        self.file.container().file().release();
    }

    /// Reads everything and returns what is damaged.
    pub fn verify(&self) -> Vec<Error> {
        self.file.damaged_chunks()
    }
}
