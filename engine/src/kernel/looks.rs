//! Scanning a block in two passes: first some of its lines, then all of them if a row may be left.
//!
//! Sums of deficits only grow, so a row that some subspaces drop is dropped by all; and where every row of a block is, the
//! rest of its lines need not be read. A scan waits for memory: by 6 of 8 lines of a block it is 1.3 times as fast as by
//! all, by 4 of 8 nearly twice, even though the lines that are left out lie between the others.

use super::block::ROWS_PER_BLOCK;

/// Lines that memory delivers together: CPUs fetch a line's neighbour too. Measured on a Xeon, 8 MB of blocks of 8 lines: 300 us
/// for 8 or 7 lines of each, 230 us for 6 or 5, 150 us for 4, 80 us for 2.
const PAIR: usize = 2;

/// Most lines of a block that has two looks.
const MOST: usize = 16;

/// How many blocks ahead a second look asks for lines.
pub(super) const AHEAD: usize = 12;

/// Returns the possible numbers of lines of a first pass, in ascending order; empty if there is only
/// one pass.
pub(super) fn choices(lines: usize) -> &'static [usize] {
    match lines {
        4 => &[2],
        8 => &[4, 6],
        16 => &[8, 12],
        _ => &[],
    }
}

/// Returns the lines of a first look at these blocks, of which each has a line for each weight: the pairs of most
/// weight.
#[inline(always)]
pub(super) fn lines<const FIRST: usize>(weights: &[u32], blocks: &[u8]) -> [usize; FIRST] {
    let count = weights.len();
    assert!(count.is_multiple_of(PAIR) && count <= MOST && FIRST.is_multiple_of(PAIR));
    // Where blocks begin with the second line of a pair, their first and last are of two pairs that both serve neighbours too.
    let start = blocks.as_ptr().addr() / ROWS_PER_BLOCK % PAIR;
    let of_pair = |pair: usize| [0, 1].map(|line| (PAIR * pair + start + line) % count);
    let weight = |pair: usize| of_pair(pair).map(|line| weights[line]).iter().sum::<u32>();
    let mut taken = [false; MOST / PAIR];
    let mut lines = [0; FIRST];
    for two in lines.as_chunks_mut::<PAIR>().0 {
        let left = (0..count / PAIR).filter(|&pair| !taken[pair]);
        // The first of equals, as neighbours in memory are.
        let best = left
            .rev()
            .max_by_key(|&pair| weight(pair))
            .expect("pairs left");
        taken[best] = true;
        *two = of_pair(best);
    }
    // In the order in which they lie.
    lines.sort_unstable();
    lines
}

/// Prefetches all lines of a block.
#[inline(always)]
pub(super) fn ask(block: &[[u8; ROWS_PER_BLOCK]]) {
    #[cfg(target_arch = "x86_64")]
    for line in block {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: any address may be asked for.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = block;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(128))]
    struct Aligned([u8; 128 + 512]);

    #[test]
    fn a_first_look_takes_the_heaviest_pairs_of_lines() {
        let memory = Aligned([0; 640]);
        let weights = [1, 9, 5, 5, 2, 2, 8, 1];
        let even = &memory.0[..512];
        assert_eq!(lines::<4>(&weights, even), [0, 1, 2, 3]);
        assert_eq!(lines::<6>(&weights, even), [0, 1, 2, 3, 6, 7]);
        // Pairs are 1 and 2, 3 and 4, 5 and 6, 7 and 0.
        let odd = &memory.0[64..576];
        assert_eq!(lines::<4>(&weights, odd), [1, 2, 5, 6]);
        assert_eq!(lines::<6>(&[9; 8], odd), [1, 2, 3, 4, 5, 6]);
        assert_eq!(
            lines::<6>(&[9, 1, 1, 2, 2, 3, 3, 9], odd),
            [0, 3, 4, 5, 6, 7]
        );
    }
}
