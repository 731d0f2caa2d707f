//! A disk with one fault at the Nth call.

use crate::watched::{Call, Watcher};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How the Nth call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails once, with `EIO`.
    Broken,
    /// No space from here on: `ENOSPC` for everything that writes, until [`Faulty::heal`].
    Full,
    /// Half of a write reaches the disk, and the rest finds no space. Other calls fail.
    Short,
}

/// Error numbers of the operating system.
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Makes the Nth call fail, and shows what happened to another watcher.
#[derive(Debug)]
pub struct Faulty {
    fault: Fault,
    /// The number of the failing call, counted from 1.
    at: usize,
    calls: AtomicUsize,
    hit: AtomicBool,
    healed: AtomicBool,
    /// After a short write: the next call fails too.
    no_room: AtomicBool,
    next: Arc<dyn Watcher>,
}

impl Faulty {
    /// Creates a fault at call `at`, counted from 1; 0 for none.
    pub fn new(fault: Fault, at: usize, next: Arc<dyn Watcher>) -> Arc<Self> {
        Arc::new(Self {
            fault,
            at,
            calls: AtomicUsize::new(0),
            hit: AtomicBool::new(false),
            healed: AtomicBool::new(false),
            no_room: AtomicBool::new(false),
            next,
        })
    }

    /// Returns the number of calls so far.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Returns `true` if the fault happened.
    pub fn hit(&self) -> bool {
        self.hit.load(Ordering::SeqCst)
    }

    /// Frees space, so that calls succeed again.
    pub fn heal(&self) {
        self.healed.store(true, Ordering::SeqCst);
    }
}

impl Watcher for Faulty {
    fn before(&self, call: &Call<'_>) -> io::Result<usize> {
        let len = self.next.before(call)?;
        let now = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let no_space = || io::Error::from_raw_os_error(ENOSPC);
        if self.no_room.swap(false, Ordering::SeqCst) {
            return Err(no_space());
        }
        if self.at == 0 || now < self.at || self.healed.load(Ordering::SeqCst) {
            return Ok(len);
        }
        let first = !self.hit.swap(true, Ordering::SeqCst);
        let writes = matches!(
            call,
            Call::Create(..) | Call::Write(..) | Call::CreateDir(_) | Call::Sync(..)
        );
        match (self.fault, call) {
            (Fault::Short, Call::Write(..)) if first && len > 1 => {
                self.no_room.store(true, Ordering::SeqCst);
                Ok(len / 2)
            }
            (Fault::Full, _) if writes => Err(no_space()),
            (Fault::Full, _) => Ok(len),
            _ if first => Err(io::Error::from_raw_os_error(EIO)),
            _ => Ok(len),
        }
    }

    fn after(&self, call: &Call<'_>, done: bool) {
        self.next.after(call, done);
    }
}
