//! Rows in files: JSONL, CSV, TSV, TXT and vectors, compressed or not, read one row at a time so that memory stays flat.
//!
//! A row that can't be inserted is a [`BadRow`] with its file and line. The reader continues after it, so that the
//! caller can choose between stopping and skipping.

mod attributes;
mod compression;
mod fields;
mod format;
mod json;
mod jsonl;
mod keys;
mod open;
pub mod pairs;
mod parse;
mod queries;
mod source;
mod table;
mod texts;
mod vectors;

pub use attributes::long_integer;
pub use fields::Fields;
pub use format::Format;
pub use jsonl::jsonl;
pub use keys::KeyFile;
pub use mopqdb_formats::lines::{Lines, MAX_LINE};
pub use open::{Input, open};
pub use parse::tsv;
pub use queries::read_queries;
pub use source::Source;

use anyhow::Result;
use mopqdb::Row;
use mopqdb::columns::infer::Notation;
use mopqdb_formats::lines::BadLine;
use serde_json::{Map, Value};
use std::fmt;

/// A row that can't be inserted, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// The file and line, or file and row.
    pub place: String,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

impl std::error::Error for BadRow {}

impl From<BadLine> for BadRow {
    fn from(BadLine { place, what }: BadLine) -> Self {
        Self { place, what }
    }
}

/// A row as read, with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadRow {
    /// The row to insert, without columns.
    pub row: Row,
    /// The other fields, which become columns; flat.
    pub fields: Map<String, Value>,
    /// How their values are written.
    pub notation: Notation,
    /// The file and line, for messages.
    pub place: String,
    /// The number of the line or row in its file, as in `place`.
    pub number: u64,
}

/// How messages name the rows of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Places {
    /// By line, from 1, in the file of this name.
    Lines(String),
    /// By row, from 0, in the file of this name.
    Rows(String),
}

impl Places {
    /// Names the line or row with this number.
    pub fn at(&self, number: u64) -> String {
        match self {
            Self::Lines(name) => format!("{name}:{number}"),
            Self::Rows(name) => format!("{name}: row {number}"),
        }
    }
}

/// A source of rows.
pub trait RowReader: Send {
    /// Returns the next row, or what is wrong with it; `None` at the end. After an outer error nothing more can be
    /// read.
    fn next_row(&mut self) -> Result<Option<Result<ReadRow, BadRow>>>;

    /// Returns `true` if keys are row numbers, so that the same key in another file means another row.
    fn numbered(&self) -> bool;

    /// Returns how messages name its rows.
    fn places(&self) -> Places;

    /// Returns the number of rows, if the file states it.
    fn rows_total(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests;
