//! Live rows of a segment or a run: one bit per row, shared between snapshots until one changes it.

use crate::ids::RowId;
use std::sync::Arc;

/// The live rows of a segment or a run. Cheap to clone; a change copies.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    rows: u32,
    dead: u32,
    /// A word for 64 rows, a set bit is a live row; bits past the last row are clear. None: all are alive.
    words: Option<Arc<Vec<u64>>>,
}

impl Live {
    /// Returns the set of all rows.
    pub(crate) fn all(rows: u32) -> Self {
        Self {
            rows,
            dead: 0,
            words: None,
        }
    }

    /// Returns the set of rows whose bit in `dead` is not set.
    pub(crate) fn without(rows: u32, dead: &[u64]) -> Self {
        let mut words = full(rows);
        for (word, dead) in words.iter_mut().zip(dead) {
            *word &= !dead;
        }
        let alive: u32 = words.iter().map(|w| w.count_ones()).sum();
        Self {
            rows,
            dead: rows - alive,
            words: Some(Arc::new(words)),
        }
    }

    /// Returns the number of rows, including dead ones.
    pub(crate) fn row_count(&self) -> u32 {
        self.rows
    }

    /// Returns the number of dead rows.
    pub(crate) fn dead(&self) -> u32 {
        self.dead
    }

    /// Returns the number of live rows.
    pub(crate) fn alive(&self) -> u32 {
        self.rows - self.dead
    }

    /// Returns `true` if this row is alive.
    pub(crate) fn contains(&self, row: RowId) -> bool {
        match &self.words {
            None => row.0 < self.rows,
            Some(words) => words
                .get(row.0 as usize / 64)
                .is_some_and(|word| word >> (row.0 % 64) & 1 == 1),
        }
    }

    /// Marks a row dead. Returns `true` if it was live.
    pub(crate) fn kill(&mut self, row: RowId) -> bool {
        if !self.contains(row) {
            return false;
        }
        let words = self.words.get_or_insert_with(|| Arc::new(full(self.rows)));
        Arc::make_mut(words)[row.0 as usize / 64] &= !(1 << (row.0 % 64));
        self.dead += 1;
        true
    }

    /// Returns the words, if any row is dead.
    pub(crate) fn words(&self) -> Option<&[u64]> {
        self.words.as_ref().map(|words| words.as_slice())
    }

    /// Returns a bit for each live row.
    pub(crate) fn to_words(&self) -> Vec<u64> {
        match self.words() {
            Some(words) => words.to_vec(),
            None => full(self.rows),
        }
    }

    /// Returns the live rows, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = RowId> + '_ {
        (0..self.rows)
            .map(RowId)
            .filter(|&row| self.words.is_none() || self.contains(row))
    }

    /// Returns the dead rows, in order.
    pub(crate) fn dead_rows(&self) -> impl Iterator<Item = RowId> + '_ {
        let rows = if self.dead == 0 { 0 } else { self.rows };
        (0..rows).map(RowId).filter(|&row| !self.contains(row))
    }
}

fn full(rows: u32) -> Vec<u64> {
    let mut words = vec![u64::MAX; rows.div_ceil(64) as usize];
    if !rows.is_multiple_of(64) {
        words[rows as usize / 64] = (1 << (rows % 64)) - 1;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_row_is_dead_in_the_copy_that_changed_and_alive_in_the_other() {
        for rows in [1, 63, 64, 65, 200] {
            let before = Live::all(rows);
            let mut after = before.clone();
            assert!(after.kill(RowId(rows - 1)));
            assert!(!after.kill(RowId(rows - 1)), "killed once");
            assert!(!after.kill(RowId(rows)), "there is no such row");
            assert!(before.contains(RowId(rows - 1)) && !after.contains(RowId(rows - 1)));
            assert_eq!((after.dead(), after.alive()), (1, rows - 1));
            assert_eq!(after.iter().count(), rows as usize - 1);
            assert_eq!(after.dead_rows().collect::<Vec<_>>(), [RowId(rows - 1)]);
            let again = Live::without(
                rows,
                &after.dead_rows().fold(vec![0; 4], |mut words, row| {
                    words[row.0 as usize / 64] |= 1 << (row.0 % 64);
                    words
                }),
            );
            assert_eq!(again.words(), after.words());
        }
    }
}
