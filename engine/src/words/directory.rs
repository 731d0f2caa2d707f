//! A words file as a read-only directory of the search library.

use crate::error::{Corruption, Error};
use crate::segment::WordsFile;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tantivy::HasLen;
use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    Directory, DirectoryLock, FileHandle, Lock, OwnedBytes, WatchCallback, WatchHandle, WritePtr,
};

/// The packed files of a words file. Every range is checked before the library gets it. Ranges that the library does not ask for
/// are not read.
#[derive(Debug, Clone)]
pub(super) struct Packed {
    file: Arc<WordsFile>,
    /// The damage found last. Errors and panics of the library do not carry it.
    damage: Arc<Mutex<Option<Corruption>>>,
}

impl Packed {
    pub(super) fn new(file: Arc<WordsFile>) -> Self {
        Self {
            file,
            damage: Arc::default(),
        }
    }

    pub(super) fn file(&self) -> &WordsFile {
        &self.file
    }

    /// Returns the cause of an error or a panic of the library.
    pub(super) fn explain(&self, said: impl Into<String>) -> Error {
        let mut damage = self.damage.lock().expect("nothing panics with this lock");
        match damage.take() {
            Some(damage) => Error::Corrupt(Box::new(damage)),
            None => self.file.wrong(said),
        }
    }

    fn bytes(&self, range: Range<usize>) -> io::Result<&[u8]> {
        self.file.bytes(range).map_err(|error| {
            let said = error.to_string();
            if let Error::Corrupt(found) = error {
                *self.damage.lock().expect("nothing panics with this lock") = Some(*found);
            }
            io::Error::other(said)
        })
    }

    fn range(&self, path: &Path) -> Option<Range<usize>> {
        self.file.packed(path.to_str()?)
    }
}

impl Directory for Packed {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        let range = self
            .range(path)
            .ok_or_else(|| OpenReadError::FileDoesNotExist(path.to_path_buf()))?;
        Ok(Arc::new(PackedFile {
            packed: self.clone(),
            range,
        }))
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        Ok(self.range(path).is_some())
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        let range = self
            .range(path)
            .ok_or_else(|| OpenReadError::FileDoesNotExist(path.to_path_buf()))?;
        let bytes = self.bytes(range);
        let bytes = bytes.map_err(|e| OpenReadError::wrap_io_error(e, path.to_path_buf()))?;
        Ok(bytes.to_vec())
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        Err(DeleteError::IoError {
            io_error: Arc::new(read_only()),
            filepath: path.to_path_buf(),
        })
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        Err(OpenWriteError::wrap_io_error(
            read_only(),
            path.to_path_buf(),
        ))
    }

    fn atomic_write(&self, _: &Path, _: &[u8]) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn acquire_lock(&self, _: &Lock) -> Result<DirectoryLock, LockError> {
        Ok(DirectoryLock::from(Box::new(())))
    }

    fn watch(&self, _: WatchCallback) -> tantivy::Result<WatchHandle> {
        Ok(WatchHandle::empty())
    }
}

fn read_only() -> io::Error {
    io::Error::from(io::ErrorKind::ReadOnlyFilesystem)
}

#[derive(Debug)]
struct PackedFile {
    packed: Packed,
    range: Range<usize>,
}

impl HasLen for PackedFile {
    fn len(&self) -> usize {
        self.range.len()
    }
}

impl FileHandle for PackedFile {
    /// Copies the bytes, because the library needs owned ones. For a term these are few.
    fn read_bytes(&self, range: Range<usize>) -> io::Result<OwnedBytes> {
        let Range { start, end } = range;
        if start > end || end > self.range.len() {
            let what = format!("bytes {start}..{end} of {}", self.range.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        let first = self.range.start;
        let bytes = self.packed.bytes(first + start..first + end)?;
        Ok(OwnedBytes::new(bytes.to_vec()))
    }
}
