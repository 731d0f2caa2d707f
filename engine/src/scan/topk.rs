//! The best rows seen so far.
//!
//! Rows are collected and now and then partitioned, which costs less than a heap when many arrive. Ties go to
//! the lower row within a source; across sources only the caller can tell, so rows that tie with the k-th
//! best are all kept, up to k per source.

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

/// A row as one number, by which rows are ranked: the least is the best. From the top: the score upside down, the source,
/// the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ranked(u128);

impl Ranked {
    #[inline]
    fn new(score: f32, source: u32, row: u32) -> Self {
        let place = u64::from(source) << 32 | u64::from(row);
        Self(u128::from(upside_down(score)) << 64 | u128::from(place))
    }

    /// Less is better; equal for equal scores.
    fn merit(self) -> u32 {
        (self.0 >> 64) as u32
    }

    fn source(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn found(self) -> Found {
        Found {
            score: score(self.merit()),
            source: self.source(),
            row: self.0 as u32,
        }
    }
}

/// Returns an integer in the reverse order of the floats.
#[inline]
pub(super) fn upside_down(score: f32) -> u32 {
    !(ordered(score) as u32 ^ 1 << 31)
}

/// Returns the score that it stands for.
pub(super) fn score(upside_down: u32) -> f32 {
    unordered((!upside_down ^ 1 << 31) as i32)
}

/// Collects what one thread finds for one query. Rows of a source are offered in ascending order, but by
/// [`in_any_order`](Self::in_any_order).
#[derive(Debug, Clone)]
pub(crate) struct TopK {
    k: usize,
    found: Vec<Ranked>,
    /// When `found` grows to this, it is cut down.
    full: usize,
    /// k rows are known to score at least this.
    threshold: f32,
    source: u32,
    /// Whether the rows of a source come in ascending order.
    ascending: bool,
    /// Rows that score less can't be in the answer.
    cutoff: f32,
}

impl TopK {
    pub(crate) fn new(k: usize) -> Self {
        let full = full(k, 0);
        Self {
            k,
            found: Vec::with_capacity(full.min(64)),
            full,
            threshold: f32::NEG_INFINITY,
            source: 0,
            ascending: true,
            cutoff: f32::NEG_INFINITY,
        }
    }

    /// Rows of a source may come in any order.
    pub(super) fn in_any_order(self) -> Self {
        Self {
            ascending: false,
            ..self
        }
    }

    /// Returns the least score that a row of the current source needs.
    #[inline]
    pub(crate) fn cutoff(&self) -> f32 {
        self.cutoff
    }

    /// Returns the score that k rows are known to reach.
    pub(super) fn threshold(&self) -> f32 {
        self.threshold
    }

    /// From here on rows are of this source, and k rows somewhere are known to reach `threshold`.
    pub(crate) fn enter(&mut self, source: u32, threshold: f32) {
        if threshold > self.threshold {
            self.threshold = threshold;
        } else if source == self.source {
            return;
        }
        self.source = source;
        self.set_cutoff();
    }

    /// Takes a row whose score reaches the cutoff.
    #[inline]
    pub(crate) fn push(&mut self, score: f32, row: u32) {
        debug_assert!(score >= self.cutoff);
        self.found.push(Ranked::new(score, self.source, row));
        if self.found.len() >= self.full {
            self.cut();
        }
    }

    /// Returns the k-th best score of all rows so far, if there are as many.
    pub(super) fn kth(mut self) -> Option<f32> {
        keep_best(&mut self.found, self.k)
    }

    #[cold]
    fn cut(&mut self) {
        if let Some(kth) = keep_best(&mut self.found, self.k) {
            self.threshold = self.threshold.max(kth);
        }
        let merit = upside_down(self.threshold);
        self.found.retain(|f| f.merit() <= merit);
        self.full = full(self.k, self.found.len());
        self.set_cutoff();
    }

    fn set_cutoff(&mut self) {
        if !self.ascending {
            self.cutoff = self.threshold;
            return;
        }
        // Once k rows of this source reach the threshold, a later one that only equals it has lost the tie.
        let merit = upside_down(self.threshold);
        let of_source = self
            .found
            .iter()
            .filter(|f| f.source() == self.source && f.merit() <= merit)
            .count();
        self.cutoff = if of_source >= self.k {
            self.threshold.next_up()
        } else {
            self.threshold
        };
    }
}

fn full(k: usize, kept: usize) -> usize {
    (2 * k.max(kept)).max(16)
}

/// Keeps the k best of each source that also reach the k-th best score of all, and returns that score if there
/// are as many.
fn keep_best(found: &mut Vec<Ranked>, k: usize) -> Option<f32> {
    if found.len() < k {
        return None;
    }
    let kth = found.select_nth_unstable(k - 1).1.merit();
    found.retain(|f| f.merit() <= kth);
    if found.len() > k {
        // Ties with the k-th: at most k per source, the lowest rows.
        found.sort_unstable_by_key(|f| (f.source(), *f));
        let (mut source, mut taken) = (None, 0);
        found.retain(|f| {
            if source != Some(f.source()) {
                (source, taken) = (Some(f.source()), 0);
            }
            taken += 1;
            taken <= k
        });
    }
    Some(score(kth))
}

/// Puts together what several threads found for one query, best first. Holds every row that can be among the
/// k best, however the caller breaks ties between sources: up to k per source.
pub(crate) fn merge(parts: impl IntoIterator<Item = TopK>, k: usize) -> Vec<Found> {
    let mut parts = parts.into_iter().map(|top| top.found);
    let mut found = parts.next().unwrap_or_default();
    parts.for_each(|part| found.extend(part));
    keep_best(&mut found, k);
    found.sort_unstable();
    found.into_iter().map(Ranked::found).collect()
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
            assert!(upside_down(pair[0]) > upside_down(pair[1]), "{pair:?}");
            assert_eq!(score(upside_down(pair[1])), pair[1]);
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
