//! Reading a rows file in place.

use super::cursor::RowsCursor;
use super::index::Index;
use super::keys::Keys;
use super::meta::{Meta, RowsMeta, RowsSummary, VectorKind};
use super::seqs::Seqs;
use super::texts::{Texts, decompressor};
use crate::disk::files::Storage;
use crate::format::{Kind, Part, Section};
use crate::row::ValueRef;
use crate::segment::RowsHash;
use crate::segment::file::SegmentFile;
use crate::segment::key_index::KeyHash;
use crate::segment::names::FileName;
use crate::segment::vectors::Vectors;
use crate::stored::{StoredRef, known};
use crate::{Error, Result, RowId, Seq};
use std::ops::Range;
use std::path::Path;

/// The rows of a segment, read in place, without memory per row.
///
/// Functions that take a row panic if it is not in the file.
#[derive(Debug)]
pub struct RowsFile {
    pub(super) file: SegmentFile,
    about: RowsMeta,
    summary: RowsSummary,
    pub(super) seqs: Seqs,
    pub(super) keys: Keys,
    index: Index,
    pub(super) values: Values,
}

/// The sections with the values.
#[derive(Debug)]
pub(super) enum Values {
    Texts(Texts),
    Vectors {
        vectors: Vectors,
        /// Missing in files of version 1.
        norms: Option<Part>,
    },
}

impl RowsFile {
    /// Opens a file, checking its frame and lengths.
    pub fn open(files: &dyn Storage, path: &Path) -> Result<Self> {
        let file = SegmentFile::open(files, path, Kind::Rows)?;
        let meta: Meta = file.decode(Section::Meta)?;
        file.expect_name(FileName::Rows(meta.about.segment))?;
        Self::with_meta(file, &meta)
    }

    /// Checks that the sections have the lengths that META states.
    pub(super) fn with_meta(file: SegmentFile, meta: &Meta) -> Result<Self> {
        let rows = meta.rows;
        let values = match meta.about.vectors {
            None => Values::Texts(Texts::open(&file, rows)?),
            Some(kind) => Values::Vectors {
                vectors: Vectors::open(&file, rows, kind.dim.get(), kind.precision)?,
                norms: match meta.about.has_norms() && file.container().version() > 1 {
                    true => Some(file.sized(Section::Norms, Some(u64::from(rows) * 8))?),
                    false => None,
                },
            },
        };
        let summary = RowsSummary {
            rows,
            seqs: meta.seqs,
            key_bytes: meta.key_bytes,
            value_bytes: meta.value_bytes,
            file_bytes: file.container().file_len(),
            hash: RowsHash(file.container().content_hash()),
        };
        Ok(Self {
            seqs: Seqs::open(&file, rows)?,
            keys: Keys::open(&file, rows)?,
            index: Index::open(&file, rows)?,
            values,
            about: meta.about.clone(),
            summary,
            file,
        })
    }

    pub(super) fn set_seqs(&mut self, seqs: (Seq, Seq)) {
        self.summary.seqs = Some(seqs);
    }

    /// Returns the metadata that was known before the rows.
    pub fn meta(&self) -> &RowsMeta {
        &self.about
    }

    /// Returns the contents of the file, as its writer's `finish` returned them.
    pub fn summary(&self) -> &RowsSummary {
        &self.summary
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the number of rows.
    pub fn row_count(&self) -> usize {
        self.summary.rows as usize
    }

    /// Returns the hash of the file.
    pub fn hash(&self) -> RowsHash {
        self.summary.hash
    }

    /// Returns the sequence number of a row.
    pub fn seq(&self, row: RowId) -> Result<Seq> {
        self.expect_row(row);
        self.seqs.seq(&self.file, row)
    }

    /// Returns the row with this key; the last one if there are several.
    pub fn find(&self, key: &str) -> Result<Option<RowId>> {
        self.find_hashed(KeyHash::of(key), key)
    }

    /// Returns the row of a key whose hash is known.
    pub fn find_hashed(&self, hash: KeyHash, key: &str) -> Result<Option<RowId>> {
        self.index.find(&self.file, &self.keys, hash, key)
    }

    #[cfg(any(test, feature = "testing"))]
    /// Returns the rows whose key begins with `prefix`, in order. Reads all keys.
    pub fn rows_with_prefix(&self, prefix: &str) -> Result<Vec<RowId>> {
        let mut rows = Vec::new();
        for index in 0..self.key_blocks() {
            self.keys_of_block(index, prefix, |row, _| {
                rows.push(row);
                Ok(())
            })?;
        }
        Ok(rows)
    }

    /// Returns the number of blocks of keys.
    pub fn key_blocks(&self) -> usize {
        self.keys.blocks()
    }

    /// Calls `each` with the rows of a block whose key begins with `prefix`, in order. Returns how many bytes were read.
    pub fn keys_of_block(
        &self,
        index: usize,
        prefix: &str,
        each: impl FnMut(RowId, &str) -> Result<()>,
    ) -> Result<usize> {
        self.keys.with_prefix(&self.file, index, prefix, each)
    }

    /// Returns the key of a row.
    pub fn key(&self, row: RowId) -> Result<&str> {
        self.expect_row(row);
        let block = self.keys.block_of(&self.file, row)?;
        self.keys.in_block(&self.file, block, row.0)
    }

    /// Returns the text of a row, `None` in a segment of vectors.
    pub fn text(&self, row: RowId) -> Result<Option<String>> {
        self.expect_row(row);
        let Values::Texts(texts) = &self.values else {
            return Ok(None);
        };
        let mut decompressor = decompressor(self.path())?;
        let block = texts.block_of(&self.file, row, &mut decompressor)?;
        let text = texts.in_block(&self.file, &block, row.0)?;
        Ok(Some(text.to_owned()))
    }

    /// Returns the kind of vectors; `None` in a segment of texts.
    pub fn vector_kind(&self) -> Option<VectorKind> {
        self.about.vectors
    }

    /// Returns the vector of a row, with its norm. Panics in a segment of texts.
    pub fn vector(&self, row: RowId) -> Result<ValueRef<'_>> {
        let at = row.0 as usize;
        Ok(ValueRef::Vector {
            stored: self.vectors(at..at + 1)?,
            norm: self.norm(row)?,
        })
    }

    /// Returns the vectors of a range of rows: (rows, dim). Panics in a segment of texts.
    #[inline]
    pub fn vectors(&self, rows: Range<usize>) -> Result<StoredRef<'_>> {
        let Values::Vectors { vectors, .. } = &self.values else {
            panic!("a segment of texts has its vectors in vecs files");
        };
        vectors.read(&self.file, rows)
    }

    /// Returns the length that the vector of a row had before it was normalised, if it is known.
    pub fn norm(&self, row: RowId) -> Result<Option<f64>> {
        self.expect_row(row);
        let at = row.0 as usize;
        match &self.values {
            Values::Vectors {
                norms: Some(part), ..
            } => Ok(known(self.file.numbers(part, at..at + 1)?[0])),
            _ => Ok(None),
        }
    }

    /// Begins to read the vectors of rows, all at once. Does nothing in a segment of texts. Requires: rows ascend.
    pub fn prefetch(&self, rows: &[u32]) {
        if let Values::Vectors { vectors, .. } = &self.values {
            vectors.prefetch(&self.file, rows);
        }
    }

    /// Releases the memory of the pages that were read, for sequential readers.
    pub fn release(&self) {
        self.file.container().file().release();
    }

    /// Reads rows in order.
    pub fn cursor(&self) -> RowsCursor<'_> {
        self.cursor_at(0..self.row_count())
    }

    /// Reads some rows in order.
    pub fn cursor_at(&self, rows: Range<usize>) -> RowsCursor<'_> {
        assert!(
            rows.end <= self.row_count(),
            "rows {rows:?} of {}",
            self.row_count()
        );
        RowsCursor::new(self, rows.start as u32..rows.end as u32)
    }

    /// Reads everything and returns what is damaged: every damaged chunk, or, if all chunks are intact, the first
    /// inconsistency.
    pub fn verify(&self) -> Vec<Error> {
        let damage = self.file.damaged_chunks();
        if !damage.is_empty() {
            return damage;
        }
        self.verify_rows().err().into_iter().collect()
    }

    fn verify_rows(&self) -> Result<()> {
        self.seqs.verify(&self.file, self.summary.seqs)?;
        self.index.verify(&self.file)?;
        let (mut key_bytes, mut value_bytes) = (0, 0);
        let mut cursor = self.cursor();
        while let Some(row) = cursor.next()? {
            key_bytes += row.key.len() as u64;
            value_bytes += row.value.bytes();
            // A key may occur twice; then its last row is found, which is never before the current row.
            if self.find(row.key)? < Some(row.row) {
                let what = format!("row {} is not found by its key", row.row);
                let section = Section::KeyEntries.name();
                return Err(Error::corrupt(self.path(), section, 0, what));
            }
        }
        let counted = (key_bytes, value_bytes);
        if counted != (self.summary.key_bytes, self.summary.value_bytes) {
            let what = format!("{key_bytes} bytes of keys, {value_bytes} of values were found");
            return Err(Error::corrupt(self.path(), Section::Meta.name(), 0, what));
        }
        Ok(())
    }

    fn expect_row(&self, row: RowId) {
        assert!(
            row.0 < self.summary.rows,
            "row {row} of {}",
            self.summary.rows
        );
    }
}
