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

    #[test]
    fn results_are_in_the_order_of_jobs_and_the_last_is_begun_first() {
        let begun = Mutex::new(Vec::new());
        let squares = each(9, |job| {
            begun.lock().unwrap().push(job);
            job * job
        });
        assert_eq!(squares, [0, 1, 4, 9, 16, 25, 36, 49, 64]);
        let begun = begun.into_inner().unwrap();
        assert_eq!(begun.len(), 9);
        let soonest = begun.iter().position(|job| *job == 8).unwrap();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        assert!(soonest < cores, "{begun:?}");
        assert!(each(0, |job| job).is_empty());
    }
}
