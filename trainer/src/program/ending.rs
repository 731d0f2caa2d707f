//! The end of a run: the scorer is learned, the model is registered, and what it gains is measured.

use std::sync::atomic::AtomicBool;

use anyhow::Result;
use mopqdb::RowsKind;
use serde_json::{Value as Json, json};

use super::asked::Asked;
use super::bundles::{Parts, conclude, remove};
use super::flags::Flags;
use super::progress::Progress;
use super::report::{Found, other_sizes};
use super::rows::Rows;
use super::run::Run;
use super::scoring::{Learned, Scored, Trial, learn_map};
use super::unlabelled::Log;
use super::{Ending, stopped, write_page};
use crate::config::TrainConfig;
use crate::joint::Joint;
use crate::random::Random;
use crate::scorer::Gain;
use crate::train::{Lessons, Outcome, Trained, Trainer, Watch as _, cpu_seconds};

/// What a run has when its codes are learned.
pub(super) struct Session<'a> {
    pub(super) flags: &'a Flags,
    pub(super) config: &'a TrainConfig,
    pub(super) rows: &'a Rows,
    pub(super) questions: &'a Asked,
    pub(super) lessons: &'a Lessons<'a>,
    /// Queries of the log that are set aside for validation.
    pub(super) spare: &'a [u32],
    pub(super) joint: Option<&'a Joint>,
    pub(super) run: &'a Run,
    pub(super) fingerprint: &'a str,
    pub(super) stop: &'a AtomicBool,
}

impl Session<'_> {
    /// Learns the scorer, measures, and registers the model.
    pub(super) fn end(&self, trained: &Trained, progress: &mut Progress) -> Result<Ending> {
        let (flags, rows, home) = (self.flags, self.rows, self.run.dir());
        let half = match flags.half {
            true => match self.half(trained, progress)? {
                Half::Learned(half) => half,
                Half::Stopped { epochs } => return Ok(stopped(epochs, &home.join("half"))),
            },
            false => Json::Null,
        };
        let parts = Parts {
            rows,
            method: self.config.method.name(),
            quantizer: Some(&trained.quantizer),
            encoder: self.joint.zip(trained.encoder.as_deref()),
        };
        let mut report = trained.report.clone();
        let (learned, scored) = match self.joint {
            // A trained encoder gives other vectors than those that are stored.
            Some(_) => (Learned::default(), Scored::default()),
            None => {
                let (learned, scored, gains) = self.score(&parts, trained, progress)?;
                report["gains"] = gains;
                progress.note("estimating codes of other sizes");
                let began = cpu_seconds();
                let (corpus, validation) = (&rows.corpus, self.lessons.validation);
                let chance = (self.config.seed, self.config.threads);
                report["other_sizes"] =
                    other_sizes(corpus, &trained.quantizer, validation, chance)?;
                report["other_sizes_cpu_seconds"] = json!(cpu_seconds() - began);
                (learned, scored)
            }
        };
        report["half"] = half;
        report["scorer"] = json!({
            "map": learned.report, "words": scored.words, "candidates": scored.depths,
            "serving": scored.serving,
        });
        let (place, registers) = match &flags.out {
            Some(out) => (out.clone(), false),
            None => (home.join("bundle"), true),
        };
        if registers {
            remove(&place)?;
        }
        let training = json!({
            "config": self.config,
            "pairs": flags.pairs.as_ref().map(|path| path.display().to_string()),
            "query_log": flags.query_log.as_ref().map(|path| path.display().to_string()),
            "through_seq": rows.through_seq,
        });
        let bundle = parts.finish(&place, (&learned, &scored), training, report.clone())?;
        if registers {
            mopqdb::register_model(&flags.db, &bundle)?;
            remove(&place)?;
        }
        let done = json!({
            "model": bundle.model_id().to_string(),
            "method": self.config.method.name(),
            "run": home.display().to_string(),
            "recall": report.get("recall"),
            "unquantized_recall": report.get("unquantized_recall"),
            "report": report,
            "fingerprint": self.fingerprint,
        });
        conclude(home, &done)?;
        write_page(flags, &done, self.run)?;
        Ok(Ending::Model(done))
    }

    /// Learns how candidates are scored and how many a query takes, and measures what that gains.
    fn score(
        &self,
        parts: &Parts<'_>,
        trained: &Trained,
        progress: &mut Progress,
    ) -> Result<(Learned, Scored, Json)> {
        let (config, corpus, lessons) = (self.config, &self.rows.corpus, self.lessons);
        let labelled = !self.questions.valid.pairs.is_empty();
        let mut learned = Learned::default();
        if labelled {
            progress.note("learning how candidates are scored");
            let asked = &self.questions.train;
            let validation = lessons.validation;
            learned = learn_map(
                corpus,
                lessons.queries,
                asked,
                validation,
                config.seed,
                self.stop,
            )?;
        }
        progress.note("measuring the validation queries");
        let began = cpu_seconds();
        let trial = Trial::new(
            &self.flags.db,
            (corpus, self.rows.model.encoder_id()),
            self.texts().as_deref(),
            lessons.validation,
            config.threads,
        )?;
        let draft = self.run.dir().join("draft");
        let bundle = parts.draft(&draft, learned.map.as_deref())?;
        let are_real = labelled || !self.spare.is_empty();
        let scored = trial.choose(&bundle, labelled, are_real)?;
        remove(&draft)?;

        let (codes_before, whole_before) = trial.before()?;
        let queries = whole_before.len();
        let found = Found {
            codes_before,
            codes: Some(trained.recalls.clone()),
            whole_before,
            whole: scored.recalls.clone(),
            exact: match (&learned.exact, labelled) {
                (Some(exact), _) => exact.recalls(10),
                (None, false) => vec![1.0; queries],
                (None, true) => trial.exact()?,
            },
        };
        let mut gains = found.json(labelled, trained.quantizer.shape().row_bytes());
        if gains.is_object() {
            gains["cpu_seconds"] = json!(cpu_seconds() - began);
        }
        Ok((learned, scored, gains))
    }

    /// The texts of the validation queries, in a database of texts whose queries have some: made queries are vectors.
    fn texts(&self) -> Option<Vec<String>> {
        let questions = self.questions;
        if self.rows.model.kind() != RowsKind::Text {
            return None;
        }
        match (&questions.log, questions.valid.queries.is_empty()) {
            (_, false) => Some(questions.valid.queries.clone()),
            (Some(Log::Texts(texts)), true) if !self.spare.is_empty() => {
                let text = |&query: &u32| texts[query as usize].clone();
                Some(self.spare.iter().map(text).collect())
            }
            _ => None,
        }
    }

    /// Trains on half of the queries with their pairs, and compares the codes with those of all.
    fn half(&self, all: &Trained, progress: &mut Progress) -> Result<Half> {
        let lessons = self.lessons;
        let mut random = Random::new(self.config.seed, "half", 0);
        let queries = self.questions.train.queries.len();
        let taken: Vec<bool> = (0..queries).map(|_| random.unit() < 0.5).collect();
        let is_taken = |pair: &&(u32, u32)| taken[pair.0 as usize];
        let pairs: Vec<(u32, u32)> = lessons.pairs.iter().filter(is_taken).copied().collect();
        progress.note(&format!(
            "training on {} of {} pairs, to see what more pairs would give",
            pairs.len(),
            lessons.pairs.len()
        ));
        let some = Lessons {
            pairs: &pairs,
            ..*lessons
        };
        let words = format!(
            "# half of {}\n{}",
            self.fingerprint,
            toml::to_string(self.config)?
        );
        let run = Run::open(&self.run.dir().join("half"), &words)?;
        let outcome = Trainer::new(self.config, &some, &run, self.stop)?.run(progress);
        progress.finish();
        let trained = match outcome? {
            Outcome::Stopped { epochs } => return Ok(Half::Stopped { epochs }),
            Outcome::Trained(trained) => trained,
        };
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len().max(1) as f64;
        let gain = Gain::of(&all.recalls, &trained.recalls, self.config.seed);
        Ok(Half::Learned(json!({
            "pairs": pairs.len(),
            "codes": mean(&trained.recalls), "codes_of_all": mean(&all.recalls),
            "gain": gain.mean, "gain_low": gain.low, "gain_high": gain.high,
            "cpu_seconds": trained.report["cpu_seconds"],
        })))
    }
}

/// How training on half of the pairs ended.
enum Half {
    Learned(Json),
    Stopped { epochs: usize },
}
