//! Cleaning up at open: removes files of segments and logs that no version needs.
//!
//! A file that holds rows is removed only for a reason that can be seen on disk: its rows were never committed, they
//! are in another file, or all of them are dead. Any other file that the record does not name moves to `orphans/`, with
//! a warning for the user.

use crate::disk::files::{Files, temporary};
use crate::disk::files::{Storage, list};
use crate::disk::layout::Layout;
use crate::disk::orphans::orphan;
use crate::disk::reserve::Reserve;
use crate::error::{Error, Result};
use crate::ids::{RowId, SegmentId, Seq};
use crate::log;
use crate::segment::{Component, Deletions, FileName, RowsFile};
use crate::snapshot::Snapshot;
use crate::version::VersionRecord;
use crate::version::manifest;
use crate::version::replay::live_logs;
use crate::version::witnesses::Witnesses;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// What happens to files that the record does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Explained, so it was removed.
    Removed,
    /// Unexplained, so it was moved to `orphans/`.
    Orphaned,
}

/// Removes leftovers of a crash and retired files, and moves unexplained files to `orphans/`. If a witness had to be
/// restored, everything moves to `orphans/`. A segment of a newer version whose rows are in no other file means that
/// the record is not the newest, which is [`Error::Corrupt`].
pub(crate) fn clean(
    files: &dyn Files,
    layout: &Layout,
    reserve: &Reserve,
    witnesses: &Witnesses,
    snapshot: &Snapshot,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let record = &witnesses.record;
    let trusted = !witnesses.restored;
    // Usually there is nothing to clean, and no log has to be read again.
    let logged = match is_tidy(files, layout, record)? {
        true => LiveBatches::new(),
        false => live_batches(files, layout, record)?,
    };
    let (mut removed, mut orphaned) =
        segments(files, layout, record, (snapshot, &logged), warnings)?;
    let (old_logs, odd_logs) = logs(files, layout, record, &logged, warnings)?;
    orphaned.extend(odd_logs);
    removed.sort_by_key(|path| path.extension().is_some_and(|ext| ext == "rows"));
    for path in removed.into_iter().chain(old_logs) {
        if trusted || path.extension().is_some_and(|ext| ext == "tmp") {
            remove(files, &path);
        } else {
            orphaned.push(path);
        }
    }
    for path in orphaned {
        match reserve.spend(|| orphan(files, layout, &path)) {
            Err(e) if e.is_full() => warnings.push(format!(
                "{} could not be moved, since the disk is full ({e}); the next opening tries again",
                path.display()
            )),
            outcome => drop(outcome?),
        }
    }
    // A reserve that was being created when its writer stopped.
    let unfinished = temporary(&layout.reserve());
    if files.len(&unfinished).is_ok() {
        remove(files, &unfinished);
    }
    manifest::prune(files, layout.dir());
    Ok(())
}

/// Returns `true` if the record names every rows file, and every log is live.
fn is_tidy(files: &dyn Storage, layout: &Layout, record: &VersionRecord) -> Result<bool> {
    let named = |id| record.segments.iter().any(|segment| segment.id == id);
    let rows = list(files, &layout.segments())?
        .iter()
        .all(|name| !matches!(name.parse(), Ok(FileName::Rows(id)) if !named(id)));
    let logs = list(files, &layout.logs())?
        .iter()
        .all(|name| log::parse_name(name).is_none_or(|id| id >= record.first_log));
    Ok(rows && logs)
}

/// Returns the segment files to remove, and those to move to `orphans/`.
fn segments(
    files: &dyn Storage,
    layout: &Layout,
    record: &VersionRecord,
    (snapshot, logged): (&Snapshot, &LiveBatches),
    warnings: &mut Vec<String>,
) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let dir = layout.segments();
    let named: HashMap<SegmentId, _> = (record.segments.iter())
        .map(|segment| (segment.id, segment.deletions))
        .collect();
    let replaced: HashSet<SegmentId> = (snapshot.segments.iter())
        .flat_map(|view| view.sealed.rows.meta().replaces.iter().copied())
        .collect();
    let names = list(files, &dir)?;
    let parsed: Vec<FileName> = names.iter().filter_map(|name| name.parse().ok()).collect();
    let mut fates: HashMap<SegmentId, Fate> = HashMap::new();
    for &file in &parsed {
        let FileName::Rows(id) = file else { continue };
        if named.contains_key(&id) {
            continue;
        }
        let path = FileName::Rows(id).within(&dir);
        let rows = RowsFile::open(files, &path).ok();
        let spent = |rows| is_spent(files, &dir, rows, record, logged, &parsed).unwrap_or(false);
        let explained = replaced.contains(&id) || rows.as_ref().is_some_and(spent);
        if let Some(rows) = &rows
            && !explained
            && rows.meta().version > record.generation
        {
            let detail = format!(
                "it was written for version {}, but the newest known version is {}; repair the database",
                rows.meta().version,
                record.generation
            );
            return Err(Error::corrupt(path, "meta", 0, detail));
        }
        if !explained {
            warnings.push(format!(
                "segment {id} is not part of version {} and no reason was found; its files were moved to {}; a repair with `restore` brings its rows back",
                record.generation,
                layout.orphans().display()
            ));
        }
        let fate = if explained {
            Fate::Removed
        } else {
            Fate::Orphaned
        };
        fates.insert(id, fate);
    }
    let (mut removed, mut orphaned) = (Vec::new(), Vec::new());
    for name in names {
        let fate = match name.parse::<FileName>() {
            Ok(file) => match (named.get(&file.segment()), file) {
                (Some(live), FileName::Deletions(_, version)) if *live != Some(version) => {
                    Fate::Removed
                }
                // Codes and vecs of a live segment under other models stay until `prune`.
                (Some(_), _) => continue,
                (None, _) => match fates.get(&file.segment()) {
                    Some(fate) => *fate,
                    // What the user gave, of rows that are gone: they go last.
                    None if file.component() == Component::Columns
                        && !replaced.contains(&file.segment()) =>
                    {
                        warnings.push(format!(
                            "{name} has columns of rows that are not there; it moved to {}",
                            layout.orphans().display()
                        ));
                        Fate::Orphaned
                    }
                    // Without a rows file, the other files belong to nothing.
                    None => Fate::Removed,
                },
            },
            Err(()) if name.ends_with(".tmp") => Fate::Removed,
            Err(()) => continue,
        };
        match fate {
            Fate::Removed => removed.push(dir.join(name)),
            Fate::Orphaned => orphaned.push(dir.join(name)),
        }
    }
    Ok((removed, orphaned))
}

/// The batches of the live logs: the first and last `Seq` of each.
pub(crate) type LiveBatches = BTreeMap<Seq, Seq>;

/// Returns `true` if a rows file was never committed, so that its rows are still in live logs or segments.
pub(crate) fn is_leftover(
    rows: &RowsFile,
    record: &VersionRecord,
    logged: &LiveBatches,
) -> Result<bool> {
    let dir = rows.path().parent().unwrap_or(Path::new("."));
    let there = |id: &SegmentId| {
        record.segments.iter().any(|segment| segment.id == *id)
            && FileName::Rows(*id).within(dir).is_file()
    };
    let inputs = &rows.meta().replaces;
    if !inputs.is_empty() && inputs.iter().all(there) {
        return Ok(true);
    }
    for row in (0..rows.row_count() as u32).map(RowId) {
        let seq = rows.seq(row)?;
        let batch = logged.range(..=seq).next_back();
        if batch.is_none_or(|(_, end)| *end <= seq) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns `true` if a rows file is a leftover, or has no live row.
fn is_spent(
    files: &dyn Storage,
    dir: &Path,
    rows: &RowsFile,
    record: &VersionRecord,
    logged: &LiveBatches,
    parsed: &[FileName],
) -> Result<bool> {
    if is_leftover(rows, record, logged)? {
        return Ok(true);
    }
    for &file in parsed {
        if let FileName::Deletions(of, _) = file
            && of == rows.meta().segment
            && Deletions::read(files, &file.within(dir))?.dead() as usize == rows.row_count()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the retired logs to remove, and those to move to `orphans/`.
fn logs(
    files: &dyn Storage,
    layout: &Layout,
    record: &VersionRecord,
    logged: &LiveBatches,
    warnings: &mut Vec<String>,
) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut removed, mut orphaned) = (Vec::new(), Vec::new());
    for name in list(files, &layout.logs())? {
        let Some(id) = log::parse_name(&name).filter(|&id| id < record.first_log) else {
            continue;
        };
        let path = layout.logs().join(&name);
        let batches = files
            .read(&path)
            .map_err(Error::io("reading", &path))
            .and_then(|bytes| log::read(&path, id, &bytes, 0))
            .map(|contents| contents.batches);
        let explained = match batches {
            Err(_) => false,
            Ok(batches) => batches
                .iter()
                .all(|batch| batch.end() <= record.first_seq || logged.contains_key(&batch.first)),
        };
        if explained {
            removed.push(path);
        } else {
            warnings.push(format!(
                "log {id} is not part of version {} and may hold changes that no segment has; it was moved to {}",
                record.generation,
                layout.orphans().display()
            ));
            orphaned.push(path);
        }
    }
    Ok((removed, orphaned))
}

/// Returns the batches of the live logs, as far as they can be read.
pub(crate) fn live_batches(
    files: &dyn Storage,
    layout: &Layout,
    record: &VersionRecord,
) -> Result<LiveBatches> {
    let mut batches = LiveBatches::new();
    for id in live_logs(files, layout, record)? {
        let path = layout.logs().join(log::name(id));
        let bytes = files.read(&path).map_err(Error::io("reading", &path))?;
        let found = log::salvage(id, &bytes).batches;
        batches.extend(found.iter().map(|batch| (batch.first, batch.end())));
    }
    Ok(batches)
}

fn remove(files: &dyn Files, path: &Path) {
    if let Err(e) = files.remove(path) {
        tracing::debug!("{} stays: {e}", path.display());
    }
}
