//! The directory `orphans/`: unexplained files are moved there, and stay until the user removes them.

use crate::disk::files::{Files, relocate};
use crate::disk::layout::Layout;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// Moves a file or directory to `orphans/`, under an unused name.
pub(crate) fn orphan(files: &dyn Files, layout: &Layout, path: &Path) -> Result<PathBuf> {
    let orphans = layout.orphans();
    files
        .create_dir(&orphans)
        .map_err(Error::io("creating", &orphans))?;
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let aside = (0..)
        .map(|n| {
            orphans.join(if n == 0 {
                name.clone()
            } else {
                format!("{name}.{n}")
            })
        })
        .find(|aside| !aside.exists())
        .expect("some number is unused");
    relocate(files, path, &aside).map_err(Error::io("moving to orphans", path))?;
    files
        .sync_dir(&orphans)
        .map_err(Error::io("syncing", &orphans))?;
    Ok(aside)
}
