//! Committing a version: write the data, then the names, then the record to catalog and manifest.

use super::Store;
use super::locks::MayChangeSegments;
use super::write_segment::{CodedRows, NewSegment, write_segment};
use crate::columns::Schema;
use crate::disk::files::{Files, Storage};
use crate::disk::layout::Layout;
use crate::disk::reserve::Reserve;
use crate::error::{Error, Result};
use crate::ids::{DatabaseId, Generation, LogId, SegmentId, Seq};
use crate::log::{self, Batch, LogWriter};
use crate::model::Model;
use crate::segment::SegmentRecord;
use crate::segment::{Deletions, FileName};
use crate::snapshot::Snapshot;
use crate::version::VersionRecord;
use crate::version::catalog::Catalog;
use crate::version::manifest;
use crate::version::record::RECORD_VERSION;
use crate::version::replay::Replayed;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The log, catalog and record, guarded by the committer's lock.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) catalog: Catalog,
    pub(crate) record: VersionRecord,
    /// Made when the first batch needs it.
    log: Option<LogWriter>,
    pub(crate) next_log: LogId,
    pub(crate) next_segment: SegmentId,
    /// Bytes of live logs that were closed.
    pub(crate) closed_bytes: u64,
    /// Why nothing more is written through this handle.
    failed: Option<String>,
    /// Released when the disk is full, for small writes and for those that free space.
    reserve: Arc<Reserve>,
}

/// What a new version changes.
#[derive(Debug)]
pub(crate) struct Change {
    /// Its snapshot: model, segments, tail.
    pub(crate) snapshot: Snapshot,
    /// Logs before this are no longer needed.
    pub(crate) first_log: LogId,
    /// The first `Seq` that may be in a live log.
    pub(crate) first_seq: Seq,
}

/// What a segment may be written to when the disk is full.
#[derive(Debug, Clone, Copy)]
pub(super) enum Room {
    /// Only free space: no caller waits, and the operation is retried soon.
    Free,
    /// The reserve too: the user asked for the operation, and it frees more space in the end.
    Reserve,
}

impl Committer {
    pub(crate) fn new(
        catalog: Catalog,
        record: VersionRecord,
        replayed: &Replayed,
        next_segment: SegmentId,
        reserve: Arc<Reserve>,
    ) -> Self {
        Self {
            catalog,
            record,
            log: None,
            next_log: replayed.next_log,
            next_segment,
            closed_bytes: replayed.bytes,
            failed: None,
            reserve,
        }
    }

    /// Refuses, once something went wrong whose outcome is unknown.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(why) => Err(Error::OutcomeUnknown(why.clone())),
        }
    }

    fn fail(&mut self, error: Error) -> Error {
        self.failed.get_or_insert_with(|| error.cause());
        error.outcome_unknown()
    }

    /// Adds a batch to what the next sync writes, starting a log where there is none.
    pub(super) fn append(
        &mut self,
        files: &dyn Files,
        layout: &Layout,
        batch: &Batch,
    ) -> Result<()> {
        self.check()?;
        let log = match &mut self.log {
            Some(log) => log,
            none => {
                let next = &mut self.next_log;
                none.insert(self.reserve.spend(|| {
                    // An id is used once, even by a log whose creation failed.
                    let id = *next;
                    *next = LogId(id.0 + 1);
                    LogWriter::create(files, &layout.logs(), id)
                })?)
            }
        };
        log.append(batch)
    }

    /// Syncs everything that was appended.
    pub(super) fn sync_log(&mut self) -> Result<()> {
        self.check()?;
        let reserve = Arc::clone(&self.reserve);
        match &mut self.log {
            None => Ok(()),
            Some(log) => log
                .sync_making_room(|left| reserve.give_up_for(left))
                .map_err(|e| self.fail(e)),
        }
    }

    /// Closes the log in order; the next batch starts another. Returns the first log that will be needed then.
    pub(crate) fn rotate(&mut self) -> Result<LogId> {
        self.check()?;
        if let Some(log) = self.log.take() {
            self.closed_bytes += log.bytes();
            let reserve = Arc::clone(&self.reserve);
            log.end_making_room(|left| reserve.give_up_for(left))
                .map_err(|e| self.fail(e))?;
        }
        Ok(self.next_log)
    }

    /// Returns the number of bytes of all live logs.
    pub(super) fn log_bytes(&self) -> u64 {
        self.closed_bytes + self.log.as_ref().map_or(0, LogWriter::bytes)
    }

    /// Returns the id of a new segment.
    pub(crate) fn take_segment(&mut self) -> SegmentId {
        let id = self.next_segment;
        self.next_segment = SegmentId(id.0 + 1);
        id
    }

    /// Closes the log, at the end.
    pub(super) fn close(&mut self) -> Result<()> {
        match self.log.take() {
            Some(log) if self.failed.is_none() => log.end(),
            _ => Ok(()),
        }
    }

    /// Commits a record to both witnesses, in order.
    pub(crate) fn witness(
        &mut self,
        files: &dyn Files,
        layout: &Layout,
        record: VersionRecord,
    ) -> Result<()> {
        self.check()?;
        let reserve = &self.reserve;
        let committed = (self.catalog.commit_spending(&record, reserve))
            .and_then(|()| reserve.spend(|| manifest::publish(files, layout.dir(), &record)));
        committed.map_err(|e| self.fail(e))?;
        self.record = record;
        Ok(())
    }
}

impl Store {
    /// Writes and syncs the files of a new segment. Returns the hash of its columns file, if it has one. On failure the files are removed, because they take
    /// space.
    pub(super) fn write_files(
        &self,
        new: &NewSegment,
        under: (&Model, &Schema),
        source: &dyn CodedRows,
        room: Room,
    ) -> Result<Option<u64>> {
        let dir = self.layout.segments();
        let write = || {
            let written = write_segment(&self.files, &dir, new, under, source);
            let written = written.and_then(|columns| {
                let synced = self.files.sync_dir(&dir);
                synced.map_err(Error::io("syncing", &dir))?;
                Ok(columns)
            });
            if written.is_err() {
                remove_segment(&*self.files, &self.layout, new.id);
            }
            written
        };
        let written = match room {
            Room::Free => write(),
            Room::Reserve => self.reserve.spend(write),
        };
        if written.is_err() {
            self.reserve.restore_if_it_fits(self.current().rows());
        }
        written
    }

    /// Commits the record of an older format again in this program's: before a log is begun that an older program could
    /// not read, so that it refuses the database by name.
    pub(super) fn adopt_format(&self, committer: &mut Committer) -> Result<()> {
        if committer.record.version == RECORD_VERSION {
            return Ok(());
        }
        committer.check()?;
        tracing::warn!(
            "{}: format {} becomes format {RECORD_VERSION}; older programs can't open it any more",
            self.layout.dir().display(),
            committer.record.version
        );
        let mut snapshot = Snapshot::clone(&self.current());
        snapshot.generation = Generation(committer.record.generation.0 + 1);
        let record = VersionRecord {
            version: RECORD_VERSION,
            generation: snapshot.generation,
            store: Some(snapshot.model.precision()),
            database: Some(DatabaseId::random()?),
            ..committer.record.clone()
        };
        committer.witness(&*self.files, &self.layout, record)?;
        self.versions.publish(snapshot);
        manifest::prune(&*self.files, self.layout.dir());
        Ok(())
    }

    /// Commits a version: writes the deletion files it needs, then the witnesses, then shows its snapshot.
    ///
    /// Requires: the files of new segments are written and synced.
    pub(crate) fn commit_version(
        &self,
        _held: &dyn MayChangeSegments,
        committer: &mut Committer,
        change: Change,
    ) -> Result<()> {
        committer.check()?;
        let Change {
            mut snapshot,
            first_log,
            first_seq,
        } = change;
        let generation = Generation(committer.record.generation.0 + 1);
        let dir = self.layout.segments();
        let mut segments = Vec::with_capacity(snapshot.segments.len());
        let named: HashMap<SegmentId, SegmentRecord> = (committer.record.segments.iter())
            .map(|segment| (segment.id, segment.clone()))
            .collect();
        for view in snapshot.segments.iter() {
            let (id, rows, dead) = (view.sealed.id, view.live.row_count(), view.live.dead());
            let before = named.get(&id);
            let deletions = match before {
                _ if dead == 0 => None,
                // Rows only ever die: as many dead rows as before are the same dead rows.
                Some(before) if before.dead == dead => before.deletions,
                _ => {
                    let mut deletions = Deletions::none(id, generation, rows);
                    for row in view.live.dead_rows() {
                        deletions.insert(row);
                    }
                    let path = deletions.name().within(&dir);
                    self.reserve
                        .spend(|| deletions.write(Arc::clone(&self.files), &path))?;
                    Some(generation)
                }
            };
            let rows_hash = view.sealed.rows.hash().0;
            segments.push(SegmentRecord {
                id,
                rows,
                rows_hash,
                dead,
                deletions,
                columns: view.sealed.columns_hash(),
            });
        }
        self.files
            .sync_dir(&dir)
            .map_err(Error::io("syncing", &dir))?;
        snapshot.generation = generation;
        let model = &snapshot.model;
        let before = committer.record.clone();
        let mut serving = before.serving.clone();
        match snapshot.serving {
            Some(settings) => drop(serving.insert(model.model_id(), settings)),
            None => drop(serving.remove(&model.model_id())),
        }
        let record = VersionRecord {
            version: RECORD_VERSION,
            generation,
            metric: model.metric(),
            rows: model.kind(),
            dim: model.dim() as u32,
            store: Some(model.precision()),
            database: Some(match committer.record.database {
                Some(database) => database,
                None => DatabaseId::random()?,
            }),
            words: model.words_choice(),
            columns: Schema::clone(&snapshot.schema),
            serving,
            encoder: model.encoder_id(),
            model: model.id(),
            segments,
            first_log,
            first_seq,
            next_segment: committer.next_segment,
        };
        let masks = Arc::clone(&snapshot.masks);
        committer.witness(&*self.files, &self.layout, record)?;
        self.versions.publish(snapshot);
        committer.closed_bytes = closed_log_bytes(&*self.files, &self.layout, committer);
        for id in retire(&*self.files, &self.layout, &before, &committer.record) {
            masks.forget(id);
        }
        if committer.record.first_log > before.first_log {
            // The logs that recovery could not carry over are retired.
            self.in_place.store(false, Ordering::SeqCst);
        }
        self.reserve
            .restore_if_it_fits(committer.record.rows_stored());
        Ok(())
    }
}

/// Bytes of the logs that are still needed and closed.
fn closed_log_bytes(files: &dyn Storage, layout: &Layout, committer: &Committer) -> u64 {
    let open = committer.log.as_ref().map(LogWriter::id);
    let names = files.list(&layout.logs()).unwrap_or_default();
    let closed = names.iter().filter_map(|name| {
        let id = log::parse_name(name)?;
        (id >= committer.record.first_log && Some(id) != open).then_some(name)
    });
    closed
        .filter_map(|name| files.len(&layout.logs().join(name)).ok())
        .sum()
}

/// Removes what the record before named and this one does not: segments, deletion files, logs, old manifests. Open
/// mappings live on. What can't be removed now is removed at the next open.
/// Returns the segments that are no more.
fn retire(
    files: &dyn Files,
    layout: &Layout,
    before: &VersionRecord,
    now: &VersionRecord,
) -> HashSet<SegmentId> {
    manifest::prune(files, layout.dir());
    for name in files.list(&layout.logs()).unwrap_or_default() {
        if log::parse_name(&name).is_some_and(|id| id < now.first_log) {
            remove(files, &layout.logs().join(name));
        }
    }
    let kept: HashMap<SegmentId, Option<Generation>> =
        now.segments.iter().map(|s| (s.id, s.deletions)).collect();
    let retired: HashSet<SegmentId> = before
        .segments
        .iter()
        .map(|s| s.id)
        .filter(|id| !kept.contains_key(id))
        .collect();
    for segment in &before.segments {
        if let Some(version) = segment.deletions
            && kept.get(&segment.id) != Some(&Some(version))
        {
            remove(
                files,
                &FileName::Deletions(segment.id, version).within(&layout.segments()),
            );
        }
    }
    if !retired.is_empty() {
        remove_segments(files, layout, |id| retired.contains(&id));
    }
    retired
}

/// Removes the files of some segments. Rows go last: without them nothing says what the others belonged to.
fn remove_segments(files: &dyn Files, layout: &Layout, is: impl Fn(SegmentId) -> bool) {
    let names = files.list(&layout.segments()).unwrap_or_default();
    let names = names
        .iter()
        .filter_map(|name| name.parse::<FileName>().ok());
    let mut names: Vec<FileName> = names.filter(|file| is(file.segment())).collect();
    names.sort_by_key(|file| matches!(file, FileName::Rows(_)));
    for file in names {
        remove(files, &file.within(&layout.segments()));
    }
}

/// Removes the files of a segment that no version names: all its rows died while it was written, or writing it failed.
pub(super) fn remove_segment(files: &dyn Files, layout: &Layout, id: SegmentId) {
    remove_segments(files, layout, |segment| segment == id);
}

fn remove(files: &dyn Files, path: &Path) {
    match files.remove(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            tracing::debug!("{} stays: {e}", path.display());
        }
        _ => {}
    }
}
