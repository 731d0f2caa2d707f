//! Measures several models, each in several search modes, on the same questions.

use crate::commands::open_model;
use crate::progress::Progress;
use crate::settings::Settings;
use anyhow::Result;
use mopqdb::eval::{CodeReport, EvalOptions, Evaluator, Places, Questions, Ranks};
use mopqdb::{EncoderId, Model, ModelId, Search, Snapshot, training_log};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

/// The result of a model in one search mode.
pub(super) struct Measured {
    pub(super) model: Rc<Facts>,
    pub(super) ranks: Rc<Ranks>,
    /// The time that ranking took.
    pub(super) seconds: f64,
}

/// The properties of a model, however its rows are searched.
pub(super) struct Facts {
    pub(super) id: String,
    pub(super) method: String,
    pub(super) active: bool,
    /// The record of the training, as the trainer wrote it.
    pub(super) training: Value,
    /// Its epochs, if the run's log is still in the database.
    pub(super) course: Value,
    /// The report on the codes; `None` if the model has no codes.
    pub(super) codes: Option<CodeReport>,
    /// The places of right rows among the unquantized projections of the model's head.
    pub(super) head: Option<Places>,
    /// The result of exact search by the encoder's vectors.
    pub(super) exact: Rc<Ranks>,
}

impl Measured {
    /// Returns the report on the codes, if they were used.
    pub(super) fn codes(&self) -> Option<&CodeReport> {
        let searched = matches!(self.ranks.search, Search::Auto | Search::Codes);
        self.model.codes.as_ref().filter(|_| searched)
    }

    /// Returns `true` if it is the first line of its model.
    pub(super) fn begins(lines: &[&Self], n: usize) -> bool {
        n == 0 || !Rc::ptr_eq(&lines[n - 1].model, &lines[n].model)
    }
}

impl Facts {
    /// Returns the first digits of its id.
    pub(super) fn short(&self) -> &str {
        &self.id[..12.min(self.id.len())]
    }
}

/// Returns `true` if the recall of exact search is printed after this line: once per run of models with the same
/// encoder.
pub(super) fn tells_exact(lines: &[&Measured], n: usize) -> bool {
    let own = &lines[n].model.exact;
    let same = |line: &&&Measured| Rc::ptr_eq(&line.model.exact, own);
    let next = lines.get(n + 1).filter(same);
    next.is_none() && !lines.iter().filter(same).any(|line| line.codes().is_none())
}

/// The inputs that all measurements share.
pub(super) struct Measurer<'a> {
    db: &'a Path,
    settings: &'a Settings,
    snapshot: &'a Snapshot,
    questions: &'a Questions,
    options: EvalOptions,
    /// Exact search, once per encoder, and the time that it took.
    exact: HashMap<EncoderId, (Rc<Ranks>, f64)>,
}

impl<'a> Measurer<'a> {
    pub(super) fn new(
        db: &'a Path,
        settings: &'a Settings,
        snapshot: &'a Snapshot,
        questions: &'a Questions,
        options: EvalOptions,
    ) -> Result<Self> {
        Ok(Self {
            db,
            settings,
            snapshot,
            questions,
            options,
            exact: HashMap::new(),
        })
    }

    /// Measures a model of the database, once per search mode. A model without codes is not measured by codes.
    pub(super) fn measure(&mut self, id: ModelId, searches: &[Search]) -> Result<Vec<Measured>> {
        let active = self.snapshot.model();
        if active.model_id() == id {
            return self.measure_open(active, true, searches);
        }
        let model = open_model(self.db, id, self.settings)?;
        self.measure_open(&model, false, searches)
    }

    fn measure_open(
        &mut self,
        model: &Model,
        active: bool,
        searches: &[Search],
    ) -> Result<Vec<Measured>> {
        let progress = Progress::new("ranking", "steps", Some(self.snapshot.rows()));
        let options = self.options.clone().watch(progress.watch());
        let evaluator = Evaluator::new(self.snapshot, model, self.questions, options)?;
        let ranked = |search: Search| -> Result<(Rc<Ranks>, f64)> {
            progress.note(search.name());
            let started = Instant::now();
            let ranks = Rc::new(evaluator.search(search)?);
            Ok((ranks, started.elapsed().as_secs_f64()))
        };
        let exact = match self.exact.get(&model.encoder_id()) {
            Some(exact) => exact.clone(),
            None => {
                let exact = ranked(Search::Exact)?;
                self.exact.insert(model.encoder_id(), exact.clone());
                exact
            }
        };
        let mut found = Vec::new();
        for &search in searches {
            found.push(match search {
                Search::Codes if !evaluator.has_codes() => continue,
                Search::Words if !evaluator.has_words() => continue,
                Search::Exact => exact.clone(),
                Search::Auto if !evaluator.rescores() => {
                    let mut ranks = Ranks::clone(&exact.0);
                    ranks.search = search;
                    (Rc::new(ranks), exact.1)
                }
                search => ranked(search)?,
            });
        }
        progress.note("codewords");
        let (codes, head) = evaluator.codes()?.unzip();
        let manifest = model.bundle().map(|bundle| bundle.manifest());
        let facts = Rc::new(Facts {
            id: model.model_id().to_string(),
            method: model.method().to_owned(),
            active,
            training: manifest.map_or(Value::Null, |manifest| manifest.training.clone()),
            course: json!(model.id().and_then(|id| training_log(self.db, id))),
            codes,
            head: head.flatten(),
            exact: exact.0,
        });
        let measured = found.into_iter().map(|(ranks, seconds)| Measured {
            model: Rc::clone(&facts),
            ranks,
            seconds,
        });
        Ok(measured.collect())
    }
}
