//! A disk with a watcher: each call is shown to it before it happens, when it can be failed or delayed, and after.

use mopqdb::testing::disk::Mapping;
use mopqdb::testing::disk::{Disk, Files, NewFile, OpenFile, Storage};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A call of the engine to the disk.
#[derive(Debug, Clone, Copy)]
pub enum Call<'a> {
    /// Creates a file. The number identifies the file, whatever it is named later.
    Create(u64, &'a Path),
    /// Appends bytes to a file.
    Write(u64, &'a Path, &'a [u8]),
    /// Syncs a file.
    Sync(u64, &'a Path),
    /// Makes a file read-only.
    ReadOnly(u64, &'a Path),
    /// Renames a file.
    Rename(&'a Path, &'a Path),
    /// Gives a file a second name.
    Link(&'a Path, &'a Path),
    /// Removes a name.
    Remove(&'a Path),
    /// Removes a directory and everything in it.
    RemoveDir(&'a Path),
    /// Creates a directory.
    CreateDir(&'a Path),
    /// Syncs the names in a directory.
    SyncDir(&'a Path),
    /// Any call that changes nothing.
    Look(&'a Path),
}

impl Call<'_> {
    /// Returns the file or directory concerned; for a rename, the new name.
    pub fn path(&self) -> &Path {
        match *self {
            Self::Create(_, path)
            | Self::Write(_, path, _)
            | Self::Sync(_, path)
            | Self::ReadOnly(_, path)
            | Self::Rename(_, path)
            | Self::Link(_, path)
            | Self::Remove(path)
            | Self::RemoveDir(path)
            | Self::CreateDir(path)
            | Self::SyncDir(path)
            | Self::Look(path) => path,
        }
    }

    /// Returns how many bytes it writes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Write(_, _, bytes) => bytes.len(),
            _ => 0,
        }
    }

    /// Returns `true` if it makes something durable.
    pub fn syncs(&self) -> bool {
        matches!(self, Self::Sync(..) | Self::SyncDir(_))
    }
}

/// Observes calls to the disk.
pub trait Watcher: Send + Sync + std::fmt::Debug {
    /// Called before a call. An error fails the call, which then never reaches the disk. For a write, returns how many
    /// of its bytes reach the disk.
    fn before(&self, call: &Call<'_>) -> io::Result<usize> {
        Ok(call.bytes())
    }

    /// Called after a call, with whether it succeeded.
    fn after(&self, _call: &Call<'_>, _done: bool) {}
}

/// The real disk with a watcher.
#[derive(Debug)]
pub struct Watched {
    disk: Disk,
    watcher: Arc<dyn Watcher>,
    next: Arc<AtomicU64>,
}

impl Watched {
    /// Returns a disk with this watcher.
    pub fn disk(watcher: Arc<dyn Watcher>) -> Arc<dyn Files> {
        Arc::new(Self {
            disk: Disk::default(),
            watcher,
            next: Arc::new(AtomicU64::new(1 << 32)),
        })
    }

    fn watch<T>(&self, call: Call<'_>, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let done = self.watcher.before(&call).and_then(|_| act());
        self.watcher.after(&call, done.is_ok());
        done
    }
}

impl Storage for Watched {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.watch(Call::Look(path), || self.disk.read(path))
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        self.watch(Call::Look(path), || self.disk.len(path))
    }

    fn map(&self, path: &Path) -> io::Result<Mapping> {
        self.watch(Call::Look(path), || self.disk.map(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.watch(Call::Look(path), || self.disk.list(path))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        self.watch(Call::Look(path), || self.disk.open(path))
    }
}

impl Files for Watched {
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        let id = self.next.fetch_add(1, Ordering::SeqCst);
        let file = self.watch(Call::Create(id, path), || self.disk.create(path))?;
        Ok(Box::new(WatchedFile {
            id,
            path: path.into(),
            file,
            watcher: Arc::clone(&self.watcher),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.watch(Call::Rename(from, to), || self.disk.rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.watch(Call::Link(from, to), || self.disk.link(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.watch(Call::Remove(path), || self.disk.remove(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.watch(Call::RemoveDir(path), || self.disk.remove_dir(path))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.watch(Call::CreateDir(path), || self.disk.create_dir(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.watch(Call::SyncDir(path), || self.disk.sync_dir(path))
    }
}

struct WatchedFile {
    id: u64,
    path: PathBuf,
    file: Box<dyn NewFile>,
    watcher: Arc<dyn Watcher>,
}

impl Write for WatchedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let call = Call::Write(self.id, &self.path, bytes);
        let written = self
            .watcher
            .before(&call)
            .and_then(|len| self.file.write(&bytes[..len]));
        // Only the bytes that reached the disk are shown.
        let reached = &bytes[..*written.as_ref().unwrap_or(&0)];
        let call = Call::Write(self.id, &self.path, reached);
        self.watcher.after(&call, written.is_ok());
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl NewFile for WatchedFile {
    fn sync(&mut self) -> io::Result<()> {
        let call = Call::Sync(self.id, &self.path);
        let done = self.watcher.before(&call).and_then(|_| self.file.sync());
        self.watcher.after(&call, done.is_ok());
        done
    }

    fn read_only(&mut self) -> io::Result<()> {
        let call = Call::ReadOnly(self.id, &self.path);
        let done = (self.watcher.before(&call)).and_then(|_| self.file.read_only());
        self.watcher.after(&call, done.is_ok());
        done
    }
}
