//! Writing a rows file, row after row.

use super::index::IndexWriter;
use super::keys::KeysWriter;
use super::meta::{Meta, RowsMeta, RowsSummary, VectorKind};
use super::seqs::SeqsWriter;
use super::texts::TextsWriter;
use crate::disk::files::Files;
use crate::format::{Check, Encode, Kind, Section};
use crate::row::{MAX_KEY, MAX_TEXT, ValueRef};
use crate::segment::RowsHash;
use crate::segment::output::Output;
use crate::segment::vectors::VectorsWriter;
use crate::{Error, Result, Seq};
use std::path::Path;
use std::sync::Arc;

/// Writes a rows file, row after row, in the order of their `Seq`.
///
/// Values are written to the file immediately. Kept until the end are 8 bytes per row for the key index, up to 12 for
/// scale and norm, 16 per run of `Seq`s, and the keys, of which all but 1 MiB are in a second temporary file.
pub struct RowsWriter {
    output: Output,
    about: RowsMeta,
    seqs: SeqsWriter,
    keys: KeysWriter,
    index: IndexWriter,
    values: ValuesWriter,
    value_bytes: u64,
}

enum ValuesWriter {
    Texts(TextsWriter),
    Vectors {
        vectors: VectorsWriter,
        kind: VectorKind,
        /// Norms, which are written after the vectors; `None` if rows have none.
        norms: Option<Vec<f64>>,
    },
}

impl RowsWriter {
    /// Begins a file. `path` is its final path.
    pub fn create(files: Arc<dyn Files>, path: &Path, about: RowsMeta) -> Result<Self> {
        let mut output = Output::create(Arc::clone(&files), path, Kind::Rows)?;
        let values = match about.vectors {
            None => ValuesWriter::Texts(TextsWriter::begin(&mut output, path)?),
            Some(kind) => ValuesWriter::Vectors {
                vectors: VectorsWriter::begin(
                    &mut output,
                    kind.dim.get() as usize,
                    kind.precision,
                )?,
                kind,
                norms: about.has_norms().then(Vec::new),
            },
        };
        Ok(Self {
            output,
            about,
            seqs: SeqsWriter::default(),
            keys: KeysWriter::new(files, path),
            index: IndexWriter::default(),
            values,
            value_bytes: 0,
        })
    }

    #[cfg(any(test, feature = "testing"))]
    /// Returns the number of rows so far.
    pub fn row_count(&self) -> u32 {
        self.seqs.rows()
    }

    /// Appends a row. Panics unless its `Seq` is above those before.
    ///
    /// [`Error::Invalid`] if the key or the text is too long, or if the value is not of the file's kind: a text, or a
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
        // Rows are numbered by a u32, and so is their count.
        assert!(
            self.seqs.rows() < u32::MAX,
            "a segment is sealed before it has 2^32 rows"
        );
        match (&mut self.values, value) {
            (ValuesWriter::Texts(texts), ValueRef::Text(text)) if text.len() <= MAX_TEXT => {
                texts.push(&mut self.output, text)?;
            }
            (
                ValuesWriter::Vectors {
                    vectors,
                    kind,
                    norms,
                },
                ValueRef::Vector { stored, norm },
            ) if (stored.len(), stored.precision())
                == (kind.dim.get() as usize, kind.precision) =>
            {
                vectors.push(&mut self.output, stored)?;
                if let Some(norms) = norms {
                    norms.push(norm.unwrap_or_default());
                }
            }
            _ => return Err(refused(key, value, self.about.vectors)),
        }
        self.value_bytes += value.bytes();
        self.seqs.push(seq);
        self.index.push(key);
        self.keys.push(key)
    }

    /// Syncs the file and renames it to its final name; the caller syncs the directory.
    pub fn finish(self) -> Result<RowsSummary> {
        let Self {
            mut output,
            about,
            seqs,
            keys,
            index,
            values,
            value_bytes,
        } = self;
        let (rows, range, key_bytes) = (seqs.rows(), seqs.range(), keys.bytes());
        match values {
            ValuesWriter::Texts(texts) => texts.finish(&mut output)?,
            ValuesWriter::Vectors { vectors, norms, .. } => {
                vectors.finish(&mut output)?;
                if let Some(norms) = norms {
                    let norms = bytemuck::cast_slice(&norms);
                    output.section(Section::Norms, Check::Chunks, norms)?;
                }
            }
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

/// Returns the error for a value that does not fit the file. `kind` is that of the file's vectors; `None` if it holds
/// texts.
#[cold]
fn refused(key: &str, value: ValueRef<'_>, kind: Option<VectorKind>) -> Error {
    let key = beginning(key);
    let told = |VectorKind { dim, precision }| format!("vectors of {dim} values as {precision}");
    Error::invalid(match (value, kind) {
        (ValueRef::Text(text), None) => format!(
            "the text of {key:?} has {} bytes, but at most {MAX_TEXT} can be stored; split it",
            text.len()
        ),
        (ValueRef::Text(_), Some(kind)) => {
            format!(
                "{key:?} has a text, but its segment contains {}",
                told(kind)
            )
        }
        (ValueRef::Vector { .. }, None) => {
            format!("{key:?} has a vector, but its segment contains texts")
        }
        (ValueRef::Vector { stored, .. }, Some(kind)) => format!(
            "the vector of {key:?} has {} values as {}, but its segment contains {}",
            stored.len(),
            stored.precision(),
            told(kind)
        ),
    })
}

/// Returns enough of a key to recognise it.
fn beginning(key: &str) -> String {
    key.chars().take(40).collect()
}
