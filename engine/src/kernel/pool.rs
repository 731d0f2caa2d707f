//! Persistent threads that borrow work from a caller: no thread is spawned for a query.

use crate::error::Result;
use crate::threads::start;
use crossbeam::channel::{Receiver, Sender, unbounded};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Threads that help a caller. The caller always works itself, so a pool of one has no threads and never waits.
#[derive(Debug)]
pub(crate) struct Pool {
    threads: usize,
    helpers: Option<Sender<Arc<Task>>>,
}

/// Work borrowed from a caller, which waits in [`Pool::run`] until no thread runs it.
struct Task {
    /// The caller's closure, its lifetime forgotten. Valid while `state.closed` is false or `state.running` > 0.
    work: *const (dyn Fn() + Sync),
    state: Mutex<State>,
    idle: Condvar,
}

#[derive(Default)]
struct State {
    closed: bool,
    running: usize,
    panic: Option<Box<dyn Any + Send>>,
}

// SAFETY: `work` points to a Sync closure, so it may be called from any thread; the rest is Send and Sync.
unsafe impl Send for Task {}
// SAFETY: as above.
unsafe impl Sync for Task {}

impl Task {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // No code that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the work once, if its caller is still there.
    fn help(&self) {
        {
            let mut state = self.lock();
            if state.closed {
                return;
            }
            state.running += 1;
        }
        // SAFETY: `closed` was false under the lock when we counted ourselves in `running`, so the caller is
        // in `run`, which returns only once it has set `closed` and seen `running` at 0: the closure outlives
        // this call.
        let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { (*self.work)() }));
        let mut state = self.lock();
        state.running -= 1;
        if let Err(panic) = outcome {
            state.panic.get_or_insert(panic);
        }
        if state.running == 0 {
            self.idle.notify_all();
        }
    }
}

impl Pool {
    /// Returns a pool in which `threads` threads work on a task: the caller and `threads - 1`
    /// helpers.
    ///
    /// Returns an error if a helper can't be started; those that were started end.
    pub(crate) fn new(threads: usize) -> Result<Self> {
        if threads <= 1 {
            return Ok(Self::alone());
        }
        let (sender, receiver) = unbounded::<Arc<Task>>();
        for i in 1..threads {
            let receiver: Receiver<Arc<Task>> = receiver.clone();
            // A helper ends when the pool is dropped, and with it the sender.
            start(&format!("mopqdb-scan-{i}"), move || {
                receiver.iter().for_each(|task| task.help());
            })?;
        }
        Ok(Self {
            threads,
            helpers: Some(sender),
        })
    }

    /// Returns a pool without helper threads.
    pub(crate) fn alone() -> Self {
        Self {
            threads: 1,
            helpers: None,
        }
    }

    /// Returns the number of threads that work on a task, the caller included.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `work` on this thread and, at the same time, on up to `threads - 1` helpers that are free; returns
    /// when all of them have returned from it. The work shares itself out, say by an atomic counter: some of
    /// the calls may come late, find nothing left, and return. A panic is handed on to the caller.
    pub(crate) fn run(&self, threads: usize, work: &(dyn Fn() + Sync)) {
        let helpers = threads.min(self.threads).saturating_sub(1);
        let Some(sender) = self.helpers.as_ref().filter(|_| helpers > 0) else {
            return work();
        };
        // SAFETY: only the lifetime is changed. `Task::help` calls it only while this function is waiting.
        let work_forgotten: *const (dyn Fn() + Sync) = unsafe {
            std::mem::transmute::<*const (dyn Fn() + Sync + '_), *const (dyn Fn() + Sync + 'static)>(
                work,
            )
        };
        let task = Arc::new(Task {
            work: work_forgotten,
            state: Mutex::default(),
            idle: Condvar::new(),
        });
        for _ in 0..helpers {
            // Fails only if every helper has ended, and then the caller does it all.
            let _ = sender.send(Arc::clone(&task));
        }
        let own = catch_unwind(AssertUnwindSafe(work));
        let mut state = task.lock();
        state.closed = true;
        while state.running > 0 {
            state = task
                .idle
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let panic = state.panic.take();
        drop(state);
        if let Some(panic) = own.err().or(panic) {
            resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn all_work_is_done_when_run_returns_whoever_else_uses_the_pool() {
        let pool = Pool::new(3).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..500 {
                        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
                        pool.run(3, &|| {
                            while next.fetch_add(1, Ordering::SeqCst) < round {
                                done.fetch_add(1, Ordering::SeqCst);
                            }
                        });
                        assert_eq!(done.load(Ordering::SeqCst), round);
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_in_the_work_reaches_the_caller_and_the_pool_still_works() {
        let pool = Pool::new(2).unwrap();
        let outcome = catch_unwind(AssertUnwindSafe(|| pool.run(2, &|| panic!("of the work"))));
        assert!(outcome.is_err());
        let calls = AtomicUsize::new(0);
        pool.run(2, &|| {
            calls.fetch_add(1, Ordering::SeqCst);
        });
        assert!(calls.load(Ordering::SeqCst) >= 1);
    }
}
