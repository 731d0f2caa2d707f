//! Steps per CPU-second of a training run: 384 -> 128, 8 x 256, batches of 512, one thread, random vectors.
//!
//! `cargo run --release -p mopqdb-trainer --example steps -- mopq` (or another method; `distill` needs no pairs).

use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use clap::ValueEnum as _;
use mopqdb::Metric;
use mopqdb::eval::VectorQuestions;
use mopqdb_trainer::config::{Method, TrainConfig};
use mopqdb_trainer::data::Corpus;
use mopqdb_trainer::program::{EpochRecord, Run};
use mopqdb_trainer::random::Random;
use mopqdb_trainer::train::{Lessons, Trainer, Watch, cpu_seconds};

const ROWS: usize = 32_768;
const HIDDEN: usize = 384;
const EPOCHS: usize = 3;

/// CPU time at the start of an epoch and at its last step.
#[derive(Default)]
struct Clock {
    began: f64,
    phase: String,
    steps: usize,
    ended: f64,
}

impl Watch for Clock {
    fn epoch(&mut self, _epoch: usize, _of: usize, phase: &str, _steps: usize) {
        self.phase = phase.to_owned();
        self.steps = 0;
        self.began = cpu_seconds();
    }

    fn step(&mut self, _loss: f64, _pairs: usize) {
        self.steps += 1;
        self.ended = cpu_seconds();
    }

    fn record(&mut self, _record: &EpochRecord) {
        println!(
            "{}: {:.1} steps per CPU-second",
            self.phase,
            self.steps as f64 / (self.ended - self.began)
        );
    }
}

fn main() -> Result<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "mopq".into());
    let Ok(method) = Method::from_str(&name, false) else {
        bail!("{name:?} is not a method");
    };
    let config = TrainConfig {
        batch: 512,
        warmup: EPOCHS,
        epochs: EPOCHS,
        ..TrainConfig::of(method)
    };
    let mut random = Random::new(1, "rows", 0);
    let mut rows = || -> Vec<f32> {
        let mut values: Vec<f32> = (0..ROWS * HIDDEN).map(|_| random.normal() as f32).collect();
        for row in values.chunks_exact_mut(HIDDEN) {
            let norm = row.iter().map(|x| x * x).sum::<f32>().sqrt();
            row.iter_mut().for_each(|x| *x /= norm);
        }
        values
    };
    let names = (0..ROWS).map(|row| row.to_string()).collect();
    let corpus = Corpus::new(names, None, rows(), HIDDEN, Metric::Cosine)?;
    let (queries, pairs) = match method.needs_pairs() {
        true => (rows(), (0..ROWS as u32).map(|row| (row, row)).collect()),
        false => (Vec::new(), Vec::new()),
    };
    let validation = VectorQuestions::default();
    let lessons = Lessons {
        corpus: &corpus,
        queries: &queries,
        pairs: &pairs,
        logged: &[],
        held_out: &[],
        validation: &validation,
        texts: None,
    };
    let home = std::env::temp_dir().join(format!("mopqdb-steps-{}", std::process::id()));
    let run = Run::open(&home, "steps")?;
    let stop = AtomicBool::new(false);
    Trainer::new(&config, &lessons, &run, &stop)?.run(&mut Clock::default())?;
    std::fs::remove_dir_all(&home)?;
    Ok(())
}
