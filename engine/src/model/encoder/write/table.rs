//! Writing static token vectors as an ONNX graph: the vector of a text is the mean of its tokens' vectors. This is two
//! orders of magnitude faster than attention, and often good enough.

use super::graph::{Dim, GraphWriter, Precision};
use super::proto::element;
use crate::error::{Error, Result};

/// Writes an encoder that looks up each token in `vectors`, (tokens, dim): from `input_ids` to `last_hidden_state`,
/// (batch, tokens, dim). Pooling then takes the mean over the tokens.
pub fn write_token_vectors(vectors: &[f32], dim: usize, precision: Precision) -> Result<Vec<u8>> {
    if dim == 0 || vectors.is_empty() || !vectors.len().is_multiple_of(dim) {
        return Err(Error::model(format!(
            "{} values are not vectors of {dim} dimensions",
            vectors.len()
        )));
    }
    if let Some(at) = vectors.iter().position(|value| !value.is_finite()) {
        return Err(Error::model(format!(
            "dimension {} of token {} is {}",
            at % dim,
            at / dim,
            vectors[at]
        )));
    }
    let mut graph = GraphWriter::new(precision);
    let tokens = [Dim::Named("batch"), Dim::Named("tokens")];
    let ids = graph.input("input_ids", element::INT64, &tokens);
    let table = graph.weights("vectors", &[vectors.len() / dim, dim], vectors);
    graph.node("Gather", "last_hidden_state", &[&table, &ids], vec![]);
    graph.output(
        "last_hidden_state",
        element::FLOAT,
        &[tokens[0], tokens[1], Dim::Fixed(dim)],
    );
    Ok(graph.finish("token-vectors"))
}
