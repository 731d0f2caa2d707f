//! Writing words on a failing disk: an error, and no file is left.

use super::*;
use crate::disk::files::{NewFile, OpenFile, Storage};
use crate::disk::mmap::Mapping;
use crate::error::{Error, Result};
use std::io::{self, Write};
use std::sync::Mutex;

/// Fails the `nth` operation, and counts all.
#[derive(Debug, Clone, Default)]
struct Failing(Arc<Mutex<(usize, Option<usize>)>>);

impl Failing {
    fn step(&self) -> io::Result<()> {
        let mut count = self.0.lock().unwrap();
        count.0 += 1;
        match count.1 == Some(count.0 - 1) {
            true => Err(io::Error::from(io::ErrorKind::StorageFull)),
            false => Ok(()),
        }
    }
}

impl Storage for Failing {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        DISK.read(path)
    }
    fn len(&self, path: &Path) -> io::Result<u64> {
        DISK.len(path)
    }
    fn map(&self, path: &Path) -> io::Result<Mapping> {
        self.step()?;
        DISK.map(path)
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        DISK.open(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        DISK.list(path)
    }
}

impl Files for Failing {
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        self.step()?;
        Ok(Box::new(FailingFile(DISK.create(path)?, self.clone())))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        DISK.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        DISK.link(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        DISK.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        DISK.remove_dir(path)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        DISK.create_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        DISK.sync_dir(path)
    }
}

struct FailingFile(Box<dyn NewFile>, Failing);

impl Write for FailingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.step()?;
        self.0.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl NewFile for FailingFile {
    fn sync(&mut self) -> io::Result<()> {
        self.1.step()?;
        self.0.sync()
    }
}

/// Writes enough words that some files go to disk, in several pieces.
fn write_much(files: &Failing, dir: &Path) -> Result<()> {
    let rows = 4000;
    let mut words = writer(Arc::new(files.clone()), dir, Settings::default(), rows);
    for row in 0..rows {
        if row == rows / 2 {
            words.put_aside()?;
        }
        let text: Vec<_> = (0..100)
            .map(|at| format!("word{}", row * 70 + at))
            .collect();
        words.push(Some(&text.join(" ")))?;
    }
    words.finish().map(drop)
}

#[test]
fn any_failing_operation_is_reported_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let counting = Failing::default();
    write_much(&counting, dir.path()).unwrap();
    let path = path(dir.path(), Settings::default());
    std::fs::remove_file(&path).unwrap();
    let operations = counting.0.lock().unwrap().0;
    assert!(operations > 20, "{operations} operations");
    // The first and the last operation, and a few in between.
    let some =
        (0..operations).filter(|n| *n < 3 || *n + 6 > operations || n % (operations / 6) == 0);
    for nth in some {
        let failing = Failing::default();
        failing.0.lock().unwrap().1 = Some(nth);
        let error = write_much(&failing, dir.path()).unwrap_err();
        let full = matches!(&error, Error::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull);
        assert!(full, "operation {nth}: {error}");
        let left = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 0, "operation {nth}");
    }
}
