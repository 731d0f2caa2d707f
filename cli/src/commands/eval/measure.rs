//! Measuring several models on the same questions.

use crate::commands::open_model;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::stop;
use anyhow::Result;
use mopqdb::eval::{self, Ceiling, EvalOptions, Evaluation, Places, Questions};
use mopqdb::scan::Scanner;
use mopqdb::{EncoderId, Model, ModelId, Snapshot, training_log};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

/// What a model did.
pub(super) struct Measured {
    /// None where there is no model: rows are searched exactly.
    pub(super) id: Option<String>,
    pub(super) method: String,
    pub(super) active: bool,
    /// As the trainer wrote them.
    pub(super) training: Value,
    /// Its epochs, where the run's log is still in the database.
    pub(super) course: Value,
    pub(super) evaluation: Evaluation,
    pub(super) ceiling: Places,
    pub(super) seconds: f64,
}

impl Measured {
    /// The first digits of its id.
    pub(super) fn short(&self) -> String {
        match &self.id {
            Some(id) => id[..12.min(id.len())].to_owned(),
            None => "none".into(),
        }
    }
}

/// Whether the recall of whole vectors is told after this model: once where several follow one another with the same
/// encoder, and not where `exact` tells it.
pub(super) fn tells_ceiling(measured: &[Measured], n: usize) -> bool {
    let ceiling = &measured[n].ceiling;
    let exact = |model: &Measured| model.evaluation.codes.is_none() && model.ceiling == *ceiling;
    let next = measured.get(n + 1);
    next.is_none_or(|next| next.ceiling != *ceiling) && !measured.iter().any(exact)
}

/// What measures share.
pub(super) struct Measurer<'a> {
    db: &'a Path,
    settings: &'a Settings,
    snapshot: &'a Snapshot,
    questions: &'a Questions,
    scanner: Scanner,
    depth: usize,
    /// Questions whose hits are kept.
    pub(super) samples: usize,
    /// Computed once an encoder.
    ceilings: HashMap<EncoderId, Ceiling>,
}

impl<'a> Measurer<'a> {
    pub(super) fn new(
        db: &'a Path,
        settings: &'a Settings,
        snapshot: &'a Snapshot,
        questions: &'a Questions,
        depth: usize,
    ) -> Result<Self> {
        let scanner = Scanner::new(settings.threads)?;
        Ok(Self {
            db,
            settings,
            snapshot,
            questions,
            scanner,
            depth,
            samples: 0,
            ceilings: HashMap::new(),
        })
    }

    /// Measures a model of the database.
    pub(super) fn measure(&mut self, id: ModelId) -> Result<Measured> {
        let active = self.snapshot.model();
        if active.model_id() == id {
            return self.measure_open(active, true);
        }
        let model = open_model(self.db, id, self.settings)?;
        self.measure_open(&model, false)
    }

    fn measure_open(&mut self, model: &Model, active: bool) -> Result<Measured> {
        let started = Instant::now();
        let progress = Progress::new("ranking", "steps", Some(self.snapshot.rows()));
        let show = |done: u64, total: u64| {
            progress.set_of(done, total);
            !stop::asked()
        };
        let options = EvalOptions {
            depth: self.depth,
            samples: self.samples,
            memory_limit: self.settings.memory_limit,
            progress: Some(&show),
        };
        let encoder = model.encoder_id();
        let ceiling = match self.ceilings.get(&encoder) {
            Some(ceiling) => ceiling.clone(),
            None => {
                progress.note("whole vectors");
                let ceiling = eval::ceiling(
                    self.snapshot,
                    model,
                    self.questions,
                    &self.scanner,
                    &options,
                )?;
                self.ceilings.insert(encoder, ceiling.clone());
                ceiling
            }
        };
        let evaluation = match model.quantizer() {
            None => Evaluation {
                places: ceiling.places.clone(),
                head: None,
                codes: None,
                samples: ceiling.samples,
            },
            Some(_) => {
                progress.note("codes");
                eval::evaluate(
                    self.snapshot,
                    model,
                    self.questions,
                    &self.scanner,
                    &options,
                )?
            }
        };
        let manifest = model.bundle().map(|bundle| bundle.manifest());
        Ok(Measured {
            id: Some(model.model_id().to_string()),
            method: model.method().to_owned(),
            training: manifest.map_or(Value::Null, |manifest| manifest.training.clone()),
            course: json!(model.id().and_then(|id| training_log(self.db, id))),
            active,
            evaluation,
            ceiling: ceiling.places,
            seconds: started.elapsed().as_secs_f64(),
        })
    }
}
