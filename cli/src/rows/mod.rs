//! Rows in files: JSONL, TSV, TXT and vectors, read a row at a time so that memory stays flat.
//!
//! A row that can't be taken is a [`BadRow`] with its file and line; the reader goes on after it, so that the caller
//! chooses between stopping and skipping.

mod keys;
mod lines;
mod open;
mod parse;
mod vectors;

pub use keys::KeyFile;
pub use lines::{Lines, MAX_LINE};
pub use open::{Format, Source, open};
pub use parse::{jsonl, tsv};

use anyhow::Result;
use mopqdb::Row;
use std::fmt;

/// A row that can't be taken, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// File and line, or file and row.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

impl std::error::Error for BadRow {}

/// A row as read: where, and under a key of its own or a number.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadRow {
    /// What to insert.
    pub row: Row,
    /// File and line, for messages.
    pub place: String,
}

/// Something that gives rows, one after another.
pub trait RowReader: Send {
    /// The next row, or what is wrong with it; `None` at the end. After an outer error nothing more can be read.
    fn next_row(&mut self) -> Result<Option<Result<ReadRow, BadRow>>>;

    /// Whether keys are made of row numbers, so that the same key in another file means another row.
    fn numbered(&self) -> bool;

    /// How many bytes or rows were read, of how many: for the progress bar.
    fn rows_total(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests;
