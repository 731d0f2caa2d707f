//! Internals for tests and fuzz targets: parsers without a public type, and control over the order of
//! threads. Not a public API.

/// Files, maps and locks.
pub mod disk {
    pub use crate::disk::files::*;
    pub use crate::disk::lock::*;
    pub use crate::disk::mmap::*;
}

/// The container of files.
pub mod format {
    pub use crate::format::*;
}

/// The loops.
pub mod kernel {
    pub use crate::kernel::*;
}

/// The exact top k.
pub mod scan {
    pub use crate::scan::*;
}

/// The files of segments.
pub mod segment {
    pub use crate::segment::*;
}

pub use crate::admin::backup::backup_on;
pub use crate::admin::models::register_model_on;
pub use crate::admin::prune::prune_on;
pub use crate::admin::repair::repair_on;
pub use crate::threads::turns::take_turns;

use crate::disk::files::Disk;
use crate::error::Result;
use crate::ids::LogId;
use crate::version::VersionRecord;
use crate::words::{self, Indexed, Scorer, SegmentWords, Settings, Terms, Tokenizer};
use std::path::Path;

/// Searches a words file for a query, with default settings. Returns how many rows were found.
pub fn words(path: &Path, query: &str) -> Result<usize> {
    let words = SegmentWords::open(&Disk { no_mmap: true }, path)?;
    let terms = Terms::of(&Tokenizer::new(Settings::default()), query);
    let scorer = Scorer::new(&words.count(&terms, None)?);
    let found = words::best([(&words as &dyn Indexed, None)], &terms, &scorer, 10)?;
    Ok(found.len())
}

/// Parses a version record, as both witnesses hold it. Returns `true` if the bytes are a valid
/// record.
pub fn record(bytes: &[u8]) -> bool {
    match VersionRecord::decode(bytes) {
        Ok(record) => {
            let again = VersionRecord::decode(&record.encode());
            assert_eq!(again.as_ref(), Ok(&record), "a record comes back as it was");
            true
        }
        Err(_) => false,
    }
}

/// Reads a log. Returns the number of batches.
pub fn log(id: u64, bytes: &[u8], from: u64) -> Result<usize> {
    let contents = crate::log::read(Path::new("fuzzed.log"), LogId(id), bytes, from)?;
    assert!(contents.end <= bytes.len() as u64 || contents.batches.is_empty());
    Ok(contents.batches.len())
}
