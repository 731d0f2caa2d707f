//! Every index of a case is built before any is searched, one build per core. Building is reported in CPU seconds, and
//! searches are measured while nothing else runs.

use crate::case::Case;
use crate::peers::{About, Built, Programs, Setting};
use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

/// A peer with its settings for a case.
pub struct Entry<'a> {
    pub case: &'a Case,
    pub programs: &'a Programs,
    /// The name of its module: `faiss_pq`.
    pub peer: &'a str,
    pub about: About,
    pub settings: Vec<Setting>,
}

impl Entry<'_> {
    /// Returns the path of a setting's index.
    pub fn index(&self, setting: usize) -> PathBuf {
        let name = format!("index/{}-{setting}", self.peer);
        self.case.dir.join(name)
    }

    /// Calls the peer with an index.
    pub fn call<T: DeserializeOwned>(
        &self,
        command: &str,
        index: &Path,
        setting: &Value,
        more: &[&str],
    ) -> Result<T> {
        let path = |path: &Path| {
            path.to_str()
                .map(str::to_owned)
                .context("the path must be UTF-8")
        };
        let (case, index, setting) = (path(&self.case.dir)?, path(index)?, setting.to_string());
        let arguments = [&[command, &case, &index, &setting], more].concat();
        self.programs.peer(self.peer, &arguments)
    }

    fn build(&self, n: usize) -> Result<Built> {
        let setting = &self.settings[n].build;
        let built: Built = self.call("build", &self.index(n), setting, &[])?;
        let (peer, cpu) = (self.peer, built.build.cpu);
        eprintln!("  {peer} built: {setting}, {cpu:.1} CPU-s");
        Ok(built)
    }
}

/// Builds all settings of all entries. Returns, for each entry, what building its settings took, or why it failed.
pub fn all(entries: &[Entry<'_>]) -> Vec<Result<Vec<Built>>> {
    let of = |e: usize| (0..entries[e].settings.len()).map(move |n| (e, n));
    let jobs: Vec<(usize, usize)> = (0..entries.len()).flat_map(of).collect();
    let built = on_each_core(jobs.len(), |job| entries[jobs[job].0].build(jobs[job].1));
    let mut built = built.into_iter();
    let mut take = |count| built.by_ref().take(count).collect::<Vec<_>>();
    // All results of an entry are collected before its first failure is returned.
    let each = entries.iter().map(|entry| take(entry.settings.len()));
    each.map(|of| of.into_iter().collect()).collect()
}

/// Runs the jobs on all cores, the last one first, because the last ones take longest. Results are in the order of the
/// jobs.
pub fn on_each_core<T: Send>(jobs: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let left = Mutex::new(0..jobs);
    let next = || left.lock().expect("no panic").next_back();
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
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
    fn results_are_in_the_order_of_jobs() {
        let expected: Vec<usize> = (0..1000).map(|job| job * job).collect();
        assert_eq!(on_each_core(1000, |job| job * job), expected);
        assert!(on_each_core(0, |job| job).is_empty());
    }
}
