//! A temporary directory of the search library: small files are in memory, large ones on disk under temporary names.

use crate::disk::files::{Files, NewFile, temporary};
use crate::disk::mmap::Mapping;
use crate::error::Error;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufWriter, Write};
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    AntiCallToken, Directory, DirectoryLock, FileHandle, Lock, OwnedBytes, TerminatingWrite,
    WatchCallback, WatchHandle, WritePtr,
};

/// Larger files are written to disk.
const IN_MEMORY: usize = 1 << 20;

/// A directory that the library writes to. Dropping it removes its files on disk.
#[derive(Clone)]
pub(super) struct Scratch(Arc<Shared>);

struct Shared {
    files: Arc<dyn Files>,
    /// The names of files on disk begin with it.
    prefix: PathBuf,
    contents: Mutex<BTreeMap<PathBuf, Content>>,
    /// The first error of the disk. Errors of the library do not carry it.
    failed: Mutex<Option<Error>>,
    /// The files on disk, complete or not.
    made: Mutex<Vec<PathBuf>>,
}

#[derive(Debug, Clone)]
enum Content {
    Memory(OwnedBytes),
    Disk(Arc<Mapping>),
}

impl Scratch {
    /// Returns an empty directory. Its files on disk are named after `path`.
    pub(super) fn new(files: Arc<dyn Files>, path: &Path, number: usize) -> Self {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{number}"));
        Self(Arc::new(Shared {
            files,
            prefix: path.with_file_name(name),
            contents: Mutex::default(),
            failed: Mutex::default(),
            made: Mutex::default(),
        }))
    }

    /// Returns the names of its files, in order.
    pub(super) fn names(&self) -> Vec<PathBuf> {
        self.contents().keys().cloned().collect()
    }

    /// Returns the bytes of a file of this directory.
    pub(super) fn bytes(&self, name: &Path) -> impl Deref<Target = [u8]> {
        let content = self.contents().get(name).cloned();
        content.expect("a name of this directory")
    }

    /// Returns the cause of an error of the library.
    pub(super) fn explain(&self, said: tantivy::TantivyError) -> Error {
        let failed = lock(&self.0.failed).take();
        failed.unwrap_or_else(|| Error::io("indexing", &self.0.prefix)(io::Error::other(said)))
    }

    fn contents(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Content>> {
        lock(&self.0.contents)
    }

    fn content(&self, path: &Path) -> Result<Content, OpenReadError> {
        let content = self.contents().get(path).cloned();
        content.ok_or_else(|| OpenReadError::FileDoesNotExist(path.to_path_buf()))
    }
}

impl Shared {
    /// Keeps the error of a call to the disk, and returns one of the same kind for the library.
    fn note<T>(&self, doing: &'static str, path: &Path, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|error| {
            let copy = io::Error::new(error.kind(), error.to_string());
            lock(&self.failed).get_or_insert_with(|| Error::io(doing, path)(error));
            copy
        })
    }

    /// Creates a file on disk. Replaces one that a killed process left.
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        match self.files.remove(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        lock(&self.made).push(path.to_path_buf());
        self.files.create(path)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for path in lock(&self.made).drain(..) {
            let _ = self.files.remove(&path);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics with this lock")
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scratch").field(&self.0.prefix).finish()
    }
}

impl Directory for Scratch {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        Ok(Arc::new(self.content(path)?))
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        match self.contents().remove(path) {
            Some(_) => Ok(()),
            None => Err(DeleteError::FileDoesNotExist(path.to_path_buf())),
        }
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        Ok(self.contents().contains_key(path))
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        let writer = Writer {
            shared: self.0.clone(),
            name: path.to_path_buf(),
            memory: Vec::new(),
            disk: None,
        };
        Ok(BufWriter::new(Box::new(writer)))
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        let content = self.content(path)?;
        Ok(content.to_vec())
    }

    fn atomic_write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let content = Content::Memory(OwnedBytes::new(data.to_vec()));
        self.contents().insert(path.to_path_buf(), content);
        Ok(())
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

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Memory(bytes) => bytes,
            Self::Disk(bytes) => bytes,
        }
    }
}

impl FileHandle for Content {
    fn read_bytes(&self, range: Range<usize>) -> io::Result<OwnedBytes> {
        Ok(match self {
            Self::Memory(bytes) => bytes.slice(range),
            Self::Disk(bytes) => OwnedBytes::new(bytes[range].to_vec()),
        })
    }
}

/// A file that is being written. If it is dropped before `terminate`, the directory does not have it.
struct Writer {
    shared: Arc<Shared>,
    name: PathBuf,
    /// The bytes that are not on disk yet.
    memory: Vec<u8>,
    /// The file on disk, if the bytes are too many. The mutex only makes it `Sync`.
    disk: Option<(PathBuf, Mutex<Box<dyn NewFile>>)>,
}

impl Writer {
    fn write_out(&mut self) -> io::Result<()> {
        let Self { shared, disk, .. } = self;
        if disk.is_none() {
            let mut name = shared.prefix.file_name().unwrap_or_default().to_os_string();
            name.push(".");
            name.push(&self.name);
            let path = temporary(&shared.prefix.with_file_name(name));
            let file = shared.note("creating", &path, shared.create(&path))?;
            *disk = Some((path, Mutex::new(file)));
        }
        let (path, file) = disk.as_mut().expect("made above");
        let file = file.get_mut().expect("nobody took the lock");
        let written = file.write_all(&self.memory);
        shared.note("writing", path, written)?;
        self.memory.clear();
        Ok(())
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.memory.extend_from_slice(bytes);
        if self.memory.len() >= IN_MEMORY {
            self.write_out()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TerminatingWrite for Writer {
    fn terminate_ref(&mut self, _: AntiCallToken) -> io::Result<()> {
        if self.disk.is_some() {
            self.write_out()?;
        }
        let content = match self.disk.take() {
            None => Content::Memory(OwnedBytes::new(std::mem::take(&mut self.memory))),
            Some((path, file)) => {
                drop(file);
                let mapped = self.shared.files.map(&path);
                Content::Disk(Arc::new(self.shared.note("reading", &path, mapped)?))
            }
        };
        lock(&self.shared.contents).insert(self.name.clone(), content);
        Ok(())
    }
}
