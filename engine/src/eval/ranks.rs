//! The result of one search mode. At each depth, rows are ranked with the candidates that a query of that depth uses.

use super::numbers::Numbers;
use super::{Evaluator, Place, Places, SAMPLE_HITS, Samples, Steps};
use crate::error::Result;
use crate::query::filter::Masks;
use crate::query::plan::Plan;
use crate::row::{QueryOptions, Search};
use crate::scan::Found;
use std::collections::HashMap;

/// Queries per pass.
pub(super) const TOGETHER: usize = 32;

/// The places of the right rows of each question in one search mode.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Ranks {
    /// The search mode.
    pub search: Search,
    /// Rows found for the first questions, best first: score and number of the row in the snapshot's order.
    pub samples: Samples,
    /// One pass per range of depths, in ascending order of the depth up to which it holds; at least one.
    passes: Vec<Pass>,
}

/// The result of queries for up to `depth` hits.
#[derive(Debug, Clone)]
struct Pass {
    up_to: usize,
    /// How many candidates such queries take and score again, if they do.
    candidates: Option<usize>,
    places: Places,
}

impl Ranks {
    /// Creates ranks whose places hold at every depth.
    pub(super) fn of_one(search: Search, places: Places, samples: Samples) -> Self {
        Self {
            search,
            samples,
            passes: vec![Pass {
                up_to: usize::MAX,
                candidates: None,
                places,
            }],
        }
    }

    /// Returns the places of the right rows, as a query for k hits finds them.
    pub fn places(&self, k: usize) -> &Places {
        &self.pass(k).places
    }

    /// Returns how many candidates a query for k hits took by codes and scored again; `None` if it took none.
    pub fn candidates(&self, k: usize) -> Option<usize> {
        self.pass(k).candidates
    }

    fn pass(&self, k: usize) -> &Pass {
        let holds = self.passes.iter().find(|pass| k <= pass.up_to);
        (holds.or(self.passes.last())).expect("there is at least one pass")
    }

    /// Returns recall@k: the mean over questions.
    pub fn recall(&self, k: usize) -> f64 {
        self.places(k).recall(k)
    }

    /// Returns, for each question, the share of its right rows within the first k.
    pub fn recalls(&self, k: usize) -> Vec<f64> {
        self.places(k).recalls(k)
    }
}

/// A depth, and the number of candidates that a query for that many hits takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Depth {
    cut: usize,
    candidates: usize,
}

/// Returns the depths at which queries take different numbers of candidates: for each number, the deepest. Without
/// candidates there is one pass, at the greatest depth.
pub(super) fn passes(evaluator: &Evaluator<'_>, search: Search) -> Result<Vec<Depth>> {
    let options = &evaluator.options;
    let mut cuts = options.cuts.clone();
    cuts.sort_unstable();
    if search != Search::Auto || !evaluator.rescores() || options.candidates.is_some() {
        cuts.drain(..cuts.len().saturating_sub(1));
    }
    let mut passes: Vec<Depth> = Vec::new();
    for cut in cuts {
        let mut query = QueryOptions::top(cut);
        query.candidates = options.candidates.filter(|_| search == Search::Auto);
        if query.candidates.is_some() {
            query.check()?;
        }
        let candidates = query.wanted_candidates(evaluator.searched.serving);
        match passes.last_mut() {
            Some(last) if last.candidates == candidates => last.cut = cut,
            _ => passes.push(Depth { cut, candidates }),
        }
    }
    Ok(passes)
}

/// Orders candidates by their stored vectors, once for each depth.
pub(super) fn rescored(
    evaluator: &Evaluator<'_>,
    passes: &[Depth],
    numbers: &Numbers,
    steps: &Steps,
) -> Result<Ranks> {
    let mut ranks = Ranks {
        search: Search::Auto,
        samples: Vec::new(),
        passes: Vec::new(),
    };
    for (n, depth) in passes.iter().enumerate() {
        // The samples are the first ten hits of the shallowest queries.
        let samples = match n {
            0 => evaluator.options.samples,
            _ => 0,
        };
        let count = depth.candidates + evaluator.most_excluded();
        let mut options = QueryOptions::top(count).candidates(count);
        options.probes = evaluator.options.probes;
        let (places, samples) = pass(evaluator, &options, samples, numbers, steps)?;
        ranks.passes.push(Pass {
            up_to: depth.cut,
            candidates: Some(depth.candidates),
            places,
        });
        if n == 0 {
            ranks.samples = samples;
        }
    }
    Ok(ranks)
}

/// Ranks the rows that words find.
pub(super) fn by_words(
    evaluator: &Evaluator<'_>,
    numbers: &Numbers,
    steps: &Steps,
) -> Result<Ranks> {
    let depth = evaluator.options.depth() + evaluator.most_excluded();
    let options = QueryOptions::top(depth).search(Search::Words);
    let samples = evaluator.options.samples;
    let (places, samples) = pass(evaluator, &options, samples, numbers, steps)?;
    Ok(Ranks::of_one(Search::Words, places, samples))
}

/// Answers all questions as a query with these options would. All hits are ranked, so ties are counted.
fn pass(
    evaluator: &Evaluator<'_>,
    options: &QueryOptions,
    samples: usize,
    numbers: &Numbers,
    steps: &Steps,
) -> Result<(Places, Samples)> {
    let searched = &evaluator.searched;
    let plan = Plan::of(options, searched)?;
    let mut places = Vec::with_capacity(evaluator.questions.len());
    let mut kept = Vec::new();
    for (asked, answers) in evaluator.asked(plan) {
        let found = plan.candidates(searched, asked, &Masks::none())?;
        for (answers, (ranked, _)) in answers.iter().zip(plan.rank(searched, asked, &found)?) {
            let hits: Vec<(f32, u32)> = (ranked.iter())
                .map(|row| {
                    let found = Found {
                        score: row.score,
                        source: row.place.part as u32,
                        row: row.place.row.0,
                    };
                    (row.score, numbers.number(&found))
                })
                .filter(|(_, row)| !answers.excluded.contains(row))
                .collect();
            places.push(places_among(&hits, &answers.right));
            if kept.len() < samples {
                kept.push(hits[..hits.len().min(SAMPLE_HITS)].to_vec());
            }
        }
        steps.add(answers.len() as u64)?;
    }
    Ok((Places(places), kept))
}

/// Returns the places of right rows among hits, best first. A row that is not among them is placed beyond every depth.
fn places_among(hits: &[(f32, u32)], right: &[u32]) -> Vec<Place> {
    let scores: HashMap<u32, f32> = hits.iter().map(|(score, row)| (*row, *score)).collect();
    let place = |right: &u32| match scores.get(right) {
        None => Place {
            greater: u64::MAX,
            equal: 1,
        },
        Some(own) => {
            let greater = hits.partition_point(|(score, _)| score > own);
            let equal = hits[greater..].partition_point(|(score, _)| score == own);
            Place {
                greater: greater as u64,
                equal: equal as u64,
            }
        }
    };
    right.iter().map(place).collect()
}
