//! Committing a prepared rebuild, in the process that holds the lock.

use super::encode::encode_segment;
use super::ready::Ready;
use super::{RebuildOptions, completed, has_files};
use crate::disk::files::relocate;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::model::registry;
use crate::row::RowsKind;
use crate::snapshot::Snapshot;
use crate::version::VersionRecord;
use crate::view::segment::{Sealed, SegmentView};
use crate::write::{Change, Compacting, Sealing, Store, lock};
use std::path::Path;
use std::sync::Arc;

/// If a rebuild is ready, commits or declines it. Returns `true` if the model changed.
pub(crate) fn commit_if_ready(store: &Store) -> Result<bool> {
    let Some(ready) = Ready::read(&store.layout)? else {
        return Ok(false);
    };
    let compacting = store.start_compacting();
    // Another thread may have committed it while this one waited for the lock.
    if Ready::read(&store.layout)?.as_ref() != Some(&ready) {
        return Ok(false);
    }
    let active = Arc::clone(&store.current().model);
    if ready.base != active.id() || (active.model_id() == ready.model && is_complete(store)) {
        Ready::withdraw(&*store.files, &store.layout)?;
        return Ok(false);
    }
    match commit(store, &ready, &compacting) {
        Ok(()) => {
            Ready::withdraw(&*store.files, &store.layout)?;
            let staging = Ready::staging(&store.layout, ready.model);
            if let Err(e) = store.files.remove_dir(&staging) {
                tracing::debug!("{} stays: {e}", staging.display());
            }
            Ok(true)
        }
        // The outcome is unknown. The next open determines it, and continues because of READY.
        Err(e @ Error::OutcomeUnknown(_)) => Err(e),
        Err(e) => {
            Ready::decline(
                &*store.files,
                &store.layout,
                &format!("model {}: {e}", ready.model.short()),
            )?;
            Err(e)
        }
    }
}

/// Returns `true` if the active model's files are complete and it is decided whether words are searched.
fn is_complete(store: &Store) -> bool {
    let snapshot = store.current();
    let model = snapshot.model();
    let is_old = model.kind() == RowsKind::Text && model.words_choice().is_none();
    !is_old && has_files(&snapshot, model)
}

fn commit(store: &Store, ready: &Ready, compacting: &Compacting<'_>) -> Result<()> {
    let target = registry::open_to_serve(
        &store.files,
        &store.layout,
        &store.current().model,
        ready.model,
        store.options.threads,
    )?;
    let target = Arc::new(completed(target, store.current().model()));
    if has_files(&store.current(), &target) {
        return switch_scorer(store, compacting, &target);
    }
    let staging = Ready::staging(&store.layout, ready.model);
    let segments = store.layout.segments();
    store
        .files
        .create_dir(&staging)
        .map_err(Error::io("creating", &staging))?;
    // Until almost nothing is left, work without the writer's lock: seal the tail, encode what has no codes yet.
    for _ in 0..3 {
        store.seal()?;
        encode_missing(store, &staging, &target)?;
    }
    let sealing = store.start_sealing();
    loop {
        store.seal_locked(&sealing)?;
        encode_missing(store, &staging, &target)?;
        adopt(store, &staging, &segments)?;
        if switch(store, compacting, &sealing, &staging, &target)? {
            return Ok(());
        }
    }
}

/// Encodes the segments that have no files under the model.
fn encode_missing(store: &Store, staging: &Path, target: &Model) -> Result<()> {
    for view in store.current().segments.iter() {
        encode_one(store, staging, view, target)?;
    }
    store
        .files
        .sync_dir(staging)
        .map_err(Error::io("syncing", staging))
}

fn encode_one(store: &Store, staging: &Path, view: &SegmentView, target: &Model) -> Result<()> {
    let segments = store.layout.segments();
    let options = RebuildOptions {
        threads: store.options.threads,
        memory_limit: store.options.memory_limit,
        ..RebuildOptions::default()
    };
    encode_segment(
        &store.files,
        &[staging, &segments],
        staging,
        view,
        target,
        &options,
        &mut |_| {},
    )?;
    Ok(())
}

/// Moves staged files into the directory of segments.
fn adopt(store: &Store, staging: &Path, segments: &Path) -> Result<()> {
    for name in store
        .files
        .list(staging)
        .map_err(Error::io("listing", staging))?
    {
        if name.ends_with(".tmp") {
            continue;
        }
        let (from, to) = (staging.join(&name), segments.join(&name));
        relocate(&*store.files, &from, &to).map_err(Error::io("moving", &from))?;
    }
    store
        .files
        .sync_dir(segments)
        .map_err(Error::io("syncing", segments))
}

/// Makes `target` the active model. It has the vectors and codes of the active one, so only the record changes.
fn switch_scorer(store: &Store, compacting: &Compacting<'_>, target: &Arc<Model>) -> Result<()> {
    let mut committer = lock(&store.commit);
    let mut queue = lock(&store.queue);
    store.flush_held(&mut committer, &mut queue);
    let mut next = Snapshot::clone(&store.current());
    serve(&mut next, &committer.record, target);
    let change = Change {
        snapshot: next,
        first_log: committer.record.first_log,
        first_seq: committer.record.first_seq,
    };
    store.commit_version(compacting, &mut committer, change)?;
    queue.model = Arc::clone(target);
    Ok(())
}

/// Gives a snapshot another model, with the settings that the database has for it, or else the model's own.
fn serve(snapshot: &mut Snapshot, record: &VersionRecord, target: &Arc<Model>) {
    let known = record.serving.get(&target.model_id()).copied();
    snapshot.serving = known.or(target.serving());
    snapshot.model = Arc::clone(target);
}

/// A tail of at most this many rows is encoded under the writer's lock. A longer one is sealed first, without the lock.
const LAST_ROWS: u64 = 512;

/// Makes `target` the active model. Returns `false` if more rows arrived since the last seal than should be encoded
/// under the lock.
///
/// Requires: every segment has its files under `target`.
fn switch(
    store: &Store,
    compacting: &Compacting<'_>,
    _sealing: &Sealing<'_>,
    staging: &Path,
    target: &Arc<Model>,
) -> Result<bool> {
    let dir = store.layout.segments();
    let open = |view: &SegmentView| {
        Ok(Arc::new(Sealed::open(
            &*store.files,
            &dir,
            view.sealed.id,
            view.sealed.columns_hash(),
            target,
        )?))
    };
    let before = store.current();
    let mut opened = before
        .segments
        .iter()
        .map(open)
        .collect::<Result<Vec<_>>>()?;

    let mut committer = lock(&store.commit);
    let mut queue = lock(&store.queue);
    store.flush_held(&mut committer, &mut queue);
    let mut next = Snapshot::clone(&store.current());
    if next.tail.alive() > LAST_ROWS {
        return Ok(false);
    }
    if let Some(last) = store.seal_last(&mut committer, &mut next)? {
        encode_one(store, staging, &last, target)?;
        adopt(store, staging, &dir)?;
        opened.push(open(&last)?);
        Arc::make_mut(&mut next.segments).push(last);
    }
    let views = opened.into_iter().zip(next.segments.iter());
    let views = views.map(|(sealed, view)| {
        assert_eq!(
            sealed.id, view.sealed.id,
            "segments change only under the sealing and compacting locks"
        );
        SegmentView {
            sealed,
            live: view.live.clone(),
        }
    });
    next.segments = Arc::new(views.collect());
    serve(&mut next, &committer.record, target);
    let change = Change {
        snapshot: next,
        first_log: committer.rotate()?,
        first_seq: queue.next_seq,
    };
    store.commit_version(compacting, &mut committer, change)?;
    queue.model = Arc::clone(target);
    Ok(true)
}
