//! pq and opq: a quantizer from the rows alone, trained by the engine and registered in the database.

use crate::pairs::Columns;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::stop;
use anyhow::{Context, Result, bail};
use mopqdb::eval::{EvalOptions, FindOptions, Questions, evaluate};
use mopqdb::quantizer::{TrainPq, train_opq, train_pq};
use mopqdb::scan::Scanner;
use mopqdb::{Bundle, BundleWriter, Model, ModelId, Reader, Snapshot};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// What is trained.
pub(super) struct Options<'a> {
    pub(super) rotate: bool,
    pub(super) subspaces: usize,
    pub(super) codewords: usize,
    pub(super) iterations: usize,
    pub(super) seed: u64,
    /// Pairs to measure recall with.
    pub(super) valid: Option<(&'a Path, &'a Columns)>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        let defaults = TrainPq::default();
        Self {
            rotate: false,
            subspaces: defaults.subspaces,
            codewords: defaults.codewords,
            iterations: defaults.iterations,
            seed: defaults.seed,
            valid: None,
        }
    }
}

/// What was trained.
pub(super) struct Trained {
    pub(super) id: ModelId,
    pub(super) method: &'static str,
    pub(super) rows: usize,
    pub(super) distortion: Option<f64>,
    pub(super) recall: Value,
    pub(super) seconds: f64,
}

/// Samples rows, trains, measures, registers.
pub(super) fn train(db: &Path, options: &Options<'_>, settings: &Settings) -> Result<Trained> {
    let started = Instant::now();
    let method = if options.rotate { "opq" } else { "pq" };
    let snapshot = Reader::open(db, settings.options())?.snapshot();
    let model = snapshot.model();
    if snapshot.rows() == 0 {
        bail!(
            "{} has no rows to learn from; insert some first",
            db.display()
        );
    }
    let wanted = TrainPq {
        subspaces: options.subspaces,
        codewords: options.codewords,
        iterations: options.iterations,
        seed: options.seed,
        threads: settings.threads,
        ..TrainPq::default()
    };
    let (sample, through_seq) = sample(&snapshot, &wanted, settings)?;
    let progress = Progress::new(&format!("training {method} on"), "rows", None);
    progress.set((sample.len() / model.dim()) as u64);
    let learn = if options.rotate { train_opq } else { train_pq };
    let learned = learn(&sample, model.dim(), model.metric(), &wanted)?;
    drop(progress);
    if stop::asked() {
        bail!("stopped; nothing was changed");
    }

    let training = json!({
        "config": {
            "method": method, "subspaces": wanted.subspaces, "codewords": wanted.codewords,
            "iterations": wanted.iterations, "sample": wanted.sample,
        },
        "seed": wanted.seed, "rows": learned.rows, "through_seq": through_seq,
        "distortions": learned.distortions,
    });
    // Measured before it is registered, so that the model's page says how well it does.
    let runs = db.join("runs");
    std::fs::create_dir_all(&runs).with_context(|| format!("making {}", runs.display()))?;
    let write = |name: String, evaluation: Value| -> Result<Scratch> {
        let scratch = Scratch(runs.join(name));
        let writer = BundleWriter::new(&scratch.0)
            .method(method)
            .quantizer(&learned.quantizer)
            .training(training.clone());
        let writer = match model.bundle() {
            Some(bundle) => writer.encoder_from(bundle),
            None => writer.metric(model.metric()).vectors(model.dim()),
        };
        writer.evaluation(evaluation).finish()?;
        Ok(scratch)
    };
    let pid = std::process::id();
    let mut scratch = write(format!("{method}-{pid}"), Value::Null)?;
    let mut evaluation = Value::Null;
    if let Some((pairs, columns)) = options.valid {
        evaluation = measure(
            &snapshot,
            &Bundle::open(&scratch.0)?,
            pairs,
            columns,
            settings,
        )?;
        scratch = write(format!("{method}-{pid}-measured"), evaluation.clone())?;
    }
    let id = mopqdb::register_model(db, &Bundle::open(&scratch.0)?)?;
    Ok(Trained {
        id,
        method,
        rows: learned.rows,
        distortion: learned.distortions.last().copied(),
        recall: evaluation["recall"].clone(),
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// A directory of ours that goes away with us.
struct Scratch(std::path::PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Rows for training, evenly chosen among all, and the last `Seq` there is.
fn sample(snapshot: &Snapshot, wanted: &TrainPq, settings: &Settings) -> Result<(Vec<f32>, u64)> {
    let dim = snapshot.model().dim();
    // Training holds the sample about three times over.
    let most = (settings.memory_limit / (12 * dim)).clamp(wanted.codewords.min(1024), wanted.sample)
        as u64;
    let (rows, mut seen, mut through) = (snapshot.rows(), 0_u64, 0);
    let mut vectors = Vec::with_capacity(rows.min(most) as usize * dim);
    snapshot.for_each_row(|row| {
        // The i-th of n rows is taken where i * most / n steps: evenly, and `most` of them.
        let step = |i: u64| u128::from(i) * u128::from(most.min(rows)) / u128::from(rows);
        if step(seen + 1) > step(seen) {
            vectors.extend_from_slice(row.vector);
        }
        seen += 1;
        through = through.max(row.seq.0);
        Ok(())
    })?;
    Ok((vectors, through))
}

fn measure(
    snapshot: &Snapshot,
    bundle: &Bundle,
    pairs: &Path,
    columns: &Columns,
    settings: &Settings,
) -> Result<Value> {
    let mut asks = columns.read(pairs)?;
    // Enough for three digits; the rest of the pairs is for `mopqdb eval`.
    asks.truncate(2000);
    let find = FindOptions {
        by_key: columns.by_key(),
        ..FindOptions::default()
    };
    let questions = Questions::find(snapshot, &asks, &find)?;
    if questions.all.is_empty() {
        bail!(
            "{}: no answer is a row of the database; --key-ids if the second column is keys",
            pairs.display()
        );
    }
    let model = Model::open(bundle.clone(), settings.threads)?;
    let options = EvalOptions {
        memory_limit: settings.memory_limit,
        ..EvalOptions::default()
    };
    let scanner = Scanner::new(settings.threads)?;
    let evaluation = evaluate(snapshot, &model, &questions, &scanner, &options)?;
    let recall = |k: usize| (k.to_string(), json!(evaluation.places.recall(k)));
    Ok(json!({
        "recall": Value::Object([10, 50, 100].map(recall).into_iter().collect()),
        "queries": questions.all.len(),
        "codes": evaluation.codes,
    }))
}
