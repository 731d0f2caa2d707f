//! Measures every system of the paper on real pairs, and prints the tables of the evidence. `make table` runs it.
//!
//! A run is a folder with a `result.json`. A run that has a result is not repeated, nor is one whose configuration
//! (seed included) another run had; an interrupted run continues. Texts are encoded once. Nothing is chosen on test
//! queries: epochs, learning rates, quantization weights and temperatures are chosen by validation recall.

mod report;
mod set;
mod systems;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use clap::Parser;
use mopqdb::eval::{EvalOptions, Keys};
use mopqdb_trainer::config::TrainConfig;
use mopqdb_trainer::program::{EpochRecord, Run};
use mopqdb_trainer::train::{Lessons, Outcome, Trainer, Watch};
use serde::{Deserialize, Serialize};

use set::Set;
use systems::{Experiment, Table};

/// Measures the recall of every system over all keys, with intervals.
#[derive(Debug, Parser)]
struct Flags {
    /// A folder with one folder per set: train.tsv, valid.tsv, test.tsv (and keys.tsv, keys_group.txt).
    #[arg(long)]
    data: PathBuf,
    /// The folder for encoded texts, runs and results.
    #[arg(long)]
    out: PathBuf,
    /// The sets to use.
    #[arg(long, value_delimiter = ',', default_value = "debian,quora,acl")]
    sets: Vec<String>,
    /// The tables to run.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "systems")]
    tables: Vec<Table>,
    /// Number of seeds, from 1 on.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Use the rates, weights and temperatures that validation chose on this set, which must have been run before.
    #[arg(long, value_name = "SET")]
    chosen_on: Option<String>,
    /// Only the runs whose names begin with one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only print the tables of finished runs.
    #[arg(long)]
    report: bool,
    /// Flags of the configuration that all runs share, as TOML: "epochs = 3".
    #[arg(long, default_value = "")]
    with: String,
}

/// The stored results of a run.
#[derive(Debug, Serialize, Deserialize)]
struct Outcomes {
    config: TrainConfig,
    /// The recall by which the epoch was chosen.
    validation_recall: f64,
    best_epoch: usize,
    cpu_seconds: f64,
    /// Mean recall at 10, 50, 100 on test queries.
    recall: [f64; 3],
    unquantized: [f64; 3],
    distortion: f64,
    relative_distortion: f64,
    used: f64,
    entropy: f64,
    distinct: usize,
    /// The recall of each test query, at 10, 50, 100.
    queries: [Vec<f32>; 3],
}

const AT: [usize; 3] = [10, 50, 100];

static STOP: AtomicBool = AtomicBool::new(false);

fn main() -> Result<()> {
    let flags = Flags::parse();
    ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed))?;
    let shared: toml::Table = toml::from_str(&flags.with).context("--with")?;
    let chosen_on = flags.chosen_on.as_ref().map(|set| flags.out.join(set));
    for name in &flags.sets {
        let mut set = None;
        for &table in &flags.tables {
            if !flags.report {
                for experiment in systems::experiments(
                    table,
                    flags.seeds,
                    &flags.out.join(name),
                    chosen_on.as_deref(),
                    &shared,
                )? {
                    let wanted = |start: &String| experiment.name.starts_with(start.as_str());
                    if !flags.only.is_empty() && !flags.only.iter().any(wanted) {
                        continue;
                    }
                    if set.is_none() && !result_path(&flags.out.join(name), &experiment).exists() {
                        set = Some(Set::load(
                            &flags.data.join(name),
                            &flags.out.join("embeddings"),
                        )?);
                    }
                    run(&flags.out.join(name), &experiment, set.as_ref())?;
                }
            }
            report::print(table, name, &flags.out.join(name), flags.seeds)?;
        }
    }
    Ok(())
}

fn result_path(out: &Path, experiment: &Experiment) -> PathBuf {
    out.join(&experiment.name).join("result.json")
}

fn run(out: &Path, experiment: &Experiment, set: Option<&Set>) -> Result<()> {
    let path = result_path(out, experiment);
    if path.exists() {
        return Ok(());
    }
    let config = &experiment.config;
    if let Some(twin) = systems::twin(out, config) {
        eprintln!("{}: as {}", experiment.name, twin.display());
        fs::create_dir_all(path.parent().context("a folder")?)?;
        let result = fs::read(twin.join("result.json"))?;
        return mopqdb_trainer::program::write_whole(&path, &result);
    }
    let set = set.expect("the set was loaded, since a result is missing");
    eprintln!("{}", experiment.name);
    let run = Run::open(
        path.parent().context("a folder")?,
        &toml::to_string(config)?,
    )?;
    let lessons = Lessons {
        corpus: &set.corpus,
        queries: &set.queries,
        pairs: &set.pairs,
        logged: &[],
        held_out: &[],
        validation: &set.validation,
        texts: None,
    };
    let outcome = Trainer::new(config, &lessons, &run, &STOP)?.run(&mut Lines)?;
    let Outcome::Trained(trained) = outcome else {
        bail!("stopped; run the same command again to continue");
    };
    let evaluation = Keys::new(&set.corpus.vectors, &trained.quantizer)?
        .threads(config.threads)
        .evaluate(&set.test, &EvalOptions::default())?;
    let places = evaluation.places;
    let dense = evaluation.head.context("a trained model has a head")?;
    let codes = evaluation.codes;
    let outcomes = Outcomes {
        config: config.clone(),
        validation_recall: trained.report["recall"]["10"].as_f64().unwrap_or(0.0),
        best_epoch: trained.report["best_epoch"].as_u64().unwrap_or(0) as usize,
        cpu_seconds: trained.report["cpu_seconds"].as_f64().unwrap_or(0.0),
        recall: AT.map(|n| places.recall(n)),
        unquantized: AT.map(|n| dense.recall(n)),
        distortion: codes.distortion,
        relative_distortion: codes.relative_distortion,
        used: codes.used.iter().sum::<usize>() as f64 / codes.used.len() as f64,
        entropy: codes.entropy.iter().sum::<f64>() / codes.entropy.len() as f64,
        distinct: codes.distinct,
        queries: AT.map(|n| places.recalls(n).iter().map(|&r| r as f32).collect()),
    };
    eprintln!(
        "  R@10 {:.4}, un-quantized {:.4}, distortion {:.3}, {:.0} CPU-seconds",
        outcomes.recall[0], outcomes.unquantized[0], outcomes.distortion, outcomes.cpu_seconds
    );
    mopqdb_trainer::program::write_whole(&path, &serde_json::to_vec(&outcomes)?)?;
    fs::remove_file(path.with_file_name("last.safetensors")).context("removing the checkpoint")
}

/// Prints one line per epoch.
struct Lines;

impl Watch for Lines {
    fn record(&mut self, r: &EpochRecord) {
        let recall = r
            .recall
            .map_or(String::from("-"), |recall| format!("{recall:.4}"));
        eprintln!(
            "  {:>2} {} loss {:.4} recall {recall} {:.0} CPU-s",
            r.epoch, r.phase, r.loss, r.cpu_seconds
        );
    }
}
