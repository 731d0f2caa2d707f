//! Deciding whether a learned query map is used.

use mopqdb::eval::bootstrap;
use serde::{Deserialize, Serialize};

/// A map is adopted only if the lower 95% bound of its gain is above this. On `quora` validation preferred a map that lost
/// .002 on test; this is twice as much.
pub const LEAST_GAIN: f64 = 0.004;

/// The difference between two searches for the same queries, with its 95% interval by the paired bootstrap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// Our mean minus their mean.
    pub mean: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Gain {
    /// Compares the outcomes of each query, such as its recall at 10.
    ///
    /// # Panics
    /// If the numbers of outcomes differ.
    pub fn of(ours: &[f64], theirs: &[f64], seed: u64) -> Self {
        let interval = bootstrap::difference(ours, theirs, seed);
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len().max(1) as f64;
        Self {
            mean: mean(ours) - mean(theirs),
            low: interval.low,
            high: interval.high,
        }
    }

    /// Returns `true` if a map with this gain is adopted. Without queries no map is.
    pub fn is_adopted(self) -> bool {
        self.low > LEAST_GAIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `better` and `worse` of 1,000 queries change, the others stay as they are.
    fn gain(better: usize, worse: usize) -> Gain {
        let theirs: Vec<f64> = (0..1_000).map(|query| (query % 2) as f64).collect();
        let mut ours = theirs.clone();
        let mut change = |from: f64, to: f64, most: usize| {
            let found = ours.iter_mut().filter(|outcome| **outcome == from);
            found.take(most).for_each(|outcome| *outcome = to);
        };
        // 2 stands for a query that is not to be changed back.
        change(0.0, 2.0, better);
        change(1.0, 0.0, worse);
        for outcome in &mut ours {
            *outcome = outcome.min(1.0);
        }
        Gain::of(&ours, &theirs, 1)
    }

    #[test]
    fn only_a_gain_that_is_sure_is_adopted() {
        assert!(gain(40, 5).is_adopted(), "{:?}", gain(40, 5));
        // The same mean, but so much change that it might be chance.
        assert!((gain(40, 5).mean - gain(235, 200).mean).abs() < 1e-12);
        assert!(!gain(235, 200).is_adopted(), "{:?}", gain(235, 200));
        // Sure, but too little: .005 with a bound below .004.
        assert!(!gain(5, 0).is_adopted());
        assert!(!gain(0, 0).is_adopted());
        assert!(!Gain::of(&[], &[], 1).is_adopted());
    }
}
