//! What is kept of a run, as JSON: the pages are made of it and of nothing else.

use super::when::{Run, When};
use serde::{Deserialize, Serialize};

/// One case, all its peers: one run on one machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Compared {
    /// Its name: `quora-384`.
    pub case: String,
    /// In words.
    pub what: String,
    /// Rows searched.
    pub rows: usize,
    /// Numbers a row.
    pub dim: usize,
    /// Queries whose answers were compared.
    pub queries: usize,
    /// How often each timing was repeated, and for how many seconds.
    pub repeats: usize,
    /// Seconds of a repeat.
    pub seconds: f64,
    /// A small run, for checking.
    pub quick: bool,
    /// Where.
    pub machine: super::machine::Machine,
    /// When; older runs did not keep it.
    #[serde(default)]
    pub when: Option<When>,
    /// What was measured.
    pub peers: Vec<Measured>,
    /// Peers that are not in the table, and why.
    pub missing: Vec<Missing>,
}

impl Compared {
    /// Whether rows of the other can stand beside rows of this one: the same work, measured as thoroughly, on the same machine.
    pub fn alike(&self, other: &Self) -> bool {
        let work = |c: &Self| (c.case.clone(), c.rows, c.dim, c.queries);
        let effort = |c: &Self| (c.repeats, c.seconds, c.quick);
        work(self) == work(other) && effort(self) == effort(other) && self.machine == other.machine
    }
}

/// A peer that was not measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Missing {
    /// Its name.
    pub name: String,
    /// In words.
    pub why: String,
}

/// One peer at its best setting.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    /// The module: `faiss_pq`.
    pub peer: String,
    /// As people call it.
    pub name: String,
    /// In which run; older ones did not keep it.
    #[serde(default)]
    pub run: Run,
    /// Of the library.
    pub version: String,
    /// Whether an acknowledged insert survives a crash, in words.
    pub durable: String,
    /// The setting that was chosen, as JSON.
    pub setting: String,
    /// All settings that were tried.
    pub sweep: Vec<Swept>,
    /// Bytes of a row's code or vector.
    pub bytes: usize,
    /// Queries whose answers were compared: all of the case, or the first ones.
    #[serde(default)]
    pub asked: usize,
    /// Recall@10 against the exact top.
    pub recall_exact: f64,
    /// Recall@10 against the true keys.
    pub recall_true: Option<f64>,
    /// Queries a second: one at a time, one thread, by CPU time.
    pub one: f64,
    /// One at a time, two threads, by the clock.
    pub one_two: Option<f64>,
    /// 64 at a time, one thread, by CPU time.
    pub batch: f64,
    /// 64 at a time, two threads, by the clock.
    pub batch_two: Option<f64>,
    /// Share of a core that the one-thread loops got.
    pub share: f64,
    /// Bytes a row that opening and searching added to the resident memory.
    pub ram: f64,
    /// Bytes a row of files.
    pub disk: f64,
    /// CPU seconds to build.
    pub build: f64,
    /// Seconds from nothing to the first answer.
    pub open: f64,
    /// Rows a second inserted, 100 a call, by the clock.
    pub insert: Option<f64>,
}

/// A setting that was tried, by a short look.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Swept {
    /// As [`Measured::setting`].
    pub setting: String,
    /// Recall@10 against the exact top, of as many queries as there was time for.
    pub recall_exact: f64,
    /// Queries a second: one at a time, one thread, by CPU time.
    pub one: f64,
}

/// Texts in, hits out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WholeJob {
    /// Texts inserted.
    pub texts: usize,
    /// Queries asked, one after another.
    pub queries: usize,
    /// Threads each had.
    pub threads: usize,
    /// The data set.
    pub set: String,
    /// Where.
    pub machine: super::machine::Machine,
    /// When; older runs did not keep it.
    #[serde(default)]
    pub when: Option<When>,
    /// What was measured.
    pub systems: Vec<Whole>,
    /// What could not be.
    pub missing: Vec<Missing>,
}

/// One system, from texts to hits.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Whole {
    /// What it is.
    pub name: String,
    /// Of its parts.
    pub version: String,
    /// What is to be known of how it was run.
    pub note: String,
    /// Texts a second, by the clock, until all are durable and searchable.
    pub insert_wall: f64,
    /// Texts a CPU second.
    pub insert_cpu: f64,
    /// Of a query, text to hits, in milliseconds.
    pub p50_ms: f64,
    /// The slowest hundredth begins here.
    pub p99_ms: f64,
    /// CPU milliseconds a query.
    pub query_cpu_ms: f64,
    /// Bytes a text on disk.
    pub disk: f64,
    /// Most memory while inserting, in bytes.
    pub insert_memory: f64,
    /// Most memory while querying.
    pub query_memory: f64,
    /// Recall@10 of the true keys.
    pub recall_true: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_another_machine_or_effort_do_not_stand_beside_these() {
        let one = Compared {
            case: "c".into(),
            what: String::new(),
            rows: 10,
            dim: 2,
            queries: 5,
            repeats: 3,
            seconds: 0.5,
            quick: false,
            machine: Default::default(),
            when: None,
            peers: Vec::new(),
            missing: Vec::new(),
        };
        assert!(one.alike(&one.clone()));
        let mut other = one.clone();
        other.machine.cpu = "another".into();
        let longer = Compared {
            seconds: 1.0,
            ..one.clone()
        };
        let larger = Compared {
            rows: 11,
            ..one.clone()
        };
        for different in [other, longer, larger] {
            assert!(!one.alike(&different), "{different:?}");
        }
    }
}
