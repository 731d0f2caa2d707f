//! CPU time of this thread, which other programs on the machine do not affect.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the CPU time that this thread has used.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the CPU seconds of the fastest of `repeats` calls.
pub fn fastest<T>(repeats: usize, mut work: impl FnMut() -> T) -> f64 {
    (0..repeats)
        .map(|_| {
            let start = cpu_time();
            std::hint::black_box(work());
            (cpu_time() - start).as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}
