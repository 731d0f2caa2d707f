//! Live rows by number: 0, 1, 2 ... in the order of a snapshot.

use crate::ids::RowId;
use crate::scan::Found;
use crate::snapshot::Place;
use crate::view::searchable::Searchable;

/// The numbers of the live rows of some parts.
pub(super) struct Numbers(Vec<Part>);

struct Part {
    /// The number of its first live row.
    first: u32,
    living: u32,
    /// Set if some rows are dead.
    dead: Option<Dead>,
}

struct Dead {
    /// One bit per row, set if the row is live.
    live: Vec<u64>,
    /// The number of live rows before each word of `live`.
    before: Vec<u32>,
}

impl Numbers {
    /// Numbers the live rows from `first` on.
    ///
    /// Requires: `Questions::find` has checked that a `u32` counts all rows.
    pub(super) fn of<P: Searchable>(parts: &[P], first: u32) -> Self {
        let mut next = first;
        let numbered = parts.iter().map(|part| {
            let dead = part.live().map(Dead::of);
            let living = match &dead {
                Some(dead) => dead.living(),
                None => part.len() as u32,
            };
            let first = next;
            next += living;
            Part {
                first,
                living,
                dead,
            }
        });
        Self(numbered.collect())
    }

    /// Returns the number of live rows.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|part| part.living as usize).sum()
    }

    /// Returns the number of a live row.
    pub(super) fn number(&self, found: &Found) -> u32 {
        let part = &self.0[found.source as usize];
        part.first
            + match &part.dead {
                Some(dead) => dead.rank(found.row),
                None => found.row,
            }
    }

    /// Returns the place of the row with this number.
    ///
    /// Requires: there is such a row.
    pub(super) fn place(&self, number: u32) -> Place {
        let at = self.0.partition_point(|part| part.first <= number);
        // A part without live rows begins at the same number as the next one.
        let part = (self.0[..at].iter().enumerate().rev())
            .find(|(_, part)| part.living > 0)
            .map(|(at, _)| at)
            .expect("the number belongs to a row");
        let within = number - self.0[part].first;
        let row = match &self.0[part].dead {
            Some(dead) => dead.select(within),
            None => within,
        };
        Place {
            part,
            row: RowId(row),
        }
    }
}

impl Dead {
    fn of(live: &[u64]) -> Self {
        let mut next = 0;
        let before = live.iter().map(|word| {
            let before = next;
            next += word.count_ones();
            before
        });
        Self {
            before: before.collect(),
            live: live.to_vec(),
        }
    }

    fn living(&self) -> u32 {
        match (self.before.last(), self.live.last()) {
            (Some(before), Some(word)) => before + word.count_ones(),
            _ => 0,
        }
    }

    /// Returns the number of live rows before this one.
    fn rank(&self, row: u32) -> u32 {
        let (word, bit) = (row as usize / 64, row % 64);
        self.before[word] + (self.live[word] & ((1 << bit) - 1)).count_ones()
    }

    /// Returns the row that is preceded by this many live rows.
    fn select(&self, rank: u32) -> u32 {
        let word = self.before.partition_point(|before| *before <= rank) - 1;
        let mut bits = self.live[word];
        for _ in self.before[word]..rank {
            bits &= bits - 1;
        }
        word as u32 * 64 + bits.trailing_zeros()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;
    use crate::ids::Seq;
    use crate::kernel::random::Random;
    use crate::stored::StoredRef;
    use std::ops::Range;

    struct Bits(Option<Vec<u64>>, usize);

    impl Searchable for Bits {
        fn len(&self) -> usize {
            self.1
        }
        fn live(&self) -> Option<&[u64]> {
            self.0.as_deref()
        }
        fn blocks(&self, _: Range<usize>) -> Result<&[u8]> {
            panic!("no codes")
        }
        fn prefetch(&self, _: &[u32]) {}
        fn vectors(&self, _: Range<usize>) -> Result<StoredRef<'_>> {
            panic!("no vectors")
        }
        fn seq(&self, row: RowId) -> Result<Seq> {
            Ok(Seq(u64::from(row.0)))
        }
    }

    #[test]
    fn rows_and_numbers_convert_both_ways_with_dead_rows() {
        let mut random = Random::new(1);
        let mut some = |rows: usize, share: f64| {
            let mut words = vec![0_u64; rows.div_ceil(64)];
            (0..rows)
                .filter(|_| random.unit() < share)
                .for_each(|row| words[row / 64] |= 1 << (row % 64));
            Bits(Some(words), rows)
        };
        let parts = [
            some(0, 1.0),
            some(200, 0.0),
            Bits(None, 70),
            some(300, 0.3),
            some(64, 0.0),
            some(130, 0.9),
        ];
        let numbers = Numbers::of(&parts, 5);
        let mut next = 5;
        for (source, part) in parts.iter().enumerate() {
            for row in 0..part.len() {
                let lives = (part.live()).is_none_or(|live| live[row / 64] >> (row % 64) & 1 == 1);
                if !lives {
                    continue;
                }
                let found = Found {
                    score: 0.0,
                    source: source as u32,
                    row: row as u32,
                };
                assert_eq!(numbers.number(&found), next);
                let place = numbers.place(next);
                assert_eq!((place.part, place.row), (source, RowId(row as u32)));
                next += 1;
            }
        }
        assert!(next > 200, "{next}");
    }
}
