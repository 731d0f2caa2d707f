//! The file operations of the engine as a trait, so that tests can record them, fail them and replay them partially.
//!
//! Readers get a [`Storage`] and the writer [`Files`]: code that holds only a `Storage` can't change anything.
//!
//! Every write of the engine to a database or a bundle goes through [`Files`], except to two kinds of files that never
//! hold the only copy of anything: sled's own, and the text in [lock](crate::disk::lock) files, which is for people. A
//! file is written under a temporary name, synced and renamed, and then its directory is synced. No file is rewritten
//! in place; only logs grow.

use crate::disk::mmap::Mapping;
use crate::error::{Error, Result};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Read access to the files of a database: on disk, or a stand-in for tests.
pub trait Storage: Send + Sync + fmt::Debug {
    /// Reads a whole small file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Returns the length of a file in bytes.
    fn len(&self, path: &Path) -> io::Result<u64>;
    /// Returns an immutable file as memory.
    fn map(&self, path: &Path) -> io::Result<Mapping> {
        self.open(path)?.map()
    }
    /// Opens an immutable file, so that it stays readable after its name is removed.
    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>>;
    /// Returns the names in a directory, in order.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
}

/// A file opened for reading. It stays readable after its name is removed.
pub trait OpenFile: Send + Sync + fmt::Debug {
    /// Returns its length in bytes.
    fn bytes(&self) -> io::Result<u64>;
    /// Returns its contents as memory.
    fn map(&self) -> io::Result<Mapping>;
}

/// Write access to the files of a database. Only the writer has it.
pub trait Files: Storage {
    /// Creates a file. It must not exist.
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>>;
    /// Renames a synced file, replacing any file with the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name in the same file system. Use [`link_or_copy`] where hard links may not be supported.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a name. A process that has the file open can still read it.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and everything in it.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Creates a directory and its missing parents.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes created and removed names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// A file that is being written.
pub trait NewFile: Write + Send {
    /// Makes everything written durable. After an error it is unknown what reached the disk: the caller abandons the
    /// file and never syncs it again.
    fn sync(&mut self) -> io::Result<()>;

    /// Makes the file read-only.
    fn read_only(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The operating system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk {
    /// Reads segments into memory instead of mapping them: opening is slower and takes more memory, but truncating a
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
            // The engine's own names are ASCII, so other names belong to other programs.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

/// A file on disk, opened for reading.
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
        // For a symbolic link, the link itself would get the second name.
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
        // Only Unix can open and sync a directory. Elsewhere renames are as durable as the system makes them.
        if cfg!(unix) {
            File::open(path)?.sync_all()?;
        }
        Ok(())
    }
}

/// Checks that a name is that of a plain file: not of a link, which may lead anywhere, and not of a pipe, which may
/// never end.
pub fn plain(path: &Path) -> io::Result<fs::Metadata> {
    let found = fs::symlink_metadata(path)?;
    if found.is_symlink() {
        let what = "it is a symbolic link, and links are not followed";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    if !found.is_file() {
        let what = "it is not a plain file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
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
        // On other systems than Unix a read-only file can't be removed.
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

/// Returns the temporary name under which a file is written.
pub fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".tmp");
    path.with_file_name(name)
}

/// Moves a synced file to another directory. If that is on another file system, the file is copied, synced, renamed,
/// and then removed here. The new name never shows a partial file.
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

/// Copies an immutable file to an unused name and syncs it; the caller syncs the directory. Returns its length. After
/// an error a partial copy may remain.
pub fn copy(files: &dyn Files, from: &Path, to: &Path) -> io::Result<u64> {
    let bytes = files.map(from)?;
    let mut file = files.create(to)?;
    // In pieces, so that a copy that is stopped or out of space does not first fill the memory with unwritten pages.
    for piece in bytes.chunks(COPIED_AT_ONCE) {
        file.write_all(piece)?;
    }
    file.read_only()?;
    file.sync()?;
    Ok(bytes.len() as u64)
}

const COPIED_AT_ONCE: usize = 8 << 20;

/// Gives an immutable file a second name, or [copies](copy) it if the file system can't. Returns the number of bytes
/// written: 0 for a link.
pub fn link_or_copy(files: &dyn Files, from: &Path, to: &Path) -> io::Result<u64> {
    match files.link(from, to) {
        Ok(()) => Ok(0),
        Err(e) if is_final(&e) => Err(e),
        // Another file system, one without hard links, or too many links: each system has its own error for that.
        Err(_) => copy(files, from, to),
    }
}

/// Returns `true` if a copy would fail for the same reason as the link.
fn is_final(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, InvalidInput, NotFound, StorageFull};
    matches!(
        error.kind(),
        AlreadyExists | InvalidInput | NotFound | StorageFull
    )
}

/// Writes a small file: temporary name, sync, rename, directory sync. The name never shows a partial file.
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
