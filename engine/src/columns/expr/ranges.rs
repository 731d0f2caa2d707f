//! Sets of integers.

use super::ast::Compare;
use super::number::Place;

/// A set of integers, as inclusive ranges that ascend and do not touch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ranges(Vec<(i64, i64)>);

impl Ranges {
    /// Returns the set of all integers in any of the ranges.
    pub(crate) fn new(mut ranges: Vec<(i64, i64)>) -> Self {
        ranges.retain(|(low, high)| low <= high);
        ranges.sort_unstable();
        let mut joined: Vec<(i64, i64)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match joined.last_mut() {
                Some((_, end)) if low <= end.saturating_add(1) => *end = (*end).max(high),
                _ => joined.push((low, high)),
            }
        }
        Self(joined)
    }

    /// Returns the integers for which a comparison with a place holds.
    pub(super) fn compared(compare: Compare, place: Place) -> Self {
        let Place { floor, exact } = place;
        let (min, max) = (i128::from(i64::MIN), i128::from(i64::MAX));
        let between = |low: i128, high: i128| {
            let (low, high) = (low.clamp(min, max + 1), high.clamp(min - 1, max));
            let some = (low <= high).then_some((low as i64, high as i64));
            Self(some.into_iter().collect())
        };
        let equal = || match exact {
            true => between(floor, floor),
            false => between(1, 0),
        };
        match compare {
            Compare::Equal => equal(),
            Compare::NotEqual => equal().complement(),
            Compare::Less => between(min, if exact { floor - 1 } else { floor }),
            Compare::LessOrEqual => between(min, floor),
            Compare::Greater => between(floor + 1, max),
            Compare::GreaterOrEqual => between(if exact { floor } else { floor + 1 }, max),
        }
    }

    /// Returns the ranges.
    pub(crate) fn as_slice(&self) -> &[(i64, i64)] {
        &self.0
    }

    /// Returns `true` if the set contains this integer.
    #[inline]
    pub(crate) fn contains(&self, value: i64) -> bool {
        let at = self.0.partition_point(|&(_, high)| high < value);
        self.0.get(at).is_some_and(|&(low, _)| low <= value)
    }

    /// Returns `true` if the set contains no integer from `low` to `high`.
    pub(crate) fn misses(&self, low: i64, high: i64) -> bool {
        let at = self.0.partition_point(|&(_, end)| end < low);
        self.0.get(at).is_none_or(|&(start, _)| start > high)
    }

    /// Returns `true` if the set contains all integers from `low` to `high`.
    pub(crate) fn covers(&self, low: i64, high: i64) -> bool {
        let at = self.0.partition_point(|&(_, end)| end < low);
        (self.0.get(at)).is_some_and(|&(start, end)| start <= low && high <= end)
    }

    /// Returns the integers that are not in the set.
    pub(crate) fn complement(&self) -> Self {
        let mut others = Vec::with_capacity(self.0.len() + 1);
        let mut next = Some(i64::MIN);
        for &(low, high) in &self.0 {
            if let (Some(next), Some(before)) = (next, low.checked_sub(1)) {
                others.push((next, before));
            }
            next = high.checked_add(1);
        }
        others.extend(next.map(|next| (next, i64::MAX)));
        Self::new(others)
    }

    /// Returns the integers in either set.
    pub(crate) fn union(&self, other: &Self) -> Self {
        Self::new([&self.0[..], &other.0].concat())
    }

    /// Returns the integers in both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let either = self.complement().union(&other.complement());
        either.complement()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_agree_with_their_members() {
        let ends = [
            i64::MIN,
            i64::MIN + 1,
            -3,
            -1,
            0,
            1,
            2,
            5,
            i64::MAX - 1,
            i64::MAX,
        ];
        let mut sets = vec![Ranges::new(vec![])];
        for (at, &low) in ends.iter().enumerate() {
            for &high in &ends[at..] {
                sets.push(Ranges::new(vec![(low, high)]));
                sets.push(Ranges::new(vec![(low, low), (high, high), (2, 1)]));
            }
        }
        for a in &sets {
            assert_eq!(&a.complement().complement(), a);
            let touching = |pair: &[(i64, i64)]| pair[0].1.saturating_add(1) >= pair[1].0;
            assert!(!a.as_slice().windows(2).any(touching), "{a:?}");
            for b in &sets {
                let (either, both) = (a.union(b), a.intersection(b));
                for value in ends {
                    let (in_a, in_b) = (a.contains(value), b.contains(value));
                    assert_eq!(either.contains(value), in_a || in_b);
                    assert_eq!(both.contains(value), in_a && in_b);
                    assert_eq!(a.complement().contains(value), !in_a);
                }
            }
            for (at, &low) in ends.iter().enumerate() {
                assert_eq!(a.misses(low, low), !a.contains(low));
                for &high in &ends[at..] {
                    let asked = Ranges::new(vec![(low, high)]);
                    assert_eq!(a.misses(low, high), a.intersection(&asked).0.is_empty());
                    assert_eq!(a.covers(low, high), a.intersection(&asked) == asked);
                }
            }
        }
    }
}
