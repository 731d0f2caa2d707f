//! How many candidates a query needs: the fewest that find nearly all that many find.

use serde::{Deserialize, Serialize};

use super::weight::Asked;

/// What a number of candidates finds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Depth {
    /// Candidates of each source.
    pub candidates: usize,
    /// Mean recall at 10.
    pub recall: f64,
}

/// The share of what `most` candidates find that fewer candidates must find.
pub const SHARE: f64 = 0.998;

/// Measures numbers of candidates from 10 to `most` on queries whose first `most` candidates are known. Returns all of
/// them, and which is the first to find [`SHARE`] of what most find.
pub fn fewest_candidates(asked: &[Asked], weight: f32, most: usize) -> (Vec<Depth>, usize) {
    let mut numbers = vec![10.min(most.max(1))];
    while let Some(&last) = numbers.last()
        && last < most
    {
        numbers.push((last + last.div_ceil(3)).min(most));
    }
    let mean = |candidates: usize| {
        let recalls = asked
            .iter()
            .map(|asked| asked.within(candidates).recall(weight));
        recalls.sum::<f64>() / asked.len().max(1) as f64
    };
    let depths: Vec<Depth> = numbers
        .into_iter()
        .map(|candidates| Depth {
            candidates,
            recall: mean(candidates),
        })
        .collect();
    let most = depths.iter().map(|depth| depth.recall).fold(0.0, f64::max);
    let enough = depths.iter().position(|depth| depth.recall >= SHARE * most);
    (depths, enough.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scorer::Candidate;

    /// A query whose right row is at `place` of its source, and first by its score as soon as it is a candidate.
    fn asked(place: u32) -> Asked {
        let candidate = |at: u32| Candidate {
            similarity: if at == place { 1.0 } else { 0.0 },
            words: 0.0,
            right: at == place,
            place: at,
        };
        Asked {
            candidates: (0..500).map(candidate).collect(),
            right: 1,
        }
    }

    #[test]
    fn the_fewest_candidates_reach_all_but_a_few_right_rows() {
        // 999 of 1,000 right rows are within 40 candidates, one is at place 400.
        let mut all: Vec<Asked> = (0..999).map(|n| asked(n % 40)).collect();
        all.push(asked(400));
        let (depths, chosen) = fewest_candidates(&all, 0.0, 500);
        assert_eq!(depths.first().unwrap().candidates, 10);
        assert_eq!(depths.last().unwrap().candidates, 500);
        assert!(depths.windows(2).all(|two| two[0].recall <= two[1].recall));
        assert_eq!(depths.last().unwrap().recall, 1.0);
        let chosen = depths[chosen];
        assert!((40..60).contains(&chosen.candidates), "{chosen:?}");
        assert!((chosen.recall - 0.999).abs() < 1e-9);
        // One more such query, and so few are not enough.
        all.extend([asked(400), asked(401)]);
        let (depths, chosen) = fewest_candidates(&all, 0.0, 500);
        assert!(depths[chosen].candidates > 400);
    }

    #[test]
    fn without_queries_or_answers_the_first_number_is_returned() {
        let (depths, chosen) = fewest_candidates(&[], 0.0, 100);
        assert_eq!(depths[chosen].candidates, 10);
        assert_eq!(fewest_candidates(&[], 0.0, 4).0.len(), 1);
    }
}
