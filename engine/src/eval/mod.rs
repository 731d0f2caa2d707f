//! How well a model finds what it should: recall over all living rows of a snapshot.
//!
//! [`Questions::find`] looks up the right rows of each query; [`evaluate`] ranks every row for every query, under any
//! model of the database, through the same quantizer and scan that serve queries. Rows are streamed: memory is bounded
//! by [`EvalOptions::memory_limit`] and what the questions themselves take. [`Keys`] are ranked in the same way without
//! a database: a trainer measures with them what it learns.
//!
//! Recall@k is the mean over queries of |right rows among the first k| / |right rows|. Rows with equal codes have equal
//! scores, and are common: a right row among ties counts with the probability that it is within the first k if ties
//! fall at random (see [`Place`]), never by its position. [`bootstrap`] gives intervals, paired over queries.

pub mod bootstrap;
mod coded;
mod codes;
mod keys;
mod place;
mod questions;
mod rank;
mod rows;

pub use codes::CodeReport;
pub use keys::Keys;
pub use place::{Place, Places};
pub use questions::{Answers, Ask, Asked, FindOptions, Question, Questions, VectorQuestions};

use crate::error::{Error, Result};
use crate::ids::EncoderId;
use crate::metric::Metric;
use crate::model::Model;
use crate::scan::{InMemory, Scanner};
use crate::snapshot::Snapshot;
use coded::Coded;
use rank::{ExactChunk, Ranking};
use rows::{Rows, SnapshotRows, gather};

/// How an evaluation is done.
#[derive(Clone, Copy)]
pub struct EvalOptions<'a> {
    /// The deepest k that will be asked for: places beyond it are not told apart.
    pub depth: usize,
    /// The hits of the first so many questions are kept, ten each.
    pub samples: usize,
    /// Memory for rows under way, in bytes.
    pub memory_limit: usize,
    /// Told how many rows are ranked, of how many; false stops.
    pub progress: Option<&'a dyn Fn(u64, u64) -> bool>,
}

impl Default for EvalOptions<'_> {
    fn default() -> Self {
        Self {
            depth: 100,
            samples: 0,
            memory_limit: 512 << 20,
            progress: None,
        }
    }
}

impl EvalOptions<'_> {
    /// Rows of a chunk, each of which takes `row_bytes`: whole blocks, so that a chunk is scanned as a segment is.
    fn chunk(&self, row_bytes: usize) -> usize {
        (self.memory_limit / row_bytes).clamp(1 << 10, 1 << 20) & !63
    }
}

impl std::fmt::Debug for EvalOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EvalOptions")
            .field("depth", &self.depth)
            .finish_non_exhaustive()
    }
}

/// Hits kept for each sample.
const SAMPLE_HITS: usize = 10;

/// What a model does with the questions.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// Where the right rows stand among the codes; among whole vectors where there is no quantizer.
    pub places: Places,
    /// Where they stand among whole embeddings of the model's own head, where it has one.
    pub head: Option<Places>,
    /// What the codes are like.
    pub codes: Option<CodeReport>,
    /// Rows found for the first questions, best first: score and number of the row in the snapshot's order.
    pub samples: Vec<Vec<(f32, u32)>>,
}

/// Where the right rows stand among whole vectors of an encoder: what no code of them should be expected to beat.
#[derive(Debug, Clone)]
pub struct Ceiling {
    /// Of this encoder.
    pub encoder: EncoderId,
    /// Where the right rows stand.
    pub places: Places,
    /// Rows found for the first questions, as in [`Evaluation`].
    pub samples: Vec<Vec<(f32, u32)>>,
}

/// Where the right keys stand among the codes, and how many codewords the codes use: what [`Keys::rank`] finds.
#[derive(Debug, Clone)]
pub struct CodePlaces {
    /// Where the right keys stand.
    pub places: Places,
    /// Codewords that some key uses, per subspace.
    pub used: Vec<usize>,
}

/// Ranks all rows of a snapshot for each question under a model. The model need not be the active one; where its encoder
/// is another, the texts are encoded anew.
pub fn evaluate(
    snapshot: &Snapshot,
    model: &Model,
    questions: &Questions,
    scanner: &Scanner,
    options: &EvalOptions<'_>,
) -> Result<Evaluation> {
    let Some(quantizer) = model.quantizer() else {
        let ceiling = ceiling(snapshot, model, questions, scanner, options)?;
        return Ok(Evaluation {
            places: ceiling.places,
            head: None,
            codes: None,
            samples: ceiling.samples,
        });
    };
    let rows = SnapshotRows::new(snapshot, model)?;
    let coded = Coded {
        quantizer,
        questions: &questions.under(model)?,
        scanner,
        options,
    };
    coded.evaluate(&rows)
}

/// Ranks all rows by whole vectors of the model's encoder, as a database without a quantizer does.
pub fn ceiling(
    snapshot: &Snapshot,
    model: &Model,
    questions: &Questions,
    scanner: &Scanner,
    options: &EvalOptions<'_>,
) -> Result<Ceiling> {
    let rows = SnapshotRows::new(snapshot, model)?;
    let questions = questions.under(model)?;
    let (dim, metric) = (model.dim(), inner(model.metric()));
    let picked = rows.pick(&questions.answers)?;
    let mut ranking = Ranking::new(&questions.answers, options, |query, rows| {
        let keys = gather(picked.values(), dim, rows.iter().map(|row| picked.at(*row)));
        let query = &questions.vectors[query * dim..][..dim];
        rank::scores(scanner, &keys, query, metric)
    })?;
    for_each_chunk(&rows, options.chunk(4 * dim), options, |first, values| {
        let chunk = ExactChunk {
            rows: InMemory { values, dim },
            queries: &questions.vectors,
            metric,
        };
        ranking.add(scanner, first, &chunk)
    })?;
    let (places, samples) = ranking.finish();
    Ok(Ceiling {
        encoder: model.encoder_id(),
        places,
        samples,
    })
}

/// Calls `each` with every chunk, and tells the progress after it.
fn for_each_chunk(
    rows: &dyn Rows,
    chunk: usize,
    options: &EvalOptions<'_>,
    mut each: impl FnMut(u32, &[f32]) -> Result<()>,
) -> Result<()> {
    let total = rows.count();
    rows.for_each_chunk(chunk, &mut |first, vectors| {
        each(first, vectors)?;
        let done = (u64::from(first) + chunk as u64).min(total);
        match options.progress {
            Some(progress) if !progress(done, total) => Err(stopped()),
            _ => Ok(()),
        }
    })
}

/// Keys and queries of a cosine database are of length one: what remains is the inner product.
fn inner(metric: Metric) -> Metric {
    match metric {
        Metric::L2 => Metric::L2,
        Metric::Ip | Metric::Cosine => Metric::Ip,
    }
}

/// The user has had enough.
fn stopped() -> Error {
    Error::invalid("stopped before all rows were ranked; nothing was changed")
}

#[cfg(test)]
mod tests;
