//! Switching to another model while others query and insert: prepare anywhere, commit under the lock.
//!
//! *Prepare* runs in any process, as a reader. It writes the codes of every segment under the new model (and its
//! vectors, if the encoder differs) into `staging/`, and then one small file, `READY`. *Commit* is done by the writing
//! process: this one, if the lock is free, or else the process that holds it, whose maintenance thread looks for
//! `READY`. Either may be killed at any step. The staged files stay, and the next rebuild continues from them.

pub(crate) mod celled;
mod commit;
mod encode;
mod first;
pub(crate) mod learn;
pub(crate) mod maintenance;
pub(crate) mod own_rows;
mod prepare;
mod ready;

pub(crate) use commit::commit_if_ready;
pub(crate) use encode::encode_segment;
pub(crate) use first::quantize_if_due;
pub use first::{AUTO_QUANTIZE_RECALL, AutoQuantized, Trial};
pub(crate) use ready::is_ready;

use crate::disk::files::{Disk, Files};
use crate::disk::layout::Layout;
use crate::error::{Error, Result};
use crate::ids::ModelId;
use crate::model::Model;
use crate::options::Options;
use crate::row::RowsKind;
use crate::snapshot::Snapshot;
use crate::version::manifest;
use crate::view::segment::SegmentView;
use crate::watch::Watch;
use crate::words::{Choice, Settings as WordsSettings};
use crate::write::Store;
use ready::Ready;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Options of a rebuild.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RebuildOptions {
    /// The model to switch to; by default the newest one. An older model rolls back, and [`ModelId::exact`] makes every
    /// search exact.
    pub model: Option<ModelId>,
    /// The number of threads that quantize and encode; 0 means one per core.
    pub threads: usize,
    /// The memory limit for buffers, in bytes.
    pub memory_limit: usize,
    /// How long to wait for the writing process to commit, if another process has the lock.
    pub wait: Duration,
    /// Receives the number of rows that have their new codes, and can stop the rebuild. Staged files then stay.
    pub watch: Watch,
}

impl Default for RebuildOptions {
    fn default() -> Self {
        let options = Options::default();
        Self {
            model: None,
            threads: 0,
            memory_limit: options.memory_limit,
            wait: Duration::from_secs(60),
            watch: Watch::new(),
        }
    }
}

impl RebuildOptions {
    setters!(
        threads: usize,
        memory_limit: usize,
        wait: Duration,
        watch: Watch,
        ; into
        model: Option<ModelId>,
    );

    /// Returns an error if the rebuild should stop.
    fn check_stop(&self) -> Result<()> {
        if self.watch.is_stopped() {
            return Err(Error::Cancelled(
                "what was prepared is kept, and the next rebuild continues from it",
            ));
        }
        Ok(())
    }
}

/// The result of a rebuild.
#[derive(Debug, Clone, Copy, Serialize)]
#[non_exhaustive]
pub struct Rebuilt {
    /// The model that is active now.
    pub model: ModelId,
    /// The number of rows that were quantized again.
    pub rows: u64,
    /// The number of rows whose codes under this model already existed.
    pub reused: u64,
    /// The number of texts that were encoded again because the encoder changed.
    pub encoded: u64,
    /// The number of texts whose words were indexed.
    pub indexed: u64,
}

/// Switches a database to another model: prepares, then commits or waits until the writing process has committed.
pub fn rebuild(dir: impl AsRef<Path>, options: &RebuildOptions) -> Result<Rebuilt> {
    let layout = Layout::existing(dir.as_ref())?;
    let files: Arc<dyn Files> = Arc::new(Disk::default());
    let open = || {
        let options = Options {
            auto_compact: false,
            ..Options::default()
        };
        Store::open(Arc::clone(&files), dir.as_ref(), options)
    };
    let seal = || match open() {
        Ok(store) => store.seal().and_then(|_| store.close()),
        // The writing process seals when it commits.
        Err(Error::Locked { .. }) => Ok(()),
        Err(e) => Err(e),
    };
    let (ready, mut rebuilt) = prepare::prepare(&files, &layout, options, seal)?;
    let Some(ready) = ready else {
        return Ok(rebuilt);
    };
    match open() {
        Ok(store) => {
            commit_if_ready(&store)?;
            store.close()?;
            match Ready::declined(&layout)? {
                Some(why) => Err(Error::model(why)),
                None => Ok(rebuilt),
            }
        }
        Err(Error::Locked { holder, path }) => {
            wait_for_commit(&layout, &ready, options, holder, &path)?;
            rebuilt.model = ready.model;
            Ok(rebuilt)
        }
        Err(e) => Err(e),
    }
}

/// Watches the manifest until the writing process has switched to the model.
fn wait_for_commit(
    layout: &Layout,
    ready: &Ready,
    options: &RebuildOptions,
    holder: String,
    lock: &Path,
) -> Result<()> {
    let deadline = Instant::now() + options.wait;
    loop {
        // If the model stays the same, only the end of the request shows that its missing files were added.
        let adopts = ready.base == Some(ready.model);
        let newest = manifest::newest(&Disk::default(), layout.dir())?.model_id();
        if newest == ready.model && (!adopts || Ready::read(layout)?.is_none()) {
            return Ok(());
        }
        if let Some(why) = Ready::declined(layout)? {
            return Err(Error::model(why));
        }
        match Ready::read(layout)? {
            Some(now) if now != *ready => {
                return Err(Error::model(format!(
                    "this rebuild was superseded by model {}",
                    now.model
                )));
            }
            _ => {}
        }
        if let Err(stopped) = options.check_stop() {
            Ready::withdraw(&Disk::default(), layout)?;
            return Err(stopped);
        }
        if Instant::now() >= deadline {
            // The request stays. The holder of the lock, or the next process to open the database, commits it.
            return Err(Error::Locked {
                path: lock.into(),
                holder: format!(
                    "{holder}, which has not committed model {} yet; the prepared files are kept, and it, or the next \
                     to open the database for writing, will",
                    ready.model.short()
                ),
            });
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the model to rebuild to, with what the database lacks: if texts were inserted before word search existed,
/// rebuilding the active model adds words.
fn completed(target: Model, active: &Model) -> Model {
    let is_old = active.kind() == RowsKind::Text && active.words_choice().is_none();
    match is_old && target.model_id() == active.model_id() {
        true => target.with_words(Some(Choice::On(WordsSettings::default()))),
        false => target,
    }
}

/// Returns `true` if every segment has all files that the model needs.
fn has_files(snapshot: &Snapshot, target: &Model) -> bool {
    let has_words = |view: &SegmentView| view.sealed.words.is_some();
    target.shares_files_with(snapshot.model())
        && (target.words().is_none() || snapshot.segments.iter().all(has_words))
}

/// Returns `true` if the snapshot uses the model and lacks nothing.
fn is_served(snapshot: &Snapshot, target: &Model) -> bool {
    snapshot.model().model_id() == target.model_id() && has_files(snapshot, target)
}

/// Switches an open database to another model.
pub(crate) fn rebuild_store(store: &Store, options: &RebuildOptions) -> Result<Rebuilt> {
    let seal = || store.seal().map(drop);
    let (ready, rebuilt) = prepare::prepare(&store.files, &store.layout, options, seal)?;
    if let Some(ready) = ready {
        commit_if_ready(store)?;
        if let Some(why) = Ready::declined(&store.layout)? {
            return Err(Error::model(why));
        }
        // The maintenance thread may have committed first.
        if store.current().model.model_id() != ready.model {
            return Err(Error::model("this rebuild was superseded by another one"));
        }
    }
    Ok(rebuilt)
}
