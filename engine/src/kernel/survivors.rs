//! The rows that a filter does not exclude.

use super::block::ROWS_PER_BLOCK;

/// Blocks with rows that a filter can't drop, in ascending order, and which rows those are.
///
/// Blocks without any are left out by the loops that read codes, since these wait for memory and have the time.
#[derive(Debug, Default)]
pub(crate) struct Survivors {
    /// Has capacity for all blocks examined; the first `count` of both are those with rows.
    blocks: Vec<u16>,
    masks: Vec<u64>,
    count: usize,
}

impl Survivors {
    /// Clears the list for `blocks` blocks; a `u16` must count their rows.
    pub(super) fn clear(&mut self, blocks: usize) {
        assert!(blocks <= (1 << 16) / ROWS_PER_BLOCK);
        self.count = 0;
        if self.blocks.len() < blocks {
            self.blocks.resize(blocks, 0);
            self.masks.resize(blocks, 0);
        }
    }

    /// Adds a block, if any of its rows is there. Requires: at most as many calls as the capacity.
    #[inline(always)]
    pub(super) fn push(&mut self, block: usize, mask: u64) {
        // Without a branch: which blocks have rows can't be foreseen.
        self.blocks[self.count] = block as u16;
        self.masks[self.count] = mask;
        self.count += usize::from(mask != 0);
    }

    /// Returns two lists that are filled independently: for the first `first` blocks and for the others.
    /// [`join`](Self::join) combines them.
    #[inline(always)]
    pub(super) fn halves(&mut self, first: usize) -> [Half<'_>; 2] {
        let (low, high) = self.blocks.split_at_mut(first);
        let (low_masks, high_masks) = self.masks.split_at_mut(first);
        [(low, low_masks, 0), (high, high_masks, first)].map(|(blocks, masks, first)| Half {
            blocks,
            masks,
            first,
            count: 0,
        })
    }

    /// Joins two lists that have these numbers of blocks; the second begins after the capacity of the
    /// first.
    #[inline(always)]
    pub(super) fn join(&mut self, first: usize, counts: [usize; 2]) {
        let [low, high] = counts;
        self.blocks.copy_within(first..first + high, low);
        self.masks.copy_within(first..first + high, low);
        self.count = low + high;
    }

    /// Begins a second look at the blocks that are listed, and returns how many they are: each is to be pushed again, in order,
    /// with the rows that it has left.
    #[inline(always)]
    pub(super) fn look_again(&mut self) -> usize {
        std::mem::take(&mut self.count)
    }

    /// Returns the block of that number among those that were listed when the second look began. Requires: it was not
    /// yet pushed again.
    #[inline(always)]
    pub(super) fn listed(&self, number: usize) -> usize {
        usize::from(self.blocks[number])
    }

    /// Returns how many blocks are listed.
    pub(crate) fn blocks(&self) -> usize {
        self.count
    }

    /// Returns how many rows there are.
    pub(crate) fn len(&self) -> usize {
        let masks = &self.masks[..self.count];
        masks.iter().map(|mask| mask.count_ones() as usize).sum()
    }

    /// Leaves of each block the rows that `keep` has.
    pub(crate) fn retain(&mut self, keep: impl Fn(usize) -> u64) {
        for (block, mask) in self.blocks.iter().zip(&mut self.masks[..self.count]) {
            *mask &= keep(usize::from(*block));
        }
    }

    /// The rows, counted through all blocks, in ascending order.
    pub(crate) fn list_rows(&self, rows: &mut Vec<u16>) {
        rows.clear();
        for (block, &mask) in self.blocks.iter().zip(&self.masks[..self.count]) {
            let first = block * ROWS_PER_BLOCK as u16;
            let mut bits = mask;
            while bits != 0 {
                rows.push(first + bits.trailing_zeros() as u16);
                bits &= bits - 1;
            }
        }
    }

    /// Returns the mask of each of the first `blocks` blocks.
    #[cfg(test)]
    pub(super) fn masks(&self, blocks: usize) -> Vec<u64> {
        let mut masks = vec![0; blocks];
        for (block, &mask) in self.blocks.iter().zip(&self.masks[..self.count]) {
            masks[usize::from(*block)] = mask;
        }
        masks
    }
}

/// A list that is being filled.
pub(super) struct Half<'a> {
    blocks: &'a mut [u16],
    masks: &'a mut [u64],
    first: usize,
    pub(super) count: usize,
}

impl Half<'_> {
    /// As [`Survivors::push`], of the list's own blocks.
    #[inline(always)]
    pub(super) fn push(&mut self, block: usize, mask: u64) {
        self.blocks[self.count] = (self.first + block) as u16;
        self.masks[self.count] = mask;
        self.count += usize::from(mask != 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;

    #[test]
    fn every_row_is_listed_in_order() {
        let mut random = Random::new(3);
        let (mut survivors, mut rows) = (Survivors::default(), Vec::new());
        for (blocks, shared) in [(0, 1), (1, 1), (15, 2), (17, 9), (300, 40), (1024, 1)] {
            // Each mask is a product of so many random ones: from half of its bits set to hardly any.
            let mut mask = || (0..shared).fold(u64::MAX, |all, _| all & random.next());
            let masks: Vec<u64> = (0..blocks).map(|_| mask()).collect();
            let kept: Vec<u64> = (0..blocks).map(|_| mask()).collect();
            survivors.clear(blocks);
            for (block, &mask) in masks.iter().enumerate() {
                survivors.push(block, mask);
            }
            assert_eq!(survivors.masks(blocks), masks);
            // Side by side they are the same.
            survivors.clear(blocks);
            let middle = blocks / 2;
            let mut halves = survivors.halves(middle);
            let (low, high) = masks.split_at(middle);
            for (half, masks) in halves.iter_mut().zip([low, high]) {
                for (block, &mask) in masks.iter().enumerate() {
                    half.push(block, mask);
                }
            }
            let counts = halves.map(|half| half.count);
            survivors.join(middle, counts);
            assert_eq!(survivors.masks(blocks), masks);
            for retained in [false, true] {
                if retained {
                    survivors.retain(|block| kept[block]);
                }
                let is_set = |row: &usize| {
                    let mask = masks[row / 64] & if retained { kept[row / 64] } else { u64::MAX };
                    mask >> (row % 64) & 1 == 1
                };
                let expected = (0..blocks * 64).filter(is_set).map(|row| row as u16);
                survivors.list_rows(&mut rows);
                assert_eq!(rows, expected.collect::<Vec<_>>());
                assert_eq!(survivors.len(), rows.len());
            }
        }
    }
}
