//! Versions: the record that describes a database, its two copies (catalog and manifest), and recovery.
//!
//! A commit writes the [record] to the [catalog] and then as a [manifest]; opening for writing [recovers](recover) the
//! newest version from both, replays the logs and [cleans](clean) up. What is committed is [published](publish) to the
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

/// What [`publish`] is made of; its test puts a scheduler's locks in their place.
mod sync {
    pub(crate) use std::sync::{Arc, RwLock};
}
