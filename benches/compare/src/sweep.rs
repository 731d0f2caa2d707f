//! Chooses a peer's setting: the fastest of those whose recall is close to its best.

/// The result of trying one setting.
pub struct Tried {
    /// The recall against the exact top.
    pub recall: f64,
    /// Queries per CPU-second, one at a time.
    pub speed: f64,
}

/// Recalls that differ by less than this count as equal.
const TOLERANCE: f64 = 0.01;

/// Returns the index of the chosen setting; `None` if nothing was tried.
pub fn best(tried: &[Tried]) -> Option<usize> {
    let most = tried
        .iter()
        .map(|t| t.recall)
        .fold(f64::NEG_INFINITY, f64::max);
    let good = tried
        .iter()
        .enumerate()
        .filter(|(_, t)| t.recall >= most - TOLERANCE);
    let fastest = good.max_by(|(_, a), (_, b)| a.speed.total_cmp(&b.speed));
    fastest.map(|(n, _)| n)
}

/// Returns the median; of an even number of values, the upper one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_setting_with_nearly_the_best_recall_is_chosen() {
        let tried = |all: &[(f64, f64)]| -> Vec<Tried> {
            let each = all.iter().copied();
            each.map(|(recall, speed)| Tried { recall, speed })
                .collect()
        };
        let settings = [(0.981, 100.0), (0.985, 80.0), (0.979, 300.0), (0.96, 5e3)];
        assert_eq!(best(&tried(&settings)), Some(2));
        assert_eq!(best(&tried(&[(0.9, 1.0), (0.8, 1e9)])), Some(0));
        assert_eq!(best(&[]), None);
    }

    #[test]
    fn the_median_is_the_middle_value() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![]), 0.0);
    }
}
