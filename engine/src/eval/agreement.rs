//! Agreement with exact search: a measure that needs no right answers.

use super::numbers::Numbers;
use super::{Evaluator, Steps};
use crate::error::Result;
use crate::query::filter::Masks;
use crate::query::plan::Plan;
use crate::row::{QueryOptions, Search};
use crate::scan::Found;

/// Returns, for each question, the share of exact search's first k rows that are among the first k of [`Search::Auto`].
pub(super) fn shares(evaluator: &Evaluator<'_>, k: usize, steps: &Steps) -> Result<Vec<f64>> {
    let exact = best(evaluator, Search::Exact, k, steps)?;
    shares_of(&exact, evaluator, k, steps)
}

/// The same, of rows that [`best`] found.
pub(super) fn shares_of(
    exact: &[Vec<u32>],
    evaluator: &Evaluator<'_>,
    k: usize,
    steps: &Steps,
) -> Result<Vec<f64>> {
    let auto = best(evaluator, Search::Auto, k, steps)?;
    let shares = auto.iter().zip(exact).map(|(ours, theirs)| {
        let kept = theirs.iter().filter(|row| ours.contains(row)).count();
        kept as f64 / theirs.len().max(1) as f64
    });
    Ok(shares.collect())
}

/// For each question, the numbers of the first k rows.
pub(super) fn best(
    evaluator: &Evaluator<'_>,
    search: Search,
    k: usize,
    steps: &Steps,
) -> Result<Vec<Vec<u32>>> {
    let searched = &evaluator.searched;
    // Excluded rows may rank above the others.
    let depth = k + evaluator.most_excluded();
    let mut options = QueryOptions::top(depth).search(search);
    if search == Search::Auto {
        let candidates = evaluator.options.candidates;
        options.candidates = candidates.map(|candidates| candidates.max(depth));
        options.probes = evaluator.options.probes;
    }
    let plan = Plan::of(&options, searched)?;
    let numbers = Numbers::of(&searched.parts, 0);
    let mut all = Vec::with_capacity(evaluator.questions.len());
    for (asked, answers) in evaluator.asked(plan) {
        let found = plan.candidates(searched, asked, &Masks::none())?;
        let ranked = plan.rank(searched, asked, &found)?;
        for (answers, (ranked, _)) in answers.iter().zip(ranked) {
            let rows = ranked.iter().map(|row| {
                numbers.number(&Found {
                    score: row.score,
                    source: row.place.part as u32,
                    row: row.place.row.0,
                })
            });
            let rows = rows.filter(|row| !answers.excluded.contains(row));
            all.push(rows.take(k).collect());
        }
        steps.add(answers.len() as u64)?;
    }
    Ok(all)
}
