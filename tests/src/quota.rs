//! A disk with a limited number of bytes.

use crate::watched::{Call, Watcher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Limits the total size of the files below a directory. sled's files are not written through
/// [`Files`](mopqdb::testing::disk::Files), and do not count.
#[derive(Debug)]
pub struct Quota {
    dir: PathBuf,
    limit: AtomicU64,
    /// For each call that takes space: the bytes in use before it, and the bytes that it takes.
    seen: Mutex<Vec<(u64, usize)>>,
}

impl Quota {
    /// Creates a quota without a limit.
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.into(),
            limit: AtomicU64::new(u64::MAX),
            seen: Mutex::default(),
        }
    }

    /// Sets the limit in bytes.
    pub fn limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::SeqCst);
    }

    /// Returns the bytes in use.
    pub fn used(&self) -> u64 {
        bytes(&self.dir)
    }

    /// Returns the calls that took space so far.
    pub fn seen(&self) -> Vec<(u64, usize)> {
        self.seen.lock().unwrap().clone()
    }
}

impl Watcher for Quota {
    fn before(&self, call: &Call<'_>) -> io::Result<usize> {
        // A new name takes space too: at least one byte must be free.
        let wanted = match call {
            Call::Create(..) | Call::CreateDir(_) | Call::Link(..) => 1,
            Call::Write(_, _, bytes) if !bytes.is_empty() => bytes.len(),
            _ => return Ok(call.bytes()),
        };
        if matches!(call, Call::CreateDir(path) if path.is_dir()) {
            return Ok(0);
        }
        let used = self.used();
        self.seen.lock().unwrap().push((used, wanted));
        match self.limit.load(Ordering::SeqCst).saturating_sub(used) {
            0 => Err(io::Error::from_raw_os_error(28)),
            free => Ok(call.bytes().min(free as usize)),
        }
    }
}

fn bytes(dir: &Path) -> u64 {
    let mut sum = 0;
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        sum += match meta.is_dir() {
            true if entry.file_name() == "catalog" => 0,
            true => bytes(&entry.path()),
            false => meta.len(),
        };
    }
    sum
}
