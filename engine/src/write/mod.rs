//! The one writing process of a database: what [`Database`](crate::Database) holds, and how it changes.
//!
//! A write passes through three stages. The *caller* checks, encodes and quantizes its rows under a snapshot, with
//! no lock ([`prepare`]). The *queue* gives them their `Seq`s, in the order of calls. The first thread to get the
//! *committer* takes everything queued, writes it to the log with one sync, applies it to a copy of the newest
//! snapshot and publishes that ([`group`]). Segments are written with no lock held, and named by a new version under
//! the committer's ([`commit`]).

mod change_columns;
mod change_where;
mod commit;
mod compact;
mod group;
mod living;
mod locks;
mod open;
mod prepare;
mod seal;
pub(crate) mod sealer;
mod write_segment;

pub(crate) use crate::threads::lock;
pub(crate) use commit::{Change, Committer};
pub use compact::Compacted;
use group::Queue;
pub(crate) use locks::{Compacting, Sealing};
use locks::{Locks, Opening};
pub(crate) use write_segment::{
    CodesSink, NewSegment, Rows, TakeRow, TakeVectors, write_columns, write_rows,
};

use crate::disk::files::Files;
use crate::disk::layout::Layout;
use crate::disk::lock::FileLock;
use crate::disk::reserve::Reserve;
use crate::error::is_full;
use crate::error::{Error, Result};
use crate::ids::{LogId, Seq};
use crate::options::Options;
use crate::row::Serving;
use crate::row::{Inserted, RowBatch};
use crate::snapshot::Snapshot;
use crate::version::publish::Versions;
use crate::watch::Watch;
use crate::write::sealer::Bell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Everything that the handles of one open database share.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) layout: Layout,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) options: Options,
    pub(crate) versions: Versions<Snapshot>,
    pub(crate) queue: Mutex<Queue>,
    pub(crate) commit: Mutex<Committer>,
    /// Held by those who change the list of segments.
    locks: Locks,
    /// Wakes the sealing thread.
    pub(crate) bell: Bell,
    /// Room for a full disk; the committer has it too.
    pub(crate) reserve: Arc<Reserve>,
    /// Recovery had no space to copy the logs. They are used as they are, and accept no rows until a seal has
    /// retired them.
    pub(crate) in_place: AtomicBool,
    pub(crate) warnings: Vec<String>,
    /// Last, so that it is freed last.
    pub(crate) _lock: FileLock,
}

impl Store {
    /// Returns the newest snapshot.
    pub(crate) fn current(&self) -> Arc<Snapshot> {
        self.versions.current()
    }

    /// Returns the version of the format that the record is written in.
    pub(crate) fn format(&self) -> u32 {
        lock(&self.commit).record.version
    }

    /// Inserts or replaces rows; returns when they are durable.
    pub(crate) fn insert(&self, rows: RowBatch<'_>, watch: &Watch) -> Result<Inserted> {
        self.expect_room()?;
        loop {
            let snapshot = self.current();
            let prepared = prepare::insert(&snapshot, rows, watch)?;
            watch.check()?;
            let mut inserted = prepared.inserted;
            if prepared.changes.is_empty() {
                return Ok(inserted);
            }
            let puts = prepared.changes.len() as u64;
            // None: the model was switched while we encoded. Once more, under the new one.
            if let Some(killed) = self.write(prepared)? {
                inserted.replaced += killed;
                inserted.new += puts - killed;
                self.seal_or_warn();
                return Ok(inserted);
            }
        }
    }

    /// Deletes rows; returns how many there were, when it is durable.
    pub(crate) fn delete(&self, keys: &[&str]) -> Result<u64> {
        loop {
            let snapshot = self.current();
            let prepared = prepare::delete(&snapshot, keys)?;
            if prepared.changes.is_empty() {
                return Ok(0);
            }
            if let Some(killed) = self.write(prepared)? {
                self.seal_or_warn();
                return Ok(killed);
            }
        }
    }
}

impl Store {
    /// Seals what is due. The rows are already durable: a failure is logged, and the next write tries again.
    fn seal_or_warn(&self) {
        if let Err(e) = self.seal_if_due() {
            tracing::warn!("sealing: {e}");
        }
    }

    /// Returns an error while the disk is full: the remaining space is reserved for operations that free space.
    fn expect_room(&self) -> Result<()> {
        let refused = |e: Error| match e {
            Error::Io { source, .. } if is_full(&source) => {
                let detail = format!(
                    "{source}: no rows are inserted until there is room; deleting rows, compacting and pruning work, and \
                     free some"
                );
                Error::io("inserting", self.layout.dir())(io::Error::new(source.kind(), detail))
            }
            other => other,
        };
        if self.in_place.load(Ordering::SeqCst) {
            self.seal().map_err(refused)?;
        }
        if !self.reserve.is_whole() {
            match self.reserve.restore(self.current().rows()) {
                Err(e) if e.is_full() => return Err(refused(e)),
                // If the reserve is missing for another reason, rows can be inserted as long as there is
                // space.
                Err(e) => tracing::debug!("no reserve: {e}"),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Names the log to which recovery carried everything over.
    fn commit_carried(&self, opening: &Opening, first_log: LogId, first_seq: Seq) -> Result<()> {
        let snapshot = Snapshot::clone(&self.current());
        self.commit_version(
            opening,
            &mut lock(&self.commit),
            Change {
                snapshot,
                first_log,
                first_seq,
            },
        )
    }

    /// Commits settings of queries under the active model.
    pub(crate) fn serve(&self, serving: Serving) -> Result<()> {
        let compacting = self.start_compacting();
        let mut committer = lock(&self.commit);
        self.flush(&mut committer);
        let mut snapshot = Snapshot::clone(&self.current());
        snapshot.serving = Some(serving);
        let (first_log, first_seq) = (committer.record.first_log, committer.record.first_seq);
        let change = Change {
            snapshot,
            first_log,
            first_seq,
        };
        self.commit_version(&compacting, &mut committer, change)
    }

    /// Closes the log in order.
    pub(crate) fn close(mut self) -> Result<()> {
        self.commit
            .get_mut()
            .unwrap_or_else(|e| e.into_inner())
            .close()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let committer = self.commit.get_mut().unwrap_or_else(|e| e.into_inner());
        if let Err(e) = committer.close() {
            // What was acknowledged is synced; only the END record is missing, and recovery does without.
            tracing::warn!("closing the log: {e}");
        }
    }
}
