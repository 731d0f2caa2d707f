//! A query, in the order in which it runs: the query's [vectors], the [filter]'s masks, [candidates] by codes or by
//! stored vectors, their [ranking](score), and the [hits] with keys and texts.
//!
//! The depth that is asked of a stage is not the number of hits: a stage that ranks again wants more candidates than
//! the user wants hits. `eval` goes through the same stages, so what is measured is what is served.

pub(crate) mod candidates;
pub(crate) mod filter;
mod hits;
mod score;
pub(crate) mod searched;
mod vectors;

use crate::error::{Error, Result};
use crate::row::{Hit, MAX_K, Query, QueryOptions};
use crate::snapshot::Snapshot;

impl Snapshot {
    /// The k best rows for a query, best first.
    pub fn query<'q>(&self, query: impl Into<Query<'q>>, k: usize) -> Result<Vec<Hit>> {
        self.query_with(query, &QueryOptions::top(k))
    }

    /// The best rows for a query, best first, as the options say.
    pub fn query_with<'q>(
        &self,
        query: impl Into<Query<'q>>,
        options: &QueryOptions,
    ) -> Result<Vec<Hit>> {
        let mut hits = self.query_batch(&[query.into()], options)?;
        Ok(hits.pop().expect("one query, one answer"))
    }

    /// The best rows for each of several queries, which share one pass over the codes.
    pub fn query_batch(
        &self,
        queries: &[Query<'_>],
        options: &QueryOptions,
    ) -> Result<Vec<Vec<Hit>>> {
        let k = options.k;
        if k == 0 || k > MAX_K {
            return Err(Error::invalid(format!(
                "k is {k}; ask for 1 to {MAX_K} hits"
            )));
        }
        let vectors = vectors::of(&self.model, queries)?;
        let masks = filter::masks(self, options.filter.as_ref())?;
        let searched = self.searched();
        let candidates = candidates::of(&searched, &vectors, &masks, k)?;
        self.scanner
            .each(&candidates, k as f64 * hits::CYCLES, |found| {
                let ranked = score::rank(&searched, found, k)?;
                hits::take(self, &ranked)
            })
    }
}
