//! The best rows seen so far.
//!
//! Rows are collected and now and then partitioned, which costs less than a heap when many arrive. Ties go to
//! the lower row within a source; across sources only the caller can tell, so rows that tie with the k-th
//! best are all kept, up to k a source.

use std::cmp::Ordering;

/// A row found by a scan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// Larger is better. Never NaN, never -0.
    pub score: f32,
    /// Index into the sources that were given.
    pub source: u32,
    /// Row of that source.
    pub row: u32,
}

/// Best first; ties by source and row.
fn best_first(a: &Found, b: &Found) -> Ordering {
    b.score
        .total_cmp(&a.score)
        .then(a.source.cmp(&b.source))
        .then(a.row.cmp(&b.row))
}

/// Collects what one thread finds for one query. Rows of a source are offered in ascending order.
#[derive(Debug)]
pub(super) struct TopK {
    k: usize,
    found: Vec<Found>,
    /// When `found` grows to this, it is cut down.
    full: usize,
    /// k rows are known to score at least this.
    threshold: f32,
    source: u32,
    /// Rows that score less can't be in the answer.
    cutoff: f32,
}

impl TopK {
    pub(super) fn new(k: usize) -> Self {
        Self {
            k,
            found: Vec::new(),
            full: full(k, 0),
            threshold: f32::NEG_INFINITY,
            source: 0,
            cutoff: f32::NEG_INFINITY,
        }
    }

    /// The least score that a row of the current source needs.
    #[inline]
    pub(super) fn cutoff(&self) -> f32 {
        self.cutoff
    }

    /// The score that k rows are known to reach.
    pub(super) fn threshold(&self) -> f32 {
        self.threshold
    }

    /// From here on rows are of this source, and k rows somewhere are known to reach `threshold`.
    pub(super) fn enter(&mut self, source: u32, threshold: f32) {
        if threshold > self.threshold {
            self.threshold = threshold;
        }
        self.source = source;
        self.set_cutoff();
    }

    /// Takes a row whose score reaches the cutoff.
    #[inline]
    pub(super) fn push(&mut self, score: f32, row: u32) {
        debug_assert!(score >= self.cutoff);
        self.found.push(Found {
            score,
            source: self.source,
            row,
        });
        if self.found.len() >= self.full {
            self.cut();
        }
    }

    #[cold]
    fn cut(&mut self) {
        if let Some(kth) = keep_best(&mut self.found, self.k) {
            self.threshold = self.threshold.max(kth);
        }
        let threshold = self.threshold;
        self.found.retain(|f| f.score >= threshold);
        self.full = full(self.k, self.found.len());
        self.set_cutoff();
    }

    fn set_cutoff(&mut self) {
        // Once k rows of this source reach the threshold, a later one that only equals it has lost the tie.
        let of_source = self
            .found
            .iter()
            .filter(|f| f.source == self.source && f.score >= self.threshold)
            .count();
        self.cutoff = if of_source >= self.k {
            self.threshold.next_up()
        } else {
            self.threshold
        };
    }

    pub(super) fn into_found(self) -> Vec<Found> {
        self.found
    }
}

fn full(k: usize, kept: usize) -> usize {
    (2 * k.max(kept)).max(16)
}

/// Keeps the k best of each source that also reach the k-th best score of all, and returns that score if there
/// are as many.
fn keep_best(found: &mut Vec<Found>, k: usize) -> Option<f32> {
    if found.len() < k {
        return None;
    }
    let (_, kth, _) = found.select_nth_unstable_by(k - 1, best_first);
    let kth = kth.score;
    found.retain(|f| f.score >= kth);
    if found.len() > k {
        // Ties with the k-th: at most k a source, the lowest rows.
        found.sort_unstable_by(|a, b| a.source.cmp(&b.source).then(best_first(a, b)));
        let (mut source, mut taken) = (None, 0);
        found.retain(|f| {
            if source != Some(f.source) {
                (source, taken) = (Some(f.source), 0);
            }
            taken += 1;
            taken <= k
        });
    }
    Some(kth)
}

/// Puts together what several threads found for one query, best first. Holds every row that can be among the
/// k best, however the caller breaks ties between sources: up to k a source.
pub(super) fn merge(parts: impl IntoIterator<Item = TopK>, k: usize) -> Vec<Found> {
    let mut found: Vec<Found> = parts.into_iter().flat_map(TopK::into_found).collect();
    keep_best(&mut found, k);
    found.sort_unstable_by(best_first);
    found
}

/// A threshold that threads share: it only rises.
#[derive(Debug)]
pub(super) struct SharedThreshold(std::sync::atomic::AtomicI32);

impl SharedThreshold {
    pub(super) fn new(from: f32) -> Self {
        Self(std::sync::atomic::AtomicI32::new(ordered(from)))
    }

    /// k rows were found that reach this.
    pub(super) fn raise(&self, threshold: f32) {
        // Relaxed: the number alone matters, and a late view of it only costs time.
        self.0
            .fetch_max(ordered(threshold), std::sync::atomic::Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> f32 {
        unordered(self.0.load(std::sync::atomic::Ordering::Relaxed))
    }
}

/// An integer with the order of the floats.
fn ordered(x: f32) -> i32 {
    let bits = x.to_bits() as i32;
    bits ^ (((bits >> 31) as u32) >> 1) as i32
}

fn unordered(x: i32) -> f32 {
    f32::from_bits((x ^ (((x >> 31) as u32) >> 1) as i32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_the_order_of_floats() {
        let floats = [
            f32::NEG_INFINITY,
            f32::MIN,
            -1.0,
            -1e-45,
            0.0,
            1e-45,
            1.0,
            f32::MAX,
            f32::INFINITY,
        ];
        for pair in floats.windows(2) {
            assert!(ordered(pair[0]) < ordered(pair[1]), "{pair:?}");
            assert_eq!(unordered(ordered(pair[0])), pair[0]);
        }
    }

    #[test]
    fn ties_with_the_kth_are_kept_up_to_k_a_source() {
        let mut top = TopK::new(2);
        for source in 0..3 {
            top.enter(source, f32::NEG_INFINITY);
            for row in 0..1000 {
                if 1.0 >= top.cutoff() {
                    top.push(1.0, row);
                }
            }
        }
        let found = merge([top], 2);
        let rows: Vec<_> = found.iter().map(|f| (f.source, f.row)).collect();
        assert_eq!(rows, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]);
    }
}
