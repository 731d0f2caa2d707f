//! Codes in memory, and their order by cell.

use std::ops::Range;

/// The codes of some rows, in their order; and the cell of each, where the quantizer has cells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowCodes {
    /// (rows, subspaces)
    pub codes: Vec<u8>,
    /// (rows), or none.
    pub cells: Vec<u32>,
}

impl RowCodes {
    /// Appends the codes of other rows.
    pub fn append(&mut self, more: &Self) {
        self.codes.extend_from_slice(&more.codes);
        self.cells.extend_from_slice(&more.cells);
    }

    /// Appends one row of others, whose codes have this many subspaces.
    pub(crate) fn push_row_of(&mut self, others: &Self, row: usize, subspaces: usize) {
        let codes = &others.codes[row * subspaces..(row + 1) * subspaces];
        self.codes.extend_from_slice(codes);
        self.cells.extend(others.cells.get(row));
    }

    /// Returns the codes of these rows, (n, subspaces).
    pub(crate) fn gather(&self, rows: &[u32], subspaces: usize) -> Vec<u8> {
        let mut codes = Vec::with_capacity(rows.len() * subspaces);
        for &row in rows {
            codes.extend_from_slice(&self.codes[row as usize * subspaces..][..subspaces]);
        }
        codes
    }

    /// Removes all rows.
    pub(crate) fn clear(&mut self) {
        self.codes.clear();
        self.cells.clear();
    }
}

/// Where the rows of each cell are among positions that are ordered by cell: the first position of each cell that has
/// rows, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CellStarts {
    /// Cell and first position.
    entries: Vec<(u32, u32)>,
    positions: u32,
}

impl CellStarts {
    /// Orders rows by cell, and by row within a cell. Also returns the row of each position.
    pub(crate) fn of(cells: &[u32]) -> (Self, Vec<u32>) {
        let count = cells.iter().max().map_or(0, |&most| most as usize + 1);
        let mut next = vec![0u32; count];
        for &cell in cells {
            next[cell as usize] += 1;
        }
        let mut entries = Vec::new();
        let mut first = 0;
        for (cell, next) in next.iter_mut().enumerate() {
            let rows = std::mem::replace(next, first);
            if rows > 0 {
                entries.push((cell as u32, first));
            }
            first += rows;
        }
        let mut order = vec![0; cells.len()];
        for (row, &cell) in cells.iter().enumerate() {
            let next = &mut next[cell as usize];
            order[*next as usize] = row as u32;
            *next += 1;
        }
        let positions = cells.len() as u32;
        (Self { entries, positions }, order)
    }

    /// Takes entries as they were stored; `None` unless cells and positions ascend from position 0 on, and cells are below
    /// `cells`.
    pub(crate) fn checked(entries: Vec<(u32, u32)>, positions: u32, cells: u32) -> Option<Self> {
        let ascend = entries
            .windows(2)
            .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1);
        let begins = entries.first().map_or(positions == 0, |first| first.1 == 0);
        let ends = entries
            .last()
            .is_none_or(|last| last.0 < cells && last.1 < positions);
        (ascend && begins && ends).then_some(Self { entries, positions })
    }

    /// Returns the entries: cell and first position of each cell that has rows.
    pub(crate) fn entries(&self) -> &[(u32, u32)] {
        &self.entries
    }

    /// Returns the number of cells that have rows.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the cell of an entry.
    pub(crate) fn cell(&self, entry: usize) -> u32 {
        self.entries[entry].0
    }

    /// Returns the positions of an entry's rows.
    pub(crate) fn positions(&self, entry: usize) -> Range<usize> {
        let next = self.entries.get(entry + 1);
        let end = next.map_or(self.positions, |next| next.1);
        self.entries[entry].1 as usize..end as usize
    }

    /// Returns the entry of a cell, if it has rows.
    pub(crate) fn find(&self, cell: u32) -> Option<usize> {
        self.entries
            .binary_search_by_key(&cell, |entry| entry.0)
            .ok()
    }

    /// Returns the cell of each position, in order.
    pub(crate) fn each_position(&self) -> impl Iterator<Item = u32> {
        (0..self.len()).flat_map(|entry| {
            let rows = self.positions(entry).len();
            std::iter::repeat_n(self.cell(entry), rows)
        })
    }
}

/// Rows in the order of their cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CellOrder {
    /// Cells of the quantizer.
    pub(crate) cells: u32,
    pub(crate) starts: CellStarts,
    /// The row of each position.
    pub(crate) rows: Vec<u32>,
}

impl CellOrder {
    /// Orders rows that are in these of `cells` cells.
    pub(crate) fn of(rows: &[u32], cells: u32) -> Self {
        debug_assert!(rows.iter().all(|&cell| cell < cells));
        let (starts, rows) = CellStarts::of(rows);
        Self {
            cells,
            starts,
            rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_ordered_by_cell_and_keep_their_order_within_one() {
        let (starts, order) = CellStarts::of(&[5, 2, 5, 0, 2, 5]);
        assert_eq!(starts.entries(), [(0, 0), (2, 1), (5, 3)]);
        assert_eq!(order, [3, 1, 4, 0, 2, 5]);
        assert_eq!(starts.positions(1), 1..3);
        assert_eq!(starts.positions(2), 3..6);
        assert_eq!(starts.find(5), Some(2));
        assert_eq!(starts.find(4), None);
        let cells: Vec<u32> = starts.each_position().collect();
        assert_eq!(cells, [0, 2, 2, 5, 5, 5]);
        let (none, order) = CellStarts::of(&[]);
        assert_eq!((none.len(), order.len()), (0, 0));
    }

    #[test]
    fn entries_that_do_not_ascend_are_refused() {
        let checked = |entries: &[(u32, u32)]| CellStarts::checked(entries.to_vec(), 6, 8);
        assert!(checked(&[(0, 0), (2, 1), (7, 5)]).is_some());
        for wrong in [
            &[][..],
            &[(0, 1)],
            &[(0, 0), (0, 1)],
            &[(1, 0), (0, 1)],
            &[(0, 0), (1, 0)],
            &[(0, 0), (1, 6)],
            &[(0, 0), (8, 1)],
        ] {
            assert_eq!(checked(wrong), None, "{wrong:?}");
        }
        assert!(CellStarts::checked(Vec::new(), 0, 8).is_some());
    }
}
