//! Ctrl-C: the current step is finished, then the program stops. A second Ctrl-C stops it at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Installs the handler of Ctrl-C and SIGTERM; [`asked`] reports a signal.
pub fn listen() {
    // An error means that our handler is installed already.
    let _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        eprintln!("\nmopqdb: stopping after the current step (press Ctrl-C again to stop at once)");
    });
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

/// Only counts signals from now on, for callers that pass them on to another program.
pub fn count() {
    let _ = ctrlc::set_handler(|| {
        SIGNALS.fetch_add(1, Ordering::SeqCst);
    });
}

/// Returns the number of signals since [`count`].
pub fn counted() -> usize {
    SIGNALS.load(Ordering::SeqCst)
}

/// Returns the flag that is set when the user asks to stop.
pub fn flag() -> Arc<AtomicBool> {
    Arc::clone(&ASKED)
}

/// Returns `true` if the user has asked to stop.
pub fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}
