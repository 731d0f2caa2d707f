//! Writing a rows file, row after row.

use super::index::IndexWriter;
use super::keys::KeysWriter;
use super::meta::{Meta, RowsMeta, RowsSummary, Values};
use super::seqs::SeqsWriter;
use super::texts::TextsWriter;
use crate::disk::files::Files;
use crate::format::{Check, Encode, Kind, Section};
use crate::row::{MAX_KEY, MAX_TEXT};
use crate::segment::RowsHash;
use crate::segment::output::Output;
use crate::{Error, Result, Seq};
use std::path::Path;
use std::sync::Arc;

/// Writes a rows file, row after row, in the order of their `Seq`.
///
/// Values go to the file as they come. What must wait for them is kept: 8 bytes a row for the key index, 16 a run of
/// `Seq`s, and the keys, of which all but 1 MiB go to a second temporary file.
pub struct RowsWriter {
    output: Output,
    about: RowsMeta,
    seqs: SeqsWriter,
    keys: KeysWriter,
    index: IndexWriter,
    values: ValuesWriter,
}

enum ValuesWriter {
    Texts(TextsWriter),
    Vectors { dim: usize, bytes: u64 },
}

impl RowsWriter {
    /// Begins a file. `path` is where it will be once finished.
    pub fn create(files: Arc<dyn Files>, path: &Path, about: RowsMeta) -> Result<Self> {
        let mut output = Output::create(Arc::clone(&files), path, Kind::Rows)?;
        let values = match about.values {
            Values::Texts => ValuesWriter::Texts(TextsWriter::begin(&mut output, path)?),
            Values::Vectors { dim } => {
                assert!(dim > 0, "vectors have dimensions");
                output.begin(Section::Vectors, Check::Chunks)?;
                let dim = dim as usize;
                ValuesWriter::Vectors { dim, bytes: 0 }
            }
        };
        Ok(Self {
            output,
            about,
            seqs: SeqsWriter::default(),
            keys: KeysWriter::new(files, path),
            index: IndexWriter::default(),
            values,
        })
    }

    /// Rows so far.
    pub fn row_count(&self) -> u32 {
        self.seqs.rows()
    }

    /// Appends a row with a text. Panics unless its `Seq` is above those before and the file is one of texts.
    pub fn push_text(&mut self, seq: Seq, key: &str, text: &str) -> Result<()> {
        if text.len() > MAX_TEXT {
            let len = text.len();
            return Err(Error::invalid(format!(
                "the text of {:?} has {len} bytes, the most is {MAX_TEXT}; split it",
                beginning(key)
            )));
        }
        self.push_key(seq, key)?;
        match &mut self.values {
            ValuesWriter::Texts(texts) => texts.push(&mut self.output, text),
            ValuesWriter::Vectors { .. } => panic!("a text for a segment of vectors"),
        }
    }

    /// Appends a row with a vector. Panics unless its `Seq` is above those before and the file is one of vectors of
    /// this length.
    #[inline]
    pub fn push_vector(&mut self, seq: Seq, key: &str, vector: &[f32]) -> Result<()> {
        self.push_key(seq, key)?;
        match &mut self.values {
            ValuesWriter::Vectors { dim, bytes } => {
                assert_eq!(vector.len(), *dim, "a vector has the segment's dimensions");
                *bytes += vector.len() as u64 * 4;
                self.output.write(bytemuck::cast_slice(vector))
            }
            ValuesWriter::Texts(_) => panic!("a vector for a segment of texts"),
        }
    }

    /// Syncs the file and gives it its name; the caller syncs the directory.
    pub fn finish(self) -> Result<RowsSummary> {
        let Self {
            mut output,
            about,
            seqs,
            keys,
            index,
            values,
        } = self;
        let (rows, range, key_bytes) = (seqs.rows(), seqs.range(), keys.bytes());
        let value_bytes = match values {
            ValuesWriter::Vectors { bytes, .. } => bytes,
            ValuesWriter::Texts(texts) => {
                let bytes = texts.bytes();
                texts.finish(&mut output)?;
                bytes
            }
        };
        keys.finish(&mut output)?;
        index.finish(&mut output)?;
        output.section(Section::Seqs, Check::Chunks, seqs.bytes())?;
        let meta = Meta {
            about,
            rows,
            seqs: range,
            key_bytes,
            value_bytes,
        };
        output.section(Section::Meta, Check::Chunks, &meta.encoded())?;
        let written = output.finish()?;
        Ok(RowsSummary {
            rows,
            seqs: range,
            key_bytes,
            value_bytes,
            file_bytes: written.bytes,
            hash: RowsHash(written.content_hash),
        })
    }

    #[inline]
    fn push_key(&mut self, seq: Seq, key: &str) -> Result<()> {
        if key.is_empty() || key.len() > MAX_KEY {
            return Err(Error::invalid(format!(
                "the key {:?} has {} bytes; give it 1 to {MAX_KEY}",
                beginning(key),
                key.len()
            )));
        }
        // A row is a u32, and so is the number of rows.
        assert!(
            self.seqs.rows() < u32::MAX,
            "a segment is sealed before it has 2^32 rows"
        );
        self.seqs.push(seq);
        self.index.push(key);
        self.keys.push(key)
    }
}

/// Enough of a key to know it by.
fn beginning(key: &str) -> String {
    key.chars().take(40).collect()
}
