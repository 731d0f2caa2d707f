//! Creating a database or a copy so that the next process recognises an unfinished one.
//!
//! An empty file, the marker (`CREATING` for a new database, `COPYING` for a backup), is durable before anything else
//! is created, and is removed after the first manifest is durable. A directory with a marker and without a manifest is
//! unfinished: no row was ever acknowledged in it, and mopqdb created everything in it that has one of the names below.
//! A directory with both is a finished database, whose next writer removes the marker before it writes anything.

use crate::disk::files::{Files, Storage};
use crate::disk::layout::{Layout, RECORDS};
use crate::disk::lock::FileLock;
use crate::error::{Error, Result};
use crate::ids::ModelId;
use crate::log;
use crate::segment::FileName;
use crate::version::manifest;
use std::io;
use std::path::{Path, PathBuf};

/// What is being created in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Making {
    /// A new, empty database.
    Database,
    /// A copy of another database. It is not started over as an empty database, since the user expects rows in it.
    Copy,
}

impl Making {
    const ALL: [Self; 2] = [Self::Database, Self::Copy];

    fn marker(self, layout: &Layout) -> PathBuf {
        match self {
            Self::Database => layout.creating(),
            Self::Copy => layout.copying(),
        }
    }
}

/// A directory that is being filled, under the writer's lock.
///
/// Call [`begin`](Self::begin), create files, publish the manifest last, and call [`finish`](Self::finish). After an
/// error, call [`abandon`](Self::abandon). If the process dies, the next `begin` clears what it left.
#[derive(Debug)]
pub(crate) struct Creation {
    lock: FileLock,
    making: Making,
    /// Whether an unfinished creation was cleared.
    pub(crate) restarted: bool,
}

impl Creation {
    /// Begins to fill a directory that is missing or empty, or that an earlier creation of the same kind did not finish.
    pub(crate) fn begin(files: &dyn Files, layout: &Layout, making: Making) -> Result<Self> {
        // Checked before the lock, so that no lock file appears among unrelated files, and again under the lock.
        refuse_if_taken(files, layout, making)?;
        let dir = layout.dir();
        files.create_dir(dir).map_err(Error::io("creating", dir))?;
        let lock = FileLock::acquire(&layout.lock())?;
        let restarted = refuse_if_taken(files, layout, making)?;
        if restarted {
            clear(files, layout)?;
        } else {
            let marker = making.marker(layout);
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
        Ok(Self {
            lock,
            making,
            restarted,
        })
    }

    /// Removes what was created so far, to start over.
    pub(crate) fn restart(&self, files: &dyn Files, layout: &Layout) -> Result<()> {
        clear(files, layout)
    }

    /// Ends the creation. Requires: the manifest is published, and everything it names is durable.
    pub(crate) fn finish(self, files: &dyn Files, layout: &Layout) -> Result<FileLock> {
        remove(files, layout, self.making)?;
        Ok(self.lock)
    }

    /// Removes what was created, as far as possible. The marker stays for the next attempt.
    pub(crate) fn abandon(self, files: &dyn Files, layout: &Layout) {
        if let Err(e) = clear(files, layout) {
            tracing::debug!("{}: not cleared: {e}", layout.dir().display());
        }
    }
}

/// Returns `true` if a database can be created in this directory: it is missing or empty, or an earlier creation in it
/// was not finished.
pub(crate) fn is_vacant(files: &dyn Storage, layout: &Layout) -> Result<bool> {
    Ok(!matches!(
        look(files, layout, Making::Database)?,
        Found::Taken(_)
    ))
}

/// Refuses a directory that has a marker and no manifest, so was never finished.
pub(crate) fn refuse_unfinished(files: &dyn Storage, dir: &Path) -> Result<()> {
    let Some(making) = marked(files, &Layout::new(dir)) else {
        return Ok(());
    };
    if !manifest::generations(files, dir)?.is_empty() {
        return Ok(());
    }
    let what = match making {
        Making::Database => {
            "this database was never finished: the `create` or `insert` that made it was stopped; run it again"
        }
        Making::Copy => {
            "this copy was never finished: the `backup` that made it was stopped; run it again with the same \
             destination, or remove this directory"
        }
    };
    Err(Error::Incompatible {
        path: dir.into(),
        what: what.into(),
    })
}

/// Removes the marker of a finished creation, durably.
pub(crate) fn remove_marker(files: &dyn Files, layout: &Layout) -> Result<()> {
    Making::ALL
        .iter()
        .try_for_each(|&making| remove(files, layout, making))
}

fn remove(files: &dyn Files, layout: &Layout, making: Making) -> Result<()> {
    let marker = making.marker(layout);
    match files.remove(&marker) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        done => done.map_err(Error::io("removing", &marker))?,
    }
    let dir = layout.dir();
    files.sync_dir(dir).map_err(Error::io("syncing", dir))
}

/// What a directory contains before a database is created in it.
enum Found {
    /// The directory is missing, or empty except for a lock file.
    Nothing,
    /// Only an unfinished creation.
    Unfinished,
    /// Anything else, with a description. It is not changed.
    Taken(String),
}

/// Returns `true` if there is an unfinished creation; an error if the directory is taken.
fn refuse_if_taken(files: &dyn Storage, layout: &Layout, making: Making) -> Result<bool> {
    match look(files, layout, making)? {
        Found::Nothing => Ok(false),
        Found::Unfinished => Ok(true),
        Found::Taken(what) => Err(Error::invalid(format!("{} {what}", layout.dir().display()))),
    }
}

fn look(files: &dyn Storage, layout: &Layout, making: Making) -> Result<Found> {
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
            "is already a database; choose another directory, or open it".into(),
        ));
    }
    let Some(made) = marked(files, layout) else {
        return Ok(Found::Taken(
            "is not empty; choose another directory, or open it".into(),
        ));
    };
    if let Some(name) = stranger(files, layout, made, &names)? {
        return Ok(Found::Taken(format!(
            "is not empty: it contains {name} in addition to an unfinished database; move that away, or choose another directory"
        )));
    }
    Ok(match made {
        _ if made == making => Found::Unfinished,
        Making::Database => Found::Taken(
            "is a database that was never finished; run the `create` or `insert` that made it again, or choose another \
             directory"
                .into(),
        ),
        Making::Copy => Found::Taken(
            "is a copy that was never finished; run the `backup` that made it again, or choose another directory".into(),
        ),
    })
}

/// Returns which kind the marker is. A non-empty file with that name does not belong to mopqdb.
fn marked(files: &dyn Storage, layout: &Layout) -> Option<Making> {
    let is_there = |making: &Making| files.len(&making.marker(layout)).is_ok_and(|len| len == 0);
    Making::ALL.into_iter().find(is_there)
}

/// Returns the name of a file that does not belong to an unfinished creation.
fn stranger(
    files: &dyn Storage,
    layout: &Layout,
    made: Making,
    names: &[String],
) -> Result<Option<String>> {
    // Links are never followed.
    let is_dir = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    for name in names {
        let path = layout.dir().join(name);
        let ours = match name.as_str() {
            "LOCK" | "RESERVE" | "RESERVE.tmp" => true,
            "segments" | "logs" | "models" | "catalog" => is_dir(&path),
            "runs" => made == Making::Copy && is_dir(&path),
            _ if path == made.marker(layout) => true,
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
    for run in contents(files, &layout.runs())? {
        let run = layout.runs().join(run);
        if !is_dir(&run) {
            return Ok(Some(run.display().to_string()));
        }
        for name in contents(files, &run)? {
            if !RECORDS.contains(&name.strip_suffix(".tmp").unwrap_or(&name)) {
                return Ok(Some(run.join(name).display().to_string()));
            }
        }
    }
    Ok(None)
}

/// Removes everything that a creation made, except the marker, the lock and empty directories.
///
/// The manifest is removed first, durably: as long as it exists, the files that it names exist.
fn clear(files: &dyn Files, layout: &Layout) -> Result<()> {
    let dir = layout.dir();
    for name in list(files, dir)? {
        let bare = name.strip_suffix(".tmp").unwrap_or(&name);
        if manifest::parse_name(bare).is_some() || bare == "RESERVE" {
            remove_file(files, &dir.join(&name))?;
        }
    }
    files.sync_dir(dir).map_err(Error::io("syncing", dir))?;
    for folder in [layout.segments(), layout.logs()] {
        for name in contents(files, &folder)? {
            remove_file(files, &folder.join(name))?;
        }
    }
    for name in contents(files, &layout.models())? {
        let path = layout.models().join(name);
        files
            .remove_dir(&path)
            .map_err(Error::io("removing", &path))?;
    }
    for folder in [layout.runs(), layout.catalog()] {
        match files.remove_dir(&folder) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io("removing", &folder)(e));
            }
            _ => {}
        }
    }
    Ok(())
}

fn remove_file(files: &dyn Files, path: &Path) -> Result<()> {
    files.remove(path).map_err(Error::io("removing", path))
}

fn list(files: &dyn Storage, dir: &Path) -> Result<Vec<String>> {
    files.list(dir).map_err(Error::io("listing", dir))
}

/// Returns the names in a directory that may be missing.
fn contents(files: &dyn Storage, dir: &Path) -> Result<Vec<String>> {
    match files.list(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        names => names.map_err(Error::io("listing", dir)),
    }
}
