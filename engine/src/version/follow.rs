//! Following the versions that another process commits. Takes no lock and writes nothing.

use crate::columns::MaskCache;
use crate::disk::files::Storage;
use crate::disk::layout::Layout;
use crate::error::{Error, Result};
use crate::ids::{LogId, Seq};
use crate::log;
use crate::options::ReadOptions;
use crate::scan::Scanner;
use crate::snapshot::Snapshot;
use crate::version::publish::Versions;
use crate::version::{VersionRecord, load, manifest, replay};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A database as a reader last loaded it.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) layout: Layout,
    storage: Arc<dyn Storage>,
    options: ReadOptions,
    versions: Versions<Snapshot>,
    /// The state that the snapshot was made from. A refresh holds the lock.
    seen: Mutex<Seen>,
}

/// The record and logs that were read so far.
#[derive(Debug, Clone)]
struct Seen {
    record: VersionRecord,
    logs: SeenLogs,
}

/// How far the live logs were read.
#[derive(Debug, Clone)]
struct SeenLogs {
    /// The end of the last complete record in each log.
    ends: BTreeMap<LogId, u64>,
    /// Batches from this `Seq` on are new.
    next: Seq,
}

/// The writer may retire files while they are opened. It rarely does so several times in a row.
const ATTEMPTS: usize = 100;

impl Follower {
    /// Opens the newest version.
    pub(crate) fn open(
        storage: Arc<dyn Storage>,
        dir: &Path,
        options: ReadOptions,
    ) -> Result<Self> {
        let layout = Layout::existing(dir)?;
        let scanner = Arc::new(Scanner::new(options.threads)?);
        let masks = Arc::new(MaskCache::new(options.filter_memory));
        let under = (scanner, masks);
        let (seen, snapshot) = read(&storage, &layout, &options, &under, None)?;
        Ok(Self {
            layout,
            storage,
            options,
            versions: Versions::new(snapshot),
            seen: Mutex::new(seen),
        })
    }

    /// Loads what was written since the last refresh. Returns `true` if anything was new.
    pub(crate) fn refresh(&self) -> Result<bool> {
        let mut seen = self.seen.lock().unwrap_or_else(|e| e.into_inner());
        let current = self.versions.current();
        let newest = manifest::newest(&*self.storage, self.layout.dir())?;
        if newest == seen.record {
            let mut next = Snapshot::clone(&current);
            let mut logs = seen.logs.clone();
            match read_logs(&*self.storage, &self.layout, &newest, &mut next, &mut logs) {
                Ok(news) if unmoved(&*self.storage, &self.layout, &newest)? => {
                    if news {
                        seen.logs = logs;
                        self.versions.publish(next);
                    }
                    return Ok(news);
                }
                // The writer committed another version during the read, and a log that was never read may be gone: read
                // everything.
                Ok(_) => {}
                Err(e) if e.is_gone() => {}
                Err(e) => return Err(e),
            }
        }
        let under = (Arc::clone(&current.scanner), Arc::clone(&current.masks));
        let (next_seen, next) = read(
            &self.storage,
            &self.layout,
            &self.options,
            &under,
            Some(&current),
        )?;
        *seen = next_seen;
        self.versions.publish(next);
        Ok(true)
    }

    /// Returns the snapshot of the last refresh.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.versions.current()
    }

    /// Returns the version record of the snapshot.
    pub(crate) fn record(&self) -> VersionRecord {
        let seen = self.seen.lock().unwrap_or_else(|e| e.into_inner());
        seen.record.clone()
    }
}

/// Reads the newest version completely: segments and every live log. Then checks that no newer manifest appeared.
fn read(
    storage: &Arc<dyn Storage>,
    layout: &Layout,
    options: &ReadOptions,
    under: &(Arc<Scanner>, Arc<MaskCache>),
    before: Option<&Snapshot>,
) -> Result<(Seen, Snapshot)> {
    let mut attempt = 0;
    loop {
        let record = manifest::newest(&**storage, layout.dir())?;
        let outcome = read_version(storage, layout, options, under, before, &record);
        attempt += 1;
        match outcome {
            Ok(read) if unmoved(&**storage, layout, &record)? => return Ok(read),
            // A log may have been retired before the logs were listed, so rows may be missing.
            Ok(_) if attempt < ATTEMPTS => {}
            Ok(_) => {
                let busy =
                    "the writer committed new versions faster than one could be read; try again";
                let busy = std::io::Error::new(std::io::ErrorKind::TimedOut, busy);
                return Err(Error::io("reading", layout.dir())(busy));
            }
            // A missing file was retired if there is a newer manifest. Otherwise it is lost.
            Err(e)
                if e.is_gone() && attempt < ATTEMPTS && !unmoved(&**storage, layout, &record)? => {}
            Err(e) if e.is_gone() => return Err(missing(e)),
            Err(e) => return Err(e),
        }
    }
}

fn read_version(
    storage: &Arc<dyn Storage>,
    layout: &Layout,
    options: &ReadOptions,
    under: &(Arc<Scanner>, Arc<MaskCache>),
    before: Option<&Snapshot>,
    record: &VersionRecord,
) -> Result<(Seen, Snapshot)> {
    let model = match before {
        Some(before)
            if (before.model.id(), before.model.words_choice()) == (record.model, record.words) =>
        {
            Arc::clone(&before.model)
        }
        _ => load::model(storage, layout, record, options)?,
    };
    let storage = &**storage;
    let mut snapshot = load::snapshot(storage, layout, record, model, under.clone(), before)?;
    let mut logs = SeenLogs {
        ends: BTreeMap::new(),
        next: record.first_seq,
    };
    read_logs(storage, layout, record, &mut snapshot, &mut logs)?;
    Ok((
        Seen {
            record: record.clone(),
            logs,
        },
        snapshot,
    ))
}

/// Continues to read the live logs from where the last read ended. Returns `true` if anything was new. What follows the
/// last complete record is a write in progress, or one that a crash interrupted; only the writer can tell which.
fn read_logs(
    storage: &dyn Storage,
    layout: &Layout,
    record: &VersionRecord,
    snapshot: &mut Snapshot,
    logs: &mut SeenLogs,
) -> Result<bool> {
    let mut news = false;
    for id in replay::live_logs(storage, layout, record)? {
        let path = layout.logs().join(log::name(id));
        let from = logs.ends.get(&id).copied().unwrap_or(0);
        if from > 0 && storage.len(&path).map_err(Error::io("reading", &path))? <= from {
            continue;
        }
        let bytes = storage.read(&path).map_err(Error::io("reading", &path))?;
        let contents = log::read(&path, id, &bytes, from)?;
        logs.ends.insert(id, contents.end);
        let applied = replay::apply_log(&path, contents, snapshot, &mut logs.next)?;
        news |= !applied.is_empty();
    }
    Ok(news)
}

fn unmoved(storage: &dyn Storage, layout: &Layout, record: &VersionRecord) -> Result<bool> {
    let newest = manifest::generations(storage, layout.dir())?
        .last()
        .copied();
    Ok(newest == Some(record.generation))
}

fn missing(error: Error) -> Error {
    match error {
        Error::Io { path, .. } => Error::corrupt(
            path,
            "file",
            0,
            "it is missing, but the newest version needs it; repair the database",
        ),
        other => other,
    }
}
