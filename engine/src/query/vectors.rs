//! Queries as vectors of the stored width, and as terms.

use super::plan::Plan;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::row::Query;
use crate::words::Terms;

/// Queries as the stages take them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    /// (queries, dim); empty where no vector is compared.
    pub(crate) vectors: Vec<f32>,
    /// The terms of each query; empty where no words are searched.
    pub(crate) terms: Vec<Terms>,
}

/// Some queries, borrowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedRef<'q> {
    pub(crate) vectors: &'q [f32],
    pub(crate) terms: &'q [Terms],
}

impl Asked {
    pub(crate) fn as_ref(&self) -> AskedRef<'_> {
        AskedRef {
            vectors: &self.vectors,
            terms: &self.terms,
        }
    }
}

/// Returns queries as a plan needs them. Texts are encoded together, if vectors are compared.
pub(super) fn of(model: &Model, queries: &[Query<'_>], plan: Plan) -> Result<Asked> {
    let mut asked = Asked::default();
    if let Some(words) = model.words().filter(|_| plan.needs_words()) {
        let terms = queries.iter().map(|query| match query {
            Query::Text(text) => Ok(Terms::of(&words.tokenizer, text)),
            Query::Vector(_) if plan.needs_vectors() => Ok(Terms::none()),
            Query::Vector(_) => Err(Error::invalid(
                "a vector has no words to search for: give a text, or search in another way",
            )),
        });
        asked.terms = terms.collect::<Result<_>>()?;
    }
    if !plan.needs_vectors() {
        return Ok(asked);
    }
    let texts: Vec<&str> = (queries.iter())
        .filter_map(|query| match query {
            Query::Text(text) => Some(*text),
            Query::Vector(_) => None,
        })
        .collect();
    let encoded = match texts.is_empty() {
        true => Vec::new(),
        false => model.encode_queries(&texts)?,
    };
    let mut encoded = encoded.chunks_exact(model.dim().max(1));
    asked.vectors.reserve(queries.len() * model.dim());
    for query in queries {
        let vector = match query {
            Query::Text(_) => encoded.next().expect("a vector for each text"),
            Query::Vector(vector) => vector,
        };
        let vector = model.check_vector(vector, || "the query".into())?;
        asked.vectors.extend(vector);
    }
    Ok(asked)
}
