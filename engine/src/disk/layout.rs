//! The layout of a database's directory.

use crate::error::{Error, PREPARE_LOCK, Result};
use crate::ids::ModelId;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The files of a training run that are worth keeping: its configuration, log, result, and state to continue from.
pub(crate) const RECORDS: [&str; 5] = [
    "config.toml",
    "run.jsonl",
    "run.svg",
    "result.json",
    "last.safetensors",
];

/// The paths in a database's directory.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    dir: PathBuf,
}

impl Layout {
    /// Returns the layout of the database in this directory.
    pub(crate) fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Returns the layout of an existing database, which may come from an untrusted source: no path may lead out of it.
    /// Files are checked when they are opened, by [`Disk`](crate::disk::files::Disk).
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such directory.
    pub(crate) fn existing(dir: impl Into<PathBuf>) -> Result<Self> {
        let layout = Self::new(dir);
        match fs::metadata(&layout.dir) {
            // A path below a file does not exist either.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Err(Error::NotFound { path: layout.dir });
            }
            Ok(found) if !found.is_dir() => {
                return Err(Error::Incompatible {
                    path: layout.dir,
                    what: "a file; a mopqdb database is a directory".into(),
                });
            }
            _ => {}
        }
        let mut inside = vec![
            layout.lock(),
            layout.prepare_lock(),
            layout.creating(),
            layout.copying(),
            layout.reserve(),
            layout.segments(),
            layout.logs(),
            layout.orphans(),
        ];
        for folder in [layout.models(), layout.catalog(), layout.staging()] {
            // Ignore directories that cannot be listed; using them reports the error.
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            inside.extend(entries.map(|entry| entry.path()));
            inside.push(folder);
        }
        for path in inside {
            if fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
                return Err(Error::Incompatible {
                    path,
                    what: "a symbolic link, which a database must not contain since it may lead anywhere; replace it by the directory that it leads to"
                        .into(),
                });
            }
        }
        Ok(layout)
    }

    /// Refuses a directory that was never a database: it lacks even the folders for rows.
    pub(crate) fn expect_folders(&self) -> Result<()> {
        match self.segments().is_dir() && self.logs().is_dir() {
            true => Ok(()),
            false => Err(Error::not_a_database(&self.dir)),
        }
    }

    /// Returns the directory of the database, which contains the manifests.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of the lock of the writing process.
    pub(crate) fn lock(&self) -> PathBuf {
        self.dir.join("LOCK")
    }

    /// Returns the path of the lock of the process that prepares a rebuild.
    pub(crate) fn prepare_lock(&self) -> PathBuf {
        self.dir.join(PREPARE_LOCK)
    }

    /// Returns the path of the marker of an unfinished creation.
    pub(crate) fn creating(&self) -> PathBuf {
        self.dir.join("CREATING")
    }

    /// Returns the path of the marker of an unfinished backup.
    pub(crate) fn copying(&self) -> PathBuf {
        self.dir.join("COPYING")
    }

    /// Returns the path of the file `RESERVE`, which is removed when the disk is full.
    pub(crate) fn reserve(&self) -> PathBuf {
        self.dir.join("RESERVE")
    }

    /// Returns the directory of sled.
    pub(crate) fn catalog(&self) -> PathBuf {
        self.dir.join("catalog")
    }

    /// Returns the directory of rows, vecs, codes and deletion files.
    pub(crate) fn segments(&self) -> PathBuf {
        self.dir.join("segments")
    }

    /// Returns the directory of write-ahead logs.
    pub(crate) fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    /// Returns the directory of bundles, each in a directory named by its model's id.
    pub(crate) fn models(&self) -> PathBuf {
        self.dir.join("models")
    }

    /// Returns the directory of a model's bundle.
    pub(crate) fn model(&self, id: ModelId) -> PathBuf {
        self.models().join(id.to_string())
    }

    /// Returns the directory of a rebuild in preparation.
    pub(crate) fn staging(&self) -> PathBuf {
        self.dir.join("staging")
    }

    /// Returns the directory that training writes to: one directory per run with its [`RECORDS`], and models that
    /// are not registered yet.
    pub(crate) fn runs(&self) -> PathBuf {
        self.dir.join("runs")
    }

    /// Returns the directory of files moved aside by recovery: torn tails of logs, and files that no trusted record
    /// names.
    pub(crate) fn orphans(&self) -> PathBuf {
        self.dir.join("orphans")
    }

    /// Returns the directories that a database always has.
    pub(crate) fn directories(&self) -> [PathBuf; 4] {
        [
            self.dir.clone(),
            self.segments(),
            self.logs(),
            self.models(),
        ]
    }
}
