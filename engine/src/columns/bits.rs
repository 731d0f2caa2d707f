//! Bits in words of 64: one bit per row.

/// Returns the number of words that `bits` bits take.
pub(crate) fn words(bits: usize) -> usize {
    bits.div_ceil(64)
}

/// Returns the bits of word `at` that belong to rows, of `bits` rows.
pub(crate) fn used(at: usize, bits: usize) -> u64 {
    match bits.saturating_sub(at * 64) {
        left if left >= 64 => u64::MAX,
        left => (1 << left) - 1,
    }
}

/// Returns a bit.
#[inline]
pub(crate) fn get(words: &[u64], at: usize) -> bool {
    words[at / 64] >> (at % 64) & 1 == 1
}

/// Appends a bit at position `at`, the end.
#[inline]
pub(crate) fn push(words: &mut Vec<u64>, at: usize, bit: bool) {
    if at.is_multiple_of(64) {
        words.push(0);
    }
    words[at / 64] |= u64::from(bit) << (at % 64);
}

/// Returns how many bits are set.
pub(crate) fn count(words: &[u64]) -> usize {
    words.iter().map(|word| word.count_ones() as usize).sum()
}

/// Returns the positions of the set bits, in order.
pub(crate) fn ones(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    words.iter().enumerate().flat_map(|(at, &word)| {
        let next = |left: &u64| Some(left & left.wrapping_sub(1)).filter(|&left| left != 0);
        std::iter::successors(Some(word).filter(|&word| word != 0), next)
            .map(move |left| at * 64 + left.trailing_zeros() as usize)
    })
}

/// Sets a bit for each item that passes, up to 64 items per word.
///
/// Bits that are set stay set. Requires: `out` has a word for each 64 items.
#[inline(always)]
pub(crate) fn collect<T: Copy>(items: &[T], out: &mut [u64], test: impl Fn(T) -> bool) {
    // Eight results, one byte each, are gathered into the highest byte of the product: the factor moves byte i to bit i
    // of it. Compilers vectorise comparisons into bytes, but not into bits.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let (whole, rest) = items.as_chunks::<64>();
    for (items, word) in whole.iter().zip(&mut *out) {
        let mut passed = [0_u8; 64];
        for (item, passed) in items.iter().zip(&mut passed) {
            *passed = u8::from(test(*item));
        }
        let (eights, _) = passed.as_chunks::<8>();
        for (at, eight) in eights.iter().enumerate() {
            *word |= u64::from_le_bytes(*eight).wrapping_mul(GATHER) >> 56 << (at * 8);
        }
    }
    if let Some(word) = out.get_mut(whole.len()) {
        for (at, item) in rest.iter().enumerate() {
            *word |= u64::from(test(*item)) << at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_has_its_bit() {
        for len in [0, 1, 63, 64, 65, 200, 4096] {
            let items: Vec<u32> = (0..len).map(|at| at * at * 7 % 13).collect();
            let mut found = vec![0; words(items.len())];
            collect(&items, &mut found, |item| item % 3 == 0);
            let mut pushed = Vec::new();
            for (at, item) in items.iter().enumerate() {
                assert_eq!(get(&found, at), item % 3 == 0);
                push(&mut pushed, at, item % 3 == 0);
            }
            assert_eq!(found, pushed);
            let expected: Vec<usize> = (0..items.len())
                .filter(|&at| items[at].is_multiple_of(3))
                .collect();
            assert_eq!(ones(&found).collect::<Vec<_>>(), expected);
            assert_eq!(count(&found), expected.len());
        }
    }

    #[test]
    fn bits_past_the_last_row_are_unused() {
        assert_eq!([used(0, 0), used(0, 1), used(0, 64)], [0, 1, u64::MAX]);
        assert_eq!([used(1, 64), used(1, 67), used(2, 67)], [0, 7, 0]);
    }
}
