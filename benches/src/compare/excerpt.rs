//! As much of a set as there is time to encode, if that is not all of it: a text costs by its length, and all of `wiki` took a
//! Xeon's two cores 35 minutes.

use super::set::{Pairs, Questions, Set};

/// Validation queries that learning is stopped by.
pub const VALID: usize = 2_000;

/// Bytes of text.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// For the keys.
    pub keys: usize,
    /// For the training queries.
    pub queries: usize,
}

/// The set itself where there is room for all of it. Else the keys that are right for the first `asked` test queries and for
/// the validation queries, then the first others, and of the pairs those whose keys are among them.
pub fn of(mut set: Set, room: Room, asked: usize) -> Set {
    if bytes(&set.keys) > room.keys {
        let kept = kept(&set, room.keys, asked);
        let mut rows = vec![None; set.keys.len()];
        let numbers = (0..rows.len()).filter(|&row| kept[row]).zip(0..);
        numbers.for_each(|(row, number)| rows[row] = Some(number));
        set = Set {
            keys: only(set.keys, |row| kept[row]),
            train: set.train.of_rows(&rows),
            valid: set.valid.first(VALID).of_rows(&rows),
            test: first(set.test, asked, &rows),
            all_keys: set.all_keys,
            all_pairs: set.all_pairs,
        };
    }
    let lengths = set.train.queries.iter().map(String::len);
    let sums = lengths.scan(0, |sum, length| {
        *sum += length;
        Some(*sum)
    });
    let most = sums.take_while(|sum| *sum <= room.queries).count();
    set.train = set.train.first(most);
    set
}

fn bytes(texts: &[String]) -> usize {
    texts.iter().map(String::len).sum()
}

fn kept(set: &Set, room: usize, asked: usize) -> Vec<bool> {
    let mut kept = vec![false; set.keys.len()];
    let right = set.test.right.iter().take(asked).flatten().copied();
    let own = set.test.own.iter().take(asked).flatten().copied();
    let valid = set.valid.first(VALID).pairs;
    for row in right.chain(own).chain(valid.iter().map(|pair| pair.1)) {
        kept[row as usize] = true;
    }
    let needed = (0..kept.len()).filter(|&row| kept[row]);
    let needed: usize = needed.map(|row| set.keys[row].len()).sum();
    let mut left = room.saturating_sub(needed);
    for (kept, key) in kept.iter_mut().zip(&set.keys).filter(|(kept, _)| !**kept) {
        if key.len() > left {
            break;
        }
        left -= key.len();
        *kept = true;
    }
    kept
}

fn only<T>(all: Vec<T>, wanted: impl Fn(usize) -> bool) -> Vec<T> {
    let numbered = all.into_iter().enumerate();
    numbered
        .filter(|(n, _)| wanted(*n))
        .map(|(_, one)| one)
        .collect()
}

/// The first queries, all of whose right keys are among the rows.
fn first(test: Questions, asked: usize, rows: &[Option<u32>]) -> Questions {
    let row = |row: u32| rows[row as usize];
    let right = test.right.into_iter().take(asked);
    let own = test.own.into_iter().take(asked);
    Questions {
        queries: test.queries.into_iter().take(asked).collect(),
        right: right
            .map(|right| right.into_iter().filter_map(row).collect())
            .collect(),
        own: own.map(|own| own.and_then(row)).collect(),
    }
}

impl Pairs {
    /// Pairs whose keys have a new row, with their queries.
    fn of_rows(&self, rows: &[Option<u32>]) -> Self {
        let mut numbers = vec![None; self.queries.len()];
        let mut kept = Self::default();
        for &(query, row) in &self.pairs {
            let Some(row) = rows[row as usize] else {
                continue;
            };
            let number = *numbers[query as usize].get_or_insert_with(|| {
                kept.queries.push(self.queries[query as usize].clone());
                kept.queries.len() as u32 - 1
            });
            kept.pairs.push((number, row));
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> Set {
        let pairs = |of: &[(&str, u32)]| Pairs {
            queries: of.iter().map(|(query, _)| (*query).into()).collect(),
            pairs: of.iter().zip(0..).map(|((_, row), n)| (n, *row)).collect(),
        };
        Set {
            keys: ["aaaa", "bbbb", "cccc", "dddd", "eeee", "ffff"]
                .map(String::from)
                .to_vec(),
            train: pairs(&[("t0", 0), ("t1", 1), ("t4", 4), ("t2", 2)]),
            valid: pairs(&[("v", 4)]),
            test: Questions {
                queries: ["q", "r"].map(String::from).to_vec(),
                right: vec![vec![5], vec![3]],
                own: vec![None, Some(1)],
            },
            all_keys: 6,
            all_pairs: 4,
        }
    }

    #[test]
    fn what_fits_is_left_as_it_is() {
        let room = Room {
            keys: 24,
            queries: 8,
        };
        let whole = of(set(), room, 1);
        assert_eq!(whole.keys, set().keys);
        assert_eq!(whole.train, set().train);
        assert_eq!(whole.test.queries, ["q", "r"]);
    }

    #[test]
    fn right_keys_stay_then_the_first_others_and_pairs_follow_their_keys() {
        let room = Room {
            keys: 16,
            queries: 4,
        };
        let some = of(set(), room, 1);
        assert_eq!(some.keys, ["aaaa", "bbbb", "eeee", "ffff"]);
        assert_eq!(some.test.queries, ["q"]);
        assert_eq!(some.test.right, [[3]]);
        assert_eq!(some.valid.pairs, [(0, 2)]);
        // Of the three that have their keys, as many as there is room for.
        assert_eq!(some.train.queries, ["t0", "t1"]);
        assert_eq!(some.train.pairs, [(0, 0), (1, 1)]);
        assert_eq!((some.all_keys, some.all_pairs), (6, 4));
        let room = Room {
            keys: 16,
            queries: 6,
        };
        assert_eq!(of(set(), room, 1).train.pairs, [(0, 0), (1, 1), (2, 2)]);
    }
}
