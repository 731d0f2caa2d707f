//! Peers as programs. A peer is given a case and prints one JSON object as its last line; `peers/peer.py` documents the
//! protocol. [`crate::peer`] is mopqdb's peer, the others are modules of `peers/search`.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Peers that scan codes or full-precision vectors. They run on every case.
pub const SCANS: &str = "mopqdb_opq mopqdb_opq_rescored mopqdb_exact faiss_pq faiss_opq faiss_fastscan scann_ah lancedb_pq lancedb_refined \
                         faiss_flat sqlite_vec_flat";
/// Graph indexes. They run only up to [`GRAPH_ROWS`] because of their memory and build time.
pub const GRAPHS: &str = "usearch_hnsw hnswlib_hnsw";
pub const GRAPH_ROWS: usize = 1_000_000;
/// mopqdb with codes learned from pairs, if there is such a model.
pub const LEARNED: &str = "mopqdb_mopq mopqdb_mopq_rescored";

/// How a peer describes itself.
#[derive(Debug, Deserialize)]
pub struct About {
    pub name: String,
    pub version: String,
    /// Whether an acknowledged insert survives a crash.
    pub durable: String,
}

/// One way to build an index, and the ways to search it.
#[derive(Debug, Deserialize)]
pub struct Setting {
    pub build: Value,
    /// Bytes per row.
    pub bytes: usize,
    pub search: Vec<Value>,
}

/// The result of a timed loop.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Timed {
    pub count: f64,
    pub wall: f64,
    /// CPU seconds of all threads.
    pub cpu: f64,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Built {
    pub build: Timed,
    pub disk: f64,
}

#[derive(Debug, Deserialize)]
pub struct Searched {
    /// Seconds until the first answer.
    pub open: f64,
    pub one: Vec<Timed>,
    pub batch: Vec<Timed>,
    /// The growth of the resident memory in bytes.
    pub ram: f64,
}

#[derive(Debug, Deserialize)]
pub struct Grown {
    /// The inserts. A count of 0 means that the peer can't insert.
    pub insert: Timed,
}

/// The paths of the programs.
pub struct Programs {
    python: PathBuf,
    /// This program; `mopqdb` is in the same directory.
    this: PathBuf,
}

impl Programs {
    pub fn new(python: &Path) -> Result<Self> {
        let this = std::env::current_exe().context("finding this program's path")?;
        let python = python.to_owned();
        Ok(Self { python, this })
    }

    /// Runs a search peer.
    pub fn peer<T: DeserializeOwned>(&self, peer: &str, arguments: &[&str]) -> Result<T> {
        let mut command = if peer.starts_with("mopqdb") {
            let mut command = Command::new(&self.this);
            command.arg("peer");
            command
        } else {
            self.script("peer.py")
        };
        run(command.arg(peer).args(arguments), peer)
    }

    /// Returns a command for a script in the folder `peers`.
    pub fn script(&self, name: &str) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/peers")).join(name));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    pub fn mopqdb(&self) -> Command {
        Command::new(self.this.with_file_name("mopqdb"))
    }
}

/// Runs a program and reads the last line that it prints.
pub fn run<T: DeserializeOwned>(command: &mut Command, name: &str) -> Result<T> {
    let program = format!("running {:?}", command.get_program());
    let output = command.output().context(program)?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let last: Vec<&str> = complaint.lines().rev().take(3).collect();
        bail!("{name} failed ({}): {}", output.status, last.join(" / "));
    }
    answer(&String::from_utf8_lossy(&output.stdout))
        .with_context(|| format!("reading the output of {name}"))
}

/// Parses the last line. `{"missing": why}` is an error.
fn answer<T: DeserializeOwned>(printed: &str) -> Result<T> {
    let mut lines = printed.lines().rev();
    let line = lines.find(|line| !line.trim().is_empty());
    let line = line.context("nothing was printed")?;
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
    fn only_the_last_line_is_the_answer() {
        let about = "a greeting\n{\"name\": \"x\", \"version\": \"1\", \"durable\": \"yes\"}\n\n";
        assert_eq!(answer::<About>(about).unwrap().name, "x");
        assert!(answer::<About>("").is_err());
        let error = answer::<About>("{\"missing\": \"ImportError: no wheel\"}").unwrap_err();
        assert_eq!(error.to_string(), "not installed: ImportError: no wheel");
    }
}
