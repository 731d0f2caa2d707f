//! Mending a database that does not open: from its second witness, or from its segments themselves.

use crate::bundle::Bundle;
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::files::{Disk, Files};
use crate::ids::{Generation, LogId, RowId, SegmentId, Seq};
use crate::layout::Layout;
use crate::lock::FileLock;
use crate::log::{self, Batch, Change};
use crate::manifest;
use crate::model::Model;
use crate::recover::{self, orphan};
use crate::sealed::Sealed;
use crate::segment::{Deletions, FileName, RowsFile, Values};
use crate::version::{RowsKind, SegmentRecord, VersionRecord};
use crate::{Database, Options};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;

/// What a repair did.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Repaired {
    /// In words, what was mended and what was lost; empty if nothing was amiss.
    pub done: Vec<String>,
    /// Living rows now.
    pub rows: u64,
}

/// Mends a database: a witness from the other, or, where neither holds the newest version, the version itself from the
/// segments' headers, deletion files and logs. Rows that were deleted or compacted away stay so. What is damaged beyond
/// that is put aside in `orphans/`, and said. Takes the writer's lock.
pub fn repair(dir: impl AsRef<Path>) -> Result<Repaired> {
    let layout = Layout::existing(dir.as_ref())?;
    if !layout.segments().is_dir() || !layout.logs().is_dir() {
        return Err(Error::Incompatible {
            path: layout.dir().into(),
            what: "not a mopqdb database".into(),
        });
    }
    let mut done = Vec::new();
    {
        let _lock = FileLock::acquire(&layout.lock())?;
        let disk: Arc<dyn Files> = Arc::new(Disk::default());
        let witnesses = recover::witnesses(&*disk, &layout, &mut done);
        let opens = witnesses.and_then(|w| opens(&*disk, &layout, &w.record));
        match opens {
            Ok(()) => {}
            Err(Error::Corrupt(damage)) => {
                done.push(damage.to_string());
                rebuild_version(&disk, &layout, &mut done)?;
            }
            Err(Error::Incompatible { .. })
                if manifest::generations(&*disk, layout.dir())?.is_empty() =>
            {
                done.push("all manifests and the catalog are missing".into());
                rebuild_version(&disk, &layout, &mut done)?;
            }
            Err(e) => return Err(e),
        }
    }
    let db = Database::open(
        layout.dir(),
        Options {
            auto_compact: false,
            ..Options::default()
        },
    )?;
    done.extend(db.warnings().iter().cloned());
    let rows = db.snapshot().rows();
    db.close()?;
    Ok(Repaired { done, rows })
}

/// Whether everything that a record names is there and can be opened.
fn opens(disk: &dyn Files, layout: &Layout, record: &VersionRecord) -> Result<()> {
    let model = recover::model(layout, record, &Options::default()).map_err(missing_is_damage)?;
    for segment in &record.segments {
        crate::sealed::SegmentView::open(disk, &layout.segments(), segment, &model)
            .map_err(missing_is_damage)?;
    }
    for id in recover::live_logs(disk, layout, record)? {
        let path = layout.logs().join(log::name(id));
        let bytes = disk.read(&path).map_err(Error::io("reading", &path))?;
        log::read(&path, id, &bytes, 0)?;
    }
    Ok(())
}

fn missing_is_damage(error: Error) -> Error {
    match error {
        Error::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Error::corrupt(path, "file", 0, "it is missing")
        }
        other => other,
    }
}

/// Makes a version out of what is on disk.
fn rebuild_version(disk: &Arc<dyn Files>, layout: &Layout, done: &mut Vec<String>) -> Result<()> {
    let dir = layout.segments();
    let found = Found::read(&**disk, layout, done)?;
    let whole = found.without_replaced();
    let model = choose_model(&**disk, layout, &whole, done)?;
    // A segment whose vectors or codes are damaged can't be served under the model: it is put aside.
    let mut segments = BTreeMap::new();
    for (id, rows) in &whole {
        match Sealed::open(&**disk, &dir, *id, &model) {
            Ok(_) => drop(segments.insert(*id, *rows)),
            Err(e) => {
                done.push(format!(
                    "segment {id} with {} rows was put aside: {e}",
                    rows.rows()
                ));
                for name in disk.list(&dir).map_err(Error::io("listing", &dir))? {
                    if name
                        .parse::<FileName>()
                        .is_ok_and(|file| file.segment() == *id)
                    {
                        orphan(&**disk, layout, &dir.join(name))?;
                    }
                }
            }
        }
    }
    let sealed_to = segments
        .values()
        .filter_map(|rows| rows.summary().seqs)
        .map(|(_, last)| last)
        .max();
    let logs = Logs::read(&**disk, layout, sealed_to, done)?;
    let generation = Generation(found.generation.0.max(newest_manifest(&**disk, layout)?) + 1);
    let records = kill_and_record(
        disk,
        layout,
        &segments,
        &found.dead,
        &logs.tombstones,
        generation,
    )?;
    let record = VersionRecord {
        generation,
        metric: model.metric(),
        rows: model.rows(),
        dim: model.dim() as u32,
        encoder: model.encoder_id(),
        model: model.id(),
        segments: records,
        first_log: logs.first,
        first_seq: Seq(sealed_to.map_or(1, |seq| seq.0 + 1)),
        next_segment: SegmentId(found.next_segment),
    };
    if layout.catalog().exists() {
        orphan(&**disk, layout, &layout.catalog())?;
    }
    let catalog = Catalog::open(&layout.catalog()).map_err(|why| Error::Io {
        doing: "creating the catalog",
        path: layout.catalog(),
        source: std::io::Error::other(why),
    })?;
    catalog.commit(&record)?;
    manifest::publish(&**disk, layout.dir(), &record)?;
    done.push(format!(
        "version {generation} was made from {} segments and the logs from {} on",
        record.segments.len(),
        record.first_log
    ));
    Ok(())
}

fn newest_manifest(disk: &dyn Files, layout: &Layout) -> Result<u64> {
    Ok(manifest::generations(disk, layout.dir())?
        .last()
        .map_or(0, |n| n.0))
}

/// The segments on disk and the deletions that any file tells of.
struct Found {
    rows: BTreeMap<SegmentId, RowsFile>,
    dead: HashSet<Seq>,
    generation: Generation,
    next_segment: u64,
}

impl Found {
    fn read(disk: &dyn Files, layout: &Layout, done: &mut Vec<String>) -> Result<Self> {
        let dir = layout.segments();
        let mut found = Self {
            rows: BTreeMap::new(),
            dead: HashSet::new(),
            generation: Generation(0),
            next_segment: 1,
        };
        let mut deletions = Vec::new();
        for name in disk.list(&dir).map_err(Error::io("listing", &dir))? {
            let Ok(file) = name.parse::<FileName>() else {
                continue;
            };
            found.next_segment = found.next_segment.max(file.segment().0 + 1);
            let path = dir.join(&name);
            match file {
                FileName::Rows(id) => match RowsFile::open(disk, &path) {
                    Ok(rows) => {
                        found.generation = found.generation.max(rows.meta().version);
                        found.rows.insert(id, rows);
                    }
                    Err(e) => {
                        done.push(format!("a rows file is lost: {e}"));
                        orphan(disk, layout, &path)?;
                    }
                },
                FileName::Deletions(id, version) => {
                    found.generation = found.generation.max(version);
                    match Deletions::read(disk, &path) {
                        Ok(read) => deletions.push((id, read)),
                        Err(e) => done.push(format!("deletions are lost, rows may come back: {e}")),
                    }
                }
                _ => {}
            }
        }
        // A deletion is never undone, so any file that tells of one is right, whichever version it is of.
        for (id, deletions) in deletions {
            let Some(rows) = found.rows.get(&id) else {
                continue;
            };
            for row in deletions
                .iter()
                .filter(|row| (row.0 as usize) < rows.rows())
            {
                found.dead.insert(rows.seq(row)?);
            }
        }
        Ok(found)
    }

    /// The segments that no whole output of a compaction stands for.
    fn without_replaced(&self) -> BTreeMap<SegmentId, &RowsFile> {
        let replaced: BTreeSet<SegmentId> = self
            .rows
            .values()
            .flat_map(|rows| rows.meta().replaces.iter().copied())
            .collect();
        self.rows
            .iter()
            .filter(|(id, _)| !replaced.contains(id))
            .map(|(id, rows)| (*id, rows))
            .collect()
    }
}

/// What the logs on disk say.
struct Logs {
    /// Logs from this one on hold rows that are in no segment.
    first: LogId,
    /// Deletions in logs before that.
    tombstones: Vec<(String, Seq)>,
}

impl Logs {
    /// A log whose every `Seq` is in a segment's range was sealed: of its rows those that count are there; its deletions
    /// are taken again. A log that is damaged keeps the batches before the damage.
    fn read(
        disk: &dyn Files,
        layout: &Layout,
        sealed_to: Option<Seq>,
        done: &mut Vec<String>,
    ) -> Result<Self> {
        let names = disk
            .list(&layout.logs())
            .map_err(Error::io("listing", layout.logs()))?;
        let mut ids: Vec<LogId> = names
            .iter()
            .filter_map(|name| log::parse_name(name))
            .collect();
        ids.sort_unstable();
        let next = LogId(ids.last().map_or(1, |id| id.0 + 1));
        let mut logs = Self {
            first: next,
            tombstones: Vec::new(),
        };
        for &id in &ids {
            let path = layout.logs().join(log::name(id));
            let bytes = disk.read(&path).map_err(Error::io("reading", &path))?;
            let batches = match log::read(&path, id, &bytes, 0) {
                Ok(contents) => contents.batches,
                Err(e) => {
                    let kept = whole_batches(&path, id, &bytes);
                    done.push(format!(
                        "a log is damaged, its first {} batches are kept: {e}",
                        kept.len()
                    ));
                    orphan(disk, layout, &path)?;
                    rewrite(disk, layout, id, &kept)?;
                    kept
                }
            };
            let end = batches.iter().map(Batch::end).max();
            if end.is_some_and(|end| Some(Seq(end.0 - 1)) > sealed_to) {
                logs.first = logs.first.min(id);
            }
            if logs.first <= id {
                continue;
            }
            for batch in &batches {
                for (seq, change) in (batch.first.0..).map(Seq).zip(&batch.changes) {
                    // A row that was put again ends the older ones too.
                    logs.tombstones.push((change.key().to_string(), seq));
                    debug_assert!(matches!(change, Change::Put { .. } | Change::Delete { .. }));
                }
            }
        }
        Ok(logs)
    }
}

/// The batches before the first damage.
fn whole_batches(path: &Path, id: LogId, bytes: &[u8]) -> Vec<Batch> {
    // A log cut before the damage reads as one that a crash cut short there.
    let mut low = 0;
    let mut high = bytes.len();
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match log::read(path, id, &bytes[..middle], 0) {
            Ok(_) => low = middle,
            Err(_) => high = middle - 1,
        }
    }
    log::read(path, id, &bytes[..low], 0)
        .map(|contents| contents.batches)
        .unwrap_or_default()
}

fn rewrite(disk: &dyn Files, layout: &Layout, id: LogId, batches: &[Batch]) -> Result<()> {
    let mut writer = log::LogWriter::create(disk, &layout.logs(), id)?;
    for batch in batches {
        writer.append(batch)?;
    }
    writer.end()
}

/// The model under which every segment can be served: the newest one with codes, or the one that has none to need.
fn choose_model(
    disk: &dyn Files,
    layout: &Layout,
    segments: &BTreeMap<SegmentId, &RowsFile>,
    done: &mut Vec<String>,
) -> Result<Arc<Model>> {
    let mut candidates = Vec::new();
    for name in disk
        .list(&layout.models())
        .map_err(Error::io("listing", layout.models()))?
    {
        let path = layout.models().join(&name);
        if name.parse::<crate::ModelId>().is_err() {
            continue;
        }
        match Bundle::open(&path).and_then(|bundle| Model::open(bundle, 0)) {
            Ok(model) => {
                let age = std::fs::metadata(&path).and_then(|m| m.modified()).ok();
                candidates.push((age, model));
            }
            Err(e) => done.push(format!("a model is lost: {e}")),
        }
    }
    candidates.sort_by_key(|(age, _)| std::cmp::Reverse(*age));
    let mut models: Vec<Model> = candidates.into_iter().map(|(_, model)| model).collect();
    models.sort_by_key(|model| model.quantizer().is_none());
    let first = segments.values().next();
    if let Some(rows) = first
        && let Values::Vectors { dim } = rows.meta().values
    {
        models.push(Model::none(dim as usize, rows.meta().metric));
    }
    let served = |model: &Model| {
        let fits = first.is_none_or(|rows| {
            let texts = matches!(rows.meta().values, Values::Texts);
            rows.meta().metric == model.metric() && texts == (model.rows() == RowsKind::Text)
        });
        let all = segments
            .keys()
            .filter(|id| Sealed::open(disk, &layout.segments(), **id, model).is_ok())
            .count();
        (fits, all)
    };
    // The one that serves most segments; of equals the first in the order above.
    let counts: Vec<_> = models.iter().map(served).collect();
    let best = (0..models.len())
        .filter(|&at| counts[at].0)
        .max_by_key(|&at| (counts[at].1, std::cmp::Reverse(at)))
        .ok_or_else(|| {
            Error::corrupt(
                layout.models(),
                "models",
                0,
                "no model is left that could serve these segments",
            )
        })?;
    Ok(Arc::new(models.swap_remove(best)))
}

/// Marks dead what any witness knows to be dead, and older rows of a key; writes the deletion files.
fn kill_and_record(
    disk: &Arc<dyn Files>,
    layout: &Layout,
    segments: &BTreeMap<SegmentId, &RowsFile>,
    dead: &HashSet<Seq>,
    tombstones: &[(String, Seq)],
    generation: Generation,
) -> Result<Vec<SegmentRecord>> {
    let dir = layout.segments();
    let mut ordered: Vec<(SegmentId, &RowsFile)> =
        segments.iter().map(|(id, rows)| (*id, *rows)).collect();
    ordered.sort_by_key(|(_, rows)| rows.summary().seqs.map(|(first, _)| first));
    let mut records = Vec::new();
    for (at, (id, rows)) in ordered.iter().enumerate() {
        let mut deletions = Deletions::none(*id, generation, rows.rows() as u32);
        let mut cursor = rows.cursor();
        while let Some(row) = cursor.next()? {
            let mut newer = false;
            for (_, other) in &ordered[at + 1..] {
                newer |= other.find(row.key)?.is_some();
            }
            if newer || dead.contains(&row.seq) {
                deletions.insert(row.row);
            }
        }
        for (key, seq) in tombstones {
            if let Some(row) = rows.find(key)?
                && rows.seq(RowId(row.0))? < *seq
            {
                deletions.insert(row);
            }
        }
        let dead = deletions.dead();
        if dead > 0 {
            deletions.write(Arc::clone(disk), &deletions.name().within(&dir))?;
        }
        records.push(SegmentRecord {
            id: *id,
            rows: rows.rows() as u32,
            rows_hash: rows.hash().0,
            dead,
            deletions: (dead > 0).then_some(generation),
        });
    }
    disk.sync_dir(&dir).map_err(Error::io("syncing", &dir))?;
    Ok(records)
}
