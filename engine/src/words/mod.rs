//! Word search: finds the rows that have the words of a query, and scores them by BM25.
//!
//! A [`Tokenizer`] with [`Settings`] turns texts and queries into terms. A [`WordsWriter`] writes the word index of a segment, and
//! [`SegmentWords`] reads it. [`RunWords`] is the word index of a run of the tail, in memory. Both are [`Indexed`].
//!
//! A query first [counts](Counts) its [`Terms`] in every part and adds the counts, or takes them from the [`Vocabulary`] of a
//! model. A [`Scorer`] with these counts then scores the rows of every part. So a score does not depend on how rows are split
//! into parts, or on dead rows.
//!
//! Only this module names the search library (tantivy). The library stores the dictionary and the postings. Counts and scores are
//! computed here, because the library's own depend on its segments.

mod bm25;
mod counts;
mod directory;
mod index;
mod lens;
mod run;
mod scratch;
mod settings;
mod terms;
mod tokens;
mod writer;

pub(crate) use bm25::Scorer;
pub(crate) use counts::Counts;
pub use counts::Vocabulary;
pub(crate) use index::SegmentWords;
pub(crate) use run::RunWords;
pub use settings::{Language, Settings};
pub(crate) use terms::Terms;
pub(crate) use tokens::Tokenizer;
pub(crate) use writer::WordsWriter;

use crate::error::Result;
use crate::ids::WordsId;
use crate::scan::{Found, TopK, merge};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Once;

/// The version of the search library's files. A words file of another version counts as missing.
pub(crate) const INDEX_VERSION: u32 = tantivy::INDEX_FORMAT_VERSION;

/// The name of the field of texts, and of its tokenizer.
const FIELD: &str = "text";

/// Whether the texts of a database are searched by their words, and how texts become terms. Chosen when the database is
/// created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Choice {
    Off,
    On(Settings),
}

/// How the texts of a database become terms.
pub(crate) struct Words {
    pub(crate) settings: Settings,
    pub(crate) id: WordsId,
    pub(crate) tokenizer: Tokenizer,
    told: Once,
}

impl Words {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            id: settings.id(),
            tokenizer: Tokenizer::new(settings),
            told: Once::new(),
        }
    }

    /// Warns once that results do not include words, since an index is missing.
    pub(crate) fn tell_missing(&self) {
        self.told.call_once(|| {
            tracing::warn!(
                "some segments have no word index, or one of another version, so words are not searched; a rebuild to the \
                 active model writes it"
            );
        });
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Words").field(&self.settings).finish()
    }
}

/// The word index of a part.
///
/// `live` and `mask` have one bit per row, in words of 64. `None` means all rows of the part.
pub(crate) trait Indexed: Sync {
    /// Counts the live rows, their lengths, and the live rows that have each term.
    fn count(&self, terms: &Terms, live: Option<&[u64]>) -> Result<Counts>;

    /// Adds the counts of the live rows, for all terms of the part.
    fn count_all(&self, live: Option<&[u64]>, into: &mut Vocabulary) -> Result<()>;

    /// Offers the rows that have a term, and whose bit in `mask` is set, to `top`. Their scores are above 0.
    ///
    /// Requires: `scorer` was made from counts of these terms; `top` has entered this part.
    fn best(
        &self,
        terms: &Terms,
        scorer: &Scorer,
        mask: Option<&[u64]>,
        top: &mut TopK,
    ) -> Result<()>;

    /// Computes the scores of some rows: 0 for a row without any term.
    ///
    /// Requires: `scorer` was made from counts of these terms; rows ascend; there is one score per row.
    fn score(&self, terms: &Terms, scorer: &Scorer, rows: &[u32], scores: &mut [f32])
    -> Result<()>;
}

/// Returns the rows with the best scores, best first: the `depth` best, and rows of other parts that tie with the last of them.
/// Ties within a part go to the lower row. [`Found::source`] is the position of the part. Each part comes with the mask of rows that
/// may be returned.
///
/// Requires: `scorer` was made from counts of these terms.
pub(crate) fn best<'p>(
    parts: impl IntoIterator<Item = (&'p dyn Indexed, Option<&'p [u64]>)>,
    terms: &Terms,
    scorer: &Scorer,
    depth: usize,
) -> Result<Vec<Found>> {
    let mut top = TopK::new(depth);
    for (source, (part, mask)) in (0..).zip(parts) {
        top.enter(source, f32::NEG_INFINITY);
        part.best(terms, scorer, mask, &mut top)?;
    }
    Ok(merge([top], depth))
}

#[cfg(test)]
mod tests;
