//! Preparing a rebuild, in any process, as a reader.

use super::encode::encode_segment;
use super::ready::Ready;
use super::{RebuildOptions, Rebuilt, completed, has_files, is_served};
use crate::disk::files::Files;
use crate::disk::layout::Layout;
use crate::disk::lock::FileLock;
use crate::error::{Error, Result};
use crate::ids::ModelId;
use crate::model::Model;
use crate::model::registry;
use crate::options::ReadOptions;
use crate::version::VersionRecord;
use crate::version::follow::Follower;
use std::collections::HashSet;
use std::sync::Arc;

/// Stages every segment's files under the requested model and requests the commit. Does nothing if the model is active.
///
/// `seal` makes a segment of the rows that are in none yet, if this process may. Their work is then counted and
/// reported here and can be stopped, unlike in the commit.
pub(super) fn prepare(
    files: &Arc<dyn Files>,
    layout: &Layout,
    options: &RebuildOptions,
    seal: impl FnOnce() -> Result<()>,
) -> Result<(Option<Ready>, Rebuilt)> {
    let reader = Follower::open(
        files.clone(),
        layout.dir(),
        ReadOptions::default().threads(1),
    )?;
    let id = match options.model {
        Some(id) => id,
        None => newest(layout, &reader.record())?,
    };
    let mut rebuilt = Rebuilt {
        model: id,
        rows: 0,
        reused: 0,
        encoded: 0,
        indexed: 0,
    };
    let target = open_target(files, layout, id, &reader, options)?;
    if is_served(&reader.snapshot(), &target) {
        return Ok((None, rebuilt));
    }
    let has_all = has_files(&reader.snapshot(), &target);
    if !has_all {
        seal()?;
    }
    reader.refresh()?;
    // Opening a database commits an earlier rebuild that is ready.
    let base = reader.snapshot().model.id();
    if is_served(&reader.snapshot(), &target) {
        return Ok((None, rebuilt));
    }
    files
        .create_dir(&layout.staging())
        .map_err(Error::io("creating", layout.staging()))?;
    let lock = FileLock::acquire(&layout.prepare_lock())?;
    let staging = Ready::staging(layout, id);
    files
        .create_dir(&staging)
        .map_err(Error::io("creating", &staging))?;
    clear_unfinished(&**files, &staging)?;
    let segments = layout.segments();
    let mut finished = HashSet::new();
    loop {
        let snapshot = reader.snapshot();
        if snapshot.model.id() != base {
            return Err(Error::model(
                "another rebuild was committed in the meantime; run this one again",
            ));
        }
        let total: u64 = snapshot
            .segments
            .iter()
            .map(|view| view.sealed.rows.row_count() as u64)
            .sum();
        let mut rows = (snapshot.segments.iter())
            .filter(|view| finished.contains(&view.sealed.id))
            .map(|view| view.sealed.rows.row_count() as u64)
            .sum();
        let mut news = false;
        if has_all {
            // Only the scoring of candidates differs, so every file exists.
            rebuilt.reused = total;
            options.watch.report(total, total);
            break;
        }
        for view in snapshot.segments.iter() {
            if !finished.insert(view.sealed.id) {
                continue;
            }
            news = true;
            options.check_stop()?;
            let homes = [staging.as_path(), segments.as_path()];
            let encoded = encode_segment(
                files,
                &homes,
                &staging,
                view,
                &target,
                options,
                &mut |done| {
                    rows += done;
                    options.watch.report(rows, total);
                },
            )?;
            rebuilt.rows += encoded.rows;
            rebuilt.reused += encoded.reused;
            rebuilt.encoded += encoded.texts;
            rebuilt.indexed += encoded.indexed;
        }
        // The segments that were sealed in the meantime. Then only the tail is left, which the commit encodes.
        if !news || !reader.refresh()? {
            break;
        }
    }
    files
        .sync_dir(&staging)
        .map_err(Error::io("syncing", &staging))?;
    let ready = Ready { model: id, base };
    ready.request(&**files, layout)?;
    drop(lock);
    Ok((Some(ready), rebuilt))
}

/// Returns the model registered last.
fn newest(layout: &Layout, record: &VersionRecord) -> Result<ModelId> {
    registry::newest(layout, record.model_id(), record.encoder)?.ok_or_else(|| Error::NoModel {
        wanted: "to rebuild to, other than `exact`".into(),
    })
}

fn open_target(
    files: &Arc<dyn Files>,
    layout: &Layout,
    id: ModelId,
    reader: &Follower,
    options: &RebuildOptions,
) -> Result<Arc<Model>> {
    let active = Arc::clone(&reader.snapshot().model);
    let target = registry::open_to_serve(files, layout, &active, id, options.threads)?;
    let record = reader.record();
    let fits = target.metric() == record.metric
        && target.kind() == record.rows
        && (target.kind() == crate::row::RowsKind::Text || target.dim() == record.dim as usize);
    if !fits {
        return Err(Error::model(format!(
            "model {} is of another metric, width or kind than this database",
            id.short()
        )));
    }
    Ok(Arc::new(completed(target, &active)))
}

/// Removes files without a final name that an interrupted rebuild left.
fn clear_unfinished(files: &dyn Files, staging: &std::path::Path) -> Result<()> {
    for name in files.list(staging).map_err(Error::io("listing", staging))? {
        if name.ends_with(".tmp") {
            let path = staging.join(name);
            files.remove(&path).map_err(Error::io("removing", &path))?;
        }
    }
    Ok(())
}
