//! Calling the engine: without the GIL, with panics caught, and stopped by Ctrl-C where the work may be long.

use crate::errors;
use mopqdb::{Error, Result, Watch};
use pyo3::prelude::*;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// How often a long call looks for a signal, and how often it tells its progress.
const SIGNALS: Duration = Duration::from_millis(20);
const PROGRESS: Duration = Duration::from_millis(100);

/// Why the engine gave no answer.
enum Failure {
    Error(Error),
    Panic(String),
}

impl Failure {
    fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Error(error) => errors::exception(py, &error),
            Self::Panic(message) => errors::panicked(py, &message),
        }
    }
}

/// Runs work of the engine and catches its panics, which must not cross into Python.
fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T, Failure> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(Failure::Error),
        Err(panic) => {
            let words = panic.downcast_ref::<&str>().map(ToString::to_string);
            let words = words.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(Failure::Panic(words.unwrap_or_default()))
        }
    }
}

/// Runs work of the engine without the GIL.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    let done = py.detach(|| caught(work));
    done.map_err(|failure| failure.raise(py))
}

/// Runs long work of the engine on a thread of its own, while this one looks for Ctrl-C and tells the progress.
///
/// `progress` is called with the units done and in total, on the caller's thread. If it returns `False` the work is
/// cancelled; if it raises, the work is stopped and the exception is raised.
pub(crate) fn watched<T: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Watch) -> Result<T> + Send,
) -> PyResult<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let counted = Arc::new(Counted::default());
    let watch = {
        let counted = Arc::clone(&counted);
        Watch::new()
            .stop_when(Arc::clone(&stop))
            .on_progress(move |now| counted.set(now.done, now.total))
    };
    let done = Done::default();
    let mut told = Told {
        counted: &counted,
        last: None,
    };
    std::thread::scope(|scope| {
        let (done, watch) = (&done, &watch);
        let started = Builder::new()
            .name("mopqdb-call".into())
            .spawn_scoped(scope, move || done.set(caught(|| work(watch))));
        if let Err(why) = started {
            let message = format!(
                "no thread could be started ({why}); raise the limits on memory and processes"
            );
            return Err(errors::invalid(py, message));
        }
        let mut interrupted = None;
        let result = loop {
            if let Some(result) = py.detach(|| done.wait(SIGNALS)) {
                break result;
            }
            if interrupted.is_none() {
                let asked = py.check_signals().and_then(|()| match progress {
                    Some(progress) => told.tell(progress, false),
                    None => Ok(true),
                });
                if !matches!(asked, Ok(true)) {
                    stop.store(true, Ordering::Relaxed);
                }
                interrupted = asked.err();
            }
        };
        match (interrupted, result) {
            (Some(interrupted), _) => Err(interrupted),
            (None, Err(failure)) => Err(failure.raise(py)),
            (None, Ok(result)) => {
                if let Some(progress) = progress {
                    told.tell(progress, true)?;
                }
                Ok(result)
            }
        }
    })
}

/// Units of work, as the engine last counted them.
#[derive(Default)]
struct Counted {
    done: AtomicU64,
    total: AtomicU64,
}

impl Counted {
    fn set(&self, done: u64, total: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }
}

/// What the caller was told.
struct Told<'a> {
    counted: &'a Counted,
    last: Option<(Instant, (u64, u64))>,
}

impl Told<'_> {
    /// Calls `progress` if there is news, and not more often than a person can read unless this is the end. Returns
    /// `false` if it asks to stop.
    fn tell(&mut self, progress: &Bound<'_, PyAny>, ended: bool) -> PyResult<bool> {
        let now = (
            self.counted.done.load(Ordering::Relaxed),
            self.counted.total.load(Ordering::Relaxed),
        );
        let is_news = match self.last {
            None => now.1 > 0,
            Some((at, said)) => said != now && (ended || at.elapsed() >= PROGRESS),
        };
        if !is_news {
            return Ok(true);
        }
        self.last = Some((Instant::now(), now));
        let answer = progress.call1(now)?;
        Ok(!answer.is(&*pyo3::types::PyBool::new(progress.py(), false)))
    }
}

/// The result of the work, once there is one.
struct Done<T> {
    result: Mutex<Option<Result<T, Failure>>>,
    ready: Condvar,
}

impl<T> Default for Done<T> {
    fn default() -> Self {
        Self {
            result: Mutex::new(None),
            ready: Condvar::new(),
        }
    }
}

impl<T> Done<T> {
    fn set(&self, result: Result<T, Failure>) {
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.ready.notify_one();
    }

    fn wait(&self, pause: Duration) -> Option<Result<T, Failure>> {
        let result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = (self.ready).wait_timeout_while(result, pause, |result| result.is_none());
        let (mut result, _) = waited.unwrap_or_else(PoisonError::into_inner);
        result.take()
    }
}

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Runs a function of the program's own that the engine has called.
pub(crate) fn callback<T>(work: impl FnOnce() -> T) -> T {
    let outer = IN_CALLBACK.replace(true);
    let done = work();
    IN_CALLBACK.set(outer);
    done
}

/// Returns `true` if the engine has called the code that is running.
pub(crate) fn in_callback() -> bool {
    IN_CALLBACK.get()
}
