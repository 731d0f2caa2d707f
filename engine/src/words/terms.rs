//! The terms of a query.

use super::tokens::Tokenizer;
use std::collections::BTreeSet;

/// The maximum number of distinct terms of a query that are searched for. Only the first ones are used.
pub(crate) const MAX_TERMS: usize = 1024;

/// The distinct terms of a query, in the order of their bytes.
///
/// A term that occurs twice in the query counts once. Scores are summed in this order, so a score does not depend on the order
/// of the words in the query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terms(Vec<String>);

impl Terms {
    /// Returns the terms of a text.
    pub(crate) fn of(tokenizer: &Tokenizer, text: &str) -> Self {
        let mut terms = BTreeSet::new();
        let mut tokens = tokenizer.tokens(text);
        while terms.len() < MAX_TERMS
            && let Some(token) = tokens.next()
        {
            if !terms.contains(token) {
                terms.insert(token.to_owned());
            }
        }
        Self(terms.into_iter().collect())
    }

    /// Returns no terms, for a query without words.
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    /// Returns the number of terms.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there are no terms, so nothing can be found.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the terms, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}
