//! A model as the engine would use it: its validation recall after an epoch, and its quantizer and figures at the end.

use std::sync::Arc;

use anyhow::Result;
use mopqdb::eval::{EvalOptions, Keys, VectorQuestions};
use mopqdb::quantizer::Quantizer;
use serde_json::json;

use super::start;
use super::worker::{Worker, ask, fingerprint};
use super::{Lessons, Trained, Trainer, copies};
use crate::config::TrainConfig;
use crate::data::Vectors;
use crate::export;
use crate::model::Model;
use crate::model::bert::{PREFIX, write_weights};
use crate::program::checkpoint::{Checkpoint, Named};

/// Steps and rows of the quantizer with which an epoch of PQ or OPQ is measured. The final quantizer gets all of them.
const QUICK_ITERATIONS: usize = 5;
const QUICK_SAMPLE: usize = 16_384;
/// Texts that a device encodes at a time, which takes far less than its timeout.
const ROUND: usize = 256;

impl<'a> Trainer<'a> {
    /// Returns keys and validation queries as encoded by the encoder with these values.
    pub(super) fn seen(&mut self, values: &Named) -> Result<Seen<'a>> {
        let Some(texts) = self.lessons.texts else {
            return Ok(Seen::Stored(self.lessons));
        };
        let encoder: Named = values
            .iter()
            .filter(|(name, _)| name.starts_with(PREFIX))
            .map(|(name, tensor)| (name.clone(), tensor.shallow_clone()))
            .collect();
        // Some stages follow each other without a change of the encoder.
        let fingerprint = fingerprint(&encoder);
        if let Some(learned) = self
            .learned
            .as_ref()
            .filter(|l| l.fingerprint == fingerprint)
        {
            return Ok(Seen::Learned(Arc::clone(learned)));
        }
        let readers = (0..self.fleet.devices())
            .map(|_| {
                let encoder = copies(&encoder);
                move |worker: &mut Worker| worker.take_reader(&encoder)
            })
            .collect();
        ask(&mut self.fleet, readers)?;
        let hidden = texts.shape.config.hidden;
        let learned = Arc::new(Learned {
            fingerprint,
            hidden,
            keys: self.read(&texts.keys, hidden)?,
            questions: VectorQuestions {
                vectors: self.read(&texts.validation, hidden)?,
                ..self.lessons.validation.clone()
            },
        });
        self.learned = Some(Arc::clone(&learned));
        Ok(Seen::Learned(learned))
    }

    /// Returns the vectors of texts (texts, hidden) as a database stores them. All devices encode; texts of similar length
    /// go together.
    fn read(&mut self, texts: &[Vec<u32>], hidden: usize) -> Result<Vec<f32>> {
        let devices = self.fleet.devices();
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|&text| texts[text].len());
        let mut vectors = vec![0.0; texts.len() * hidden];
        for round in order.chunks(ROUND * devices) {
            let share = round.len().div_ceil(devices);
            let part = |device: usize| {
                let first = (device * share).min(round.len());
                &round[first..(first + share).min(round.len())]
            };
            let of = |device| {
                let texts: Vec<_> = part(device).iter().map(|&t| texts[t].clone()).collect();
                move |worker: &mut Worker| Ok(worker.read(&texts))
            };
            let vectors_of_parts = ask(&mut self.fleet, (0..devices).map(of).collect())?;
            for (device, read) in vectors_of_parts.into_iter().enumerate() {
                for (&text, vector) in part(device).iter().zip(read.chunks_exact(hidden)) {
                    vectors[text * hidden..][..hidden].copy_from_slice(vector);
                }
            }
        }
        mopqdb::encoder::round_to_f16(&mut vectors);
        Ok(vectors)
    }

    /// Returns the validation recall at 10 and the mean number of used codewords, as the engine would find them.
    pub(super) fn validate(
        &mut self,
        checkpoint: &Checkpoint,
    ) -> Result<(Option<f64>, Option<f64>)> {
        let model = self.restore(&checkpoint.values, &checkpoint.constants)?;
        let seen = self.seen(&checkpoint.values)?;
        let quick = TrainConfig {
            quantizer_iterations: self.config.quantizer_iterations.min(QUICK_ITERATIONS),
            quantizer_sample: self.config.quantizer_sample.min(QUICK_SAMPLE),
            ..self.config.clone()
        };
        let quantizer = self.quantizer(&model, &seen, &quick)?;
        let keys = Keys::new(seen.keys(), &quantizer)?.threads(self.config.threads);
        let ranked = keys.rank(seen.questions(), 10)?;
        let used = ranked.used.iter().sum::<usize>() as f64 / ranked.used.len() as f64;
        let recall = (!seen.questions().is_empty()).then(|| ranked.places.recall(10));
        Ok((recall, Some(used)))
    }

    /// Returns the quantizer of the model's codewords, or for PQ and OPQ that of codewords trained behind its head.
    fn quantizer(&self, model: &Model, seen: &Seen<'_>, config: &TrainConfig) -> Result<Quantizer> {
        let metric = self.lessons.corpus.metric;
        match &model.codebook {
            Some(codebook) => export::quantizer(&model.head, codebook, config.method, metric),
            None => {
                let keys = seen.vectors();
                let (head, trained) = start::quantize_after(&model.head, keys, config)?;
                export::with_codebook(&head, &trained, metric)
            }
        }
    }

    /// Returns the quantizer of the best epoch with its figures.
    pub(super) fn finish(&mut self, checkpoint: &Checkpoint) -> Result<Trained> {
        let values = if checkpoint.best.is_empty() {
            &checkpoint.values
        } else {
            &checkpoint.best
        };
        let model = self.restore(values, &checkpoint.constants)?;
        let seen = self.seen(values)?;
        let quantizer = self.quantizer(&model, &seen, self.config)?;
        // Codewords are renumbered for the scan; no codes exist yet.
        let quantizer = quantizer.arranged()?;
        let questions = seen.questions();
        let keys = Keys::new(seen.keys(), &quantizer)?.threads(self.config.threads);
        let found = keys.evaluate(questions, &EvalOptions::default())?;
        let mut report = json!({
            "rows": self.lessons.corpus.rows(),
            "pairs": self.lessons.pairs.len(),
            "epochs": checkpoint.progress.epochs,
            "best_epoch": checkpoint.progress.best.map(|(_, epoch)| epoch),
            "cpu_seconds": checkpoint.progress.cpu_seconds,
            "codes": found.codes,
        });
        if !questions.is_empty() {
            report["validation_queries"] = json!(questions.len());
            for n in [10, 50, 100] {
                report["recall"][n.to_string()] = json!(found.places.recall(n));
                let head = found.head.as_ref().map(|places| places.recall(n));
                report["unquantized_recall"][n.to_string()] = json!(head);
            }
        }
        let encoder = match &model.encoder {
            Some(_) => Some(write_weights(values)?),
            None => None,
        };
        Ok(Trained {
            quantizer,
            report,
            recalls: found.places.recalls(10),
            encoder,
        })
    }
}

/// Vectors of keys and validation queries.
pub(super) enum Seen<'a> {
    /// Those that are stored: the encoder is not trained.
    Stored(&'a Lessons<'a>),
    /// Those of an encoder that is trained.
    Learned(Arc<Learned>),
}

/// The vectors that an encoder gave for all texts.
pub(super) struct Learned {
    /// The fingerprint of the encoder.
    fingerprint: u64,
    /// (rows, hidden)
    keys: Vec<f32>,
    questions: VectorQuestions,
    hidden: usize,
}

impl Seen<'_> {
    fn keys(&self) -> &[f32] {
        match self {
            Self::Stored(lessons) => &lessons.corpus.vectors,
            Self::Learned(learned) => &learned.keys,
        }
    }

    fn questions(&self) -> &VectorQuestions {
        match self {
            Self::Stored(lessons) => lessons.validation,
            Self::Learned(learned) => &learned.questions,
        }
    }

    fn hidden(&self) -> usize {
        match self {
            Self::Stored(lessons) => lessons.corpus.hidden,
            Self::Learned(learned) => learned.hidden,
        }
    }

    pub(super) fn vectors(&self) -> Vectors<'_> {
        Vectors {
            values: self.keys(),
            hidden: self.hidden(),
        }
    }
}
