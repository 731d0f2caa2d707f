//! What goes in and what comes out: rows, queries, hits.

use crate::error::{Error, Result};
use crate::ids::Seq;
use crate::model::serving::Serving;
use crate::stored::{Precision, StoredRef};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The longest key, in bytes: what `insert` takes, a segment holds and a program may read.
pub const MAX_KEY: usize = 64 << 10;
/// The longest text, in bytes, everywhere as with [`MAX_KEY`].
pub const MAX_TEXT: usize = 64 << 20;
/// The most hits a query may ask for.
pub const MAX_K: usize = 10_000;
/// The most candidates a query may ask for.
pub const MAX_CANDIDATES: usize = 1_000_000;

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

/// Which scores find the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Search {
    /// The best that the database has: candidates by codes, then their order by stored vectors. Without codes it is
    /// [`Exact`](Self::Exact).
    #[default]
    Auto,
    /// Codes alone: the fastest, and approximate. Reads no stored vector.
    Codes,
    /// The stored vector of every row.
    Exact,
}

impl Search {
    /// All ways of searching.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Codes, Self::Exact];

    /// Returns its name, as the program and the reports write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Codes => "codes",
            Self::Exact => "exact",
        }
    }
}

impl std::fmt::Display for Search {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// How a query is answered.
///
/// ```
/// use mopqdb::{QueryOptions, Search};
/// let fast = QueryOptions::top(10).search(Search::Codes);
/// let thorough = QueryOptions::top(10).candidates(2_000);
/// let second_page = QueryOptions::top(10).offset(10);
/// # let _ = (fast, thorough, second_page);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct QueryOptions {
    /// How many hits at most: 1 to 10,000, `offset` included.
    pub k: usize,
    /// The rows among which to search; all of them if none is given.
    pub filter: Option<Filter>,
    /// Which scores find the rows.
    pub search: Search,
    /// How many rows [`Search::Auto`] takes by codes and scores by their stored vectors. By default what was measured for
    /// the model ([`Serving`]), else [`default_candidates`](Self::default_candidates). More find more, and take longer.
    pub candidates: Option<usize>,
    /// Hits to leave out, best first: for the pages after the first.
    pub offset: usize,
    /// Hits whose [`score`](Hit::score) is lower are left out.
    pub min_score: Option<f32>,
    /// Hits whose [`similarity`](Hit::similarity) is lower are left out.
    pub min_similarity: Option<f32>,
}

impl QueryOptions {
    /// The k best of all rows.
    pub fn top(k: usize) -> Self {
        Self {
            k,
            filter: None,
            search: Search::Auto,
            candidates: None,
            offset: 0,
            min_score: None,
            min_similarity: None,
        }
    }

    /// Only among these rows. The filter is applied before the top k, exactly.
    pub fn among(mut self, filter: Filter) -> Self {
        self.filter = Some(filter);
        self
    }

    /// By these scores.
    pub fn search(mut self, search: Search) -> Self {
        self.search = search;
        self
    }

    /// With so many candidates, at least k and `offset` together.
    pub fn candidates(mut self, candidates: usize) -> Self {
        self.candidates = Some(candidates);
        self
    }

    /// Without the first so many hits.
    pub fn offset(mut self, offset: usize) -> Self {
        self.offset = offset;
        self
    }

    /// Without hits of a lower score.
    pub fn min_score(mut self, score: f32) -> Self {
        self.min_score = Some(score);
        self
    }

    /// Without hits of a lower similarity. Not for [`Search::Codes`], which has none.
    pub fn min_similarity(mut self, similarity: f32) -> Self {
        self.min_similarity = Some(similarity);
        self
    }

    /// Returns how many candidates a search for the k best takes by default: ten for each hit, at least 400, which
    /// loses less than a hundredth of what exact search finds on the sets that it was measured on.
    pub fn default_candidates(k: usize) -> usize {
        (10 * k).max(400)
    }

    /// How many candidates a search by codes and stored vectors takes: as asked, else as measured, else the default.
    pub(crate) fn wanted_candidates(&self, serving: Option<Serving>) -> usize {
        let depth = self.depth();
        self.candidates.unwrap_or_else(|| match serving {
            Some(serving) => serving.candidates_for(depth).min(MAX_CANDIDATES),
            None => Self::default_candidates(depth),
        })
    }

    /// Hits that are ranked, those that `offset` leaves out among them.
    pub(crate) fn depth(&self) -> usize {
        self.k.saturating_add(self.offset)
    }

    /// Refuses what contradicts itself.
    pub(crate) fn check(&self) -> Result<()> {
        let depth = self.depth();
        if self.k == 0 {
            return Err(Error::invalid(format!("k is 0; ask for 1 to {MAX_K} hits")));
        }
        if depth > MAX_K {
            let beyond = match self.offset {
                0 => String::new(),
                offset => format!(" with an offset of {offset}"),
            };
            return Err(Error::invalid(format!(
                "k is {}{beyond}; ask for 1 to {MAX_K} hits",
                self.k
            )));
        }
        if let Some(candidates) = self.candidates {
            if self.search != Search::Auto {
                return Err(Error::invalid(format!(
                    "a search by {} takes no candidates; leave them out, or search with auto",
                    self.search
                )));
            }
            if candidates < depth || candidates > MAX_CANDIDATES {
                return Err(Error::invalid(format!(
                    "{candidates} candidates for {depth} hits; ask for {depth} to {MAX_CANDIDATES}"
                )));
            }
        }
        if self.min_similarity.is_some() && self.search == Search::Codes {
            return Err(Error::invalid(
                "hits that codes alone find have no similarity; use a least score, or another search",
            ));
        }
        let least = [self.min_score, self.min_similarity];
        if least.into_iter().flatten().any(f32::is_nan) {
            return Err(Error::invalid("a least score is not a number"));
        }
        Ok(())
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
#[non_exhaustive]
pub struct Hit {
    /// The user's key.
    pub key: String,
    /// What hits are ordered by; larger is better, whatever the metric. By codes it is the score of the row's code; in
    /// any other search it is the similarity.
    pub score: f32,
    /// The metric between the query and the stored vector: the inner product, the cosine, or the negative squared
    /// distance for l2. `None` where only the code was looked at ([`Search::Codes`]).
    pub similarity: Option<f32>,
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
