//! Space reserved for a full disk: the file `RESERVE` is removed when the disk is full.
//!
//! Most operations that free space need some space themselves: a delete writes its batch and then deletion files, every
//! new version writes a manifest and the catalog, and sled writes even when it is opened. So the writer keeps a file
//! that holds no data. An operation that finds no space removes the file and tries again. The remaining space becomes a
//! smaller reserve at once, before another program takes it. Until the reserve has its full size again, no rows are
//! inserted.

use crate::disk::files::{Files, temporary};
use crate::disk::layout::Layout;
use crate::error::is_full;
use crate::error::{Error, Result};
use crate::threads::lock;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The minimum size of a reserve. sled takes 512 KiB when its log grows; the rest is for the logs of deletes and for
/// manifests.
const BASE: u64 = 1 << 20;

/// The beginning of the file, which explains its purpose.
const TEXT: &str = "mopqdb keeps this space for a full disk: deleting rows and recovery need some. \
                    It holds no data and is created again when it is missing.\n";

/// The reserve of an open database.
#[derive(Debug)]
pub(crate) struct Reserve {
    files: Arc<dyn Files>,
    path: PathBuf,
    /// The size of the file, 0 if there is none; locked while it is created or removed.
    bytes: Mutex<u64>,
}

impl Reserve {
    /// Returns the reserve of this database as it is on disk.
    pub(crate) fn find(files: &Arc<dyn Files>, layout: &Layout) -> Self {
        let path = layout.reserve();
        let bytes = files.len(&path).unwrap_or(0);
        Self {
            files: Arc::clone(files),
            path,
            bytes: Mutex::new(bytes),
        }
    }

    /// Returns `true` if the file exists and has at least the minimum size.
    pub(crate) fn is_whole(&self) -> bool {
        *lock(&self.bytes) >= BASE
    }

    /// Returns `true` if there is no such file.
    pub(crate) fn is_gone(&self) -> bool {
        *lock(&self.bytes) == 0
    }

    /// Removes the file. Returns `true` if it existed, so that the failed operation can be tried again.
    pub(crate) fn give_up(&self) -> bool {
        let mut bytes = lock(&self.bytes);
        if *bytes == 0 {
            return false;
        }
        *bytes = 0;
        match remove(&*self.files, &self.path) {
            Ok(()) => {
                tracing::warn!(
                    "the disk is full: {} was removed; no rows are inserted until it fits again",
                    self.path.display()
                );
                true
            }
            Err(e) => {
                tracing::debug!("{} stays: {e}", self.path.display());
                false
            }
        }
    }

    /// Like [`give_up`](Self::give_up), for a write in progress that needs this many more bytes. If they are many, the
    /// reserve stays: the database will be opened again, and recovery needs it.
    pub(crate) fn give_up_for(&self, bytes: usize) -> bool {
        let held = *lock(&self.bytes);
        bytes as u64 <= held / 2 && self.give_up()
    }

    /// Runs an operation that needs little space. If the disk is full, removes the reserve and runs it
    /// again.
    ///
    /// Requires: after a disk-full error `act` can be run again.
    pub(crate) fn spend<T>(&self, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        match act() {
            Err(e) if e.is_full() && self.give_up() => act(),
            outcome => outcome,
        }
    }

    /// Creates the file, if it is missing or too small for a database of this many rows, dead ones included. If it does
    /// not fit, creates a smaller one and returns the error.
    pub(crate) fn restore(&self, rows: u64) -> Result<()> {
        let mut bytes = lock(&self.bytes);
        let needed = needed(rows);
        if *bytes >= needed {
            return Ok(());
        }
        let mut made = make(&*self.files, &self.path, needed);
        if made.as_ref().is_err_and(is_full) && *bytes < BASE {
            if *bytes > 0 && remove(&*self.files, &self.path).is_ok() {
                // The smaller reserve used the space that the full one lacked.
                *bytes = 0;
                made = make(&*self.files, &self.path, needed);
            }
            for part in [BASE / 8 * 7, BASE / 4 * 3, BASE / 2, BASE / 4] {
                if made.is_err() && *bytes == 0 && make(&*self.files, &self.path, part).is_ok() {
                    *bytes = part;
                }
            }
        }
        made.map_err(Error::io("making", &self.path))?;
        *bytes = needed;
        Ok(())
    }

    /// Like [`restore`](Self::restore), ignoring failure.
    pub(crate) fn restore_if_it_fits(&self, rows: u64) {
        if let Err(e) = self.restore(rows) {
            tracing::debug!("the reserve does not have its full size: {e}");
        }
    }
}

/// Returns the size for a database of this many rows: a version may write a deletion file, which has one bit per row,
/// for each segment.
fn needed(rows: u64) -> u64 {
    const STEP: u64 = 1 << 18;
    match rows / 8 {
        // The minimum size covers these, so that the file is not written again for every few rows.
        bytes if bytes < STEP => BASE,
        bytes => BASE + bytes.next_multiple_of(STEP),
    }
}

/// Writes incompressible bytes, which no file system stores in less space.
fn make(files: &dyn Files, path: &Path, bytes: u64) -> io::Result<()> {
    let tmp = temporary(path);
    match files.remove(&tmp) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let write = || {
        let mut file = files.create(&tmp)?;
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut left = bytes as usize;
        let mut chunk = TEXT.as_bytes().to_vec();
        while left > 0 {
            while chunk.len() < 1 << 16 {
                // xorshift64
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                chunk.extend(state.to_le_bytes());
            }
            let len = left.min(chunk.len());
            file.write_all(&chunk[..len])?;
            left -= len;
            chunk.clear();
        }
        // Some file systems delay allocation, so only a sync allocates the blocks.
        file.sync()?;
        drop(file);
        files.rename(&tmp, path)
    };
    if let Err(e) = write() {
        // Remove a partial reserve: the caller may need the space now.
        let _ = files.remove(&tmp);
        return Err(e);
    }
    files.sync_dir(path.parent().unwrap_or(Path::new(".")))
}

fn remove(files: &dyn Files, path: &Path) -> io::Result<()> {
    files.remove(path)?;
    // A journal may free the blocks only when the removal itself is durable. If this fails, the next attempt will fail
    // too.
    let _ = files.sync_dir(path.parent().unwrap_or(Path::new(".")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::files::Disk;

    fn reserve(dir: &Path) -> Reserve {
        let disk: Arc<dyn Files> = Arc::new(Disk::default());
        Reserve::find(&disk, &Layout::new(dir))
    }

    #[test]
    fn a_reserve_is_created_found_grown_and_removed_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("RESERVE");
        let first = reserve(dir.path());
        assert!(first.is_gone() && !first.give_up());
        first.restore(0).unwrap();
        assert_eq!(path.metadata().unwrap().len(), BASE);
        let found = reserve(dir.path());
        assert!(found.is_whole());
        found.restore(8_000_000).unwrap();
        assert!(path.metadata().unwrap().len() >= BASE + 1_000_000);
        assert!(found.give_up() && found.is_gone() && !path.exists());
        assert!(!found.give_up());
    }

    #[test]
    #[cfg(unix)]
    fn the_reserve_occupies_blocks_on_disk() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        reserve(dir.path()).restore(0).unwrap();
        let meta = dir.path().join("RESERVE").metadata().unwrap();
        assert!(meta.blocks() * 512 >= BASE, "{} blocks", meta.blocks());
        let bytes = std::fs::read(dir.path().join("RESERVE")).unwrap();
        let packed = zstd::bulk::compress(&bytes, 3).unwrap();
        assert!(packed.len() > bytes.len() * 9 / 10, "{}", packed.len());
    }

    #[test]
    fn a_full_disk_is_tried_again_once_and_other_errors_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = reserve(dir.path());
        reserve.restore(0).unwrap();
        let fail = |kind: io::ErrorKind| Error::io("writing", "f")(io::Error::from(kind));
        let mut tries = 0;
        let outcome: Result<()> = reserve.spend(|| {
            tries += 1;
            Err(fail(io::ErrorKind::PermissionDenied))
        });
        assert!(outcome.is_err() && tries == 1 && reserve.is_whole());
        let helped = reserve.spend(|| match reserve.is_whole() {
            true => Err(fail(io::ErrorKind::StorageFull)),
            false => Ok(()),
        });
        assert!(helped.is_ok() && reserve.is_gone());
        tries = 0;
        let outcome: Result<()> = reserve.spend(|| {
            tries += 1;
            Err(fail(io::ErrorKind::StorageFull))
        });
        assert!(outcome.is_err() && tries == 1, "there is nothing to remove");
    }
}
