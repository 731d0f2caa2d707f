//! The weight w of words added to vectors: s = similarity + w words.

/// A candidate of a query with what it is scored by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// <q A, v_k>
    pub similarity: f32,
    /// b(q, k); 0 where it shares no word with the query.
    pub words: f32,
    /// Whether it answers the query.
    pub right: bool,
    /// Its place among the candidates of its source, from 0.
    pub place: u32,
}

/// A validation query.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// What was found for it, by codes and by words.
    pub candidates: Vec<Candidate>,
    /// How many rows answer it, whether found or not; at least one.
    pub right: usize,
}

impl Asked {
    /// Returns the same query with only the first candidates of each source.
    #[must_use]
    pub fn within(&self, candidates: usize) -> Self {
        let is_within = |c: &&Candidate| (c.place as usize) < candidates;
        Self {
            candidates: self.candidates.iter().filter(is_within).copied().collect(),
            right: self.right,
        }
    }

    /// Returns the recall at 10 under a weight. Equal scores count by the chance that ties fall so.
    pub fn recall(&self, weight: f32) -> f64 {
        self.measure(weight).0
    }

    /// Recall at 10, and 1 / the place of the first right candidate.
    fn measure(&self, weight: f32) -> (f64, f64) {
        let score = |c: &Candidate| c.similarity + weight * c.words;
        let mut first = f64::INFINITY;
        let mut found = 0.0;
        for right in self.candidates.iter().filter(|c| c.right) {
            let own = score(right);
            let scores = || self.candidates.iter().map(score);
            let greater = scores().filter(|&s| s > own).count() as f64;
            let equal = scores().filter(|&s| s == own).count() as f64;
            found += ((10.0 - greater) / equal).clamp(0.0, 1.0);
            first = first.min(greater + (equal + 1.0) / 2.0);
        }
        (found / self.right.max(1) as f64, 1.0 / first)
    }
}

/// What was chosen, and what it does on the queries that chose it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weight {
    /// w.
    pub weight: f32,
    /// Recall at 10.
    pub recall: f64,
    /// Mean of 1 / the place of the first right candidate; 0 where there is none.
    pub reciprocal_rank: f64,
}

/// Weights tried per doubling.
const PER_DOUBLING: i32 = 4;
/// Doublings tried below and above the weight at which both parts of the score vary alike.
const DOUBLINGS: i32 = 7;

/// Chooses w by recall at 10 and the reciprocal rank, which decides where recall is a matter of a few queries: the largest
/// sum of both, smoothed over neighbouring weights; of equals the smallest weight. 0 is among those tried.
///
/// The weights are a geometric grid about the ratio of the spreads of the two parts, so that the scale of neither
/// matters. Where words never differ, w is 0.
pub fn fit_weight(asked: &[Asked]) -> Weight {
    let spread = |of: &dyn Fn(&Candidate) -> f32| {
        let (mut sum, mut count) = (0.0, 0.0);
        for asked in asked {
            let n = asked.candidates.len() as f64;
            let mean = asked
                .candidates
                .iter()
                .map(|c| f64::from(of(c)))
                .sum::<f64>()
                / n.max(1.0);
            let squares = asked.candidates.iter();
            sum += squares
                .map(|c| (f64::from(of(c)) - mean).powi(2))
                .sum::<f64>();
            count += n;
        }
        (sum / f64::max(count, 1.0)).sqrt()
    };
    let (similarity, words) = (spread(&|c| c.similarity), spread(&|c| c.words));
    let none = measure(asked, 0.0);
    if words == 0.0 || similarity == 0.0 {
        return none;
    }
    let steps = -DOUBLINGS * PER_DOUBLING..=DOUBLINGS * PER_DOUBLING;
    let weights = steps.map(|step| {
        let factor = (f64::from(step) / f64::from(PER_DOUBLING)).exp2();
        (similarity / words * factor) as f32
    });
    let tried: Vec<Weight> = std::iter::once(none)
        .chain(weights.map(|weight| measure(asked, weight)))
        .collect();
    let merit = |at: usize| {
        let value = |at: usize| tried[at].recall + tried[at].reciprocal_rank;
        let (before, after) = (at.saturating_sub(1), (at + 1).min(tried.len() - 1));
        (value(before) + 2.0 * value(at) + value(after)) / 4.0
    };
    // The first of equals: a later one has to be better by more than rounding.
    let best = (1..tried.len()).fold(0, |best, at| {
        if merit(at) > merit(best) + 1e-12 {
            at
        } else {
            best
        }
    });
    tried[best]
}

/// What a weight does, in the mean.
fn measure(asked: &[Asked], weight: f32) -> Weight {
    let (mut recall, mut reciprocal_rank) = (0.0, 0.0);
    for one in asked.iter().map(|asked| asked.measure(weight)) {
        recall += one.0;
        reciprocal_rank += one.1;
    }
    let queries = asked.len().max(1) as f64;
    Weight {
        weight,
        recall: recall / queries,
        reciprocal_rank: reciprocal_rank / queries,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Queries of 60 candidates, the right one standing out by `similar` in similarity and by `worded` in words (whose noise
    /// is 1, times `scale`).
    fn world(similar: f64, worded: f64, scale: f64) -> Vec<Asked> {
        let mut random = Random::new(5, "words", 0);
        let mut asked = || {
            let candidate = |place: usize, random: &mut Random| {
                let right = place == 0;
                let stands_out = if right { 1.0 } else { 0.0 };
                Candidate {
                    similarity: (similar * stands_out + random.normal()) as f32,
                    words: (scale * (worded * stands_out + random.normal())) as f32,
                    right,
                    place: place as u32,
                }
            };
            Asked {
                candidates: (0..60).map(|place| candidate(place, &mut random)).collect(),
                right: 1,
            }
        };
        (0..400).map(|_| asked()).collect()
    }

    #[test]
    fn the_weight_is_that_of_the_best_linear_score_on_any_scale() {
        // Both parts have noise of the same size, so the best weight is the ratio of what stands out.
        for scale in [1.0, 1000.0] {
            let found = fit_weight(&world(1.2, 2.4, scale));
            let expected = 2.0 / scale;
            let ratio = f64::from(found.weight) / expected;
            assert!((0.5..2.0).contains(&ratio), "{scale}: {found:?}");
            let alone = measure(&world(1.2, 2.4, scale), 0.0);
            assert!(found.recall > alone.recall + 0.2, "{found:?}, {alone:?}");
        }
    }

    #[test]
    fn words_that_tell_nothing_get_no_weight() {
        let weight = fit_weight(&world(3.0, 0.0, 1.0)).weight;
        assert!(weight < 0.1, "{weight}");
        let mut silent = world(3.0, 0.0, 1.0);
        for asked in &mut silent {
            asked.candidates.iter_mut().for_each(|c| c.words = 7.0);
        }
        assert_eq!(fit_weight(&silent).weight, 0.0);
        assert_eq!(fit_weight(&[]).weight, 0.0);
    }

    #[test]
    fn recall_counts_rows_that_were_not_found_and_ties_by_chance() {
        let candidate = |similarity: f32, right| Candidate {
            similarity,
            words: 0.0,
            right,
            place: 0,
        };
        let mut candidates = vec![candidate(1.0, true), candidate(0.5, true)];
        // The second right row ties with nine others for places 2 to 11: nine of ten are within 10.
        candidates.extend((0..9).map(|_| candidate(0.5, false)));
        let found = measure(
            &[Asked {
                candidates,
                right: 3,
            }],
            0.3,
        );
        assert!((found.recall - 1.9 / 3.0).abs() < 1e-12, "{found:?}");
        assert_eq!(found.reciprocal_rank, 1.0);
    }
}
