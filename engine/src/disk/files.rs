//! The file operations of the engine as a trait, so that tests can record them, fail them and replay them partially.
//!
//! Readers need a [`Storage`], the writer [`Files`]: whoever is given the first can't change anything.
//!
//! Every write of the engine to a database or a bundle goes through [`Files`], but for two kinds of files that are never
//! the only witness of anything: sled's own, and the text in [lock](crate::disk::lock) files, which is for people. A file
//! is written under a temporary name, synced, renamed, and its directory synced; none is ever rewritten in place, but for
//! logs, which only grow.

use crate::disk::mmap::Mapping;
use crate::error::{Error, Result};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Where a reader finds a database: a directory on disk, or a stand-in for one.
pub trait Storage: Send + Sync + fmt::Debug {
    /// Reads a whole small file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Returns the bytes of a file.
    fn len(&self, path: &Path) -> io::Result<u64>;
    /// Returns an immutable file as memory.
    fn map(&self, path: &Path) -> io::Result<Mapping> {
        self.open(path)?.map()
    }
    /// Opens an immutable file that may be needed after its name is gone.
    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>>;
    /// Returns the names in a directory, in order.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
}

/// A file that was opened for reading, and stays readable when its name is gone.
pub trait OpenFile: Send + Sync + fmt::Debug {
    /// Returns how many bytes it has.
    fn bytes(&self) -> io::Result<u64>;
    /// Returns its contents as memory.
    fn map(&self) -> io::Result<Mapping>;
}

/// Where the writer of a database changes files. Only the writer has this.
pub trait Files: Storage {
    /// Creates a file. It must not exist.
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>>;
    /// Gives a synced file its name, replacing what had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name in the same file system; [`link_or_copy`] is for those that may not have hard links.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a name. A process that has the file open keeps it.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and all in it.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes a directory and its parents where missing.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes names made or removed in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// A file that is being written.
pub trait NewFile: Write + Send {
    /// Makes everything written durable. After an error nothing is known of what reached the disk: the caller gives
    /// the file up, and never syncs it again.
    fn sync(&mut self) -> io::Result<()>;

    /// Makes the file read-only.
    fn read_only(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The operating system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk {
    /// Read segments into memory in place of mapping them: slower to open and heavier, but truncating the
    /// file while it is open cannot end the process.
    pub no_mmap: bool,
}

impl Storage for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        plain(path)?;
        fs::read(path)
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        Ok(plain(path)?.len())
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        plain(path)?;
        Ok(Box::new(OpenDiskFile {
            file: File::open(path)?,
            no_mmap: self.no_mmap,
        }))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            // Our own names are ASCII; another program's odd name is none of ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

/// A file of the disk, open for reading.
#[derive(Debug)]
struct OpenDiskFile {
    file: File,
    no_mmap: bool,
}

impl OpenFile for OpenDiskFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn map(&self) -> io::Result<Mapping> {
        match self.no_mmap {
            true => Mapping::read(&self.file),
            false => Mapping::map(&self.file),
        }
    }
}

impl Files for Disk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Box::new(DiskFile(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        // Of a symbolic link the link itself would get the name.
        plain(from)?;
        fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        // A directory can be opened and synced on Unix only; elsewhere renames are as durable as they get.
        if cfg!(unix) {
            File::open(path)?.sync_all()?;
        }
        Ok(())
    }
}

/// Sees that a name is that of a file: not of a link, which may lead anywhere, nor of a pipe, which may never end.
pub fn plain(path: &Path) -> io::Result<fs::Metadata> {
    let found = fs::symlink_metadata(path)?;
    if !found.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no plain file; links and the like are not followed",
        ));
    }
    Ok(found)
}

struct DiskFile(File);

impl Write for DiskFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl NewFile for DiskFile {
    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn read_only(&mut self) -> io::Result<()> {
        // Elsewhere than on Unix a read-only file can't be removed.
        if cfg!(unix) {
            let mut permissions = self.0.metadata()?.permissions();
            permissions.set_readonly(true);
            self.0.set_permissions(permissions)?;
        }
        Ok(())
    }
}

/// Returns the names in a directory.
pub(crate) fn list(files: &dyn Storage, dir: &Path) -> Result<Vec<String>> {
    files.list(dir).map_err(Error::io("listing", dir))
}

/// Returns where a file is written before it has its name.
pub fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".tmp");
    path.with_file_name(name)
}

/// Gives a synced file another name, in another directory, which may be on another file system: there it is copied,
/// synced and named, then removed here. It is there whole or not at all.
pub fn relocate(files: &dyn Files, from: &Path, to: &Path) -> io::Result<()> {
    match files.rename(from, to) {
        Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {}
        done => return done,
    }
    let tmp = temporary(to);
    match files.remove(&tmp) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    copy(files, from, &tmp)?;
    files.rename(&tmp, to)?;
    files.remove(from)
}

/// Copies an immutable file to a name that is free, and syncs it; the directory is the caller's to sync. Returns its
/// bytes. After an error a part of the copy may be left.
pub fn copy(files: &dyn Files, from: &Path, to: &Path) -> io::Result<u64> {
    let bytes = files.map(from)?;
    let mut file = files.create(to)?;
    // In pieces, so that a copy that is stopped or out of space has not first filled the memory with unwritten pages.
    for piece in bytes.chunks(COPIED_AT_ONCE) {
        file.write_all(piece)?;
    }
    file.read_only()?;
    file.sync()?;
    Ok(bytes.len() as u64)
}

const COPIED_AT_ONCE: usize = 8 << 20;

/// Gives an immutable file a second name, or [copies](copy) it where the file system can't. Returns the bytes that were
/// written: none for a link.
pub fn link_or_copy(files: &dyn Files, from: &Path, to: &Path) -> io::Result<u64> {
    match files.link(from, to) {
        Ok(()) => Ok(0),
        Err(e) if is_final(&e) => Err(e),
        // Another file system, one without hard links, or too many of them: there are as many errors for it as systems.
        Err(_) => copy(files, from, to),
    }
}

/// Whether a copy would fail as the link did.
fn is_final(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, InvalidInput, NotFound, StorageFull};
    matches!(
        error.kind(),
        AlreadyExists | InvalidInput | NotFound | StorageFull
    )
}

/// Writes a small file whole: temporary name, sync, rename, directory sync. It is there whole or not at all.
pub fn publish(files: &dyn Files, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let tmp = temporary(path);
    match files.remove(&tmp) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let written = files.create(&tmp).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync()
    });
    if let Err(e) = written {
        // Remove the partial file, because the disk may be full.
        let _ = files.remove(&tmp);
        return Err(e);
    }
    files.rename(&tmp, path)?;
    files.sync_dir(path.parent().unwrap_or(Path::new(".")))
}
