//! The input of a run, its observers and its result.

use std::sync::Arc;

use mopqdb::eval::VectorQuestions;
use mopqdb::quantizer::Quantizer;
use tch::Tensor;

use crate::data::Corpus;
use crate::model::bert::BertShape;
use crate::program::EpochRecord;

/// The data that a run learns from.
#[derive(Debug)]
pub struct Lessons<'a> {
    /// All keys with their stored vectors.
    pub corpus: &'a Corpus,
    /// The training queries' vectors (queries, hidden).
    pub queries: &'a [f32],
    /// Pairs: (query, row of the corpus).
    pub pairs: &'a [(u32, u32)],
    /// Queries without labels, for `distill`: (query, its nearest row by the stored vectors).
    pub logged: &'a [(u32, u32)],
    /// Rows of which `distill` makes no training queries, because its validation queries are made of them.
    pub held_out: &'a [u32],
    /// The queries that decide which epoch is best. Without any, the last epoch is taken.
    pub validation: &'a VectorQuestions,
    /// Tokenised texts, if the encoder is trained too. The vectors above are then those of the encoder at its start.
    pub texts: Option<&'a Texts>,
}

/// The texts with which an encoder is trained.
#[derive(Debug)]
pub struct Texts {
    /// The architecture of the encoder.
    pub shape: BertShape,
    /// The weights that it starts from.
    pub weights: Vec<(String, Tensor)>,
    /// Token ids of the training queries.
    pub queries: Arc<Vec<Vec<u32>>>,
    /// Token ids of all keys.
    pub keys: Arc<Vec<Vec<u32>>>,
    /// Token ids of the validation queries.
    pub validation: Vec<Vec<u32>>,
}

/// An observer of a run.
pub trait Watch {
    /// Is called when an epoch begins.
    fn epoch(&mut self, _epoch: usize, _of: usize, _phase: &str, _steps: usize) {}
    /// Is called after each step.
    fn step(&mut self, _loss: f64, _pairs: usize) {}
    /// Is called with a message about the other stages of a run.
    fn note(&mut self, _words: &str) {}
    /// Is called after each epoch.
    fn record(&mut self, _record: &EpochRecord) {}
}

/// An observer that ignores everything.
#[derive(Debug)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// The result of a run.
#[derive(Debug)]
pub struct Trained {
    /// The quantizer as the engine uses it.
    pub quantizer: Quantizer,
    /// The figures of the run, among them the epoch that was taken.
    pub report: serde_json::Value,
    /// Recall at 10 of each validation query, by codes.
    pub recalls: Vec<f64>,
    /// The encoder's weights as a safetensors file, if it was trained too.
    pub encoder: Option<Vec<u8>>,
}

/// How a run ended.
#[derive(Debug)]
pub enum Outcome {
    /// It was completed.
    Trained(Box<Trained>),
    /// It was stopped. The checkpoint of the last complete epoch, if there is one, is kept for the next session.
    Stopped {
        /// Complete epochs.
        epochs: usize,
    },
}
