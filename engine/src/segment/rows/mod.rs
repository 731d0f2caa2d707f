//! What the user gave: keys, texts or vectors, a `Seq` a row. Written once, never rewritten but by compaction.
//!
//! A look-up by key touches a bucket of the index and a block of keys; a text, one compressed block; a vector, itself.
//! None of it is held in memory by the row.

mod cursor;
mod index;
mod keys;
mod meta;
mod reader;
mod salvage;
mod seqs;
mod strings;
mod texts;
mod writer;

pub use cursor::{RowRef, RowsCursor};
pub use meta::{RowsMeta, RowsSummary, VectorKind};
pub use reader::RowsFile;
pub use salvage::Salvaged;
pub(crate) use salvage::correct_blocks;
pub use writer::RowsWriter;
