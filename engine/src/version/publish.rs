//! Publishing: readers take the newest version, which the writer replaces.
//!
//! The locks come from the module `sync` in `version/mod.rs`: those of the standard library, or those of a scheduler in
//! the test of interleavings, which compiles this file.

use super::sync::{Arc, RwLock};

/// The newest version of something. The lock is held for one clone or one swap.
#[derive(Debug)]
pub(crate) struct Versions<T>(RwLock<Arc<T>>);

impl<T> Versions<T> {
    pub(crate) fn new(first: T) -> Self {
        Self(RwLock::new(Arc::new(first)))
    }

    /// Returns the newest version.
    pub(crate) fn current(&self) -> Arc<T> {
        Arc::clone(&self.0.read().unwrap_or_else(|e| e.into_inner()))
    }

    /// Replaces the version that readers get from now on.
    pub(crate) fn publish(&self, newer: T) {
        let newer = Arc::new(newer);
        // The older version may hold the last reference to files, so it is dropped after the lock is released.
        let _older = {
            let mut current = self.0.write().unwrap_or_else(|e| e.into_inner());
            std::mem::replace(&mut *current, newer)
        };
    }
}
