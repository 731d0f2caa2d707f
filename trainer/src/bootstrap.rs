//! How sure a difference of recalls is: the paired bootstrap over queries.

use serde::Serialize;

use crate::random::Random;

/// An estimate with its central 95% interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Of all queries.
    pub value: f64,
    /// 2.5th percentile of the resamples.
    pub low: f64,
    /// 97.5th percentile.
    pub high: f64,
}

/// mean(a) / mean(b), for recalls of the same queries in the same order. Queries are drawn with replacement, both
/// systems' recalls of a query together, so that what makes a query hard for both cancels out.
pub fn ratio(a: &[f64], b: &[f64], resamples: usize, seed: u64) -> Interval {
    paired(a, b, resamples, seed, |a, b| a / b)
}

/// mean(a) - mean(b), likewise.
pub fn difference(a: &[f64], b: &[f64], resamples: usize, seed: u64) -> Interval {
    paired(a, b, resamples, seed, |a, b| a - b)
}

/// Requires: as many of `a` as of `b`, and at least one.
fn paired(
    a: &[f64],
    b: &[f64],
    resamples: usize,
    seed: u64,
    compare: impl Fn(f64, f64) -> f64,
) -> Interval {
    assert!(
        a.len() == b.len() && !a.is_empty(),
        "the same queries for both"
    );
    let n = a.len() as f64;
    let mut random = Random::new(seed, "bootstrap", 0);
    let mut drawn: Vec<f64> = (0..resamples)
        .map(|_| {
            let (mut sum_a, mut sum_b) = (0.0, 0.0);
            for _ in 0..a.len() {
                let query = random.below(a.len());
                sum_a += a[query];
                sum_b += b[query];
            }
            compare(sum_a / n, sum_b / n)
        })
        .collect();
    drawn.sort_by(f64::total_cmp);
    let at = |share: f64| drawn[((share * resamples as f64) as usize).min(resamples - 1)];
    Interval {
        value: compare(a.iter().sum::<f64>() / n, b.iter().sum::<f64>() / n),
        low: at(0.025),
        high: at(0.975),
    }
}

/// The mean of each query over several runs (seeds) of one system.
pub fn over_runs(runs: &[Vec<f64>]) -> Vec<f64> {
    let queries = runs.first().map_or(0, Vec::len);
    (0..queries)
        .map(|query| runs.iter().map(|run| run[query]).sum::<f64>() / runs.len() as f64)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_as_wide_as_the_standard_error_says() {
        // Differences of 1 with probability 0.3, else 0: standard error sqrt(0.21 / 1000) = 0.0145.
        let mut random = Random::new(1, "test", 0);
        let a: Vec<f64> = (0..1000)
            .map(|_| f64::from(u8::from(random.unit() < 0.3)))
            .collect();
        let b = vec![0.0; 1000];
        let found = difference(&a, &b, 2000, 7);
        let width = (found.high - found.low) / 2.0 / 1.96;
        assert!((width - 0.0145).abs() < 0.002, "{found:?}");
        assert!(found.low < found.value && found.value < found.high);
    }

    #[test]
    fn pairing_cancels_what_queries_share() {
        let mut random = Random::new(2, "test", 0);
        let b: Vec<f64> = (0..500).map(|_| random.unit()).collect();
        let a: Vec<f64> = b.iter().map(|x| x * 1.1).collect();
        let found = ratio(&a, &b, 500, 7);
        assert!(
            (found.low - 1.1).abs() < 1e-9 && (found.high - 1.1).abs() < 1e-9,
            "{found:?}"
        );
    }

    #[test]
    fn runs_are_averaged_query_by_query() {
        assert_eq!(over_runs(&[vec![1.0, 0.0], vec![0.0, 0.0]]), [0.5, 0.0]);
    }
}
