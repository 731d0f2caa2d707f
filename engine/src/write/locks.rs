//! The locks of a store, and the order in which they are taken.
//!
//! 1. *compacting*: segments are merged, or the model changes. Nobody else removes or reorders segments.
//! 2. *sealing*: a segment is made of the tail. Nobody else adds one.
//! 3. the *committer* (`Store::commit`): the log, the witnesses and the record.
//! 4. the *queue* (`Store::queue`): batches that wait for the log.
//!
//! Who holds one takes only later ones. Queries take none: they see what was last published.

use super::Store;
use crate::threads::lock;
use std::sync::{Mutex, MutexGuard};

/// The locks of those who change the list of segments.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    compacting: Mutex<()>,
    sealing: Mutex<()>,
}

/// Segments are being merged, or the model is changed, by the one who holds this.
#[derive(Debug)]
pub(crate) struct Compacting<'s>(#[expect(dead_code, reason = "held")] MutexGuard<'s, ()>);

/// A segment is being made of the tail by the one who holds this.
#[derive(Debug)]
pub(crate) struct Sealing<'s>(#[expect(dead_code, reason = "held")] MutexGuard<'s, ()>);

/// The store is being opened: nobody else has it yet.
#[derive(Debug)]
pub(super) struct Opening;

/// What one holds who may change the list of segments.
pub(crate) trait MayChangeSegments {}

impl MayChangeSegments for Compacting<'_> {}
impl MayChangeSegments for Sealing<'_> {}
impl MayChangeSegments for Opening {}

impl Store {
    /// Waits until no segments are being merged.
    pub(crate) fn start_compacting(&self) -> Compacting<'_> {
        Compacting(lock(&self.locks.compacting))
    }

    /// The same for one who does not wait.
    pub(super) fn try_compacting(&self) -> Option<Compacting<'_>> {
        self.locks.compacting.try_lock().ok().map(Compacting)
    }

    /// Waits until no seal is under way.
    pub(crate) fn start_sealing(&self) -> Sealing<'_> {
        Sealing(lock(&self.locks.sealing))
    }

    /// The same for one who does not wait.
    pub(super) fn try_sealing(&self) -> Option<Sealing<'_>> {
        self.locks.sealing.try_lock().ok().map(Sealing)
    }
}
