//! The rank of a right row, with ties.

/// The rank of a right row: how many rows score higher, and how many the same (including itself).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The number of rows that score higher. Beyond the evaluated depth it is a lower bound.
    pub greater: u64,
    /// The number of rows that score the same, including this one.
    pub equal: u64,
}

impl Place {
    /// Returns the probability that the row is within the first k, if ties are broken at random.
    pub fn within(self, k: usize) -> f64 {
        ((k as f64 - self.greater as f64) / self.equal.max(1) as f64).clamp(0.0, 1.0)
    }

    /// Returns `true` if the row is within the first k when it wins every tie.
    pub fn at_best(self, k: usize) -> bool {
        self.greater < k as u64
    }

    /// Returns `true` if the row is within the first k when it loses every tie.
    pub fn at_worst(self, k: usize) -> bool {
        self.greater.saturating_add(self.equal.max(1)) <= k as u64
    }
}

/// The places of each question's right rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Places(pub Vec<Vec<Place>>);

impl Places {
    /// Returns, for each question, the share of its right rows within the first k.
    pub fn recalls(&self, k: usize) -> Vec<f64> {
        self.share(|place| place.within(k))
    }

    /// Returns recall@k: the mean over questions.
    pub fn recall(&self, k: usize) -> f64 {
        mean(&self.recalls(k))
    }

    /// Returns recall@k if right rows lose every tie, and if they win every tie. The true value lies between.
    pub fn bounds(&self, k: usize) -> (f64, f64) {
        let worst = self.share(|place| f64::from(u8::from(place.at_worst(k))));
        let best = self.share(|place| f64::from(u8::from(place.at_best(k))));
        (mean(&worst), mean(&best))
    }

    fn share(&self, of: impl Fn(Place) -> f64) -> Vec<f64> {
        let share = |places: &Vec<Place>| {
            places.iter().map(|place| of(*place)).sum::<f64>() / places.len().max(1) as f64
        };
        self.0.iter().map(share).collect()
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
