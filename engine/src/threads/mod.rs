//! Starting threads, and sharing work among them. A thread that can't be started is an error, never a panic.

pub(crate) mod turns;

pub(crate) use turns::lock;

use crate::error::{Error, Result};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// The largest number of threads that can be requested. Each thread costs memory maps and process ids, and a process
/// that runs out of them is aborted.
pub const MAX_THREADS: usize = 1024;

/// Returns the number of threads that a setting means; 0 means one per core.
pub(crate) fn count(setting: usize) -> Result<usize> {
    match setting {
        0 => Ok(cores()),
        1..=MAX_THREADS => Ok(setting),
        _ => Err(Error::invalid(format!(
            "{setting} threads are more than the limit of {MAX_THREADS}; 0 means one per core"
        ))),
    }
}

/// Returns the number of threads that this machine runs at once.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Starts a thread that outlives the caller's stack frame.
pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    refuse_in_tests()?;
    let started = Builder::new().name(name.into()).spawn(work);
    started.map_err(|e| not_started(name, &e))
}

/// Starts a thread in a scope.
pub(crate) fn start_in<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    refuse_in_tests()?;
    let started = Builder::new().name(name.into()).spawn_scoped(scope, work);
    started.map_err(|e| not_started(name, &e))
}

/// Processes all shares in parallel: the last one on this thread, each of the others on a thread of its own. Returns
/// the results in the order of the shares.
///
/// For rare work; queries use the scanner's persistent threads.
///
/// # Errors
/// The error of the first share, in their order, that fails; [`Error::Invalid`] if a thread can't be started.
pub(crate) fn share_out<S: Send, T: Send>(
    name: &str,
    shares: impl IntoIterator<Item = S>,
    work: impl Fn(S) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let mut others: Vec<S> = shares.into_iter().collect();
    let Some(own) = others.pop() else {
        return Ok(Vec::new());
    };
    let work = &work;
    std::thread::scope(|scope| {
        let others: Result<Vec<_>> = (others.into_iter())
            .map(|share| start_in(scope, name, move || work(share)))
            .collect();
        let others = others?;
        let own = work(own);
        let others = others.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        others.chain([own]).collect()
    })
}

fn not_started(name: &str, why: &std::io::Error) -> Error {
    Error::invalid(format!(
        "the thread {name} could not be started ({why}); ask for fewer threads, or raise the limits on memory and processes"
    ))
}

#[cfg(not(test))]
fn refuse_in_tests() -> Result<()> {
    Ok(())
}

#[cfg(test)]
fn refuse_in_tests() -> Result<()> {
    tests::LEFT.with(|left| match left.get() {
        Some(0) => Err(not_started(
            "of a test",
            &std::io::ErrorKind::WouldBlock.into(),
        )),
        some => {
            left.set(some.map(|n| n - 1));
            Ok(())
        }
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{CreateOptions, Database, Metric, Options, Row};
    use std::cell::Cell;
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicUsize, Ordering};

    thread_local! {
        /// The number of threads that this thread may still start; `None` for no limit.
        pub(super) static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// Runs `work` on a thread that may start `left` other threads.
    pub(crate) fn with_threads_left<T>(left: usize, work: impl FnOnce() -> T) -> T {
        LEFT.set(Some(left));
        let done = work();
        LEFT.set(None);
        done
    }

    #[test]
    fn more_threads_than_the_limit_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let new = CreateOptions::vectors(2, Metric::Ip);
        let options = Options {
            threads: MAX_THREADS + 1,
            ..Options::default()
        };
        let path = dir.path().join("db");
        let error = Database::create(&path, &new, options.clone()).unwrap_err();
        assert!(matches!(&error, Error::Invalid(_)), "{error}");
        assert!(error.to_string().contains("1025 threads"), "{error}");
        assert!(!path.exists(), "it is refused before anything is created");
        drop(Database::create(&path, &new, Options::default()).unwrap());
        assert!(Database::open(&path, options.clone()).is_err());
        assert!(crate::Reader::open(&path, options).is_err());
    }

    #[test]
    fn results_are_in_the_order_of_the_shares() {
        let this = || std::thread::current().id();
        let work = |n: usize| Ok((n * n, this()));
        let answers = share_out("of a test", [1, 2, 3], work).unwrap();
        let (squares, threads): (Vec<_>, BTreeSet<_>) = (answers.iter())
            .map(|(square, id)| (*square, format!("{id:?}")))
            .unzip();
        assert_eq!(squares, [1, 4, 9]);
        assert_eq!(threads.len(), 3);
        assert_eq!(answers[2].1, this());
        let none = share_out("of a test", [], work).unwrap();
        assert!(none.is_empty());
    }

    #[test]
    fn the_error_of_the_first_failing_share_is_returned() {
        let done = AtomicUsize::new(0);
        let error = share_out("of a test", 0..4, |n| {
            done.fetch_add(1, Ordering::Relaxed);
            match n {
                1 | 3 => Err(Error::invalid(format!("share {n}"))),
                _ => Ok(()),
            }
        })
        .unwrap_err();
        assert!(error.to_string().contains("share 1"), "{error}");
        assert_eq!(done.into_inner(), 4);
        let work = |_| Ok(());
        let error = with_threads_left(1, || share_out("of a test", 0..3, work)).unwrap_err();
        assert!(error.to_string().contains("fewer threads"), "{error}");
        with_threads_left(2, || share_out("of a test", 0..3, work)).unwrap();
    }

    #[test]
    fn a_thread_that_cannot_be_started_is_an_error_and_the_database_opens_later() {
        let dir = tempfile::tempdir().unwrap();
        let new = CreateOptions::vectors(2, Metric::Ip);
        let options = Options {
            threads: 3,
            ..Options::default()
        };
        let db = Database::create(dir.path(), &new, options.clone()).unwrap();
        db.insert(&[Row::vector("a", [1.0, 2.0])]).unwrap();
        drop(db);
        let mut opened = 0;
        for left in 0..6 {
            match with_threads_left(left, || Database::open(dir.path(), options.clone())) {
                Ok(db) => {
                    assert!(db.get("a").unwrap().is_some());
                    opened += 1;
                }
                Err(error) => {
                    assert!(matches!(&error, Error::Invalid(_)), "{error}");
                    assert!(error.to_string().contains("fewer threads"), "{error}");
                }
            }
        }
        // Two threads scan, one seals and one is for maintenance.
        assert_eq!(opened, 2, "4 threads are enough");
    }
}
