//! Watching long work, and stopping it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How far long work has come. What is counted is said where a [`Watch`] is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// How much is done.
    pub done: u64,
    /// How much there is in all.
    pub total: u64,
}

/// Hears of the progress of long work, and can stop it.
///
/// ```
/// use mopqdb::Watch;
/// use std::sync::{Arc, atomic::AtomicBool};
///
/// let stop = Arc::new(AtomicBool::new(false));
/// let watch = Watch::new()
///     .on_progress(|now| println!("{} of {}", now.done, now.total))
///     .stop_when(Arc::clone(&stop));
/// # let _ = watch;
/// ```
#[derive(Clone, Default)]
pub struct Watch {
    progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
    stop: Option<Arc<AtomicBool>>,
}

impl Watch {
    /// Watches nothing, and stops nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `progress` now and then, from the thread that does the work.
    pub fn on_progress(mut self, progress: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// Ends the work with an error soon after somebody sets `stop`.
    pub fn stop_when(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Tells how far the work has come.
    pub(crate) fn report(&self, done: u64, total: u64) {
        if let Some(progress) = &self.progress {
            progress(Progress { done, total });
        }
    }

    /// Returns `true` once somebody wants the work to end.
    pub(crate) fn is_stopped(&self) -> bool {
        (self.stop.as_ref()).is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("stopped", &self.is_stopped())
            .finish_non_exhaustive()
    }
}
