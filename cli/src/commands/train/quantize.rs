//! pq and opq: a quantizer from the rows alone, trained by the engine and registered in the database.

use crate::progress::Progress;
use crate::rows::pairs::Columns;
use crate::settings::Settings;
use crate::stop;
use anyhow::{Result, bail};
use mopqdb::eval::{EvalOptions, Evaluator, FindOptions, Questions};
use mopqdb::{Bundle, LearnOptions, Learned, Model, ModelId, Reader, Search, Snapshot, learn};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// What was trained.
pub(super) struct Trained {
    pub(super) id: ModelId,
    pub(super) learned: Learned,
    pub(super) recall: Value,
    pub(super) seconds: f64,
}

/// Trains, measures with `valid` if there are pairs, registers.
pub(super) fn train(
    db: &Path,
    mut options: LearnOptions,
    valid: Option<(&Path, &Columns)>,
    settings: &Settings,
) -> Result<Trained> {
    let started = Instant::now();
    let snapshot = Reader::open(db, settings.options())?.snapshot();
    // Pairs that can't be used are told before the work, not after it.
    let questions = valid.map(|(pairs, columns)| questions(&snapshot, pairs, columns));
    let questions = questions.transpose()?;
    options.pq.threads = settings.threads;
    options.memory_limit = settings.memory_limit;
    let progress = Progress::new("training a quantizer", "steps", Some(0));
    options.pq.watch = progress.watch();
    let learned = learn(&snapshot, &options)?;
    drop(progress);

    // Measured before it is registered, so that the model's page says how well it does.
    let mut draft = learned.draft(db, Value::Null)?;
    let mut evaluation = Value::Null;
    if let Some(questions) = &questions {
        evaluation = measure(&snapshot, draft.bundle(), questions, settings)?;
        draft = learned.draft(db, evaluation.clone())?;
    }
    if stop::asked() {
        bail!("stopped; nothing was changed");
    }
    Ok(Trained {
        id: draft.register()?,
        recall: evaluation["recall"].clone(),
        seconds: started.elapsed().as_secs_f64(),
        learned,
    })
}

fn questions(snapshot: &Snapshot, pairs: &Path, columns: &Columns) -> Result<Questions> {
    let find = FindOptions::default().by_key(columns.by_key());
    let pairs = columns.read(pairs)?;
    let mut questions = Questions::find(snapshot, &pairs.asks, &find)?;
    columns.check_missing(&pairs, &questions)?;
    // Enough for three digits; the rest of the pairs is for `mopqdb eval`.
    questions.all.truncate(2000);
    Ok(questions)
}

fn measure(
    snapshot: &Snapshot,
    bundle: &Bundle,
    questions: &Questions,
    settings: &Settings,
) -> Result<Value> {
    let model = Model::open(bundle.clone(), settings.threads)?;
    let options = EvalOptions::default().memory_limit(settings.memory_limit);
    let evaluator = Evaluator::new(snapshot, &model, questions, options)?;
    let by_codes = evaluator.search(Search::Codes)?;
    let recall = |k: usize| (k.to_string(), json!(by_codes.recall(k)));
    Ok(json!({
        "recall": Value::Object([10, 50, 100].map(recall).into_iter().collect()),
        "queries": questions.all.len(),
        "codes": evaluator.codes()?.map(|(report, _)| report),
    }))
}
