//! Reading memory from end to end, with nothing else to do.

/// Independent sums, so that loads and not additions set the pace.
const SUMS: usize = 64;

#[inline(always)]
pub(super) fn sum_of_words(bytes: &[u8]) -> u64 {
    let mut sums = [0u64; SUMS];
    for part in bytes.as_chunks::<{ 8 * SUMS }>().0 {
        for (sum, word) in sums.iter_mut().zip(part.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
}
