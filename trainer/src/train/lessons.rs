//! What goes into a run, who watches it, and what comes out.

use std::sync::Arc;

use mopqdb::eval::VectorQuestions;
use mopqdb::quantizer::Quantizer;
use tch::Tensor;

use crate::data::Corpus;
use crate::model::bert::BertShape;
use crate::program::EpochRecord;

/// What a run learns from.
#[derive(Debug)]
pub struct Lessons<'a> {
    /// All keys.
    pub corpus: &'a Corpus,
    /// The training queries' vectors (queries, hidden).
    pub queries: &'a [f32],
    /// (query, row of the corpus).
    pub pairs: &'a [(u32, u32)],
    /// Queries without labels, for `distill`, each with the row that the stored vectors find first.
    pub logged: &'a [(u32, u32)],
    /// Rows that `distill` makes no queries of, since validation asks for them.
    pub held_out: &'a [u32],
    /// What decides which epoch is best; none: the last one is.
    pub validation: &'a VectorQuestions,
    /// Where the encoder learns too; all vectors above are then of the encoder that it starts from.
    pub texts: Option<&'a Texts>,
}

/// What an encoder that learns reads.
#[derive(Debug)]
pub struct Texts {
    /// How the encoder is built.
    pub shape: BertShape,
    /// What it starts from.
    pub weights: Vec<(String, Tensor)>,
    /// Token ids of the training queries.
    pub queries: Arc<Vec<Vec<u32>>>,
    /// Of all keys.
    pub keys: Arc<Vec<Vec<u32>>>,
    /// Of the validation queries.
    pub validation: Vec<Vec<u32>>,
}

/// Who watches a run.
pub trait Watch {
    /// An epoch begins.
    fn epoch(&mut self, _epoch: usize, _of: usize, _phase: &str, _steps: usize) {}
    /// A step is done.
    fn step(&mut self, _loss: f64, _pairs: usize) {}
    /// Something else is happening.
    fn note(&mut self, _words: &str) {}
    /// An epoch is over.
    fn record(&mut self, _record: &EpochRecord) {}
}

/// Nobody watches.
#[derive(Debug)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// What came of a run.
#[derive(Debug)]
pub struct Trained {
    /// As served.
    pub quantizer: Quantizer,
    /// The epoch it is of, and all its numbers.
    pub report: serde_json::Value,
    /// The encoder's weights as a safetensors file, where it learned too.
    pub encoder: Option<Vec<u8>>,
}

/// How a run ended.
#[derive(Debug)]
pub enum Outcome {
    /// To its end.
    Trained(Box<Trained>),
    /// By request, with the checkpoint of the last whole epoch (none if 0) left for the next session.
    Stopped {
        /// Whole epochs done.
        epochs: usize,
    },
}
