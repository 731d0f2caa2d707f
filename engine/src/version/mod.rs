//! Versions: the record that describes a database, its two copies (catalog and manifest), and recovery.
//!
//! A commit writes the [record] to the [catalog] and then as a [manifest]. Opening for writing [recovers](recover) the
//! newest version from both, replays the logs and [cleans](clean) up. [`publish`] shows the committed version to
//! reading threads.
//! threads that read.

pub(crate) mod catalog;
pub(crate) mod clean;
pub(crate) mod creation;
pub(crate) mod follow;
pub(crate) mod load;
pub(crate) mod manifest;
pub(crate) mod publish;
pub(crate) mod record;
pub(crate) mod recover;
pub(crate) mod replay;
pub(crate) mod witnesses;

pub(crate) use record::VersionRecord;

/// The locks of [`publish`], which its test replaces by those of a scheduler.
mod sync {
    pub(crate) use std::sync::{Arc, RwLock};
}
