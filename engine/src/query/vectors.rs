//! Queries as vectors of the stored width.

use crate::error::Result;
use crate::model::Model;
use crate::row::Query;

/// Returns the vectors of some queries: (queries, dim). Texts are encoded together.
pub(super) fn of(model: &Model, queries: &[Query<'_>]) -> Result<Vec<f32>> {
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
    let mut all = Vec::with_capacity(queries.len() * model.dim());
    for query in queries {
        let vector = match query {
            Query::Text(_) => encoded.next().expect("a vector for each text"),
            Query::Vector(vector) => vector,
        };
        all.extend(model.check_vector(vector, || "the query".into())?);
    }
    Ok(all)
}
