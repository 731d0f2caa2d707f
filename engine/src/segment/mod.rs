//! The files of a segment, all immutable: [`RowsFile`], [`VecsFile`], [`CodesFile`], [`WordsFile`] and [`Deletions`],
//! with their writers.
//!
//! A writer streams into a temporary file; `finish` consumes it, syncs the file and renames it to its final name. The
//! name is durable once the caller has synced the directory, which it does once for all files of a commit. A reader
//! checks frame and lengths when it opens a file, and every other byte before it is used; see [`crate::format`].

mod codes;
pub(crate) mod columns;
mod component;
mod correct;
mod deletions;
mod file;
pub(crate) mod key_index;
mod names;
mod output;
mod record;
mod rows;
mod vecs;
mod vectors;
#[cfg_attr(
    not(feature = "testing"),
    expect(dead_code, reason = "segments are not opened with words yet")
)]
mod words;

pub use codes::{CodesFile, CodesMeta, CodesWriter};
pub(crate) use component::{Component, MadeFrom};
pub use correct::correct;
pub use deletions::Deletions;
pub use key_index::KeyHash;
pub use names::{FileName, ShortId};
pub use record::SegmentRecord;
#[cfg(feature = "testing")]
pub use rows::{RowRef, RowsCursor};
pub use rows::{RowsFile, RowsMeta, RowsSummary, RowsWriter, Salvaged, VectorKind};
pub use vecs::{VecsFile, VecsMeta, VecsWriter};
pub use words::{WordsFile, WordsMeta, WordsPacker};

use serde::{Deserialize, Serialize};
use std::fmt;

/// A hash of every byte of a rows file. Files made from it (vecs, codes, words) store it, so that they are never used with
/// another rows file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RowsHash(pub u64);

impl fmt::Display for RowsHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests;
