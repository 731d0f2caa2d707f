//! The lock files of a database: for the writing process and for a rebuild in preparation. The trainer has one in the
//! folder of each run.
//!
//! Each is an OS file lock, which the kernel frees when its process ends for any reason. The file's text is for people.

use crate::disk::files;
use crate::error::{Error, Result, is_full};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

/// A lock that this process holds until the value is dropped.
#[derive(Debug)]
pub struct FileLock {
    file: File,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing the file would be enough, except while another thread starts a child process: between fork and exec
        // the child has the file open too, so the lock would briefly outlive this handle.
        let _ = self.file.unlock();
    }
}

impl FileLock {
    /// Takes the lock, or returns an error that names the holder. Never waits.
    pub fn acquire(path: &Path) -> Result<Self> {
        // The text will be replaced, so this must be our own file.
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
                // Best effort: the holder may be writing its name at this moment.
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
            // On a full disk the lock is held, but its text is missing.
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
    fn a_second_holder_is_refused_with_the_name_of_the_first() {
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
