//! The locks of a store, and the order in which they are taken.
//!
//! 1. *compacting*: segments are merged, or the model changes. Nobody else removes or reorders segments.
//! 2. *sealing*: a segment is made of the tail. Nobody else adds one.
//! 3. the *committer* (`Store::commit`): the log, the witnesses and the record.
//! 4. the *queue* (`Store::queue`): batches that wait for the log.
//!
//! A holder of one lock takes only later ones. Queries take no locks; they see the last published
//! snapshot.

use super::Store;
use crate::threads::lock;
use std::sync::{Mutex, MutexGuard};

/// The locks for changing the list of segments.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    compacting: Mutex<()>,
    sealing: Mutex<()>,
}

/// Proof that the *compacting* lock is held.
#[derive(Debug)]
pub(crate) struct Compacting<'s>(#[expect(dead_code, reason = "held")] MutexGuard<'s, ()>);

/// Proof that the *sealing* lock is held.
#[derive(Debug)]
pub(crate) struct Sealing<'s>(#[expect(dead_code, reason = "held")] MutexGuard<'s, ()>);

/// Proof that the store is being opened and not shared yet.
#[derive(Debug)]
pub(super) struct Opening;

/// Proof that the caller may change the list of segments.
pub(crate) trait MayChangeSegments {}

impl MayChangeSegments for Compacting<'_> {}
impl MayChangeSegments for Sealing<'_> {}
impl MayChangeSegments for Opening {}

impl Store {
    /// Waits until no segments are being merged.
    pub(crate) fn start_compacting(&self) -> Compacting<'_> {
        Compacting(lock(&self.locks.compacting))
    }

    /// Returns the lock if it is free.
    pub(super) fn try_compacting(&self) -> Option<Compacting<'_>> {
        self.locks.compacting.try_lock().ok().map(Compacting)
    }

    /// Waits until no seal is under way.
    pub(crate) fn start_sealing(&self) -> Sealing<'_> {
        Sealing(lock(&self.locks.sealing))
    }

    /// Returns the lock if it is free.
    pub(super) fn try_sealing(&self) -> Option<Sealing<'_>> {
        self.locks.sealing.try_lock().ok().map(Sealing)
    }
}
