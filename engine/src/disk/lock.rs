//! The lock files of a database: who writes, who prepares a rebuild; the trainer has one in the folder of each run.
//!
//! An OS file lock, freed by the kernel when its process ends, however it ends. The file's text is for people.

use crate::disk::files;
use crate::error::{Error, Result, is_full};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

/// A lock that this process holds until it is dropped.
#[derive(Debug)]
pub struct FileLock {
    file: File,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing would do, but for a child that another thread is just starting: between fork and exec it has the file
        // open too, and the lock would outlive this handle by that moment.
        let _ = self.file.unlock();
    }
}

impl FileLock {
    /// Takes the lock, or returns an error that names the holder. Never waits.
    pub fn acquire(path: &Path) -> Result<Self> {
        // Its text will be replaced: it must be ours.
        match files::plain(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io("opening for writing", path)(e));
            }
            _ => {}
        }
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(Error::io("opening for writing", path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Best effort: the holder may be writing its name this very moment.
                let _ = file.read_to_string(&mut holder);
                let holder = holder.trim();
                let holder = if holder.is_empty() {
                    "another process"
                } else {
                    holder
                };
                return Err(Error::Locked {
                    path: path.into(),
                    holder: holder.into(),
                });
            }
            Err(TryLockError::Error(e)) => return Err(Error::io("locking", path)(e)),
        }
        let program = std::env::args().next().unwrap_or_default();
        let program = Path::new(&program)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let named = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| write!(file, "{program} (process {})", std::process::id()));
        match named {
            // On a full disk the lock is held without its text.
            Err(e) if !is_full(&e) => return Err(Error::io("writing", path)(e)),
            _ => {}
        }
        Ok(Self { file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_refused_and_told_who_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let first = FileLock::acquire(&path).unwrap();
        let error = FileLock::acquire(&path).unwrap_err();
        let Error::Locked { holder, .. } = &error else {
            panic!("{error}")
        };
        assert!(
            holder.contains(&format!("process {}", std::process::id())),
            "{holder}"
        );
        drop(first);
        FileLock::acquire(&path).unwrap();
    }
}
