//! Progress and cancellation of long operations.

use crate::error::{Error, Result};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The progress of an operation. What is counted depends on the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The number of units done.
    pub done: u64,
    /// The number of units in total.
    pub total: u64,
}

/// Reports the progress of a long operation and can stop it.
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
    /// Creates a watch that reports nothing and never stops.
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `progress` from time to time, on the thread that does the work.
    pub fn on_progress(mut self, progress: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// Ends the operation with an error soon after `stop` is set.
    pub fn stop_when(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Reports progress.
    pub(crate) fn report(&self, done: u64, total: u64) {
        if let Some(progress) = &self.progress {
            progress(Progress { done, total });
        }
    }

    /// Returns [`Error::Cancelled`] if the operation should stop: for work that has changed nothing yet, as that of an
    /// [encoder](crate::encoder::Encoder::encode_keys_watched).
    pub fn check(&self) -> Result<()> {
        match self.is_stopped() {
            true => Err(Error::Cancelled("nothing was changed")),
            false => Ok(()),
        }
    }

    /// Returns `true` if the operation should stop.
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
