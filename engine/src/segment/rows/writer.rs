//! Writing a rows file, row after row.

use super::index::IndexWriter;
use super::keys::KeysWriter;
use super::meta::{Meta, RowsMeta, RowsSummary};
use super::seqs::SeqsWriter;
use super::texts::TextsWriter;
use crate::disk::files::Files;
use crate::format::{Check, Encode, Kind, Section};
use crate::row::{MAX_KEY, MAX_TEXT, ValueRef};
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
    /// `None` where the rows are vectors, which go to the file as they are.
    texts: Option<TextsWriter>,
    value_bytes: u64,
}

impl RowsWriter {
    /// Begins a file. `path` is where it will be once finished.
    pub fn create(files: Arc<dyn Files>, path: &Path, about: RowsMeta) -> Result<Self> {
        let mut output = Output::create(Arc::clone(&files), path, Kind::Rows)?;
        let texts = match about.dim {
            None => Some(TextsWriter::begin(&mut output, path)?),
            Some(_) => {
                output.begin(Section::Vectors, Check::Chunks)?;
                None
            }
        };
        Ok(Self {
            output,
            about,
            seqs: SeqsWriter::default(),
            keys: KeysWriter::new(files, path),
            index: IndexWriter::default(),
            texts,
            value_bytes: 0,
        })
    }

    /// Rows so far.
    pub fn row_count(&self) -> u32 {
        self.seqs.rows()
    }

    /// Appends a row. Panics unless its `Seq` is above those before.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the key or the text is too long, or the value is not what the file holds: a text, or a
    /// vector of its dimensions. Nothing of the row is written then.
    #[inline]
    pub fn push(&mut self, seq: Seq, key: &str, value: ValueRef<'_>) -> Result<()> {
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
        let dim = self.about.dim.map(|dim| dim.get() as usize);
        match (&mut self.texts, value) {
            (Some(texts), ValueRef::Text(text)) if text.len() <= MAX_TEXT => {
                texts.push(&mut self.output, text)?;
            }
            (None, ValueRef::Vector(vector)) if Some(vector.len()) == dim => {
                self.output.write(bytemuck::cast_slice(vector))?;
            }
            _ => return Err(refused(key, value, dim)),
        }
        self.value_bytes += value.bytes();
        self.seqs.push(seq);
        self.index.push(key);
        self.keys.push(key)
    }

    /// Syncs the file and gives it its name; the caller syncs the directory.
    pub fn finish(self) -> Result<RowsSummary> {
        let Self {
            mut output,
            about,
            seqs,
            keys,
            index,
            texts,
            value_bytes,
        } = self;
        let (rows, range, key_bytes) = (seqs.rows(), seqs.range(), keys.bytes());
        if let Some(texts) = texts {
            texts.finish(&mut output)?;
        }
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
}

/// Why a value is none of a file's. `dim`: the dimensions of the file's vectors; `None` if it holds texts.
#[cold]
fn refused(key: &str, value: ValueRef<'_>, dim: Option<usize>) -> Error {
    let key = beginning(key);
    Error::invalid(match (value, dim) {
        (ValueRef::Text(text), None) => format!(
            "the text of {key:?} has {} bytes, the most is {MAX_TEXT}; split it",
            text.len()
        ),
        (ValueRef::Text(_), Some(dim)) => {
            format!("{key:?} has a text, its segment holds vectors of {dim} dimensions")
        }
        (ValueRef::Vector(_), None) => format!("{key:?} has a vector, its segment holds texts"),
        (ValueRef::Vector(vector), Some(dim)) => format!(
            "the vector of {key:?} has {} dimensions, its segment holds vectors of {dim}",
            vector.len()
        ),
    })
}

/// Enough of a key to know it by.
fn beginning(key: &str) -> String {
    key.chars().take(40).collect()
}
