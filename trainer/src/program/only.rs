//! `--only scorer`: the query map and the weight of words are learned again, and the codes stay as they are.

use std::sync::atomic::AtomicBool;

use anyhow::{Result, ensure};
use mopqdb::eval::VectorQuestions;
use mopqdb::{Metric, ModelId, RowsKind};
use serde_json::json;

use super::Ending;
use super::bundles::{Parts, remove};
use super::flags::{Flags, Only};
use super::progress::Progress;
use super::report::Found;
use super::rows::Rows;
use super::run::Run;
use super::scoring::{Learned, Trial, learn_map};
use crate::config::TrainConfig;
use crate::train::{Watch as _, cpu_seconds};

/// The method of a bundle that has a scorer and no codes.
const METHOD: &str = "scorer";

/// Learns the scorer of the active model from pairs, and registers a model with the active codes and this scorer.
pub(super) fn scorer(flags: &Flags, stop: &AtomicBool) -> Result<Ending> {
    let config = config(flags)?;
    let began = cpu_seconds();
    tch::set_num_threads(config.threads as i32);
    let mut progress = Progress::new(flags.quiet);
    let rows = Rows::read(flags, &config)?;
    let corpus = &rows.corpus;
    let is_l2 = corpus.metric == Metric::L2;
    let questions = rows.pairs(flags, &config)?;
    for words in [&questions.train, &questions.valid].map(|pairs| &pairs.left_out) {
        words.iter().for_each(|words| progress.note(words));
    }
    ensure!(
        !questions.valid.queries.is_empty(),
        "{} training queries are too few to set some aside for validation; name validation pairs with --valid",
        questions.train.queries.len()
    );
    // Only for its lock: a second process would write the same draft.
    let home = Run::open(&flags.db.join("runs").join("scorer"), "")?;
    let encoded = questions.encode(flags, &config, &rows, &mut progress, stop)?;
    let validation = VectorQuestions::new(encoded.valid, questions.valid.answers());
    let learned = match is_l2 {
        true => Learned::default(),
        false => {
            progress.note("learning the query map");
            let asked = &questions.train;
            learn_map(
                corpus,
                &encoded.train,
                asked,
                &validation,
                config.seed,
                stop,
            )?
        }
    };
    progress.note("measuring the validation queries");
    let quantizer = rows.model.quantizer();
    let active = rows.bundle.as_ref().map(|bundle| bundle.manifest());
    let parts = Parts {
        rows: &rows,
        method: match quantizer {
            Some(_) => rows.model.method(),
            None => METHOD,
        },
        quantizer,
        encoder: None,
    };
    let texts = (rows.model.kind() == RowsKind::Text).then_some(&questions.valid.queries[..]);
    let trial = Trial::new(
        &flags.db,
        (corpus, rows.model.encoder_id()),
        texts,
        &validation,
        config.threads,
    )?;
    let draft = home.dir().join("draft");
    let scored = trial.choose(&parts.draft(&draft, learned.map.as_deref())?, true, true)?;
    remove(&draft)?;

    // What is known of the codes stays true of them.
    let mut training = active.map_or(json!({}), |manifest| manifest.training.clone());
    let mut evaluation = active.map_or(json!({}), |manifest| manifest.evaluation.clone());
    for value in [&mut training, &mut evaluation] {
        if !value.is_object() {
            *value = json!({});
        }
    }
    training["scorer"] = json!({
        "pairs": flags.pairs.as_ref().map(|path| path.display().to_string()),
        "seed": config.seed,
        "through_seq": rows.through_seq,
    });
    let (_, whole_before) = trial.before()?;
    let found = Found {
        codes_before: None,
        codes: None,
        exact: match &learned.exact {
            Some(exact) => exact.recalls(10),
            None => trial.exact()?,
        },
        whole_before,
        whole: scored.recalls.clone(),
    };
    evaluation["scorer"] = json!({
        "map": learned.report, "words": scored.words, "candidates": scored.depths,
        "serving": scored.serving, "validation_queries": validation.len(),
        "cpu_seconds": cpu_seconds() - began,
    });
    evaluation["gains"] = found.json(true, 0);
    let report = json!({"scorer": evaluation["scorer"], "gains": evaluation["gains"]});
    let is_new = learned.map.is_some() || scored.weight.is_some();
    let model = if quantizer.is_none() && !is_new {
        // Neither codes nor a scorer: that is what every database has.
        ModelId::exact(rows.model.encoder_id())
    } else {
        let place = match &flags.out {
            Some(out) => out.clone(),
            None => home.dir().join("bundle"),
        };
        if flags.out.is_none() {
            remove(&place)?;
        }
        let bundle = parts.finish(&place, (&learned, &scored), training, evaluation)?;
        if flags.out.is_none() {
            mopqdb::register_model(&flags.db, &bundle)?;
            remove(&place)?;
        }
        bundle.model_id()
    };
    if !is_new {
        progress.note("neither a query map nor a weight of words was learned: a model without a scorer does as well");
    }
    Ok(Ending::Model(json!({
        "model": model.to_string(),
        "method": parts.method,
        "only": "scorer",
        "report": report,
    })))
}

/// Checks that no flag is about what stays as it is.
fn config(flags: &Flags) -> Result<TrainConfig> {
    debug_assert!(matches!(flags.only, Some(Only::Scorer)));
    for (flag, given) in [
        ("--query-log", flags.query_log.is_some()),
        ("--config", flags.config.is_some()),
        ("--run", flags.run.is_some()),
        ("--fresh", flags.fresh),
        ("--half", flags.half),
        ("--html", flags.html.is_some()),
        ("--method", flags.method.is_some()),
        ("--sampling", flags.sampling.is_some()),
        ("--devices", flags.devices.is_some()),
        ("--device-timeout", flags.device_timeout.is_some()),
        ("--select", flags.select.is_some()),
        ("--subspaces", flags.subspaces.is_some()),
        ("--codewords", flags.codewords.is_some()),
        ("--dim", flags.dim.is_some()),
        ("--epochs", flags.epochs.is_some()),
        ("--warmup", flags.warmup.is_some()),
        ("--patience", flags.patience.is_some()),
        ("--batch", flags.batch.is_some()),
        ("--lr", flags.lr.is_some()),
        ("--schedule", flags.schedule.is_some()),
        ("--temperature", flags.temperature.is_some()),
        ("--straight-through", flags.straight_through.is_some()),
        ("--activation", flags.activation.is_some()),
        ("--start", flags.start.is_some()),
        ("--dense-weight", flags.dense_weight.is_some()),
        ("--weight", flags.weight.is_some()),
        ("--joint", flags.joint),
        ("--layers", flags.layers.is_some()),
        ("--weights", flags.weights.is_some()),
    ] {
        ensure!(
            !given,
            "{flag} has no meaning with --only scorer, which leaves the codes as they are"
        );
    }
    ensure!(
        flags.pairs.is_some(),
        "--only scorer learns from pairs: give them with --pairs"
    );
    let defaults = TrainConfig::default();
    let config = TrainConfig {
        seed: flags.seed.unwrap_or(defaults.seed),
        threads: flags.threads.unwrap_or(defaults.threads),
        ..defaults
    };
    config.check()?;
    Ok(config)
}
