//! Intervals by the paired bootstrap: every model is measured on the same resampled queries, so the variance between
//! queries does not hide the difference between two models.

use crate::kernel::random::Random;

/// A 95% interval.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Interval {
    /// The 2.5th percentile of the resampled values.
    pub low: f64,
    /// The 97.5th percentile of the resampled values.
    pub high: f64,
}

/// The number of resamples.
const DRAWS: usize = 1000;

/// Returns the interval of the mean.
pub fn interval(values: &[f64], seed: u64) -> Interval {
    resample(values.len(), seed, |drawn| mean(values, drawn))
}

/// Returns the interval of `mean ours - mean theirs`, where each resample draws the same queries for both.
///
/// # Panics
/// If the two slices have different lengths.
pub fn difference(ours: &[f64], theirs: &[f64], seed: u64) -> Interval {
    assert_eq!(ours.len(), theirs.len(), "recalls of the same queries");
    resample(ours.len(), seed, |drawn| {
        mean(ours, drawn) - mean(theirs, drawn)
    })
}

/// Returns the interval of `mean ours / mean theirs`, where each resample draws the same queries for both.
///
/// # Panics
/// If the two slices have different lengths.
pub fn ratio(ours: &[f64], theirs: &[f64], seed: u64) -> Interval {
    assert_eq!(ours.len(), theirs.len(), "recalls of the same queries");
    resample(ours.len(), seed, |drawn| {
        mean(ours, drawn) / mean(theirs, drawn)
    })
}

/// Returns each query's recall, averaged over several runs (seeds) of one system, for a comparison with another system.
///
/// # Panics
/// If a run has fewer queries than the first.
pub fn over_runs(runs: &[Vec<f64>]) -> Vec<f64> {
    let queries = runs.first().map_or(0, Vec::len);
    (0..queries)
        .map(|query| runs.iter().map(|run| run[query]).sum::<f64>() / runs.len() as f64)
        .collect()
}

fn mean(values: &[f64], drawn: &[usize]) -> f64 {
    drawn.iter().map(|&query| values[query]).sum::<f64>() / drawn.len() as f64
}

fn resample(count: usize, seed: u64, of: impl Fn(&[usize]) -> f64) -> Interval {
    if count == 0 {
        return Interval {
            low: 0.0,
            high: 0.0,
        };
    }
    let mut random = Random::new(seed);
    let mut drawn = vec![0; count];
    let mut found: Vec<f64> = (0..DRAWS)
        .map(|_| {
            drawn.fill_with(|| random.below(count));
            of(&drawn)
        })
        .collect();
    found.sort_by(f64::total_cmp);
    Interval {
        low: found[DRAWS * 25 / 1000],
        high: found[DRAWS * 975 / 1000 - 1],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_the_width_that_the_standard_error_predicts() {
        let values: Vec<f64> = (0..2000).map(|n| f64::from(u8::from(n % 4 == 0))).collect();
        let Interval { low, high } = interval(&values, 7);
        let standard_error = (0.25_f64 * 0.75 / 2000.0).sqrt();
        assert!(
            (low - (0.25 - 1.96 * standard_error)).abs() < 0.003,
            "{low}"
        );
        assert!(
            (high - (0.25 + 1.96 * standard_error)).abs() < 0.003,
            "{high}"
        );
    }

    #[test]
    fn pairing_detects_a_small_difference_between_noisy_queries() {
        let ours: Vec<f64> = (0..1000)
            .map(|n| f64::from(n % 2) + if n % 10 == 0 { 0.1 } else { 0.0 })
            .collect();
        let theirs: Vec<f64> = (0..1000).map(|n| f64::from(n % 2)).collect();
        let paired = difference(&ours, &theirs, 7);
        assert!(paired.low > 0.005 && paired.high < 0.015, "{paired:?}");
        assert!(
            interval(&ours, 7).low < interval(&theirs, 7).high,
            "apart they can't be told"
        );
        assert_eq!(difference(&ours, &theirs, 7), paired, "seeded");
    }

    #[test]
    fn variance_that_both_systems_share_cancels_out_of_a_ratio() {
        let mut random = Random::new(2);
        let theirs: Vec<f64> = (0..500).map(|_| random.unit()).collect();
        let ours: Vec<f64> = theirs.iter().map(|x| x * 1.1).collect();
        let Interval { low, high } = ratio(&ours, &theirs, 7);
        assert!((low - 1.1).abs() < 1e-9 && (high - 1.1).abs() < 1e-9);
    }

    #[test]
    fn runs_are_averaged_query_by_query() {
        assert_eq!(over_runs(&[vec![1.0, 0.0], vec![0.0, 0.0]]), [0.5, 0.0]);
    }
}
