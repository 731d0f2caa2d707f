//! What `mopqdb-train` does: it reads rows and pairs, learns a model, and registers it.
//!
//! [`Flags`] say what is wanted. A [`Run`] is the directory that keeps the checkpoint, the log and the plot of a run.
//! [`Embeddings`] keep the vectors of queries for later runs.

mod asked;
mod bundles;
pub(crate) mod checkpoint;
mod embeddings;
mod ending;
mod fingerprint;
mod flags;
mod only;
mod page;
mod plot;
mod progress;
mod report;
mod rows;
pub(crate) mod run;
mod scoring;
mod unlabelled;

pub use checkpoint::write_whole;
pub use embeddings::Embeddings;
pub use flags::{Flags, Only};
pub use report::lines;
pub use run::{Busy, EpochRecord, Run};

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use mopqdb::eval::VectorQuestions;

use crate::config::Method;
use crate::joint::{Joint, Origin};
use crate::train::{Lessons, Outcome, Trainer, Watch as _, check_sizes};
use bundles::finished;
use ending::Session;
use progress::Progress;
use rows::Rows;
use unlabelled::Unlabelled;

/// How a run ended.
#[derive(Debug)]
pub enum Ending {
    /// With a model: its id, and what was measured.
    Model(serde_json::Value),
    /// Because it was stopped; the text says how to continue.
    Stopped(String),
}

/// Trains as the flags say. `stop` ends the run between two steps.
pub fn run(flags: &Flags, stop: &AtomicBool) -> Result<Ending> {
    match flags.only {
        Some(Only::Scorer) => only::scorer(flags, stop),
        None => whole(flags, stop),
    }
}

/// Learns codes and a scorer.
fn whole(flags: &Flags, stop: &AtomicBool) -> Result<Ending> {
    let mut config = flags.train_config()?;
    flags.check_page()?;
    let mut progress = Progress::new(flags.quiet);
    let rows = Rows::read(flags, &config)?;
    flags.fit(&mut config, rows.corpus.hidden)?;
    let questions = rows.pairs(flags, &config)?;
    for words in [&questions.train, &questions.valid].map(|pairs| &pairs.left_out) {
        words.iter().for_each(|words| progress.note(words));
    }
    check_sizes(&config, questions.train.pairs.len(), rows.corpus.rows())?;
    if config.method == Method::Distill {
        unlabelled::check_rows(&rows.corpus)?;
    }
    let origin = match &config.joint {
        Some(_) => Some(origin(flags, &rows)?),
        None => None,
    };
    let mut fingerprint = questions.fingerprint(&rows, &config, origin.as_ref())?;
    if flags.half {
        fingerprint += "-half";
    }
    let home = match &flags.run {
        Some(dir) => dir.clone(),
        None => {
            let name = format!("{}-{fingerprint}", config.method.name());
            flags.db.join("runs").join(name)
        }
    };
    if !flags.fresh
        && flags.out.is_none()
        && let Some(done) = finished(&home, &fingerprint, &flags.db)?
    {
        progress.note("this run was done before; --fresh repeats it");
        write_page(flags, &done, &Run::open(&home, "")?)?;
        return Ok(Ending::Model(done));
    }
    let words = toml::to_string(&config)?;
    let run = Run::open(&home, &format!("# {fingerprint}\n{words}"))?;
    if flags.fresh {
        run.begin()?;
    }
    let joint = match (&config.joint, origin) {
        (Some(joint), Some(origin)) => Some(Joint::new(origin, joint)?),
        _ => None,
    };
    let encoded = questions.encode(flags, &config, &rows, &mut progress, stop)?;
    let mut validation = VectorQuestions::new(encoded.valid, questions.valid.answers());
    let mut queries = encoded.train;
    let (mut logged, mut held_out, mut spare) = (Vec::new(), Vec::new(), Vec::new());
    if config.method == Method::Distill {
        let labelled = questions.train.queries.len();
        let judged = !validation.is_empty();
        let more = Unlabelled::new(&config, &rows.corpus, &encoded.log, labelled, judged);
        queries.extend(encoded.log);
        (logged, held_out, spare) = (more.logged, more.held_out, more.spare);
        if !judged {
            progress.note(&format!(
                "recall@10 is of the exact first ten rows of {} queries that are not learned from",
                more.validation.len()
            ));
            validation = more.validation;
        }
    }
    let texts = match &joint {
        Some(joint) => Some(questions.texts(joint, &rows)?),
        None => None,
    };
    let lessons = Lessons {
        corpus: &rows.corpus,
        queries: &queries,
        pairs: &questions.train.pairs,
        logged: &logged,
        held_out: &held_out,
        validation: &validation,
        texts: texts.as_ref(),
    };
    let outcome = Trainer::new(&config, &lessons, &run, stop)?.run(&mut progress);
    progress.finish();
    match outcome? {
        Outcome::Stopped { epochs } => Ok(stopped(epochs, &home)),
        Outcome::Trained(trained) => {
            let session = Session {
                flags,
                config: &config,
                rows: &rows,
                questions: &questions,
                lessons: &lessons,
                spare: &spare,
                joint: joint.as_ref(),
                run: &run,
                fingerprint: &fingerprint,
                stop,
            };
            session.end(&trained, &mut progress)
        }
    }
}

fn stopped(epochs: usize, home: &Path) -> Ending {
    Ending::Stopped(format!(
        "stopped after {epochs} complete epochs, which are kept in {}; the same command continues from there",
        home.display()
    ))
}

/// Writes the page of a finished run, if it is asked for.
fn write_page(flags: &Flags, done: &serde_json::Value, run: &Run) -> Result<()> {
    let Some(path) = &flags.html else {
        return Ok(());
    };
    write_whole(path, page::of(done, &run.records()?).as_bytes())
}

/// Returns the weights that `--joint` starts from: those of --weights, or the default encoder's.
fn origin(flags: &Flags, rows: &Rows) -> Result<Origin> {
    let weights = match &flags.weights {
        Some(path) => path.clone(),
        None => mopqdb::encoder::native_dirs()
            .into_iter()
            .map(|dir| dir.join("model/model.safetensors"))
            .find(|path| path.exists())
            .context("--joint: no weights to start from; name them with --weights FILE.safetensors, or run `make setup`")?,
    };
    let read = |path: &Path| fs::read(path).with_context(|| format!("{}: reading", path.display()));
    let bundle = rows
        .bundle
        .as_ref()
        .context("--joint needs a database with an encoder")?;
    let spec = bundle
        .manifest()
        .encoder
        .clone()
        .context("--joint needs a database with an encoder")?;
    let tokenizer = read(&bundle.dir().join(&spec.tokenizer))?;
    Ok(Origin {
        config: read(&weights.with_file_name("config.json"))?,
        weights: read(&weights)?,
        tokenizer,
        spec,
    })
}
