//! What the machine can do at best, as a reference for the speed of scans.

use crate::error::Result;
use crate::kernel::Kernel;
use std::hint::black_box;
use std::time::Instant;

/// The kernel that scans on this machine, and the memory bandwidth with its instructions.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    kernel: Kernel,
}

impl Machine {
    /// Chooses the kernel for this CPU.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if `MOPQDB_KERNEL` names a kernel that this CPU can't run.
    pub fn detect() -> Result<Self> {
        Ok(Self {
            kernel: Kernel::detect()?,
        })
    }

    /// Returns the name of the kernel.
    pub fn kernel(&self) -> &'static str {
        self.kernel.name()
    }

    /// Returns the best bandwidth in GB/s of reading this many bytes repeatedly, summed over the threads, each of which
    /// reads its share.
    pub fn read_bandwidth(&self, bytes: usize, threads: usize) -> f64 {
        let buffer = vec![1_u8; bytes.clamp(1 << 15, 1 << 30)];
        let read = |part: &[u8]| {
            let times = (0..15).map(|_| {
                let started = Instant::now();
                black_box(self.kernel.sum_of_words(part));
                started.elapsed().as_secs_f64()
            });
            part.len() as f64 / times.fold(f64::INFINITY, f64::min) / 1e9
        };
        std::thread::scope(|scope| {
            let parts = buffer.chunks(buffer.len().div_ceil(threads.max(1)));
            let readers: Vec<_> = parts.map(|part| scope.spawn(move || read(part))).collect();
            let rates = readers
                .into_iter()
                .map(|reader| reader.join().unwrap_or(0.0));
            rates.sum()
        })
    }
}
