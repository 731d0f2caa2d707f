//! How well a model finds what it should: recall over all living rows of a snapshot.
//!
//! [`Questions::find`] looks up the right rows of each query; [`evaluate`] ranks every row for every query, under any
//! model of the database, through the same quantizer and scan that serve queries. Rows are streamed: memory is bounded
//! by [`EvalOptions::memory_limit`] and what the questions themselves take.
//!
//! Recall@k is the mean over queries of |right rows among the first k| / |right rows|. Rows with equal codes have equal
//! scores, and are common: a right row among ties counts with the probability that it is within the first k if ties
//! fall at random (see [`Place`]), never by its position. [`bootstrap`] gives intervals, paired over queries.

pub mod bootstrap;
mod codes;
mod place;
mod questions;
mod rank;
mod rows;

pub use codes::CodeReport;
pub use place::{Place, Places};
pub use questions::{Ask, Asked, FindOptions, Question, Questions};

use crate::error::{Error, Result};
use crate::ids::EncoderId;
use crate::metric::Metric;
use crate::model::Model;
use crate::scan::{InMemory, Scanner};
use crate::snapshot::Snapshot;
use codes::CodeCounter;
use rank::{CodesChunk, ExactChunk, Ranking};
use rows::Rows;

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
    let rows = Rows::new(snapshot, model, options)?;
    let queries = questions.vectors(model)?;
    let needed = rows.pick(questions)?;
    let (width, dim) = (model.dim(), quantizer.dim());

    let mut coded = Ranking::new(questions, options, |query, picked| {
        let table = quantizer.table(&queries[query * width..][..width])?;
        let mut codes = vec![0; quantizer.shape().subspaces()];
        picked
            .iter()
            .map(|row| {
                quantizer.quantize(needed.vector(*row), &mut codes)?;
                Ok(table.score(&codes))
            })
            .collect()
    })?;
    let metric = inner(model.metric());
    let mut projected_queries = Vec::new();
    let mut whole = None;
    if quantizer.head().is_some() {
        projected_queries = project(quantizer, &queries, width)?;
        whole = Some(Ranking::new(questions, options, |query, picked| {
            let mut keys = vec![0.0; picked.len() * dim];
            quantizer.project(&needed.vectors(picked), &mut keys)?;
            rank::scores(
                scanner,
                &keys,
                &projected_queries[query * dim..][..dim],
                metric,
            )
        })?);
    }

    let mut counter = CodeCounter::new(quantizer);
    rows.for_each_chunk(|first, vectors| {
        let n = vectors.len() / width;
        let mut codes = vec![0; n * quantizer.shape().subspaces()];
        rows::in_parallel(
            scanner.threads(),
            vectors,
            width,
            &mut codes,
            |rows, codes| quantizer.quantize(rows, codes),
        )?;
        let mut projected = vec![0.0; n * dim];
        rows::in_parallel(
            scanner.threads(),
            vectors,
            width,
            &mut projected,
            |rows, out| quantizer.project(rows, out),
        )?;
        counter.add(&projected, &codes);
        coded.add(
            scanner,
            first,
            &CodesChunk::new(quantizer, &queries, &codes),
        )?;
        if let Some(whole) = &mut whole {
            whole.add(
                scanner,
                first,
                &ExactChunk {
                    rows: InMemory {
                        values: &projected,
                        dim,
                    },
                    queries: &projected_queries,
                    metric,
                },
            )?;
        }
        Ok(())
    })?;
    let (places, samples) = coded.finish();
    Ok(Evaluation {
        places,
        head: whole.map(|ranking| ranking.finish().0),
        codes: Some(counter.finish()),
        samples,
    })
}

/// Ranks all rows by whole vectors of the model's encoder, as a database without a quantizer does.
pub fn ceiling(
    snapshot: &Snapshot,
    model: &Model,
    questions: &Questions,
    scanner: &Scanner,
    options: &EvalOptions<'_>,
) -> Result<Ceiling> {
    let rows = Rows::new(snapshot, model, options)?;
    let queries = questions.vectors(model)?;
    let needed = rows.pick(questions)?;
    let (dim, metric) = (model.dim(), inner(model.metric()));
    let mut ranking = Ranking::new(questions, options, |query, picked| {
        rank::scores(
            scanner,
            &needed.vectors(picked),
            &queries[query * dim..][..dim],
            metric,
        )
    })?;
    rows.for_each_chunk(|first, vectors| {
        ranking.add(
            scanner,
            first,
            &ExactChunk {
                rows: InMemory {
                    values: vectors,
                    dim,
                },
                queries: &queries,
                metric,
            },
        )
    })?;
    let (places, samples) = ranking.finish();
    Ok(Ceiling {
        encoder: model.encoder_id(),
        places,
        samples,
    })
}

/// Keys and queries of a cosine database are of length one: what remains is the inner product.
fn inner(metric: Metric) -> Metric {
    match metric {
        Metric::L2 => Metric::L2,
        Metric::Ip | Metric::Cosine => Metric::Ip,
    }
}

fn project(
    quantizer: &crate::quantizer::Quantizer,
    vectors: &[f32],
    width: usize,
) -> Result<Vec<f32>> {
    let mut out = vec![0.0; vectors.len() / width * quantizer.dim()];
    quantizer.project(vectors, &mut out)?;
    Ok(out)
}

/// The user has had enough.
fn stopped() -> Error {
    Error::invalid("stopped before all rows were ranked; nothing was changed")
}

#[cfg(test)]
mod tests;
