//! Filling a new directory so that a process that dies halfway leaves something the next one recognises.
//!
//! The empty file `CREATING` is durable before anything else is made, and goes after the first manifest is durable. A
//! directory with this file and without a manifest holds an unfinished creation: no row was ever acknowledged in it, and
//! everything in it under the names below was made by us. A directory with both is a finished database, whose next
//! writer removes the file before it writes anything.

use crate::bundle::ModelId;
use crate::error::{Error, Result};
use crate::files::Files;
use crate::layout::Layout;
use crate::lock::FileLock;
use crate::segment::FileName;
use crate::{log, manifest};
use std::io;
use std::path::Path;

/// A directory that is being filled, under the writer's lock.
///
/// [`begin`](Self::begin) it, make files, publish the manifest last, and [`finish`](Self::finish) it. After an error,
/// [`abandon`](Self::abandon) it; if the process dies, the next `begin` clears what it left.
#[derive(Debug)]
pub(crate) struct Creation {
    lock: FileLock,
    /// Whether an earlier creation was cleared.
    pub(crate) restarted: bool,
}

impl Creation {
    /// Begins to fill a directory that is missing or empty, or that an earlier creation did not finish.
    pub(crate) fn begin(files: &dyn Files, layout: &Layout) -> Result<Self> {
        // Looked at before the lock, so that no lock file appears among a stranger's files, and again under it.
        refuse_if_taken(files, layout)?;
        let dir = layout.dir();
        files.create_dir(dir).map_err(Error::io("creating", dir))?;
        let lock = FileLock::acquire(&layout.lock())?;
        let restarted = refuse_if_taken(files, layout)?;
        if restarted {
            clear(files, layout)?;
        } else {
            let marker = layout.creating();
            files
                .create(&marker)
                .and_then(|mut file| file.sync())
                .map_err(Error::io("creating", &marker))?;
        }
        files.sync_dir(dir).map_err(Error::io("syncing", dir))?;
        if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
            files
                .sync_dir(parent)
                .map_err(Error::io("syncing", parent))?;
        }
        Ok(Self { lock, restarted })
    }

    /// Ends the creation. Requires: the manifest is published, and everything it names is durable.
    pub(crate) fn finish(self, files: &dyn Files, layout: &Layout) -> Result<FileLock> {
        remove_marker(files, layout)?;
        Ok(self.lock)
    }

    /// Removes what was made, as far as possible; the marker stays for the next try.
    pub(crate) fn abandon(self, files: &dyn Files, layout: &Layout) {
        if let Err(e) = clear(files, layout) {
            tracing::debug!("{}: not cleared: {e}", layout.dir().display());
        }
    }
}

/// Returns `true` if a database can be created in this directory: it is missing or empty, or an earlier creation of it
/// was not finished.
pub(crate) fn is_vacant(files: &dyn Files, layout: &Layout) -> Result<bool> {
    Ok(!matches!(look(files, layout)?, Found::Taken(_)))
}

/// Returns `true` if the creation of this directory was not finished: it has the marker, and no manifest.
pub(crate) fn is_unfinished(files: &dyn Files, dir: &Path) -> bool {
    marked(files, &Layout::new(dir))
        && manifest::generations(files, dir).is_ok_and(|found| found.is_empty())
}

/// The error of whoever needs a database where there is an unfinished one.
pub(crate) fn unfinished(dir: &Path) -> Error {
    Error::Incompatible {
        path: dir.into(),
        what: "this database was never finished: the `create`, `insert` or `backup` that made it was stopped; run it again"
            .into(),
    }
}

/// Removes the marker of a finished creation, durably.
pub(crate) fn remove_marker(files: &dyn Files, layout: &Layout) -> Result<()> {
    let marker = layout.creating();
    match files.remove(&marker) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        done => done.map_err(Error::io("removing", &marker))?,
    }
    let dir = layout.dir();
    files.sync_dir(dir).map_err(Error::io("syncing", dir))
}

/// What a directory is to somebody who wants to make a database in it.
enum Found {
    /// Missing, or empty but for a lock file.
    Nothing,
    /// An unfinished creation and nothing else.
    Unfinished,
    /// Something that stays as it is, and what it is.
    Taken(String),
}

/// Returns `true` if there is an unfinished creation.
fn refuse_if_taken(files: &dyn Files, layout: &Layout) -> Result<bool> {
    match look(files, layout)? {
        Found::Nothing => Ok(false),
        Found::Unfinished => Ok(true),
        Found::Taken(what) => Err(Error::invalid(format!("{} {what}", layout.dir().display()))),
    }
}

fn look(files: &dyn Files, layout: &Layout) -> Result<Found> {
    let dir = layout.dir();
    if !dir.exists() {
        return Ok(Found::Nothing);
    }
    let names = list(files, dir)?;
    if names.iter().all(|name| name == "LOCK") {
        return Ok(Found::Nothing);
    }
    if names
        .iter()
        .any(|name| manifest::parse_name(name).is_some())
    {
        return Ok(Found::Taken(
            "is a database already; choose another directory, or open it".into(),
        ));
    }
    if !marked(files, layout) {
        return Ok(Found::Taken(
            "is not empty; choose another directory, or open it".into(),
        ));
    }
    Ok(match stranger(files, layout, &names)? {
        None => Found::Unfinished,
        Some(name) => Found::Taken(format!(
            "is not empty: beside a database that was never finished it has {name}; move that away, or choose another directory"
        )),
    })
}

/// Returns `true` if the marker is there. A file of that name with something in it is somebody else's.
fn marked(files: &dyn Files, layout: &Layout) -> bool {
    files.len(&layout.creating()).is_ok_and(|len| len == 0)
}

/// Returns the name of a file that no creation makes.
fn stranger(files: &dyn Files, layout: &Layout, names: &[String]) -> Result<Option<String>> {
    for name in names {
        let path = layout.dir().join(name);
        let ours = match name.as_str() {
            "LOCK" | "CREATING" => true,
            "segments" | "logs" | "models" | "catalog" => {
                // A link is nobody's directory but its maker's.
                std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir())
            }
            name => name
                .strip_suffix(".tmp")
                .is_some_and(|name| manifest::parse_name(name).is_some()),
        };
        if !ours {
            return Ok(Some(name.clone()));
        }
    }
    for dir in [layout.segments(), layout.logs(), layout.models()] {
        for name in contents(files, &dir)? {
            let ours = name.ends_with(".tmp")
                || name.parse::<FileName>().is_ok()
                || log::parse_name(&name).is_some()
                || name.parse::<ModelId>().is_ok();
            if !ours {
                return Ok(Some(dir.join(name).display().to_string()));
            }
        }
    }
    Ok(None)
}

/// Removes everything that a creation made, but for the marker, the lock and empty directories.
///
/// The manifest goes first, durably: while it has a name, what it names is there.
fn clear(files: &dyn Files, layout: &Layout) -> Result<()> {
    let dir = layout.dir();
    for name in list(files, dir)? {
        let bare = name.strip_suffix(".tmp").unwrap_or(&name);
        if manifest::parse_name(bare).is_some() {
            remove(files, &dir.join(&name))?;
        }
    }
    files.sync_dir(dir).map_err(Error::io("syncing", dir))?;
    for folder in [layout.segments(), layout.logs()] {
        for name in contents(files, &folder)? {
            remove(files, &folder.join(name))?;
        }
    }
    for name in contents(files, &layout.models())? {
        let path = layout.models().join(name);
        files
            .remove_dir(&path)
            .map_err(Error::io("removing", &path))?;
    }
    let catalog = layout.catalog();
    match files.remove_dir(&catalog) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("removing", &catalog)(e)),
        _ => Ok(()),
    }
}

fn remove(files: &dyn Files, path: &Path) -> Result<()> {
    files.remove(path).map_err(Error::io("removing", path))
}

fn list(files: &dyn Files, dir: &Path) -> Result<Vec<String>> {
    files.list(dir).map_err(Error::io("listing", dir))
}

/// The names in a directory that may be missing.
fn contents(files: &dyn Files, dir: &Path) -> Result<Vec<String>> {
    match files.list(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        names => names.map_err(Error::io("listing", dir)),
    }
}
