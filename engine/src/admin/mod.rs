//! Operations on the directory of a database: checking, repairing, copying, measuring, and removing what is not used.
//!
//! `verify`, `repair` and `salvage` also work on a database that can't be opened.

pub(crate) mod backup;
pub(crate) mod draft;
pub(crate) mod drift;
pub(crate) mod machine;
pub(crate) mod models;
pub(crate) mod prune;
pub(crate) mod repair;
pub(crate) mod runs;
pub(crate) mod salvage;
pub(crate) mod stats;
pub(crate) mod verify;
