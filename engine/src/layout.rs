//! Where things are in a database's directory.

use crate::bundle::ModelId;
use std::path::{Path, PathBuf};

/// The paths of a database.
#[derive(Debug, Clone)]
pub struct Layout {
    dir: PathBuf,
}

impl Layout {
    /// Of the database in this directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The directory itself: manifests are in it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The lock of the one writing process.
    pub fn lock(&self) -> PathBuf {
        self.dir.join("LOCK")
    }

    /// The lock of the one process that prepares a rebuild.
    pub fn prepare_lock(&self) -> PathBuf {
        self.dir.join("prepare.lock")
    }

    /// sled's directory.
    pub fn catalog(&self) -> PathBuf {
        self.dir.join("catalog")
    }

    /// Rows, vecs, codes and deletion files.
    pub fn segments(&self) -> PathBuf {
        self.dir.join("segments")
    }

    /// Write-ahead logs.
    pub fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    /// Bundles, each in a directory named by its model's id.
    pub fn models(&self) -> PathBuf {
        self.dir.join("models")
    }

    /// One model's bundle.
    pub fn model(&self, id: ModelId) -> PathBuf {
        self.models().join(id.to_string())
    }

    /// Files of a rebuild that is being prepared.
    pub fn staging(&self) -> PathBuf {
        self.dir.join("staging")
    }

    /// What training writes before it is a model.
    pub fn runs(&self) -> PathBuf {
        self.dir.join("runs")
    }

    /// What recovery put aside: torn tails of logs, files that no trusted record names.
    pub fn orphans(&self) -> PathBuf {
        self.dir.join("orphans")
    }

    /// The directories that a database always has.
    pub fn directories(&self) -> [PathBuf; 4] {
        [
            self.dir.clone(),
            self.segments(),
            self.logs(),
            self.models(),
        ]
    }
}
