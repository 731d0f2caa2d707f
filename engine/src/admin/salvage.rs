//! Reads rows from the files that hold them, without a model, vectors of texts or codes.
//!
//! Use it to get data out of a database that can't be opened because its model is lost or its files are damaged.

use crate::columns::{self, Column, ColumnId, ColumnSource as _, ColumnValue, Schema};
use crate::disk::files::{Disk, Storage, list};
use crate::disk::layout::Layout;
use crate::error::{Error, Result};
use crate::ids::{LogId, RowId, SegmentId, Seq};
use crate::log::{self, Batch, Change};
use crate::metric::Metric;
use crate::row::ValueRef;
use crate::segment::columns::ColumnsFile;
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
    /// The keys of rows that could not be read, as far as they are known, and of rows that lack values of columns.
    pub lost_keys: Vec<String>,
}

/// A row that [`read_rows`] read.
#[derive(Debug)]
#[non_exhaustive]
pub struct ReadRow<'a> {
    /// The user's key.
    pub key: &'a str,
    /// The text or vector.
    pub value: ValueRef<'a>,
    /// The values of columns that are not null, by name.
    pub columns: BTreeMap<String, ColumnValue>,
}

/// Calls `each` with every live row, in the order of insertion.
///
/// Needs only the manifest, the files of rows, columns and deletions, and the logs of a database. Takes no lock; if a version
/// is retired while it is read, that is an error. With `skip_damage`, what can't be read is left out and listed; rows whose
/// deletion can't be read come back, which is listed too.
///
/// # Errors
/// [`Error::Corrupt`] at the first damage unless it is skipped; any error that `each` returns.
pub fn read_rows(
    dir: impl AsRef<Path>,
    skip_damage: bool,
    mut each: impl FnMut(ReadRow<'_>) -> Result<()>,
) -> Result<RowsRead> {
    let mut reading = Reading {
        disk: Disk::default(),
        layout: Layout::existing(dir.as_ref())?,
        skip_damage,
        found: RowsRead::default(),
        told: Vec::new(),
    };
    let record = reading.record()?;
    let changed = reading.logs(record.as_ref())?;
    let segments = reading.segments(record.as_ref())?;
    let schema = reading.schema(record.as_ref(), &segments)?;
    for segment in &segments {
        reading.segment(segment, &schema, &changed, &mut each)?;
    }
    let mut puts = BTreeMap::new();
    for (key, (seq, change)) in &changed {
        if let Some(put) = change {
            puts.insert(*seq, (key, put));
        }
    }
    for (key, put) in puts.into_values() {
        let value = match &put.text {
            Some(text) => ValueRef::Text(text),
            None => ValueRef::Vector {
                stored: put.vector.as_ref(),
                norm: put.norm,
            },
        };
        let mut columns = BTreeMap::new();
        for column in schema.columns() {
            let value = put.columns.iter().find(|(id, _)| *id == column.id);
            if let Some((_, value)) = value
                && let Some(value) = value.clone().convert(column.kind)
            {
                columns.insert(column.name.clone(), value);
            }
        }
        each(ReadRow {
            key,
            value,
            columns,
        })?;
        reading.found.rows += 1;
    }
    Ok(reading.found)
}

struct Reading {
    disk: Disk,
    layout: Layout,
    skip_damage: bool,
    found: RowsRead,
    /// The columns that logs name, in their order.
    told: Vec<Column>,
}

/// The rows of a segment.
struct Segment {
    rows: RowsFile,
    live: Live,
    columns: Option<ColumnsFile>,
}

/// The last change of each key in the logs: a row, or its deletion.
type Changed = HashMap<Arc<str>, (Seq, Option<Put>)>;

/// A row from a log.
struct Put {
    text: Option<Arc<str>>,
    vector: Stored,
    norm: Option<f64>,
    columns: Vec<(ColumnId, ColumnValue)>,
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
            for batch in batches {
                self.told.extend_from_slice(&batch.columns.named);
                take(&batch, &mut changed);
            }
        }
        Ok(changed)
    }

    /// The rows files and their live rows, oldest first.
    fn segments(&mut self, record: Option<&VersionRecord>) -> Result<Vec<Segment>> {
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
            let columns = match segment.columns {
                Some(_) => self.columns(&rows)?,
                None => None,
            };
            segments.push(Segment {
                rows,
                live,
                columns,
            });
        }
        Ok(segments)
    }

    /// The columns: those of the record and of the logs behind it, or else those that files and logs tell of.
    fn schema(&mut self, record: Option<&VersionRecord>, segments: &[Segment]) -> Result<Schema> {
        let Some(record) = record else {
            let files = segments
                .iter()
                .filter_map(|segment| segment.columns.as_ref());
            let files = files.flat_map(|file| file.schema().columns().to_vec());
            return Ok(Schema::told(files.chain(std::mem::take(&mut self.told))));
        };
        let mut schema = record.columns.clone();
        for column in std::mem::take(&mut self.told) {
            if let Err(why) = schema.merge(&[column]) {
                let logs = self.layout.logs();
                self.damaged(Error::corrupt(logs, "record", 0, why))?;
            }
        }
        Ok(schema)
    }

    /// Opens the columns file of a segment's rows.
    fn columns(&mut self, rows: &RowsFile) -> Result<Option<ColumnsFile>> {
        let path = FileName::Columns(rows.meta().segment).within(&self.layout.segments());
        let opened = ColumnsFile::open(&self.disk, &path);
        match opened.and_then(|columns| columns.expect_rows(rows).map(|()| columns)) {
            Ok(columns) => Ok(Some(columns)),
            Err(e) => self.damaged(e).map(|()| None),
        }
    }

    /// Finds the rows files without a record: every one that no compaction has replaced, without the rows that any
    /// deletion file marks as dead.
    fn all_segments(&mut self) -> Result<Vec<Segment>> {
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
        let mut segments = Vec::new();
        for (id, (rows, live)) in open {
            let columns = match names.contains(&FileName::Columns(id)) {
                true => self.columns(&rows)?,
                false => None,
            };
            segments.push(Segment {
                rows,
                live,
                columns,
            });
        }
        segments.sort_by_key(|segment| segment.rows.summary().seqs.map(|(first, _)| first));
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
        segment: &Segment,
        schema: &Schema,
        changed: &Changed,
        each: &mut impl FnMut(ReadRow<'_>) -> Result<()>,
    ) -> Result<()> {
        let Segment {
            rows,
            live,
            columns,
        } = segment;
        let mut last = String::new();
        rows.salvage(|row| {
            match row {
                Salvaged::Row(row) => {
                    let newer = changed.get(row.key).is_some_and(|(seq, _)| *seq > row.seq);
                    if live.contains(row.row) && !newer {
                        let mut values = BTreeMap::new();
                        if let Some(file) = columns
                            && let Err(why) = values_of(file, schema, row.row, &mut values)
                        {
                            self.found.lost_keys.push(row.key.to_owned());
                            let said = why.to_string();
                            if said != last {
                                self.damaged(why)?;
                                last = said;
                            }
                        }
                        each(ReadRow {
                            key: row.key,
                            value: row.value,
                            columns: values,
                        })?;
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

/// Adds the values of a row, as far as they can be read. Returns the first error.
fn values_of(
    file: &ColumnsFile,
    schema: &Schema,
    row: RowId,
    values: &mut BTreeMap<String, ColumnValue>,
) -> Result<()> {
    let mut outcome = Ok(());
    for column in schema.columns() {
        let Some(read) = file.column(column.id) else {
            continue;
        };
        match columns::value_as(read, row.0 as usize, column.kind) {
            Ok(ColumnValue::Null) => {}
            Ok(value) => drop(values.insert(column.name.clone(), value)),
            Err(e) => outcome = outcome.and(Err(e)),
        }
    }
    outcome
}

fn take(batch: &Batch, changed: &mut Changed) {
    let mut puts = 0;
    for (seq, change, vector) in batch.iter() {
        let row = puts;
        puts += usize::from(change.is_put());
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
                    columns: (batch.columns.batch.columns())
                        .map(|(id, data)| (id, data.value(row).to_value()))
                        .filter(|(_, value)| *value != ColumnValue::Null)
                        .collect(),
                })
            }
            _ => None,
        };
        changed.insert(Arc::clone(change.key()), (seq, put));
    }
}
