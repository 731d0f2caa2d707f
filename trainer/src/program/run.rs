//! The directory of a run: its configuration, its checkpoint, one line per epoch (`run.jsonl`) and a plot of them.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use mopqdb::FileLock;
use serde::{Deserialize, Serialize};

use super::checkpoint::{Checkpoint, write_whole};
use super::plot;

/// The figures of an epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// The number of the epoch, from 1, warm-up included.
    pub epoch: usize,
    /// "warmup" or the method's name.
    pub phase: String,
    /// Mean loss of its steps.
    pub loss: f64,
    /// Validation recall at 10 over all keys, when it was measured.
    pub recall: Option<f64>,
    /// Mean number of codewords that are used by some key.
    pub used: Option<f64>,
    /// Pairs per second.
    pub pairs_per_second: f64,
    /// Wall-clock time of the epoch, validation included.
    pub seconds: f64,
    /// Processor time of the run so far.
    pub cpu_seconds: f64,
}

/// A directory on disk. It is locked as long as this value exists, because two sessions must not share a checkpoint.
#[derive(Debug, Clone)]
pub struct Run {
    dir: PathBuf,
    config: String,
    _lock: Arc<FileLock>,
}

/// Another process is doing this run.
#[derive(Debug)]
pub struct Busy {
    dir: PathBuf,
    holder: String,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dir, holder) = (self.dir.display(), &self.holder);
        write!(
            f,
            "{dir}: {holder} is doing this run; wait for it, or stop it and run the same command again, \
             which continues from its last complete epoch"
        )
    }
}

impl std::error::Error for Busy {}

impl Run {
    /// Opens the directory, and creates it if it does not exist. Returns [`Busy`] if another process has it. A checkpoint
    /// is used only if it was written with the same `config` (TOML).
    pub fn open(dir: &Path, config: &str) -> Result<Self> {
        fs::create_dir_all(dir)
            .with_context(|| format!("{}: creating the directory of the run", dir.display()))?;
        let lock = match FileLock::acquire(&dir.join("LOCK")) {
            Err(mopqdb::Error::Locked { holder, .. }) => {
                let dir = dir.to_path_buf();
                return Err(Busy { dir, holder }.into());
            }
            other => other?,
        };
        Ok(Self {
            dir: dir.to_path_buf(),
            config: config.to_owned(),
            _lock: Arc::new(lock),
        })
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Reads the checkpoint of an earlier, interrupted session.
    pub fn resume(&self) -> Result<Option<Checkpoint>> {
        Checkpoint::read(&self.checkpoint_path(), &self.config)
    }

    /// Removes the files of an earlier run, and writes the configuration.
    pub fn begin(&self) -> Result<()> {
        for name in ["result.json", "run.jsonl", "run.svg", "last.safetensors"] {
            match fs::remove_file(self.dir.join(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error)
                        .with_context(|| format!("{}: removing {name}", self.dir.display()));
                }
                _ => {}
            }
        }
        write_whole(&self.dir.join("config.toml"), self.config.as_bytes())
    }

    /// Records an epoch: the checkpoint first, then the line, then the plot.
    pub fn record(&self, checkpoint: &Checkpoint, record: &EpochRecord) -> Result<()> {
        checkpoint.write(&self.checkpoint_path(), &self.config)?;
        // The file is written again each time, so that a crash between checkpoint and line leaves no gap and no duplicate.
        let mut records = self.records()?;
        records.retain(|old| old.epoch < record.epoch);
        records.push(record.clone());
        let lines: Vec<String> = records
            .iter()
            .map(serde_json::to_string)
            .collect::<Result<_, _>>()?;
        write_whole(
            &self.dir.join("run.jsonl"),
            (lines.join("\n") + "\n").as_bytes(),
        )?;
        write_whole(&self.dir.join("run.svg"), plot::svg(&records).as_bytes())
    }

    /// Returns the epochs so far. A line that a crash cut short is ignored.
    pub fn records(&self) -> Result<Vec<EpochRecord>> {
        let path = self.dir.join("run.jsonl");
        if !path.exists() {
            return Ok(Vec::new());
        }
        let text =
            fs::read_to_string(&path).with_context(|| format!("{}: reading", path.display()))?;
        Ok(text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect())
    }

    fn checkpoint_path(&self) -> PathBuf {
        self.dir.join("last.safetensors")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn record(epoch: usize) -> EpochRecord {
        EpochRecord {
            epoch,
            phase: "mopq".into(),
            loss: 1.0 / epoch as f64,
            recall: Some(0.1 * epoch as f64),
            used: Some(250.0),
            pairs_per_second: 10.0,
            seconds: 1.0,
            cpu_seconds: 2.0,
        }
    }

    #[test]
    fn the_log_has_each_epoch_once_whatever_was_interrupted() {
        let dir = tempfile::tempdir().unwrap();
        let run = Run::open(dir.path(), "x = 1").unwrap();
        run.begin().unwrap();
        let epochs = |run: &Run| {
            run.records()
                .unwrap()
                .iter()
                .map(|r| r.epoch)
                .collect::<Vec<_>>()
        };
        for epoch in 1..=3 {
            run.record(&Checkpoint::default(), &record(epoch)).unwrap();
        }
        // After resuming from epoch 1, epoch 2 replaces what followed. An incomplete line is dropped.
        run.record(&Checkpoint::default(), &record(2)).unwrap();
        assert_eq!(epochs(&run), [1, 2]);
        let path = dir.path().join("run.jsonl");
        let torn = fs::read_to_string(&path).unwrap() + "{\"epoch\": 3, \"ph";
        fs::write(&path, torn).unwrap();
        run.record(&Checkpoint::default(), &record(3)).unwrap();
        assert_eq!(epochs(&run), [1, 2, 3]);
        assert!(
            fs::read_to_string(dir.path().join("run.svg"))
                .unwrap()
                .ends_with("</svg>\n")
        );
    }
}
