//! Reads rows from the files that hold them, without a model, vectors of texts or codes.
//!
//! Use it to get data out of a database that can't be opened because its model is lost or its files are damaged.

use crate::disk::files::{Disk, Storage, list};
use crate::disk::layout::Layout;
use crate::error::{Error, Result};
use crate::ids::{LogId, RowId, SegmentId, Seq};
use crate::log::{self, Batch, Change};
use crate::metric::Metric;
use crate::row::ValueRef;
use crate::segment::{Deletions, FileName, RowsFile, Salvaged};
use crate::stored::{Precision, Stored};
use crate::version::VersionRecord;
use crate::version::manifest;
use crate::view::live::Live;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

/// The result of [`read_rows`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RowsRead {
    /// The number of rows read.
    pub rows: u64,
    /// The damage, in words. Always empty unless damage is skipped.
    pub damage: Vec<String>,
    /// The keys of rows that could not be read, as far as they are known.
    pub lost_keys: Vec<String>,
}

/// Calls `each` with every live row, in the order of insertion.
///
/// Needs only the manifest, rows files, deletions and logs of a database. Takes no lock; if a version is retired while
/// it is read, that is an error. With `skip_damage`, what can't be read is left out and listed; rows whose deletion
/// can't be read come back, which is listed too.
///
/// # Errors
/// [`Error::Corrupt`] at the first damage unless it is skipped; any error that `each` returns.
pub fn read_rows(
    dir: impl AsRef<Path>,
    skip_damage: bool,
    mut each: impl FnMut(&str, ValueRef<'_>) -> Result<()>,
) -> Result<RowsRead> {
    let mut reading = Reading {
        disk: Disk::default(),
        layout: Layout::existing(dir.as_ref())?,
        skip_damage,
        found: RowsRead::default(),
    };
    let record = reading.record()?;
    let changed = reading.logs(record.as_ref())?;
    for (rows, live) in reading.segments(record.as_ref())? {
        reading.segment(&rows, &live, &changed, &mut each)?;
    }
    let mut puts = BTreeMap::new();
    for (key, (seq, change)) in &changed {
        if let Some(put) = change {
            puts.insert(*seq, (key, put));
        }
    }
    for (key, put) in puts.into_values() {
        match &put.text {
            Some(text) => each(key, ValueRef::Text(text))?,
            None => {
                let (stored, norm) = (put.vector.as_ref(), put.norm);
                each(key, ValueRef::Vector { stored, norm })?;
            }
        }
        reading.found.rows += 1;
    }
    Ok(reading.found)
}

struct Reading {
    disk: Disk,
    layout: Layout,
    skip_damage: bool,
    found: RowsRead,
}

/// The last change of each key in the logs: a row, or its deletion.
type Changed = HashMap<Arc<str>, (Seq, Option<Put>)>;

/// A row from a log.
struct Put {
    text: Option<Arc<str>>,
    vector: Stored,
    norm: Option<f64>,
}

impl Reading {
    /// Records damage and continues, or returns it as an error.
    fn damaged(&mut self, error: Error) -> Result<()> {
        if !self.skip_damage {
            return Err(error);
        }
        self.found.damage.push(error.to_string());
        Ok(())
    }

    /// Returns the newest valid record.
    fn record(&mut self) -> Result<Option<VersionRecord>> {
        let dir = self.layout.dir().to_path_buf();
        if !self.skip_damage {
            return manifest::newest(&self.disk, &dir).map(Some);
        }
        for &generation in manifest::generations(&self.disk, &dir)?.iter().rev() {
            match manifest::read(&self.disk, &dir, generation)? {
                manifest::Found::Record(record) => return Ok(Some(*record)),
                manifest::Found::Damaged(what) => {
                    let path = manifest::path(&dir, generation);
                    self.damaged(Error::corrupt(path, "record", 0, what))?;
                }
                manifest::Found::Absent => {}
            }
        }
        self.layout.expect_folders()?;
        self.damaged(Error::corrupt(&dir, "record", 0, "no manifest is intact"))?;
        Ok(None)
    }

    fn logs(&mut self, record: Option<&VersionRecord>) -> Result<Changed> {
        let dir = self.layout.logs();
        let first = record.map_or(LogId(0), |record| record.first_log);
        let mut ids: Vec<LogId> = (list(&self.disk, &dir)?.iter())
            .filter_map(|name| log::parse_name(name))
            .filter(|&id| id >= first)
            .collect();
        ids.sort_unstable();
        let mut changed = Changed::new();
        for id in ids {
            let path = dir.join(log::name(id));
            let bytes = self.disk.read(&path).map_err(Error::io("reading", &path))?;
            let batches = match log::read(&path, id, &bytes, 0) {
                Ok(contents) => contents.batches,
                Err(e) => {
                    self.damaged(e)?;
                    log::salvage(id, &bytes).batches
                }
            };
            batches
                .into_iter()
                .for_each(|batch| take(&batch, &mut changed));
        }
        Ok(changed)
    }

    /// The rows files and their live rows, oldest first.
    fn segments(&mut self, record: Option<&VersionRecord>) -> Result<Vec<(RowsFile, Live)>> {
        let dir = self.layout.segments();
        let Some(record) = record else {
            return self.all_segments();
        };
        let mut segments = Vec::new();
        for segment in &record.segments {
            let known = (record.metric, Some(record.precision()));
            let Some(rows) = self.open(segment.id, known)? else {
                continue;
            };
            let mut live = Live::all(rows.row_count() as u32);
            if let Some(version) = segment.deletions {
                let path = FileName::Deletions(segment.id, version).within(&dir);
                match Deletions::read(&self.disk, &path) {
                    Ok(deletions) => live = Live::without(live.row_count(), deletions.words()),
                    Err(e) => self.damaged(e)?,
                }
            }
            segments.push((rows, live));
        }
        Ok(segments)
    }

    /// Finds the rows files without a record: every one that no compaction has replaced, without the rows that any
    /// deletion file marks as dead.
    fn all_segments(&mut self) -> Result<Vec<(RowsFile, Live)>> {
        let dir = self.layout.segments();
        let mut open: BTreeMap<SegmentId, (RowsFile, Live)> = BTreeMap::new();
        let names = list(&self.disk, &dir)?;
        let names: Vec<FileName> = names.iter().filter_map(|name| name.parse().ok()).collect();
        for &name in &names {
            if let FileName::Rows(id) = name
                && let Some(rows) = self.open(id, (Metric::Cosine, None))?
            {
                let live = Live::all(rows.row_count() as u32);
                open.insert(id, (rows, live));
            }
        }
        for &name in &names {
            if let FileName::Deletions(id, _) = name
                && let Some((_, live)) = open.get_mut(&id)
            {
                match Deletions::read(&self.disk, &name.within(&dir)) {
                    Ok(deletions) => deletions
                        .iter()
                        .filter(|row| row.0 < live.row_count())
                        .collect::<Vec<RowId>>()
                        .into_iter()
                        .for_each(|row| {
                            live.kill(row);
                        }),
                    Err(e) => self.damaged(e)?,
                }
            }
        }
        let replaced: BTreeSet<SegmentId> = (open.values())
            .flat_map(|(rows, _)| rows.meta().replaces.iter().copied())
            .collect();
        open.retain(|id, _| !replaced.contains(id));
        let mut segments: Vec<_> = open.into_values().collect();
        segments.sort_by_key(|(rows, _)| rows.summary().seqs.map(|(first, _)| first));
        Ok(segments)
    }

    /// Opens a rows file; metric and precision are given as far as they are known.
    fn open(
        &mut self,
        id: SegmentId,
        (metric, store): (Metric, Option<Precision>),
    ) -> Result<Option<RowsFile>> {
        let path = FileName::Rows(id).within(&self.layout.segments());
        let opened = match self.skip_damage {
            true => RowsFile::open_damaged(&self.disk, &path, metric, store),
            false => RowsFile::open(&self.disk, &path),
        };
        match opened {
            Ok(rows) => Ok(Some(rows)),
            Err(e) => self.damaged(e).map(|()| None),
        }
    }

    fn segment(
        &mut self,
        rows: &RowsFile,
        live: &Live,
        changed: &Changed,
        each: &mut impl FnMut(&str, ValueRef<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut last = String::new();
        rows.salvage(|row| {
            match row {
                Salvaged::Row(row) => {
                    let newer = changed.get(row.key).is_some_and(|(seq, _)| *seq > row.seq);
                    if live.contains(row.row) && !newer {
                        each(row.key, row.value)?;
                        self.found.rows += 1;
                    }
                }
                Salvaged::Lost { row, key, why } => {
                    let newer = key.is_some_and(|key| changed.contains_key(key));
                    if live.contains(row) && !newer {
                        self.found.lost_keys.extend(key.map(str::to_owned));
                        // Report one line per damaged block, not one per row.
                        let said = why.to_string();
                        if said != last {
                            self.damaged(why)?;
                            last = said;
                        }
                    }
                }
            }
            Ok(())
        })
    }
}

fn take(batch: &Batch, changed: &mut Changed) {
    for (seq, change, vector) in batch.iter() {
        if (changed.get(change.key())).is_some_and(|(newest, _)| *newest > seq) {
            continue;
        }
        let put = match (change, vector) {
            (Change::Put { text, norm, .. }, Some(vector)) => {
                let mut stored = Stored::none(vector.precision());
                stored.extend(vector);
                Some(Put {
                    text: text.clone(),
                    vector: stored,
                    norm: *norm,
                })
            }
            _ => None,
        };
        changed.insert(Arc::clone(change.key()), (seq, put));
    }
}
