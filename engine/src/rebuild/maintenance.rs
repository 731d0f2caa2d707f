//! The threads of an open database. One does background work: commits prepared rebuilds, merges segments, and trains a
//! first quantizer if the options ask for one. The other is the [`sealer`](crate::write::sealer).

use super::first::{AutoQuantized, quantize_if_due};
use crate::error::Result;
use crate::rebuild;
use crate::threads;
use crate::watch::Watch;
use crate::write::Store;
use crate::write::sealer::Sealer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// The threads. They are stopped and joined on drop.
#[derive(Debug)]
pub(crate) struct Maintenance {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
    /// Dropped, and so joined, last.
    _sealer: Option<Sealer>,
}

#[derive(Debug, Default)]
struct Stop {
    stopped: Mutex<bool>,
    /// The same signal, for long-running work that polls it.
    flag: Arc<AtomicBool>,
    changed: Condvar,
}

impl Stop {
    /// Waits for the next round. Returns `false` if there is none.
    fn next_round(&self, pause: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(|e| e.into_inner());
        let wait = self
            .changed
            .wait_timeout_while(stopped, pause, |stopped| !*stopped);
        let (stopped, _) = wait.unwrap_or_else(|e| e.into_inner());
        !*stopped
    }
}

impl Maintenance {
    /// Starts the threads. They keep the store alive only while they work.
    ///
    /// Returns an error if one can't be started; the other is then stopped.
    pub(crate) fn start(store: &Arc<Store>) -> Result<Self> {
        let sealer = store
            .options
            .seal_in_background
            .then(|| Sealer::start(store))
            .transpose()?;
        let stop = Arc::new(Stop::default());
        let pause = store.options.maintenance;
        let thread = {
            let stop = Arc::clone(&stop);
            let store = Arc::downgrade(store);
            threads::start("mopqdb-maintenance", move || run(&stop, &store, pause))?
        };
        Ok(Self {
            stop,
            thread: Some(thread),
            _sealer: sealer,
        })
    }
}

fn run(stop: &Stop, store: &Weak<Store>, pause: Duration) {
    // The number of rows when training last failed. It is tried again when there are twice as many.
    let mut failed_at = 0;
    let mut asked = true;
    while stop.next_round(pause) {
        let Some(store) = store.upgrade() else { return };
        if let Err(e) = rebuild::commit_if_ready(&store) {
            tracing::warn!("committing a prepared rebuild: {e}");
        }
        if store.options.auto_compact
            && !rebuild::is_ready(&store.layout)
            && let Err(e) = store.compact_in_background()
        {
            tracing::warn!("compacting: {e}");
        }
        if asked
            && let Some(least_rows) = store.options.auto_quantize
            && store.current().rows() >= 2 * failed_at
        {
            let watch = Watch::new().stop_when(Arc::clone(&stop.flag));
            match quantize_if_due(&store, least_rows, &watch) {
                Ok(AutoQuantized::Tried(trial)) => {
                    asked = false;
                    let becomes = match trial.switched {
                        true => "queries use them from now on",
                        false => "rows are searched exactly as before",
                    };
                    tracing::warn!(
                        "learned codes of {} bytes per row, model {}: with them and the stored vectors queries find {:.3} of \
                         the exact nearest ten rows, so {becomes}",
                        trial.bytes_per_row,
                        trial.model,
                        trial.recall
                    );
                }
                Ok(AutoQuantized::Had) => asked = false,
                Ok(AutoQuantized::NotDue) => {}
                Err(e) => {
                    failed_at = store.current().rows();
                    tracing::warn!("training a quantizer: {e}");
                }
            }
        }
    }
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        self.stop.flag.store(true, Ordering::Relaxed);
        *self.stop.stopped.lock().unwrap_or_else(|e| e.into_inner()) = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // Its panics are printed where they happen.
            let _ = thread.join();
        }
    }
}
