//! Ctrl-C: the work in hand is finished, then the program stops. A second one stops it at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// From now on Ctrl-C (and SIGTERM) is noted, and [`asked`] tells.
pub fn listen() {
    // An error means that a handler is there already: ours.
    let _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        eprintln!("\nmopqdb: stopping after the work in hand (once more: at once)");
    });
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

/// From now on signals are only counted, for whoever waits for another program and passes them on.
pub fn count() {
    let _ = ctrlc::set_handler(|| {
        SIGNALS.fetch_add(1, Ordering::SeqCst);
    });
}

/// How many signals were [counted](count).
pub fn counted() -> usize {
    SIGNALS.load(Ordering::SeqCst)
}

/// Set when the user has asked us to stop: for the engine to look at.
pub fn flag() -> Arc<AtomicBool> {
    Arc::clone(&ASKED)
}

/// Whether the user has asked us to stop.
pub fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}
