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
    let (searched, options) = (&evaluator.searched, &evaluator.options);
    // Excluded rows may rank above the others.
    let depth = k + evaluator.most_excluded();
    let mut auto = QueryOptions::top(depth);
    if let Some(candidates) = options.candidates {
        auto = auto.candidates(candidates.max(depth));
    }
    let auto = Plan::of(&auto, searched)?;
    let exact = Plan::of(&QueryOptions::top(depth).search(Search::Exact), searched)?;
    let numbers = Numbers::of(&searched.parts, 0);
    let mut shares = Vec::with_capacity(evaluator.questions.len());
    for (asked, answers) in evaluator.asked(auto) {
        let best = |plan: Plan| -> Result<Vec<Vec<u32>>> {
            let found = plan.candidates(searched, asked, &Masks::none())?;
            let ranked = plan.rank(searched, asked, &found)?;
            let best = answers.iter().zip(ranked).map(|(answers, (ranked, _))| {
                let rows = ranked.iter().map(|row| {
                    numbers.number(&Found {
                        score: row.score,
                        source: row.place.part as u32,
                        row: row.place.row.0,
                    })
                });
                let rows = rows.filter(|row| !answers.excluded.contains(row));
                rows.take(k).collect()
            });
            Ok(best.collect())
        };
        for (ours, theirs) in best(auto)?.iter().zip(best(exact)?) {
            let kept = theirs.iter().filter(|row| ours.contains(row)).count();
            shares.push(kept as f64 / theirs.len().max(1) as f64);
        }
        steps.add(answers.len() as u64)?;
    }
    Ok(shares)
}
