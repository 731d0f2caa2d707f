//! The background thread that seals the tail.

use crate::error::Result;
use crate::threads::start;
use crate::write::Store;
use crossbeam::channel::{Receiver, Sender, bounded};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;

#[derive(Debug)]
enum Call {
    Seal,
    Stop,
}

/// Wakes the sealing thread. Does nothing if the thread was not started or has exited.
#[derive(Debug, Default)]
pub(crate) struct Bell(OnceLock<Sender<Call>>);

impl Bell {
    /// Requests a seal.
    pub(crate) fn ring(&self) {
        if let Some(calls) = self.0.get() {
            // A full channel means that a seal is already requested.
            let _ = calls.try_send(Call::Seal);
        }
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
    pub(crate) fn start(store: &Arc<Store>) -> Result<Self> {
        // A seal takes all there is: one call that waits is as good as many. The thread alone listens, so that a call to
        // one that has died is an error and nobody waits for it.
        let (calls, taken) = bounded(1);
        let thread = {
            let store = Arc::downgrade(store);
            start("mopqdb-sealer", move || run(&taken, &store))?
        };
        let _ = store.bell.0.set(calls.clone());
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
            // The panic hook has already printed the message.
            let _ = thread.join();
        }
    }
}
