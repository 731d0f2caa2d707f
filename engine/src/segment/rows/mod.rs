//! Rows files: keys, texts or vectors, and one `Seq` per row. Written once, and replaced only by compaction.
//!
//! A lookup by key reads one bucket of the index and one block of keys. Reading a text takes one compressed block,
//! reading a vector only its own bytes. There is no memory per row.

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

pub use cursor::RowRef;
#[cfg(feature = "testing")]
pub use cursor::RowsCursor;
pub use meta::{RowsMeta, RowsSummary, VectorKind};
pub use reader::RowsFile;
pub use salvage::Salvaged;
pub(crate) use salvage::correct_blocks;
pub use writer::RowsWriter;
