//! Converts what was trained to a [`Quantizer`] of the engine and a bundle.

use anyhow::Result;
use mopqdb::Metric;
use mopqdb::quantizer::{self as engine, CodeShape, Codebook, Quantizer};
use tch::{Kind, Tensor};

use crate::config::{Activation, Method};
use crate::model::codebook::{Selection, SoftCodebook};
use crate::model::head::Head;

/// Returns the engine's quantizer with these tensors. SPQ searches with the soft query.
pub fn quantizer(
    head: &Head,
    codebook: &SoftCodebook,
    method: Method,
    metric: Metric,
) -> Result<Quantizer> {
    let (subspaces, codewords, sub_dim) = codebook.shape();
    let shape = CodeShape::new(subspaces as usize, codewords as usize)?;
    let values = Codebook::new(shape, sub_dim as usize, floats(&codebook.codewords))?;
    let selection = match &codebook.selection {
        Selection::L2 => engine::Selection::L2,
        Selection::Cosine => engine::Selection::Cosine,
        Selection::Product => engine::Selection::Product,
        Selection::Bilinear(w) => engine::Selection::Bilinear { w: floats(w) },
        Selection::Keys(keys) => engine::Selection::Keys { keys: floats(keys) },
    };
    let query = match method {
        Method::Spq => engine::QueryMode::Soft {
            temperature: codebook.temperature as f32,
        },
        _ => engine::QueryMode::Plain,
    };
    build(head, values, selection, query, metric)
}

/// Returns the engine's quantizer with codewords that the engine trained on the head's embeddings.
pub fn with_codebook(head: &Head, trained: &Quantizer, metric: Metric) -> Result<Quantizer> {
    let plain = engine::QueryMode::Plain;
    build(
        head,
        trained.codebook().clone(),
        engine::Selection::L2,
        plain,
        metric,
    )
}

fn build(
    head: &Head,
    codebook: Codebook,
    selection: engine::Selection,
    query: engine::QueryMode,
    metric: Metric,
) -> Result<Quantizer> {
    let (dim, hidden) = head.weight.size2()?;
    let linear = engine::Head::new(
        dim as usize,
        hidden as usize,
        floats(&head.weight),
        Some(floats(&head.bias)),
    )?;
    let activation = match head.activation {
        Activation::None => engine::Activation::None,
        Activation::Elu => engine::Activation::Elu,
    };
    Ok(Quantizer::builder(codebook, metric)
        .head(Some(linear))
        .activation(activation)
        .rotation(head.rotation.as_ref().map(floats))
        .selection(selection)
        .query_mode(query)
        .build()?)
}

/// Returns a tensor's values, row-major.
pub fn floats(tensor: &Tensor) -> Vec<f32> {
    let flat = tensor
        .detach()
        .to_device(tch::Device::Cpu)
        .to_kind(Kind::Float)
        .contiguous()
        .view(-1);
    Vec::<f32>::try_from(flat).expect("one dimension of floats")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StraightThrough;
    use crate::testing::random_tensor;

    /// The forward k^ of training equals what the engine decodes from its codes, for every selection.
    #[test]
    fn the_engine_assigns_and_decodes_as_in_training() {
        let f32s = |seed, shape: &[i64]| random_tensor(seed, shape).to_kind(Kind::Float);
        let (rows, hidden, dim) = (300usize, 12usize, 8usize);
        let x = f32s(1, &[rows as i64, hidden as i64]);
        for activation in [Activation::None, Activation::Elu] {
            for case in 0..5 {
                let mut head = Head::new(&f32s(2, &[8, 12]), &f32s(3, &[8]), activation);
                if activation == Activation::Elu {
                    let (rotation, _) = Tensor::linalg_qr(&f32s(4, &[8, 8]), "reduced");
                    head = head.rotated(&rotation);
                }
                let selection = match case {
                    0 => Selection::L2,
                    1 => Selection::Cosine,
                    2 => Selection::Product,
                    3 => Selection::Bilinear(f32s(5, &[4, 4])),
                    _ => Selection::Keys(f32s(6, &[2, 20, 4])),
                };
                let book = SoftCodebook::new(
                    &f32s(7, &[2, 20, 4]),
                    selection,
                    1.0,
                    StraightThrough::Softmax,
                );
                let hat = floats(&book.quantize(&head.forward(&x)).hat);
                let served = quantizer(&head, &book, Method::Mopq, Metric::Ip).unwrap();
                let mut codes = vec![0u8; rows * 2];
                served.quantize(&floats(&x), &mut codes).unwrap();
                let mut decoded = vec![0.0; rows * dim];
                served.decode(&codes, &mut decoded);
                let same = hat
                    .chunks(dim)
                    .zip(decoded.chunks(dim))
                    .filter(|(a, b)| a == b)
                    .count();
                // Sums are computed in another order, so a slice that is equally near to two codewords, up to rounding,
                // may go to either.
                assert!(
                    same >= rows - 1,
                    "{activation:?}, case {case}: {same} of {rows}"
                );
            }
        }
    }
}
