//! A learned model before it is registered.

use super::models::register_model;
use crate::disk::files::{Disk, Files};
use crate::disk::layout::Layout;
use crate::error::Result;
use crate::ids::ModelId;
use crate::model::bundle::Bundle;
use crate::rebuild::celled::learn_cells;
use crate::rebuild::learn::{LearnOptions, Learned};
use crate::snapshot::Snapshot;
use serde_json::Value;
use std::path::{Path, PathBuf};

impl Learned {
    /// Writes the bundle into the directory of a database, without registering it as a model.
    pub fn draft(&self, db: impl AsRef<Path>, evaluation: Value) -> Result<Draft> {
        let db = db.as_ref().to_path_buf();
        // Two drafts may exist side by side in one process: the one that is measured, and one that includes the
        // measurement.
        let measured = if evaluation.is_null() {
            ""
        } else {
            "-measured"
        };
        let name = format!("{}-{}{measured}", self.method, std::process::id());
        let bundle = self.write(Layout::new(&db).runs().join(name), evaluation)?;
        Ok(Draft { db, bundle })
    }
}

/// Adds cells to a snapshot's model, as [`learn_cells`] does, in a bundle in the directory of its database that is not registered.
pub fn draft_cells(
    snapshot: &Snapshot,
    options: &LearnOptions,
    db: impl AsRef<Path>,
) -> Result<Draft> {
    let db = db.as_ref().to_path_buf();
    let name = format!("cells-{}", std::process::id());
    let bundle = learn_cells(snapshot, options, Layout::new(&db).runs().join(name))?;
    Ok(Draft { db, bundle })
}

/// A bundle in a database's directory that is not registered. It is deleted on drop.
#[derive(Debug)]
pub struct Draft {
    db: PathBuf,
    bundle: Bundle,
}

impl Draft {
    /// Returns the bundle, so that it can be measured.
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// Registers it as a model of the database; see [`register_model`].
    pub fn register(self) -> Result<ModelId> {
        register_model(&self.db, &self.bundle)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = Disk::default().remove_dir(self.bundle.dir());
    }
}
