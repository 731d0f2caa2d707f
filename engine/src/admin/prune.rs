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

/// What is dropped. The active model and `exact` always stay.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct PruneOptions {
    /// Models that stay, with their codes, though they are not active.
    pub keep: Vec<ModelId>,
    /// Also drop `orphans/`, the files moved aside by recovery.
    pub orphans: bool,
    /// Report what would be dropped, and drop nothing.
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
    /// The models.
    pub models: Vec<ModelId>,
    /// Files and directories.
    pub paths: Vec<PathBuf>,
    /// The bytes that are free without them. What other models share with them stays.
    pub bytes: u64,
}

/// Drops inactive models, their codes and vectors, and staged files. Takes the writer's lock and that of rebuilds.
pub fn prune(dir: impl AsRef<Path>, options: &PruneOptions) -> Result<Pruned> {
    prune_on(Arc::new(Disk::default()), dir.as_ref(), options)
}

/// The same on another [`Files`]: for tests.
pub fn prune_on(disk: Arc<dyn Files>, dir: &Path, options: &PruneOptions) -> Result<Pruned> {
    let layout = Layout::existing(dir)?;
    let reserve = Reserve::find(&disk, &layout);
    let disk = &*disk;
    let record = manifest::newest(disk, layout.dir())?;
    let _writer = FileLock::acquire(&layout.lock())?;
    // The lock file may have to be created, for which a full disk has no space.
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
            // A registration that was cut short.
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
