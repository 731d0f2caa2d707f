//! Writers on a failing disk: an error, no file with its final name, and nothing left that prevents a second attempt.

use super::*;
use crate::disk::files::{NewFile, OpenFile};
use crate::disk::mmap::Mapping;
use crate::{Error, Result};
use std::io::{self, Write};
use std::sync::Mutex;

/// Fails the `nth` operation, and counts all operations.
#[derive(Debug, Clone, Default)]
struct Failing(Arc<Mutex<Countdown>>);

#[derive(Debug, Default)]
struct Countdown {
    done: usize,
    fails: Option<usize>,
    failed: &'static str,
}

impl Failing {
    fn step(&self, what: &'static str) -> io::Result<()> {
        let mut count = self.0.lock().unwrap();
        count.done += 1;
        if count.fails == Some(count.done - 1) {
            count.failed = what;
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(())
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
        self.step("map")?;
        DISK.map(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        DISK.list(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        DISK.open(path)
    }
}

impl Files for Failing {
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        self.step("create")?;
        Ok(Box::new(FailingFile(DISK.create(path)?, self.clone())))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step("rename")?;
        DISK.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        DISK.link(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step("remove")?;
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
    /// Writes half of the bytes before it fails.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Err(error) = self.1.step("write") {
            self.0.write_all(&bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        self.0.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.1.step("flush")?;
        self.0.flush()
    }
}

impl NewFile for FailingFile {
    fn sync(&mut self) -> io::Result<()> {
        self.1.step("sync")?;
        self.0.sync()
    }
    fn read_only(&mut self) -> io::Result<()> {
        self.1.step("read_only")?;
        self.0.read_only()
    }
}

fn write_rows(files: &Failing, path: &Path) -> Result<RowsSummary> {
    let mut writer = RowsWriter::create(Arc::new(files.clone()), path, about(None))?;
    for i in 0..30 {
        let key = format!("{i:02}").repeat(MAX_KEY / 2);
        writer.push(Seq(i), &key, ValueRef::Text("text"))?;
    }
    writer.finish()
}

#[test]
fn no_failing_operation_leaves_a_partial_file_with_its_final_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = FileName::Rows(SEGMENT).within(dir.path());
    let counting = Failing::default();
    write_rows(&counting, &path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let operations = counting.0.lock().unwrap().done;
    assert!(
        operations > 30,
        "{operations} operations, those of the keys' second file among them"
    );
    for nth in 0..operations {
        let failing = Failing::default();
        failing.0.lock().unwrap().fails = Some(nth);
        match write_rows(&failing, &path) {
            Err(Error::Io { source, .. }) => {
                assert_eq!(source.kind(), io::ErrorKind::StorageFull, "operation {nth}");
                assert!(!path.exists(), "operation {nth}");
            }
            // Only the removal of a temporary file may fail silently.
            done => {
                assert!(done.is_ok(), "operation {nth}: {done:?}");
                assert_eq!(
                    failing.0.lock().unwrap().failed,
                    "remove",
                    "operation {nth}"
                );
            }
        }
        // A second attempt succeeds, whatever was left.
        let _ = std::fs::remove_file(&path);
        write_rows(&Failing::default(), &path).unwrap();
        let damage = RowsFile::open(&DISK, &path).unwrap().verify();
        assert!(damage.is_empty(), "{damage:?}");
        std::fs::remove_file(&path).unwrap();
    }
}
