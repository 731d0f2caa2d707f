//! Which of a peer's settings counts: its best recall, and the fastest among those that are as good.

/// One setting, tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    /// Recall against the exact top.
    pub recall: f64,
    /// Queries a CPU second, one at a time.
    pub speed: f64,
}

/// Recalls that differ by less are the same to a user.
pub const TOLERANCE: f64 = 0.01;

/// The number of the setting that counts; none if nothing was tried.
pub fn best(tried: &[Tried]) -> Option<usize> {
    let most = tried
        .iter()
        .map(|t| t.recall)
        .fold(f64::NEG_INFINITY, f64::max);
    tried
        .iter()
        .enumerate()
        .filter(|(_, t)| t.recall >= most - TOLERANCE)
        .max_by(|(_, a), (_, b)| a.speed.total_cmp(&b.speed))
        .map(|(n, _)| n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(recall: f64, speed: f64) -> Tried {
        Tried { recall, speed }
    }

    #[test]
    fn the_fastest_of_those_that_find_as_much_counts() {
        let settings = [
            tried(0.50, 900.0),
            tried(0.981, 100.0),
            tried(0.985, 80.0),
            tried(0.979, 300.0),
            tried(0.96, 5000.0),
        ];
        assert_eq!(best(&settings), Some(3));
    }

    #[test]
    fn a_faster_setting_that_finds_less_does_not_count() {
        assert_eq!(best(&[tried(0.9, 1.0), tried(0.8, 1e9)]), Some(0));
        assert_eq!(best(&[tried(0.9, 1.0)]), Some(0));
        assert_eq!(best(&[]), None);
    }
}
