//! The files `READY` and `DECLINED`, by which the preparing and the committing process communicate.

use crate::disk::files::{self, Files};
use crate::disk::layout::Layout;
use crate::error::{Error, Result};
use crate::ids::ModelId;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// The request to commit: a model's codes are staged for all segments except perhaps the newest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ready {
    /// The model to switch to.
    pub(crate) model: ModelId,
    /// The model that was active when this was prepared.
    pub(crate) base: Option<ModelId>,
}

fn ready_path(layout: &Layout) -> PathBuf {
    layout.staging().join("READY")
}

fn declined_path(layout: &Layout) -> PathBuf {
    layout.staging().join("DECLINED")
}

/// Returns `true` if a rebuild is waiting to be committed.
pub(crate) fn is_ready(layout: &Layout) -> bool {
    ready_path(layout).exists()
}

impl Ready {
    /// Returns where a model's files are staged.
    pub(crate) fn staging(layout: &Layout, model: ModelId) -> PathBuf {
        layout.staging().join(model.to_string())
    }

    /// Requests the commit. Replaces an earlier request.
    pub(crate) fn request(&self, files: &dyn Files, layout: &Layout) -> Result<()> {
        remove(files, &declined_path(layout))?;
        let path = ready_path(layout);
        let bytes = serde_json::to_vec(self).expect("plain fields");
        files::publish(files, &path, &bytes).map_err(Error::io("writing", &path))
    }

    /// Returns the current request, if there is one. An unreadable request is ignored.
    pub(crate) fn read(layout: &Layout) -> Result<Option<Self>> {
        let path = ready_path(layout);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("reading", &path)(e)),
        }
    }

    /// Removes the request.
    pub(crate) fn withdraw(files: &dyn Files, layout: &Layout) -> Result<()> {
        remove(files, &ready_path(layout))
    }

    /// Ends the request with a reason.
    pub(crate) fn decline(files: &dyn Files, layout: &Layout, why: &str) -> Result<()> {
        let path = declined_path(layout);
        files::publish(files, &path, why.as_bytes()).map_err(Error::io("writing", &path))?;
        Self::withdraw(files, layout)
    }

    /// Returns the reason for which the last request was declined.
    pub(crate) fn declined(layout: &Layout) -> Result<Option<String>> {
        let path = declined_path(layout);
        match std::fs::read_to_string(&path) {
            Ok(why) => Ok(Some(why)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("reading", &path)(e)),
        }
    }
}

fn remove(files: &dyn Files, path: &std::path::Path) -> Result<()> {
    match files.remove(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("removing", path)(e)),
        _ => Ok(()),
    }
}
