//! Dropping inactive models, their codes, staged files and orphans.

use crate::disk::files::{Disk, Files};
use crate::disk::layout::Layout;
use crate::disk::lock::FileLock;
use crate::disk::reserve::Reserve;
use crate::disk::usage;
use crate::error::{Error, Result};
use crate::ids::ModelId;
use crate::segment::{Component, FileName, ShortId};
use crate::version::manifest;
use crate::words::Choice;
use serde::Serialize;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of a prune. The active model and `exact` always stay.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct PruneOptions {
    /// Inactive models that stay, with their codes.
    pub keep: Vec<ModelId>,
    /// Whether to also remove `orphans/`, the files that recovery moved aside.
    pub orphans: bool,
    /// Whether to only report what would be removed.
    pub dry_run: bool,
}

impl PruneOptions {
    setters!(
        orphans: bool,
        dry_run: bool,
        ; into
        keep: Vec<ModelId>,
    );
}

/// The result of a prune.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Pruned {
    /// The models that were removed.
    pub models: Vec<ModelId>,
    /// The files and directories that were removed.
    pub paths: Vec<PathBuf>,
    /// The number of bytes freed. Files that remaining models share stay and do not count.
    pub bytes: u64,
}

/// Removes inactive models, their codes and vectors, and staged files. Takes the writer's lock and the rebuild lock.
pub fn prune(dir: impl AsRef<Path>, options: &PruneOptions) -> Result<Pruned> {
    prune_on(Arc::new(Disk::default()), dir.as_ref(), options)
}

/// Like [`prune`], on another [`Files`]; for tests.
pub fn prune_on(disk: Arc<dyn Files>, dir: &Path, options: &PruneOptions) -> Result<Pruned> {
    let layout = Layout::existing(dir)?;
    let reserve = Reserve::find(&disk, &layout);
    let disk = &*disk;
    let record = manifest::newest(disk, layout.dir())?;
    let _writer = FileLock::acquire(&layout.lock())?;
    // The lock file may have to be created, which fails on a full disk.
    let _preparer = reserve.spend(|| FileLock::acquire(&layout.prepare_lock()))?;
    let exact = ModelId::exact(record.encoder);
    let stays =
        |id: &ModelId| record.model == Some(*id) || exact == *id || options.keep.contains(id);
    let mut pruned = Pruned::default();
    let mut needed = HashSet::from([(Component::Vecs, ShortId::of(&record.encoder.0))]);
    if let Some(Choice::On(settings)) = record.words {
        needed.insert((Component::Words, ShortId::of(&settings.id().0)));
    }
    for name in disk
        .list(&layout.models())
        .map_err(Error::io("listing", layout.models()))?
    {
        let path = layout.models().join(&name);
        match name.parse::<ModelId>() {
            Ok(id) if stays(&id) => {
                let bundle = crate::Bundle::open(&path)?;
                let codes = bundle.codes_id();
                needed.extend(codes.map(|codes| (Component::Codes, ShortId::of(&codes.0))));
                needed.insert((Component::Vecs, ShortId::of(&bundle.encoder_id().0)));
            }
            Ok(id) => {
                pruned.models.push(id);
                pruned.paths.push(path);
            }
            // A registration that was interrupted.
            Err(_) if name.ends_with(".tmp") => pruned.paths.push(path),
            Err(_) => {}
        }
    }
    for name in disk
        .list(&layout.segments())
        .map_err(Error::io("listing", layout.segments()))?
    {
        let derived = (name.parse::<FileName>().ok()).and_then(FileName::derived);
        if derived.is_some_and(|file| !needed.contains(&file)) {
            pruned.paths.push(layout.segments().join(name));
        }
    }
    pruned
        .paths
        .extend(Some(layout.staging()).filter(|path| path.exists()));
    pruned
        .paths
        .extend(Some(layout.orphans()).filter(|path| options.orphans && path.exists()));
    pruned.bytes = usage::freed(&pruned.paths);
    if options.dry_run {
        return Ok(pruned);
    }
    for path in &pruned.paths {
        // Some file systems need space to remove a file.
        reserve.spend(|| {
            let removed = if path.is_dir() {
                disk.remove_dir(path)
            } else {
                disk.remove(path)
            };
            removed.map_err(Error::io("removing", path))
        })?;
    }
    reserve.restore_if_it_fits(record.rows_stored());
    Ok(pruned)
}
