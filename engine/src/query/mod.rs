//! A query, in the order in which it runs: the query's [vectors], the [filter]'s masks, the [cells] that are
//! looked at, [candidates] by codes or by
//! stored vectors, their [order](score), and the [hits] with keys and texts.
//!
//! The depth of a stage is not the number of hits: [`Search::Auto`] takes more candidates by codes than the user
//! wants hits, and orders them by their stored vectors. `eval` uses the same stages, so it measures what queries
//! return.

pub(crate) mod candidates;
pub(crate) mod cells;
pub(crate) mod explain;
pub(crate) mod filter;
mod hits;
pub(crate) mod plan;
pub(crate) mod score;
pub(crate) mod searched;
pub(crate) mod vectors;

use crate::error::Result;
use crate::row::{Hit, Query, QueryOptions};
use crate::snapshot::Snapshot;
use candidates::Candidates;
use explain::{Counts, Explanation, Trace};
use plan::Plan;

impl Snapshot {
    /// Returns the k best rows for a query, best first.
    pub fn query<'q>(&self, query: impl Into<Query<'q>>, k: usize) -> Result<Vec<Hit>> {
        self.query_with(query, &QueryOptions::top(k))
    }

    /// Returns the best rows for a query, best first, as the options say.
    pub fn query_with<'q>(
        &self,
        query: impl Into<Query<'q>>,
        options: &QueryOptions,
    ) -> Result<Vec<Hit>> {
        let mut hits = self.query_batch(&[query.into()], options)?;
        Ok(hits.pop().expect("one query, one answer"))
    }

    /// Returns the best rows for each of several queries, which share one pass over the codes.
    pub fn query_batch(
        &self,
        queries: &[Query<'_>],
        options: &QueryOptions,
    ) -> Result<Vec<Vec<Hit>>> {
        Ok(self.query_explained(queries, options)?.0)
    }

    /// Like [`query_batch`](Self::query_batch), and reports what each stage did.
    pub fn query_explained(
        &self,
        queries: &[Query<'_>],
        options: &QueryOptions,
    ) -> Result<(Vec<Vec<Hit>>, Explanation)> {
        options.check()?;
        let columns = self.schema.named(&options.columns)?;
        let searched = self.searched();
        let plan = Plan::of(options, &searched)?;
        let mut trace = Trace::start();

        let asked = vectors::of(&self.model, queries, plan)?;
        let asked = asked.as_ref();
        trace.stage("vectors", Counts::rows(queries.len()));

        let masks = filter::masks(self, options.filter.as_ref())?;
        let passed = masks.count().unwrap_or_else(|| self.rows());
        trace.stage("filter", Counts::rows(passed));

        let visited = plan.visited(&searched, asked, &masks)?;
        if let Some(visited) = &visited {
            trace.stage("cells", visited.counts());
        }
        let mut found = plan.listed(&searched, asked, &masks, visited.as_ref())?;
        let listed = found.iter().map(Candidates::len).sum::<usize>();
        let counts = Counts {
            bytes: plan.scanned(&searched, visited.as_ref())?,
            ..Counts::rows(listed)
        };
        trace.stage("candidates", counts);

        if plan.needs_words() {
            plan.add_words(&searched, asked, &masks, &mut found)?;
            let all = found.iter().map(Candidates::len).sum::<usize>();
            trace.stage("words", Counts::rows(all - listed));
        }

        let ranked = plan.rank(&searched, asked, &found)?;
        trace.stage("score", ranked.iter().map(|(_, counts)| *counts).sum());

        let cycles = options.k as f64 * hits::CYCLES;
        let hits = (self.scanner).each(&ranked, cycles, |(ranked, _)| {
            hits::take(self, &columns, hits::page(ranked, options))
        })?;
        let taken = hits.iter().map(Vec::len).sum::<usize>();
        trace.stage("hits", Counts::rows(taken));
        Ok((hits, plan.explained(trace)))
    }
}
