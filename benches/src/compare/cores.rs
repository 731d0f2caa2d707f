//! A job on each core.

use std::sync::Mutex;
use std::thread;

/// What becomes of all jobs, in their order. As many are at work as there are cores; the last are begun first.
pub fn each<T: Send>(jobs: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let left = Mutex::new(0..jobs);
    let next = || left.lock().expect("no panic").next_back();
    let done = Mutex::new(Vec::new());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(job) = next() {
                    let result = work(job);
                    done.lock().expect("no panic").push((job, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no panic");
    done.sort_by_key(|(job, _)| *job);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn results_are_in_the_order_of_jobs_and_the_last_is_begun_first() {
        let begun = Mutex::new(HashMap::<_, Vec<usize>>::new());
        let squares = each(1000, |job| {
            let thread = thread::current().id();
            begun.lock().unwrap().entry(thread).or_default().push(job);
            job * job
        });
        let expected: Vec<usize> = (0..1000).map(|job| job * job).collect();
        assert_eq!(squares, expected);
        // Whichever thread is held up: what one begins is before what it began last.
        for jobs in begun.into_inner().unwrap().values() {
            assert!(jobs.is_sorted_by(|a, b| a > b), "{jobs:?}");
        }
        assert!(each(0, |job| job).is_empty());
    }
}
