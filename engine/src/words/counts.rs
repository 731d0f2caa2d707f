//! The statistics of BM25: how many rows there are, how long they are, and how many of them have a term.

use super::terms::Terms;
use crate::ids::WordsId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Counts of the live rows, for the terms of a query. The counts of several parts can be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Live rows.
    pub(crate) rows: u64,
    /// The sum of their lengths in tokens, each rounded to its byte.
    pub(crate) total_len: u64,
    /// The live rows that have each term, in the order of the terms.
    pub(crate) df: Vec<u64>,
}

impl Counts {
    /// Returns the counts of no rows.
    pub(crate) fn none(terms: &Terms) -> Self {
        Self {
            rows: 0,
            total_len: 0,
            df: vec![0; terms.len()],
        }
    }
}

impl AddAssign<&Self> for Counts {
    fn add_assign(&mut self, more: &Self) {
        assert_eq!(self.df.len(), more.df.len(), "counts of the same terms");
        self.rows += more.rows;
        self.total_len += more.total_len;
        for (df, more) in self.df.iter_mut().zip(&more.df) {
            *df += more;
        }
    }
}

/// Counts of all terms. A trained model has them, so that its scores do not change with each insert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vocabulary {
    /// How texts became terms. The counts are valid under this id only.
    pub(crate) words: WordsId,
    /// Live rows.
    pub(crate) rows: u64,
    /// The sum of their lengths in tokens, each rounded to its byte.
    pub(crate) total_len: u64,
    /// The live rows that have each term.
    pub(crate) df: BTreeMap<String, u64>,
}

impl Vocabulary {
    /// Returns the counts of no rows. [`Indexed::count_all`](super::Indexed::count_all) adds those of a part.
    pub(crate) fn new(words: WordsId) -> Self {
        Self {
            words,
            rows: 0,
            total_len: 0,
            df: BTreeMap::new(),
        }
    }

    /// Adds to the rows that have a term.
    pub(super) fn add(&mut self, term: &str, rows: u64) {
        match self.df.get_mut(term) {
            Some(df) => *df += rows,
            None if rows == 0 => {}
            None => drop(self.df.insert(term.to_owned(), rows)),
        }
    }

    /// Returns the counts for the terms of a query. Unknown terms are in no row.
    pub(crate) fn counts(&self, terms: &Terms) -> Counts {
        let df = |term| self.df.get(term).copied().unwrap_or(0);
        Counts {
            rows: self.rows,
            total_len: self.total_len,
            df: terms.iter().map(df).collect(),
        }
    }
}
