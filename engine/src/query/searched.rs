//! What a query searches: the parts of a snapshot, or rows that an evaluation holds, under one model.

use super::explain::Counts;
use crate::error::Result;
use crate::kernel::Queries;
use crate::metric::Metric;
use crate::model::scorer::Scorer;
use crate::quantizer::Quantizer;
use crate::row::Serving;
use crate::scan::{Gathered, Scanner};
use crate::snapshot::Snapshot;
use crate::view::part::Part;
use crate::view::searchable::Searchable;
use crate::words::{Vocabulary, Words};

/// Rows in parts, and what their codes and vectors mean.
pub(crate) struct Searched<'a, P> {
    pub(crate) parts: Vec<P>,
    /// Makes the tables that score codes; `None`: rows have no codes.
    pub(crate) quantizer: Option<&'a Quantizer>,
    /// How candidates are scored; `None`: by the metric.
    pub(crate) scorer: Option<&'a Scorer>,
    /// How texts become terms, where they are searched by words.
    pub(crate) words: Option<&'a Words>,
    /// Term statistics of the model, if they are of these words.
    pub(crate) statistics: Option<&'a Vocabulary>,
    /// Settings of queries that were measured for the model.
    pub(crate) serving: Option<Serving>,
    /// How stored vectors are compared.
    pub(crate) metric: Metric,
    /// Values per stored vector.
    pub(crate) dim: usize,
    pub(crate) scanner: &'a Scanner,
}

impl Snapshot {
    /// Returns this snapshot as its own model searches it.
    pub(crate) fn searched(&self) -> Searched<'_, Part<'_>> {
        Searched {
            parts: self.parts().collect(),
            quantizer: self.model.quantizer(),
            scorer: self.model.scorer(),
            words: self.model.words().map(|words| &**words),
            statistics: self.model.statistics(),
            serving: self.serving,
            metric: self.model.metric(),
            dim: self.model.dim(),
            scanner: &self.scanner,
        }
    }
}

impl<P: Searchable> Searched<'_, P> {
    /// Returns `true` if a query map is part of the score.
    pub(crate) fn has_map(&self) -> bool {
        self.scorer.is_some_and(|scorer| scorer.map().is_some())
    }

    /// Returns the number of cells, if the model has some.
    pub(crate) fn cells(&self) -> Option<usize> {
        Some(self.quantizer?.cells()?.len())
    }

    /// Returns `true` if every part has a word index.
    pub(crate) fn has_words(&self) -> bool {
        self.words.is_some() && self.parts.iter().all(P::has_words)
    }

    /// Returns the weight of words in the score.
    pub(crate) fn weight_of_words(&self) -> f32 {
        /// Measured on several sets of texts; see the design of the search.
        const UNTRAINED: f32 = 0.008;
        match (self.scorer.and_then(Scorer::weight), self.metric) {
            (Some(weight), _) => weight,
            (None, Metric::Cosine) => UNTRAINED,
            (None, Metric::Ip | Metric::L2) => 0.0,
        }
    }

    /// Returns the number of queries in (queries, dim).
    pub(crate) fn queries(&self, vectors: &[f32]) -> usize {
        vectors.len() / self.dim
    }
}

impl<P: Searchable> Searched<'_, P> {
    /// Returns the metric between a query and some stored vectors of a part, whose rows ascend; and what
    /// was read.
    pub(super) fn similarities(
        &self,
        part: usize,
        query: &Queries<'_>,
        rows: &[u32],
        out: &mut [f32],
    ) -> Result<Counts> {
        let part = &self.parts[part];
        let vector = |row: u32| part.vectors(row as usize..row as usize + 1);
        let Some(&first) = rows.first() else {
            return Ok(Counts::default());
        };
        let first = vector(first)?;
        let mut vectors = Gathered::with_capacity(first.precision(), rows.len());
        for &row in rows {
            vectors.push(vector(row)?);
        }
        let kernel = self.scanner.kernel();
        kernel.scores_of_rows(self.metric, query, vectors.rows(), out);
        Ok(Counts {
            rows: rows.len() as u64,
            bytes: (rows.len() * first.bytes()) as u64,
            pages: pages(rows, first.bytes()),
            ..Counts::default()
        })
    }
}

/// The pages that rows of some bytes each are in. Requires: rows ascend.
fn pages(rows: &[u32], width: usize) -> u64 {
    const PAGE: usize = 4096;
    let mut next = 0;
    let mut pages = 0;
    for &row in rows {
        let start = row as usize * width;
        let (first, last) = (start / PAGE, (start + width - 1) / PAGE);
        pages += (last + 1).saturating_sub(first.max(next));
        next = last + 1;
    }
    pages as u64
}

#[cfg(test)]
mod tests {
    use super::pages;

    #[test]
    fn a_page_that_several_rows_share_counts_once() {
        assert_eq!(pages(&[], 768), 0);
        assert_eq!(pages(&[0, 1, 2, 3, 4], 768), 1);
        // Row 5 begins in the first page and ends in the second.
        assert_eq!(pages(&[5], 768), 2);
        assert_eq!(pages(&[0, 5, 6], 768), 2);
        assert_eq!(pages(&[0, 1000], 768), 2);
        assert_eq!(pages(&[0, 1], 10_000), 5);
    }
}
