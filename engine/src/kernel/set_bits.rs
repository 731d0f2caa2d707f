//! From masks to rows.

/// Words that are looked at together.
const GROUP: usize = 16;

/// The numbers of the set bits, counted through all words, at the front of `rows`; returns how many there are.
///
/// Most groups have none, and most that have any have one: these are the branches that a CPU foresees.
#[inline(always)]
pub(super) fn set_bits(words: &[u64], rows: &mut [u16]) -> usize {
    let mut count = 0;
    let (groups, rest) = words.as_chunks::<GROUP>();
    for (number, group) in groups.iter().enumerate() {
        // No closures: they would not be compiled for the CPU's features.
        let mut all = 0;
        for word in group {
            all |= word;
        }
        if all != 0 {
            count = of_group(group, number * GROUP, rows, count);
        }
    }
    let mut last = [0; GROUP];
    last[..rest.len()].copy_from_slice(rest);
    of_group(&last, words.len() - rest.len(), rows, count)
}

#[inline(always)]
fn of_group(group: &[u64; GROUP], first: usize, rows: &mut [u16], mut count: usize) -> usize {
    let mut some = 0u32;
    for (i, word) in group.iter().enumerate() {
        some |= u32::from(*word != 0) << i;
    }
    while some != 0 {
        let word = some.trailing_zeros() as usize;
        some &= some - 1;
        let base = ((first + word) * 64) as u16;
        let mut bits = group[word];
        while bits != 0 {
            rows[count] = base + bits.trailing_zeros() as u16;
            bits &= bits - 1;
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use crate::kernel::Kernel;

    #[test]
    fn every_set_bit_is_listed_in_order_on_every_kernel() {
        let mut random = Random::new(3);
        for kernel in Kernel::available() {
            for (words, shared) in [
                (0, 1),
                (1, 1),
                (15, 2),
                (16, 3),
                (17, 9),
                (300, 40),
                (1024, 1),
            ] {
                // Each word is a product of so many random ones: from half of its bits set to hardly any.
                let words: Vec<u64> = (0..words)
                    .map(|_| (0..shared).fold(u64::MAX, |all, _| all & random.next()))
                    .collect();
                let mut rows = vec![0; words.len() * 64];
                let count = kernel.set_bits(&words, &mut rows);
                let bits =
                    (0..words.len() * 64).filter(|bit| words[bit / 64] >> (bit % 64) & 1 == 1);
                let expected: Vec<u16> = bits.map(|bit| bit as u16).collect();
                assert_eq!(rows[..count], expected, "{kernel:?}");
            }
        }
    }
}
