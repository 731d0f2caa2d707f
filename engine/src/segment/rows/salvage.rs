//! Reading the intact rows of a damaged rows file.

use super::RowRef;
use super::keys::{self, KeyBlock};
use super::meta::{Meta, RowsMeta, VectorKind};
use super::reader::{RowsFile, Values};
use super::texts::{self, TextBlock, decompressor};
use crate::disk::files::Storage;
use crate::format::{Check, Container, Corrector, Kind, Part, Section};
use crate::row::ValueRef;
use crate::segment::RowsHash;
use crate::segment::file::SegmentFile;
use crate::segment::names::FileName;
use crate::stored::Precision;
use crate::{Error, Generation, Metric, Result, RowId, SegmentId, Seq};
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::Path;

/// A row of a damaged file.
#[derive(Debug)]
pub enum Salvaged<'a> {
    /// An intact row. Its `Seq` is the original one or, if SEQS is damaged, one that keeps the order of rows.
    Row(RowRef<'a>),
    /// A damaged row.
    Lost {
        /// Its position.
        row: RowId,
        /// Its key, if that can be read.
        key: Option<&'a str>,
        /// The damage.
        why: Error,
    },
}

impl RowsFile {
    /// Returns the segment and the hash of a file, according to its content; `None` if it is damaged.
    pub fn identify(files: &dyn Storage, path: &Path) -> Option<(SegmentId, RowsHash)> {
        let file = SegmentFile::open(files, path, Kind::Rows).ok()?;
        let meta: Meta = file.decode(Section::Meta).ok()?;
        let hash = RowsHash(file.container().content_hash());
        Some((meta.about.segment, hash))
    }

    /// Opens a file whose META may be damaged. Everything except the metric, and whether vectors are f32 or f16,
    /// follows from the other sections.
    pub fn open_damaged(
        files: &dyn Storage,
        path: &Path,
        metric: Metric,
        store: Option<Precision>,
    ) -> Result<Self> {
        let damage = match Self::open(files, path) {
            Err(damage @ Error::Corrupt(_)) => damage,
            opened => return opened,
        };
        let file = SegmentFile::open(files, path, Kind::Rows)?;
        if file.decode::<Meta>(Section::Meta).is_ok() {
            return Err(damage);
        }
        let (Some(FileName::Rows(segment)), Ok(entries)) = (
            FileName::of(path),
            file.part(Section::KeyEntries, Check::Chunks),
        ) else {
            return Err(damage);
        };
        let rows = (entries.len() / 8) as u32;
        let container = file.container();
        let vectors = match container.touched(Section::Vectors) {
            Ok(part) if rows > 0 => {
                let precision = match container.touched(Section::Scales) {
                    Ok(_) => Some(Precision::I8),
                    Err(_) if container.version() == 1 => Some(Precision::F32),
                    Err(_) => store,
                };
                // Values read with the wrong type would be rows that were never inserted.
                let Some(precision) = precision else {
                    return Err(damage);
                };
                vector_kind(&part, rows, precision)
            }
            _ => None,
        };
        let meta = Meta {
            about: RowsMeta {
                segment,
                version: Generation(0),
                vectors,
                metric,
                replaces: Vec::new(),
            },
            rows,
            seqs: None,
            key_bytes: 0,
            value_bytes: 0,
        };
        let mut opened = Self::with_meta(file, &meta)?;
        let ends = opened.seqs.seq(&opened.file, RowId(0)).and_then(|first| {
            let last = rows.saturating_sub(1);
            Ok((first, opened.seqs.seq(&opened.file, RowId(last))?))
        });
        if let Ok(ends) = ends
            && rows > 0
        {
            opened.set_seqs(ends);
        }
        Ok(opened)
    }

    /// Assigns `Seq`s from `first` on to the rows of a damaged file, if their own are unknown.
    pub fn assume_seqs(&mut self, first: Seq) {
        if self.summary().seqs.is_none() && self.row_count() > 0 {
            let last = Seq(first.0 + self.row_count() as u64 - 1);
            self.set_seqs((first, last));
        }
    }

    /// Reads rows in order, each with its damage, if there is any.
    pub fn salvage(&self, mut each: impl FnMut(Salvaged<'_>) -> Result<()>) -> Result<()> {
        let mut unpack = decompressor(self.path())?;
        let mut keys: Option<(usize, Result<KeyBlock<'_>, String>)> = None;
        let mut texts: Option<TextBlock> = None;
        let mut last = self.summary().seqs.map_or(0, |(first, _)| first.0 - 1);
        for row in (0..self.row_count() as u32).map(RowId) {
            // `Seq`s ascend, so one above the previous is at most the original one.
            let seq = match self.seqs.seq(&self.file, row) {
                Ok(seq) if seq.0 > last => seq,
                _ => Seq(last + 1),
            };
            last = seq.0;
            let index = row.0 as usize / keys::ROWS_PER_BLOCK as usize;
            if keys.as_ref().is_none_or(|(at, _)| *at != index) {
                let block = self.keys.block(&self.file, index);
                keys = Some((index, block.map_err(|e| e.to_string())));
            }
            let (_, block) = keys.as_ref().expect("just read");
            let key = match block {
                Ok(block) => self.keys.in_block(&self.file, *block, row.0),
                Err(why) => Err(Error::invalid(why.clone())),
            };
            let value = match &self.values {
                Values::Vectors { .. } => self.vector(row),
                Values::Texts(part) => {
                    let read = if texts.as_ref().is_some_and(|block| block.contains(row.0)) {
                        Ok(())
                    } else {
                        part.block_of(&self.file, row, &mut unpack)
                            .map(|block| texts = Some(block))
                    };
                    read.and_then(|()| {
                        let block = texts.as_ref().expect("just read");
                        Ok(ValueRef::Text(part.in_block(&self.file, block, row.0)?))
                    })
                }
            };
            each(match (key, value) {
                (Ok(key), Ok(value)) => Salvaged::Row(RowRef {
                    row,
                    seq,
                    key,
                    value,
                }),
                (Ok(key), Err(why)) => Salvaged::Lost {
                    row,
                    key: Some(key),
                    why,
                },
                (Err(why), _) => Salvaged::Lost {
                    row,
                    key: None,
                    why,
                },
            })?;
        }
        Ok(())
    }
}

/// Returns the kind of vectors of this precision that fill a section.
fn vector_kind(part: &Part, rows: u32, precision: Precision) -> Option<VectorKind> {
    let dim = part.len() / precision.width() / rows as usize;
    let dim = NonZeroU32::new(dim as u32)?;
    Some(VectorKind { dim, precision })
}

/// Corrects flipped bits in the blocks of keys and texts of a rows file. Requires: the frame is intact.
pub(crate) fn correct_blocks(file: &mut [u8], corrector: &mut Corrector) {
    let blocks = {
        let Ok(container) = Container::open(&*file, Kind::Rows) else {
            return;
        };
        let mut found = Vec::new();
        for (data, table, entry) in [
            (Section::Keys, Section::KeyBlocks, keys::ENTRY_BYTES),
            (Section::Texts, Section::TextBlocks, texts::ENTRY_BYTES),
        ] {
            let data = container.part(data, Check::Blocks);
            let table = container.part(table, Check::Chunks);
            if let (Ok(data), Ok(table)) = (data, table)
                && let Ok(bytes) = container.whole(&table)
            {
                found.extend(blocks(&data, bytes, entry));
            }
        }
        found
    };
    for (range, sum) in blocks {
        corrector.correct(&mut file[range], sum);
    }
}

/// Returns the positions and checksums of the blocks of a section. An entry begins with both.
fn blocks(data: &Part, table: &[u8], entry: usize) -> Vec<(Range<usize>, u64)> {
    let word = |at: usize| {
        let bytes = table[at..at + 8].try_into().expect("eight bytes");
        u64::from_le_bytes(bytes)
    };
    let count = table.len() / entry;
    let start = data.offset() as usize;
    (0..count)
        .filter_map(|index| {
            let from = word(index * entry) as usize;
            let to = match index + 1 {
                next if next == count => data.len(),
                next => word(next * entry) as usize,
            };
            let lies = from <= to && to <= data.len();
            lies.then(|| (start + from..start + to, word(index * entry + 8)))
        })
        .collect()
}
