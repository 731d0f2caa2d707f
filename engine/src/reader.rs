//! A database, for a process that only reads it, beside the one that writes.

use crate::admin::backup::Backup;
use crate::admin::stats::Stats;
use crate::admin::verify::{Verified, VerifyOptions};
use crate::disk::files::{Disk, Files};
use crate::disk::layout::Layout;
use crate::error::{Error, Result};
use crate::ids::{LogId, Seq};
use crate::log;
use crate::model::Model;
use crate::options::Options;
use crate::row::{Hit, Query, QueryOptions, Row};
use crate::scan::Scanner;
use crate::snapshot::Snapshot;
use crate::version;
use crate::version::VersionRecord;
use crate::version::manifest;
use crate::version::publish::Versions;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A read-only handle to a database. Takes no lock, and needs no permission to write.
///
/// It sees the database as it was when it was opened or last [refreshed](Self::refresh), rows that are in no segment yet
/// included, and keeps every file that it needs open. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Reader(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    layout: Layout,
    files: Arc<dyn Files>,
    options: Options,
    versions: Versions<Snapshot>,
    /// What the snapshot stands on; held by a refresh.
    seen: Mutex<Seen>,
}

/// How far a reader has read.
#[derive(Debug, Clone)]
struct Seen {
    record: VersionRecord,
    logs: SeenLogs,
}

/// How far the live logs were read.
#[derive(Debug, Clone)]
struct SeenLogs {
    /// Where the whole records of each ended.
    ends: BTreeMap<LogId, u64>,
    /// Batches from this one on are new.
    next: Seq,
}

/// The writer may retire files while we open them; it does so a few times in a row at most.
const ATTEMPTS: usize = 100;

impl Reader {
    /// Opens a database for reading.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        let files: Arc<dyn Files> = Arc::new(Disk {
            no_mmap: options.no_mmap,
        });
        Self::open_on(files, dir.as_ref(), options)
    }

    /// The same on another [`Files`]: for tests.
    #[doc(hidden)]
    pub fn open_on(files: Arc<dyn Files>, dir: &Path, options: Options) -> Result<Self> {
        let layout = Layout::existing(dir)?;
        let scanner = Arc::new(Scanner::new(options.threads)?);
        let (seen, snapshot) = read(&*files, &layout, &options, &scanner, None)?;
        Ok(Self(Arc::new(Inner {
            layout,
            files,
            options,
            versions: Versions::new(snapshot),
            seen: Mutex::new(seen),
        })))
    }

    /// Looks for what was written since. Whether there was anything.
    pub fn refresh(&self) -> Result<bool> {
        let inner = &*self.0;
        let mut seen = inner.seen.lock().unwrap_or_else(|e| e.into_inner());
        let current = inner.versions.current();
        let newest = manifest::newest(&*inner.files, inner.layout.dir())?;
        if newest == seen.record {
            let mut next = Snapshot::clone(&current);
            let mut logs = seen.logs.clone();
            match read_logs(&*inner.files, &inner.layout, &newest, &mut next, &mut logs) {
                Ok(news) if unmoved(&*inner.files, &inner.layout, &newest)? => {
                    if news {
                        seen.logs = logs;
                        inner.versions.publish(next);
                    }
                    return Ok(news);
                }
                // The writer has moved on while we read, and a log that we never saw may be gone: read it all.
                Ok(_) => {}
                Err(e) if e.is_gone() => {}
                Err(e) => return Err(e),
            }
        }
        let scanner = Arc::clone(&current.scanner);
        let (next_seen, next) = read(
            &*inner.files,
            &inner.layout,
            &inner.options,
            &scanner,
            Some(&current),
        )?;
        *seen = next_seen;
        inner.versions.publish(next);
        Ok(true)
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        self.0.layout.dir()
    }

    /// The row with this key.
    pub fn get(&self, key: &str) -> Result<Option<Row>> {
        self.snapshot().get(key)
    }

    /// The k best rows for a text or a vector, best first; fewer if there are fewer rows.
    pub fn query<'q>(&self, query: impl Into<Query<'q>>, k: usize) -> Result<Vec<Hit>> {
        self.snapshot().query(query, k)
    }

    /// The best rows for a query, among those that the options' filter lets through.
    pub fn query_with<'q>(
        &self,
        query: impl Into<Query<'q>>,
        options: &QueryOptions,
    ) -> Result<Vec<Hit>> {
        self.snapshot().query_with(query, options)
    }

    /// The best rows for each of several queries, which share one pass over the codes.
    pub fn query_batch(
        &self,
        queries: &[Query<'_>],
        options: &QueryOptions,
    ) -> Result<Vec<Vec<Hit>>> {
        self.snapshot().query_batch(queries, options)
    }

    /// What queries see now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.0.versions.current()
    }

    /// The active model.
    pub fn model(&self) -> Arc<Model> {
        Arc::clone(self.snapshot().model())
    }

    /// Rows, bytes, segments, drift.
    pub fn stats(&self) -> Result<Stats> {
        Stats::of(&self.0.layout, &self.snapshot())
    }

    /// Copies the database as it is now to a directory that is missing or empty; see [`backup`](crate::backup()).
    pub fn backup(&self, dest: impl AsRef<Path>) -> Result<Backup> {
        crate::backup(self.dir(), dest)
    }

    /// Checks the database; see [`verify`](crate::verify()).
    pub fn verify(&self, options: &VerifyOptions) -> Result<Verified> {
        crate::verify(self.dir(), options)
    }

    /// The version record that this stands on.
    pub(crate) fn record(&self) -> VersionRecord {
        self.0
            .seen
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .record
            .clone()
    }
}

/// Reads the newest version whole: segments and every live log, then sees that the manifest has not moved.
fn read(
    files: &dyn Files,
    layout: &Layout,
    options: &Options,
    scanner: &Arc<Scanner>,
    before: Option<&Snapshot>,
) -> Result<(Seen, Snapshot)> {
    let mut attempt = 0;
    loop {
        let record = manifest::newest(files, layout.dir())?;
        let outcome = read_version(files, layout, options, scanner, before, &record);
        attempt += 1;
        match outcome {
            Ok(read) if unmoved(files, layout, &record)? => return Ok(read),
            // Logs may have been retired before they were listed: what was read may lack rows.
            Ok(_) if attempt < ATTEMPTS => {}
            Ok(_) => {
                let busy =
                    "the writer committed new versions faster than one could be read; try again";
                let busy = std::io::Error::new(std::io::ErrorKind::TimedOut, busy);
                return Err(Error::io("reading", layout.dir())(busy));
            }
            // A file that is gone was retired, if the manifest has moved; else it is missing.
            Err(e) if e.is_gone() && attempt < ATTEMPTS && !unmoved(files, layout, &record)? => {}
            Err(e) if e.is_gone() => return Err(missing(e)),
            Err(e) => return Err(e),
        }
    }
}

fn read_version(
    files: &dyn Files,
    layout: &Layout,
    options: &Options,
    scanner: &Arc<Scanner>,
    before: Option<&Snapshot>,
    record: &VersionRecord,
) -> Result<(Seen, Snapshot)> {
    let model = match before {
        Some(before) if before.model.id() == record.model => Arc::clone(&before.model),
        _ => version::load::model(layout, record, options)?,
    };
    let mut snapshot =
        version::load::snapshot(files, layout, record, model, Arc::clone(scanner), before)?;
    let mut logs = SeenLogs {
        ends: BTreeMap::new(),
        next: record.first_seq,
    };
    read_logs(files, layout, record, &mut snapshot, &mut logs)?;
    Ok((
        Seen {
            record: record.clone(),
            logs,
        },
        snapshot,
    ))
}

/// Reads the live logs on from where they ended. Whether there was anything new. What follows the last whole record is
/// a write in progress, or one that a crash cut short: the writer knows.
fn read_logs(
    files: &dyn Files,
    layout: &Layout,
    record: &VersionRecord,
    snapshot: &mut Snapshot,
    logs: &mut SeenLogs,
) -> Result<bool> {
    let mut news = false;
    for id in version::replay::live_logs(files, layout, record)? {
        let path = layout.logs().join(log::name(id));
        let from = logs.ends.get(&id).copied().unwrap_or(0);
        if from > 0 && files.len(&path).map_err(Error::io("reading", &path))? <= from {
            continue;
        }
        let bytes = files.read(&path).map_err(Error::io("reading", &path))?;
        let contents = log::read(&path, id, &bytes, from)?;
        logs.ends.insert(id, contents.end);
        let applied = version::replay::apply_log(&path, contents, snapshot, &mut logs.next)?;
        news |= !applied.is_empty();
    }
    Ok(news)
}

fn unmoved(files: &dyn Files, layout: &Layout, record: &VersionRecord) -> Result<bool> {
    let newest = manifest::generations(files, layout.dir())?.last().copied();
    Ok(newest == Some(record.generation))
}

fn missing(error: Error) -> Error {
    match error {
        Error::Io { path, .. } => Error::corrupt(
            path,
            "file",
            0,
            "it is missing, and the newest version names it; run `mopqdb repair`",
        ),
        other => other,
    }
}
