//! How many candidates queries need, measured on real queries for a target that the user sets.

use super::{EvalOptions, Evaluator, Questions, agreement};
use crate::error::{Error, Result};
use crate::row::Serving;
use crate::row::{MAX_CANDIDATES, Probes, Query, QueryOptions, Search, Value};
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
    /// Cells that a query looks at; `None` under a model without cells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<usize>,
    /// The share that was found: of the right answers if there are some, else of exact search's hits.
    pub found: f64,
    /// `found` divided by what the largest number of candidates finds, in all cells.
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
    /// All numbers that were tried, in ascending order; under a model with cells, in the order of the trials.
    pub tried: Vec<Tried>,
    /// The smallest number of candidates that reaches the target, or the fastest pair of probes and candidates; `None` if
    /// none does.
    pub chosen: Option<Serving>,
}

/// The number of queries that are timed.
const TIMED: usize = 64;

/// Tries numbers of candidates for queries for `k` hits under the active model, and chooses the smallest that finds at
/// least `target` of what the largest finds. Under a model with cells it tries pairs of probes and candidates, and
/// chooses the fastest that finds as much. Questions with right answers are measured by those; without, by the hits
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
    let exact = match labelled {
        true => Vec::new(),
        false => agreement::best(&evaluator, Search::Exact, k, &evaluator.steps(1))?,
    };
    let found = |evaluator: &Evaluator<'_>| -> Result<f64> {
        if labelled {
            return Ok(evaluator.search(Search::Auto)?.recall(k));
        }
        let shares = agreement::shares_of(&exact, evaluator, k, &evaluator.steps(1))?;
        Ok(shares.iter().sum::<f64>() / shares.len().max(1) as f64)
    };
    let mut measure = |candidates: usize, probes: Option<usize>| -> Result<Tried> {
        evaluator.options.candidates = Some(candidates);
        evaluator.options.probes = probes.map(Probes::Cells);
        Ok(Tried {
            candidates,
            probes,
            found: found(&evaluator)?,
            share: 0.0,
            micros: micros(snapshot, &vectors, k, candidates, probes)?,
        })
    };
    let numbers = numbers(k, snapshot.rows());
    let (mut tried, chosen) = match snapshot.model().cells() {
        None => {
            let tried = numbers
                .into_iter()
                .map(|candidates| measure(candidates, None));
            let tried = tried.collect::<Result<Vec<_>>>()?;
            let most = most(&tried);
            let enough = tried.iter().position(|tried| tried.found >= target * most);
            (tried, enough)
        }
        Some(cells) => try_cells(&numbers, cells as usize, target, &mut measure)?,
    };
    let most = most(&tried);
    for one in &mut tried {
        one.share = if most > 0.0 { one.found / most } else { 1.0 };
    }
    let chosen = chosen.map(|at| {
        let Tried {
            candidates, probes, ..
        } = tried[at];
        let serving = Serving::new(k as u32, candidates as u32)?;
        match probes {
            Some(probes) => serving.with_probes(probes as u32),
            None => Ok(serving),
        }
    });
    Ok(Tuned {
        k,
        chosen: chosen.transpose()?,
        tried,
    })
}

/// Returns the largest share that was found.
fn most(tried: &[Tried]) -> f64 {
    tried.iter().map(|tried| tried.found).fold(0.0, f64::max)
}

/// Tries numbers of probes, each twice the one before, with the fewest candidates that are enough for each, until three in a
/// row took longer than the fastest. Returns what was tried, and the number of the fastest that reaches the target.
fn try_cells(
    numbers: &[usize],
    cells: usize,
    target: f64,
    measure: &mut impl FnMut(usize, Option<usize>) -> Result<Tried>,
) -> Result<(Vec<Tried>, Option<usize>)> {
    let all_candidates = *numbers.last().expect("there is a number to try");
    let mut tried = vec![measure(all_candidates, Some(cells))?];
    let wanted = target * tried[0].found;
    let mut fastest: Option<usize> = None;
    let mut slower = 0;
    let doubled = std::iter::successors(Some(1), |&probes| {
        (probes < cells).then(|| (2 * probes).min(cells))
    });
    for probes in doubled {
        // The fewest that are enough lie between these, if there are any.
        let (mut low, mut high) = (0, numbers.len());
        let mut enough = None;
        while low < high {
            // The most first: often no number is enough.
            let at = if enough.is_none() {
                high - 1
            } else {
                (low + high) / 2
            };
            let one = measure(numbers[at], Some(probes))?;
            let reaches = one.found >= wanted;
            tried.push(one);
            if reaches {
                enough = Some(tried.len() - 1);
                high = at;
            } else if enough.is_none() {
                break;
            } else {
                low = at + 1;
            }
        }
        let Some(enough) = enough else {
            continue;
        };
        if fastest.is_none_or(|fastest| tried[enough].micros < tried[fastest].micros) {
            fastest = Some(enough);
            slower = 0;
        } else {
            slower += 1;
        }
        if slower == 3 {
            break;
        }
    }
    Ok((tried, fastest))
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
fn micros(
    snapshot: &Snapshot,
    vectors: &[Vec<f32>],
    k: usize,
    candidates: usize,
    probes: Option<usize>,
) -> Result<f64> {
    let mut options = QueryOptions::top(k).candidates(candidates);
    options.probes = probes.map(Probes::Cells);
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
    use super::*;

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

    #[test]
    fn the_fastest_pair_that_finds_enough_is_chosen() {
        // Half of what is to be found needs 4 probes of 16, all of it 8; and 20 candidates. Each costs time.
        let mut measured = 0;
        let mut measure = |candidates: usize, probes: Option<usize>| {
            let probes = probes.unwrap();
            measured += 1;
            let found = match probes {
                0..4 => 0.1,
                4..8 => 0.5,
                _ => 1.0,
            };
            Ok(Tried {
                candidates,
                probes: Some(probes),
                found: if candidates < 20 { 0.5 * found } else { found },
                share: 0.0,
                micros: (10 * probes + candidates) as f64,
            })
        };
        let numbers = [10, 20, 30, 40];
        let (tried, chosen) = try_cells(&numbers, 16, 0.9, &mut measure).unwrap();
        let chosen = tried[chosen.unwrap()];
        assert_eq!((chosen.probes, chosen.candidates), (Some(8), 20));
        let (tried, chosen) = try_cells(&numbers, 16, 0.4, &mut measure).unwrap();
        let chosen = tried[chosen.unwrap()];
        assert_eq!((chosen.probes, chosen.candidates), (Some(4), 20));
        assert!(measured < 40, "{measured}");
    }
}
