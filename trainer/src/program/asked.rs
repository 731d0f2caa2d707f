//! The pairs and queries of a run, and their vectors.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};

use super::embeddings::Embeddings;
use super::flags::Flags;
use super::progress::Progress;
use super::rows::Rows;
use super::unlabelled::Log;
use crate::config::TrainConfig;
use crate::data::Pairs;
use crate::joint::{Joint, Readings};
use crate::train::{Texts, Watch as _};

/// The pairs and logged queries of a run, with the queries' vectors if the user gave them.
pub(super) struct Asked {
    pub(super) train: Pairs,
    pub(super) valid: Pairs,
    pub(super) vectors: Option<Vec<Vec<f32>>>,
    pub(super) valid_vectors: Option<Vec<Vec<f32>>>,
    pub(super) log: Option<Log>,
}

/// Vectors of queries (queries, hidden).
pub(super) struct Encoded {
    pub(super) train: Vec<f32>,
    pub(super) valid: Vec<f32>,
    pub(super) log: Vec<f32>,
}

impl Asked {
    /// Returns the vectors of all queries.
    pub(super) fn encode(
        &self,
        flags: &Flags,
        config: &TrainConfig,
        rows: &Rows,
        progress: &mut Progress,
        stop: &AtomicBool,
    ) -> Result<Encoded> {
        if config.joint.is_some() {
            // The encoder that is trained encodes them after each epoch.
            return Ok(Encoded {
                train: Vec::new(),
                valid: vec![0.0; self.valid.queries.len() * rows.corpus.hidden],
                log: Vec::new(),
            });
        }
        let cache = Embeddings::new(
            &flags.db.join("runs").join("embeddings"),
            rows.encoder_name(),
        );
        let model = &rows.model;
        let mut of_texts = |texts: &[String]| {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            if texts.is_empty() {
                return Ok(Vec::new());
            }
            progress.note(&format!("encoding {} queries", texts.len()));
            cache.of(
                "query",
                &texts,
                rows.corpus.hidden,
                |some| {
                    ensure!(
                        !stop.load(Ordering::Relaxed),
                        "stopped while the queries were encoded; the same command starts over"
                    );
                    Ok(model.encode_queries(some)?)
                },
                |_| (),
            )
        };
        let log = match &self.log {
            Some(Log::Texts(texts)) => of_texts(texts)?,
            Some(Log::Vectors(vectors)) => vectors.clone(),
            None => Vec::new(),
        };
        let mut of = |pairs: &Pairs, vectors: Option<&Vec<Vec<f32>>>| match vectors {
            None => of_texts(&pairs.queries),
            Some(vectors) => {
                let row = |query: &String| query.parse::<usize>().expect("checked as a row number");
                let rows = pairs.queries.iter().map(|query| &vectors[row(query)]);
                Ok(rows.flatten().copied().collect())
            }
        };
        let valid_vectors = self.valid_vectors.as_ref().or(self.vectors.as_ref());
        Ok(Encoded {
            train: of(&self.train, self.vectors.as_ref())?,
            valid: of(&self.valid, valid_vectors)?,
            log,
        })
    }

    pub(super) fn texts(&self, joint: &Joint, rows: &Rows) -> Result<Texts> {
        fn slices(texts: &[String]) -> Vec<&str> {
            texts.iter().map(String::as_str).collect()
        }
        let keys = rows.corpus.texts.as_ref().context("--joint needs texts")?;
        joint.texts(Readings {
            queries: &slices(&self.train.queries),
            keys: &slices(keys),
            validation: &slices(&self.valid.queries),
        })
    }
}
