//! `make bench`: ourselves beside faiss-cpu, on the same rows in the same run, against what we aim at.

pub mod codes;
pub mod database;
pub mod faiss;
pub mod figures;
pub mod scan;
pub mod train;

use mopqdb::testing::kernel::Kernel;
use std::path::PathBuf;

/// Numbers a row.
pub const DIM: usize = 128;

/// What a run is told.
pub struct Bench {
    /// An interpreter with faiss-cpu.
    pub python: PathBuf,
    /// Where everything goes.
    pub out: PathBuf,
    /// Few repeats, for checking.
    pub quick: bool,
    /// What scans run on.
    pub kernel: Kernel,
}

impl Bench {
    /// Times that each thing is measured; the fastest counts.
    pub fn repeats(&self) -> usize {
        if self.quick { 5 } else { 15 }
    }
}

/// `1M`, `20k`, `17`
pub fn thousands(n: usize) -> String {
    match n {
        n if n >= 1_000_000 && n.is_multiple_of(1_000_000) => format!("{}M", n / 1_000_000),
        n if n.is_multiple_of(1_000) => format!("{}k", n / 1_000),
        n => n.to_string(),
    }
}
