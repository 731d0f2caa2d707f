//! How well a model finds what it should: recall over all living rows of a snapshot.
//!
//! [`Questions::find`] looks up the right rows of each query; [`evaluate`] ranks every row for every query, under any
//! model of the database, by the stages that serve queries ([`candidates`](crate::query::candidates)), so what is
//! measured is what is served. The codes of a model that is not in service are held in memory, as are the vectors of
//! another encoder, up to [`EvalOptions::memory_limit`]. [`Keys`] are ranked in the same way without a database: a
//! trainer measures with them what it learns.
//!
//! Recall@k is the mean over queries of |right rows among the first k| / |right rows|. Rows with equal codes have equal
//! scores, and are common: a right row among ties counts with the probability that it is within the first k if ties
//! fall at random (see [`Place`]), never by its position. [`bootstrap`] gives intervals, paired over queries.

pub mod bootstrap;
mod coded;
mod codes;
mod held;
mod keys;
mod numbers;
mod place;
mod questions;
mod rank;

pub use codes::CodeReport;
pub use keys::Keys;
pub use place::{Place, Places};
pub use questions::{Answers, Ask, FindOptions, Question, Questions, VectorQuestions};

use crate::error::{Error, Result};
use crate::ids::EncoderId;
use crate::metric::Metric;
use crate::model::Model;
use crate::scan::Scanner;
use crate::snapshot::Snapshot;
use coded::Coded;
use held::Codes;
use numbers::Numbers;
use rank::{ByVectors, Ranking};
use std::cell::Cell;

/// How an evaluation is done.
#[derive(Clone, Copy)]
pub struct EvalOptions<'a> {
    /// The deepest k that will be asked for: places beyond it are not told apart.
    pub depth: usize,
    /// The hits of the first so many questions are kept, ten each.
    pub samples: usize,
    /// Memory for rows under way, and for the vectors of another encoder, in bytes.
    pub memory_limit: usize,
    /// Told how many steps are done, of how many; false stops. A step is a row prepared or a query ranked.
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
    /// Rows of a chunk, each of which takes `row_bytes`.
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

/// Rows found for some questions, best first: score and number of the row in the snapshot's order.
type Samples = Vec<Vec<(f32, u32)>>;

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
/// is another, the texts are encoded again.
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
    // Ranked by codes and by projections; every row is projected.
    let passes = 1 + u64::from(quantizer.head().is_some());
    let ranked = questions.all.len() as u64 * passes + snapshot.rows();
    let steps = Steps::of(options, held::work(snapshot, model, Codes::Wanted) + ranked);
    let coded = Coded {
        searched: &held::under(
            snapshot,
            model,
            scanner,
            options.memory_limit,
            Codes::Wanted,
            &steps,
        )?,
        quantizer,
        questions: &questions.under(model)?,
        options,
        steps: &steps,
    };
    coded.evaluate()
}

/// Ranks all rows by full-precision vectors of the model's encoder, as a database without a quantizer does.
pub fn ceiling(
    snapshot: &Snapshot,
    model: &Model,
    questions: &Questions,
    scanner: &Scanner,
    options: &EvalOptions<'_>,
) -> Result<Ceiling> {
    let work = held::work(snapshot, model, Codes::Unwanted) + questions.all.len() as u64;
    let steps = Steps::of(options, work);
    let limit = options.memory_limit;
    let searched = held::under(snapshot, model, scanner, limit, Codes::Unwanted, &steps)?;
    let questions = questions.under(model)?;
    let pool = ByVectors {
        searched: &searched,
        numbers: &Numbers::of(&searched.parts, 0),
        queries: &questions.vectors,
    };
    let answers = &questions.answers;
    let (places, samples) = Ranking::of(&pool, answers, options.depth, options.samples, &steps)?;
    Ok(Ceiling {
        encoder: model.encoder_id(),
        places,
        samples,
    })
}

/// Tells the progress of an evaluation: rows prepared and queries ranked, each a step.
struct Steps<'a> {
    progress: Option<&'a dyn Fn(u64, u64) -> bool>,
    done: Cell<u64>,
    total: u64,
}

impl<'a> Steps<'a> {
    fn of(options: &EvalOptions<'a>, total: u64) -> Self {
        Self {
            progress: options.progress,
            done: Cell::new(0),
            total,
        }
    }

    /// Counts steps; an error if the user wants to stop.
    fn add(&self, steps: u64) -> Result<()> {
        self.done.set((self.done.get() + steps).min(self.total));
        match self.progress {
            Some(progress) if !progress(self.done.get(), self.total) => Err(stopped()),
            _ => Ok(()),
        }
    }
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
