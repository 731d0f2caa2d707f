//! CPU time of this thread: other programs on the machine don't count.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// CPU time that this thread has used.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Seconds of CPU time of the fastest of `repeats` calls.
pub fn fastest<T>(repeats: usize, mut work: impl FnMut() -> T) -> f64 {
    (0..repeats)
        .map(|_| {
            let start = cpu_time();
            std::hint::black_box(work());
            (cpu_time() - start).as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}

/// Bytes a second at which one core reads this memory from end to end.
pub fn bandwidth(bytes: &[u8], repeats: usize) -> f64 {
    let (chunks, _) = bytes.as_chunks::<64>();
    let seconds = fastest(repeats, || {
        // Eight sums of words: nothing but loads and additions.
        let mut sums = [0u64; 8];
        for chunk in chunks {
            let (words, _) = chunk.as_chunks::<8>();
            for (sum, word) in sums.iter_mut().zip(words) {
                *sum = sum.wrapping_add(u64::from_le_bytes(*word));
            }
        }
        sums
    });
    bytes.len() as f64 / seconds
}
