//! `make bench`: mopqdb and faiss-cpu on the same rows in the same run, with targets.

pub mod codes;
pub mod database;
pub mod faiss;
pub mod figures;
pub mod scan;
pub mod train;

use mopqdb::testing::kernel::Kernel;
use std::path::PathBuf;

/// Dimensions of the rows.
pub const DIM: usize = 128;

/// The settings of a run.
pub struct Bench {
    /// A Python interpreter with faiss-cpu.
    pub python: PathBuf,
    /// The folder for results.
    pub out: PathBuf,
    /// Whether to use few repeats, for a quick check.
    pub quick: bool,
    /// The kernel that scans use.
    pub kernel: Kernel,
}

impl Bench {
    /// Returns how many times each thing is measured; the fastest counts.
    pub fn repeats(&self) -> usize {
        if self.quick { 5 } else { 15 }
    }
}

/// Formats a number as `1M`, `20k` or `17`.
pub fn thousands(n: usize) -> String {
    match n {
        n if n >= 1_000_000 && n.is_multiple_of(1_000_000) => format!("{}M", n / 1_000_000),
        n if n.is_multiple_of(1_000) => format!("{}k", n / 1_000),
        n => n.to_string(),
    }
}
