//! A model as it would be served: its validation recall after an epoch, its quantizer and its numbers at the end.

use std::borrow::Cow;

use anyhow::Result;
use mopqdb::scan::Scanner;
use serde_json::json;
use tch::{Device, Tensor};

use super::{Trained, Trainer};
use crate::checkpoint::Checkpoint;
use crate::evaluate::{CodeReport, Encoded, Questions, dense_places, usage};
use crate::export;
use crate::model::Model;
use crate::model::bert::{Bert, Tokens, write_weights};
use crate::start;

impl Trainer<'_> {
    /// Keys and validation queries as this model's encoder sees them.
    pub(super) fn seen(&self, model: &Model) -> Seen<'_> {
        match (&model.encoder, self.lessons.texts) {
            (Some(encoder), Some(texts)) => {
                let stored = |texts: &[Vec<u32>]| {
                    let mut vectors = export::floats(&encode(encoder, texts));
                    mopqdb::encoder::round_to_f16(&mut vectors);
                    vectors
                };
                let questions = Questions {
                    vectors: stored(&texts.validation),
                    ..self.lessons.validation.clone()
                };
                Seen {
                    keys: Cow::Owned(stored(&texts.keys)),
                    questions: Cow::Owned(questions),
                    hidden: texts.shape.config.hidden,
                }
            }
            _ => Seen {
                keys: Cow::Borrowed(&self.lessons.corpus.vectors),
                questions: Cow::Borrowed(self.lessons.validation),
                hidden: self.lessons.corpus.hidden,
            },
        }
    }

    /// Validation recall at 10 and mean codeword use, as they would be served.
    pub(super) fn validate(&self, checkpoint: &Checkpoint) -> Result<(Option<f64>, Option<f64>)> {
        let model = self.restore(&checkpoint.values, &checkpoint.constants)?;
        let seen = self.seen(&model);
        let Some(codebook) = &model.codebook else {
            let asked = !seen.questions.is_empty();
            let recall = match asked {
                true => Some(seen.dense_recall(&model, &self.scanner, &[10])?[0]),
                false => None,
            };
            return Ok((recall, None));
        };
        let metric = self.lessons.corpus.metric;
        let quantizer = export::quantizer(&model.head, codebook, self.config.method, metric)?;
        let encoded = Encoded::new(&quantizer, &seen.keys, self.config.threads)?;
        let shape = quantizer.shape();
        let (used, _) = usage(&encoded.codes, shape.subspaces(), shape.codewords());
        let used = used.iter().sum::<usize>() as f64 / used.len() as f64;
        let recall = match seen.questions.is_empty() {
            true => None,
            false => Some(
                encoded
                    .places(&quantizer, &seen.questions, &self.scanner, 10)?
                    .recall(10),
            ),
        };
        Ok((recall, Some(used)))
    }

    /// The best epoch's model as it is served, and its numbers.
    pub(super) fn finish(&self, checkpoint: &Checkpoint) -> Result<Trained> {
        let values = if checkpoint.best.is_empty() {
            &checkpoint.values
        } else {
            &checkpoint.best
        };
        let model = self.restore(values, &checkpoint.constants)?;
        let metric = self.lessons.corpus.metric;
        let seen = self.seen(&model);
        let quantizer = match &model.codebook {
            Some(codebook) => export::quantizer(&model.head, codebook, self.config.method, metric)?,
            None => {
                let (head, trained) =
                    start::quantize_after(&model.head, &seen.keys_tensor(), self.config)?;
                export::with_codebook(&head, &trained, metric)?
            }
        };
        // Numbered for the scan, before anything has codes.
        let quantizer = quantizer.arranged()?;
        let encoded = Encoded::new(&quantizer, &seen.keys, self.config.threads)?;
        let codes = CodeReport::new(&quantizer, &seen.keys, &encoded.codes)?;
        let at = [10, 50, 100];
        let questions = &*seen.questions;
        let mut report = json!({
            "rows": self.lessons.corpus.rows(),
            "pairs": self.lessons.pairs.len(),
            "epochs": checkpoint.progress.epochs,
            "best_epoch": checkpoint.progress.best.map(|(_, epoch)| epoch),
            "cpu_seconds": checkpoint.progress.cpu_seconds,
            "codes": codes,
        });
        if !questions.is_empty() {
            let places = encoded.places(&quantizer, questions, &self.scanner, 100)?;
            let dense = seen.dense_recall(&model, &self.scanner, &at)?;
            report["validation_queries"] = json!(questions.len());
            for (n, dense) in at.iter().zip(dense) {
                report["recall"][n.to_string()] = json!(places.recall(*n));
                report["unquantized_recall"][n.to_string()] = json!(dense);
            }
        }
        let encoder = match &model.encoder {
            Some(_) => Some(write_weights(values)?),
            None => None,
        };
        Ok(Trained {
            quantizer,
            report,
            encoder,
        })
    }
}

/// Stored vectors as a model's encoder gives them.
pub(super) struct Seen<'a> {
    /// (rows, hidden)
    keys: Cow<'a, [f32]>,
    questions: Cow<'a, Questions>,
    hidden: usize,
}

impl Seen<'_> {
    pub(super) fn keys_tensor(&self) -> Tensor {
        Tensor::from_slice(&self.keys).view([-1, self.hidden as i64])
    }

    /// Recall of the head's whole vectors.
    fn dense_recall(&self, model: &Model, scanner: &Scanner, at: &[usize]) -> Result<Vec<f64>> {
        let queries = Tensor::from_slice(&self.questions.vectors).view([-1, self.hidden as i64]);
        let embed = |x: &Tensor| export::floats(&tch::no_grad(|| model.head.forward(x)));
        let (keys, queries) = (embed(&self.keys_tensor()), embed(&queries));
        let dim = queries.len() / self.questions.len();
        let depth = at.iter().copied().max().unwrap_or(0);
        let places = dense_places(&keys, &queries, dim, &self.questions, scanner, depth)?;
        Ok(at.iter().map(|&n| places.recall(n)).collect())
    }
}

/// Pooled vectors of texts (texts, hidden); a batch holds texts of like length.
pub fn encode(encoder: &Bert, texts: &[Vec<u32>]) -> Tensor {
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|&text| texts[text].len());
    tch::no_grad(|| {
        let parts: Vec<Tensor> = order
            .chunks(64)
            .map(|some| {
                let ids: Vec<&[u32]> = some.iter().map(|&text| texts[text].as_slice()).collect();
                encoder.forward(&Tokens::pad(&ids, Device::Cpu))
            })
            .collect();
        let mut back = vec![0i64; texts.len()];
        for (place, &text) in order.iter().enumerate() {
            back[text] = place as i64;
        }
        Tensor::cat(&parts, 0).index_select(0, &Tensor::from_slice(&back))
    })
}
