//! Running a peer: a program that is given a case and prints one JSON object as its last line.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Peers that scan codes or whole vectors; all of them get every case.
pub const SCANS: [&str; 10] = [
    "mopqdb_opq",
    "mopqdb_exact",
    "faiss_pq",
    "faiss_opq",
    "faiss_fastscan",
    "scann_ah",
    "lancedb_pq",
    "lancedb_refined",
    "faiss_flat",
    "sqlite_vec_flat",
];
/// Graphs: to 1M rows only, for their memory and build time.
pub const GRAPHS: [&str; 2] = ["usearch_hnsw", "hnswlib_hnsw"];
/// Ours with codes learned from pairs, where there is such a model.
pub const LEARNED: &str = "mopqdb_mopq";

/// Every peer that a case may have.
pub fn all() -> impl Iterator<Item = &'static str> {
    [LEARNED].into_iter().chain(SCANS).chain(GRAPHS)
}

/// What a peer says of itself.
#[derive(Debug, Clone, Deserialize)]
pub struct About {
    /// As people call it.
    pub name: String,
    /// Of the library.
    pub version: String,
    /// Whether an acknowledged insert survives a crash, in words.
    pub durable: String,
    /// The peer, listed before it, that builds the same index and only searches it otherwise.
    #[serde(default)]
    pub built_by: Option<String>,
}

/// What a peer can be asked to try.
#[derive(Debug, Clone, Deserialize)]
pub struct Setting {
    /// How it is built.
    pub build: Value,
    /// Bytes of a row.
    pub bytes: usize,
    /// How it is searched, each tried over the same index.
    pub search: Vec<Value>,
}

/// A loop that was timed.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Timed {
    /// Of things done.
    pub count: f64,
    /// Seconds by the clock.
    pub wall: f64,
    /// CPU seconds of all threads.
    pub cpu: f64,
}

/// What `build` prints.
#[derive(Debug, Clone, Deserialize)]
pub struct Built {
    /// The building.
    pub build: Timed,
    /// Bytes of files.
    pub disk: f64,
}

/// What `search` prints.
#[derive(Debug, Clone, Deserialize)]
pub struct Searched {
    /// Seconds to the first answer.
    pub open: f64,
    /// Queries one at a time.
    pub one: Vec<Timed>,
    /// Queries 64 at a time.
    pub batch: Vec<Timed>,
    /// Bytes that the resident memory grew by.
    pub ram: f64,
}

/// What `insert` prints.
#[derive(Debug, Clone, Deserialize)]
pub struct Grown {
    /// The inserting; nothing was inserted if the count is 0.
    pub insert: Timed,
}

/// The programs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// An interpreter with the peers.
    pub python: PathBuf,
    /// The folder of this program, with `peer`, `mopqdb` and `mopqdb-train`.
    pub ours: PathBuf,
}

impl Programs {
    /// With the programs of a folder, or those that were built with this one.
    pub fn new(python: PathBuf, folder: Option<PathBuf>) -> Result<Self> {
        let this = std::env::current_exe().context("where this program is")?;
        let beside = this.parent().context("a folder")?.to_path_buf();
        // Absolute: they are run from other folders too.
        let ours = std::path::absolute(folder.unwrap_or(beside))?;
        Ok(Self { python, ours })
    }

    /// Runs a search peer; `Err` in words if it fails.
    pub fn peer<T: DeserializeOwned>(&self, peer: &str, arguments: &[&str]) -> Result<T> {
        let mut command = if peer.starts_with("mopqdb") {
            Command::new(self.ours.join("peer"))
        } else {
            self.script("peer.py")
        };
        command.arg(peer).args(arguments);
        run(&mut command, peer)
    }

    /// A script of `benches/peers`.
    pub fn script(&self, name: &str) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("peers")
                .join(name),
        );
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }
}

/// Runs a program and reads its last line. `{"missing": why}` is an error that says why.
pub fn run<T: DeserializeOwned>(command: &mut Command, name: &str) -> Result<T> {
    let output = command
        .output()
        .with_context(|| format!("running {:?}", command.get_program()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let last: Vec<&str> = complaint.lines().rev().take(3).collect();
        bail!("{name} failed ({}): {}", output.status, last.join(" / "));
    }
    answer(&said).with_context(|| format!("what {name} printed"))
}

fn answer<T: DeserializeOwned>(said: &str) -> Result<T> {
    let line = said
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .context("nothing was printed")?;
    let value: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
    if let Some(why) = value.get("missing").and_then(Value::as_str) {
        bail!("not installed: {why}");
    }
    Ok(serde_json::from_value(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_answer_whatever_was_printed_before() {
        let said = "a library's greeting\n\n{\"name\": \"x\", \"version\": \"1\", \"durable\": \"yes\"}\n\n";
        assert_eq!(answer::<About>(said).unwrap().name, "x");
        assert!(answer::<About>("").is_err());
    }

    #[test]
    fn a_peer_that_is_not_there_says_why() {
        let error = answer::<About>("{\"missing\": \"ImportError: no wheel\"}").unwrap_err();
        assert_eq!(error.to_string(), "not installed: ImportError: no wheel");
    }
}
