//! Files that several models of a database have in common: one file with a name in each bundle.
//!
//! Models that are trained over one encoder differ in their codebooks, a hundredth of their size. A bundle's folder is
//! complete all the same. Equal files are found by the sha256 in the manifests, without a list; a file is removed with
//! the last bundle that has it.

use crate::disk::files::{self, Files};
use crate::error::{Error, Result};
use crate::model::bundle::{FileEntry, Manifest};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// The files of the models that a database has, by content as their manifests tell it.
pub(crate) struct Parts(HashMap<String, Vec<PathBuf>>);

impl Parts {
    /// Finds the files of these bundles. Damaged bundles have none.
    pub(crate) fn of(files: &dyn Files, bundles: &[PathBuf]) -> Self {
        let mut found: HashMap<_, Vec<_>> = HashMap::new();
        for dir in bundles {
            let Ok(manifest) = Manifest::read(files, dir) else {
                continue;
            };
            for entry in manifest.files {
                let path = dir.join(&entry.name);
                found.entry(entry.sha256).or_default().push(path);
            }
        }
        Self(found)
    }

    /// Gives a file of a new bundle the name `to`: linked to an equal one that the database has, or copied from `from`,
    /// whose contents the caller has checked.
    pub(crate) fn place(
        &self,
        files: &dyn Files,
        entry: &FileEntry,
        from: &Path,
        to: &Path,
    ) -> Result<()> {
        // Do not link a damaged file into the new bundle.
        let is_sound = |path: &&PathBuf| {
            is_same(path, from) || files.map(path).is_ok_and(|bytes| entry.matches(&bytes))
        };
        if let Some(equal) = self.equal(entry).find(is_sound) {
            // It may have been pruned meanwhile, have too many links, or be on a file system without
            // links.
            if files.link(equal, to).is_ok() {
                return Ok(());
            }
        }
        files::copy(files, from, to).map_err(Error::io("copying", from))?;
        Ok(())
    }

    /// Makes the files that equal `sound`, which is checked, other names of it: copies that an earlier version of this
    /// program made, and damaged ones. What can't be done stays as it is.
    pub(crate) fn unite(&self, files: &dyn Files, entry: &FileEntry, sound: &Path) {
        for path in self.equal(entry).filter(|path| !is_same(path, sound)) {
            if let Err(e) = replace(files, path, sound) {
                tracing::debug!("{}: not shared: {e}", path.display());
            }
        }
    }

    fn equal(&self, entry: &FileEntry) -> impl Iterator<Item = &PathBuf> {
        self.0.get(&entry.sha256).into_iter().flatten()
    }
}

/// Makes a name that of another file, in one step: a process that has the old one open keeps it.
fn replace(files: &dyn Files, path: &Path, by: &Path) -> io::Result<()> {
    let tmp = path.with_extension(format!("{}.tmp", std::process::id()));
    let remove = || match files.remove(&tmp) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    };
    remove()?;
    files.link(by, &tmp)?;
    let named = files.rename(&tmp, path);
    // A rename between two names of one file does nothing, and so leaves both.
    remove()?;
    named?;
    files.sync_dir(path.parent().unwrap_or(Path::new(".")))
}

/// Returns `true` if both names are of one file. Where that can't be seen, they are taken for two.
fn is_same(one: &Path, other: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let of = |path| std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()));
        matches!((of(one), of(other)), (Ok(one), Ok(other)) if one == other)
    }
    #[cfg(not(unix))]
    {
        let _ = (one, other);
        false
    }
}
