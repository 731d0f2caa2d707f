//! The first copy of the newest [`VersionRecord`], in sled. Only this file uses sled.
//!
//! After one flipped bit, sled 0.34.7 may open an older state or an empty one without an error, and it may panic. So it
//! holds one small record that the manifests hold too, and is never trusted alone if they disagree (see
//! [`crate::version::recover`]). Any error or panic while it opens means only that this copy is unavailable.

use crate::disk::reserve::Reserve;
use crate::error::{Error, Result};
use crate::version::record::{BadRecord, VersionRecord};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

const RECORD: &[u8] = b"version";

/// The open sled directory of a database.
pub(crate) struct Catalog {
    path: PathBuf,
    /// `None` if reopening failed.
    db: Option<sled::Db>,
}

/// The contents of the catalog.
#[derive(Debug)]
pub(crate) enum Testimony {
    /// A valid record.
    Record(Box<VersionRecord>),
    /// No usable record, with the reason.
    Nothing(String),
}

impl Catalog {
    /// Opens sled in this directory, creating it if missing. On an error the caller moves the directory away and opens
    /// an empty one.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        // The database's lock is held, so no other process uses this catalog. But a child that another thread is
        // starting may hold a handle that was just dropped, and sled's own lock with it, until it calls exec. That is
        // no reason to move the catalog aside.
        let mut patience = 50;
        loop {
            match Self::try_open(path) {
                Err(why) if why.to_string().contains("could not acquire lock") && patience > 0 => {
                    patience -= 1;
                    std::thread::sleep(Duration::from_millis(10));
                }
                outcome => return outcome,
            }
        }
    }

    fn try_open(path: &Path) -> io::Result<Self> {
        let opened = quietly(|| {
            sled::Config::new()
                .path(path)
                .cache_capacity(1 << 20)
                // Every write is flushed explicitly, so sled needs no background thread that wakes twice per second.
                .flush_every_ms(None)
                .open()
        });
        match opened {
            Ok(Ok(db)) => Ok(Self {
                path: path.into(),
                db: Some(db),
            }),
            Ok(Err(e)) => Err(io_error(e)),
            Err(panic) => Err(io::Error::other(format!("sled panicked: {panic}"))),
        }
    }

    /// Opens the catalog again, after an error.
    fn reopen(&mut self) -> io::Result<()> {
        // sled's lock is freed when the last handle is dropped.
        self.db = None;
        self.db = Self::open(&self.path)?.db;
        Ok(())
    }

    /// Returns the record in the catalog.
    pub(crate) fn read(&self) -> Result<Testimony> {
        let Some(db) = &self.db else {
            return Ok(Testimony::Nothing("it could not be reopened".into()));
        };
        let bytes = match quietly(|| db.get(RECORD)) {
            Ok(Ok(Some(bytes))) => bytes,
            Ok(Ok(None)) => return Ok(Testimony::Nothing("it is empty".into())),
            Ok(Err(e)) => return Ok(Testimony::Nothing(e.to_string())),
            Err(panic) => return Ok(Testimony::Nothing(format!("sled panicked: {panic}"))),
        };
        match VersionRecord::decode(&bytes) {
            Ok(record) => Ok(Testimony::Record(Box::new(record))),
            Err(BadRecord::Damaged(what)) => Ok(Testimony::Nothing(what)),
            Err(future @ BadRecord::Future(_)) => Err(Error::Incompatible {
                path: self.path.clone(),
                what: future.to_string(),
            }),
        }
    }

    /// Stores this record, durably.
    pub(crate) fn commit(&self, record: &VersionRecord) -> Result<()> {
        let failed = Error::io("committing to the catalog", &self.path);
        let Some(db) = &self.db else {
            return Err(failed(io::Error::other("it could not be reopened")));
        };
        match quietly(|| {
            db.insert(RECORD, record.encode())?;
            db.flush()
        }) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(e)) => Err(failed(io_error(e))),
            Err(panic) => Err(failed(io::Error::other(format!("sled panicked: {panic}")))),
        }
    }
}

impl Catalog {
    /// Like [`commit`](Self::commit), but removes the reserve if the disk is full. sled refuses all work after its
    /// first error, so it is opened again; if it lost an earlier record, the manifests have that record.
    pub(crate) fn commit_spending(
        &mut self,
        record: &VersionRecord,
        reserve: &Reserve,
    ) -> Result<()> {
        match self.commit(record) {
            Err(e) if e.is_full() && reserve.give_up() => {
                self.reopen()
                    .map_err(Error::io("opening the catalog", &self.path))?;
                self.commit(record)
            }
            outcome => outcome,
        }
    }
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog").field("path", &self.path).finish()
    }
}

/// sled's error. Errors of the operating system keep their kind: a full disk is not damage.
fn io_error(error: sled::Error) -> io::Error {
    match error {
        sled::Error::Io(e) => e,
        other => io::Error::other(other.to_string()),
    }
}

/// Calls sled and turns a panic into a message.
fn quietly<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
            .unwrap_or_else(|| "without a message".into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::record::tests::record;

    #[test]
    fn the_last_committed_record_is_read_after_reopening() {
        let dir = tempfile::tempdir().unwrap();
        {
            let catalog = Catalog::open(dir.path()).unwrap();
            assert!(matches!(catalog.read().unwrap(), Testimony::Nothing(_)));
            catalog.commit(&record(1)).unwrap();
            catalog.commit(&record(2)).unwrap();
        }
        let catalog = Catalog::open(dir.path()).unwrap();
        let Testimony::Record(found) = catalog.read().unwrap() else {
            panic!("no record")
        };
        assert_eq!(*found, record(2));
    }
}
