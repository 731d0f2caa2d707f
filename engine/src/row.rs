//! What goes in and what comes out: rows, queries, hits.

use crate::error::{Error, Result};
use crate::ids::Seq;
use crate::stored::{Precision, StoredRef};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The longest key, in bytes: what `insert` takes, a segment holds and a program may read.
pub const MAX_KEY: usize = 64 << 10;
/// The longest text, in bytes, everywhere as with [`MAX_KEY`].
pub const MAX_TEXT: usize = 64 << 20;
/// The most hits a query may ask for.
pub const MAX_K: usize = 10_000;

/// A row as the user gives and gets it. A row with an existing key replaces it.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The user's name for it: not empty, at most 64 KiB.
    pub key: String,
    /// What is searched.
    pub value: Value,
}

/// What a row holds: one or the other, by the kind of the database.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A text, which the database's encoder turns into a vector.
    Text(String),
    /// A ready-made vector.
    Vector(Vec<f32>),
}

/// A [`Value`], borrowed from where it lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueRef<'a> {
    /// A text.
    Text(&'a str),
    /// A vector.
    Vector {
        /// As it is stored.
        stored: StoredRef<'a>,
        /// The length that it had before it was normalised, where that is known.
        norm: Option<f64>,
    },
}

impl<'a> ValueRef<'a> {
    /// Returns the text, if it is one.
    pub fn text(self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Vector { .. } => None,
        }
    }

    /// Returns its size in bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Vector { stored, .. } => stored.bytes() as u64,
        }
    }

    /// Returns the value as the user gave it; a vector up to rounding.
    pub fn given(self) -> Value {
        match self {
            Self::Text(text) => Value::Text(text.to_owned()),
            Self::Vector { stored, norm } => Value::Vector(stored.given(norm)),
        }
    }
}

impl Row {
    /// A row of a database that encodes texts.
    pub fn text(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            value: Value::Text(text.into()),
        }
    }

    /// A row of a database of ready-made vectors.
    pub fn vector(key: impl Into<String>, vector: impl Into<Vec<f32>>) -> Self {
        Self {
            key: key.into(),
            value: Value::Vector(vector.into()),
        }
    }

    /// Checks what has to hold in every database: a key, and nothing longer than can be stored.
    ///
    /// # Errors
    /// [`Error::Invalid`] says what is wrong, without naming the row.
    pub fn check(&self) -> Result<()> {
        if self.key.is_empty() {
            return Err(Error::invalid("the key is empty"));
        }
        if self.key.len() > MAX_KEY {
            return Err(Error::invalid(format!(
                "the key has {} bytes; {MAX_KEY} at most can be stored",
                self.key.len()
            )));
        }
        match &self.value {
            Value::Text(text) if text.len() > MAX_TEXT => Err(Error::invalid(format!(
                "the text has {} bytes; {MAX_TEXT} at most can be stored",
                text.len()
            ))),
            _ => Ok(()),
        }
    }
}

/// What an `insert` did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Inserted {
    /// Rows whose key was not there.
    pub new: u64,
    /// Rows that took the place of one with the same key.
    pub replaced: u64,
    /// Rows that were there already, to the letter: nothing was done for them.
    pub unchanged: u64,
}

impl Inserted {
    /// All rows of the call.
    pub fn rows(&self) -> u64 {
        self.new + self.replaced + self.unchanged
    }
}

/// What is searched for.
#[derive(Debug, Clone, Copy)]
pub enum Query<'a> {
    /// A text, for a database that encodes texts.
    Text(&'a str),
    /// A vector: of the stored vectors' width, whatever the rows are.
    Vector(&'a [f32]),
}

impl<'a> From<&'a str> for Query<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Query<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a [f32]> for Query<'a> {
    fn from(vector: &'a [f32]) -> Self {
        Self::Vector(vector)
    }
}

impl<'a> From<&'a Vec<f32>> for Query<'a> {
    fn from(vector: &'a Vec<f32>) -> Self {
        Self::Vector(vector)
    }
}

impl<'a, const N: usize> From<&'a [f32; N]> for Query<'a> {
    fn from(vector: &'a [f32; N]) -> Self {
        Self::Vector(vector)
    }
}

/// How a query is answered.
#[derive(Debug, Clone)]
pub struct QueryOptions {
    /// How many hits at most: 1 to 10,000.
    pub k: usize,
    /// The rows among which to search; all of them if none is given.
    pub filter: Option<Filter>,
}

impl QueryOptions {
    /// The k best of all rows.
    pub fn top(k: usize) -> Self {
        Self { k, filter: None }
    }

    /// Only among these rows. The filter is applied before the top k, exactly.
    pub fn among(mut self, filter: Filter) -> Self {
        self.filter = Some(filter);
        self
    }
}

/// A part of the rows.
#[derive(Debug, Clone)]
pub enum Filter {
    /// The rows with these keys, those of them that are there.
    Keys(BTreeSet<String>),
    /// The rows whose key begins so.
    Prefix(String),
}

/// A found row.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The user's key.
    pub key: String,
    /// Larger is better, whatever the metric.
    pub score: f32,
    /// The text, where the database holds texts.
    pub text: Option<String>,
    /// When the row was accepted; equal scores are ordered by it.
    pub seq: Seq,
}

/// What the rows of a database are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowsKind {
    /// Texts: the database has an encoder.
    Text,
    /// Ready-made vectors.
    Vector,
}

impl RowsKind {
    /// Returns how vectors are rounded where nothing else was chosen: an encoder's to halves, a user's not at all.
    pub fn precision(self) -> Precision {
        match self {
            Self::Text => Precision::F16,
            Self::Vector => Precision::F32,
        }
    }
}
