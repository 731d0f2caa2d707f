//! The thread of an open database that seals what is due, so that no insert waits for it.

use crate::store::Store;
use crossbeam::channel::{Receiver, Sender, bounded};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

enum Call {
    Seal,
    Stop,
}

/// By which a store calls its sealer.
pub(crate) struct Bell {
    calls: Sender<Call>,
    /// Taken by the sealer when it starts. Without one, nobody comes.
    sealer: Receiver<Call>,
}

impl Default for Bell {
    fn default() -> Self {
        // A seal takes all there is: one call that waits is as good as many.
        let (calls, sealer) = bounded(1);
        Self { calls, sealer }
    }
}

impl Bell {
    /// Asks for a seal, soon.
    pub(crate) fn ring(&self) {
        // Full: it was asked for, and has not begun.
        let _ = self.calls.try_send(Call::Seal);
    }
}

impl std::fmt::Debug for Bell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bell")
    }
}

/// The thread, ended and joined on drop. What was asked for before that is done first.
#[derive(Debug)]
pub(crate) struct Sealer {
    calls: Sender<Call>,
    thread: Option<JoinHandle<()>>,
}

impl Sealer {
    /// Starts the thread. It keeps the store alive only while it works.
    pub(crate) fn start(store: &Arc<Store>) -> std::io::Result<Self> {
        let (calls, taken) = (store.bell.calls.clone(), store.bell.sealer.clone());
        let store = Arc::downgrade(store);
        let thread = std::thread::Builder::new()
            .name("mopqdb-sealer".into())
            .spawn(move || run(&taken, &store))?;
        Ok(Self {
            calls,
            thread: Some(thread),
        })
    }
}

fn run(calls: &Receiver<Call>, store: &Weak<Store>) {
    while let Ok(Call::Seal) = calls.recv() {
        let Some(store) = store.upgrade() else { return };
        if let Err(e) = store.seal_due(1) {
            tracing::warn!("sealing: {e}");
        }
    }
}

impl Drop for Sealer {
    fn drop(&mut self) {
        let _ = self.calls.send(Call::Stop);
        if let Some(thread) = self.thread.take() {
            // Its panics are printed where they happen.
            let _ = thread.join();
        }
    }
}
