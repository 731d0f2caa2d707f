//! How many candidates queries need, measured on real queries for a target that the user sets.

use super::{EvalOptions, Evaluator, Questions};
use crate::error::{Error, Result};
use crate::row::Serving;
use crate::row::{MAX_CANDIDATES, Query, QueryOptions, Search, Value};
use crate::snapshot::Snapshot;
use crate::watch::Watch;
use serde::Serialize;
use std::time::Instant;

/// Recall and cost of one number of candidates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Tried {
    /// Candidates per query.
    pub candidates: usize,
    /// The share that was found: of the right answers if there are some, else of exact search's hits.
    pub found: f64,
    /// `found` divided by what the largest number of candidates finds.
    pub share: f64,
    /// The median time of a query in microseconds, without encoding.
    pub micros: f64,
}

/// What [`tune`] measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Tuned {
    /// Hits per query.
    pub k: usize,
    /// All numbers that were tried, in ascending order.
    pub tried: Vec<Tried>,
    /// The smallest number of candidates that reaches the target; `None` if none does.
    pub chosen: Option<Serving>,
}

/// The number of queries that are timed.
const TIMED: usize = 64;

/// Tries numbers of candidates for queries for `k` hits under the active model, and chooses the smallest that finds at
/// least `target` of what the largest finds. Questions with right answers are measured by those; without, by the hits
/// of exact search.
///
/// Use real queries. A query that is the text of a stored row finds that row easily, which makes the result too
/// optimistic.
///
/// # Errors
/// [`Error::Invalid`] if there are no questions, if the target is not above 0 and at most 1, or if the active model
/// takes no candidates: it has neither codes nor a query map.
pub fn tune(
    snapshot: &Snapshot,
    questions: &Questions,
    k: usize,
    target: f64,
    watch: &Watch,
) -> Result<Tuned> {
    QueryOptions::top(k).check()?;
    if !(target > 0.0 && target <= 1.0) {
        return Err(Error::invalid(format!(
            "a target of {target}; it is a share above 0 and at most 1"
        )));
    }
    if questions.all.is_empty() {
        return Err(Error::invalid("there are no queries to measure with"));
    }
    let options = EvalOptions::default().cuts([k]).watch(watch.clone());
    let mut evaluator = Evaluator::new(snapshot, snapshot.model(), questions, options)?;
    if !evaluator.rescores() {
        return Err(Error::invalid(
            "the active model takes no candidates: its rows are searched exactly",
        ));
    }
    let labelled = (questions.all.iter()).any(|question| !question.right.is_empty());
    let vectors: Vec<Vec<f32>> = (evaluator.questions.vectors)
        .chunks_exact(snapshot.model().dim())
        .take(TIMED)
        .map(<[f32]>::to_vec)
        .collect();
    let mut tried = Vec::new();
    for candidates in numbers(k, snapshot.rows()) {
        evaluator.options.candidates = Some(candidates);
        let found = match labelled {
            true => evaluator.search(Search::Auto)?.recall(k),
            false => {
                let shares = evaluator.agreement(k)?;
                shares.iter().sum::<f64>() / shares.len().max(1) as f64
            }
        };
        tried.push(Tried {
            candidates,
            found,
            share: 0.0,
            micros: micros(snapshot, &vectors, k, candidates)?,
        });
    }
    let most = tried.iter().map(|tried| tried.found).fold(0.0, f64::max);
    for one in &mut tried {
        one.share = if most > 0.0 { one.found / most } else { 1.0 };
    }
    let enough = tried.iter().find(|tried| tried.share >= target);
    let chosen = enough.map(|tried| Serving::new(k as u32, tried.candidates as u32));
    Ok(Tuned {
        k,
        chosen: chosen.transpose()?,
        tried,
    })
}

/// Returns the numbers of candidates to try: from k on, in steps of about a third, up to a hundred per hit, and 4,000
/// at least.
fn numbers(k: usize, rows: u64) -> Vec<usize> {
    let rows = usize::try_from(rows).unwrap_or(usize::MAX).max(k);
    let most = (100 * k).max(4_000).min(rows).min(MAX_CANDIDATES);
    let mut numbers = vec![k];
    while let Some(&last) = numbers.last()
        && last < most
    {
        numbers.push((last + last.div_ceil(3)).min(most));
    }
    numbers
}

/// Returns the median time of a query.
fn micros(snapshot: &Snapshot, vectors: &[Vec<f32>], k: usize, candidates: usize) -> Result<f64> {
    let options = QueryOptions::top(k).candidates(candidates);
    let mut times = Vec::with_capacity(vectors.len());
    for vector in vectors {
        let started = Instant::now();
        snapshot.query_with(Query::Vector(vector), &options)?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times.get(times.len() / 2).copied().unwrap_or(0.0))
}

impl Questions {
    /// Returns questions without right answers, which [`tune`] measures against exact search.
    pub fn unlabelled(queries: impl IntoIterator<Item = Value>) -> Self {
        let all = queries.into_iter().map(|query| super::Question {
            query,
            right: Vec::new(),
            excluded: Vec::new(),
        });
        Self {
            all: all.collect(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn candidates_grow_from_the_hits_to_a_hundred_per_hit_or_all_rows() {
        let tried = numbers(10, 1_000_000);
        assert_eq!((tried[0], *tried.last().unwrap()), (10, 4_000));
        assert!(tried.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(tried.len() < 30, "{}", tried.len());
        assert_eq!(numbers(10, 15), [10, 14, 15]);
        assert_eq!(numbers(10, 3), [10]);
        assert_eq!(*numbers(1_000, 1_000_000).last().unwrap(), 100_000);
    }
}
