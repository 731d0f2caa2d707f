//! `tensors.safetensors`: the numbers of a quantizer.
//!
//! codebook (subspaces, codewords, sub_dim); head.weight (dim, hidden) and head.bias (dim); rotation (dim, dim), applied
//! as `y = x R`; keys (subspaces, codewords, sub_dim); bilinear (sub_dim, sub_dim); cells (cells, dim) and cells.groups
//! (groups, dim). All f32.

use super::spec::{ActivationName, Manifest, QuantizerSpec, SelectionName};
use crate::error::{Error, Result};
use crate::quantizer::{Activation, Cells, Codebook, Head, Quantizer, Selection};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::path::Path;

/// Returns the bytes of a quantizer's tensors. The same quantizer gives the same bytes.
pub(super) fn encode(quantizer: &Quantizer) -> Result<Vec<u8>> {
    let codebook = quantizer.codebook();
    let (subspaces, codewords) = (quantizer.shape().subspaces(), quantizer.shape().codewords());
    let (dim, sub_dim) = (quantizer.dim(), codebook.sub_dim());
    let mut tensors: Vec<(&str, Vec<usize>, &[f32])> = vec![(
        "codebook",
        vec![subspaces, codewords, sub_dim],
        codebook.values(),
    )];
    if let Some(head) = quantizer.head() {
        tensors.push(("head.weight", vec![dim, head.hidden()], head.weight()));
        if let Some(bias) = head.bias() {
            tensors.push(("head.bias", vec![dim], bias));
        }
    }
    if let Some(rotation) = quantizer.rotation() {
        tensors.push(("rotation", vec![dim, dim], rotation));
    }
    match quantizer.selection() {
        Selection::Bilinear { w } => tensors.push(("bilinear", vec![sub_dim, sub_dim], w)),
        Selection::Keys { keys } => {
            tensors.push(("keys", vec![subspaces, codewords, sub_dim], keys))
        }
        Selection::L2 | Selection::Cosine | Selection::Product => {}
    }
    if let Some(cells) = quantizer.cells() {
        tensors.push(("cells", vec![cells.len(), dim], cells.centroids()));
        if !cells.groups().is_empty() {
            let groups = cells.groups().len() / dim;
            tensors.push(("cells.groups", vec![groups, dim], cells.groups()));
        }
    }
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, _, values)| to_bytes(values))
        .collect();
    let views: Vec<(&str, TensorView<'_>)> = tensors
        .into_iter()
        .zip(&bytes)
        .map(|((name, shape, _), data)| {
            let view =
                TensorView::new(Dtype::F32, shape, data).expect("each shape is that of its values");
            (name, view)
        })
        .collect();
    safetensors::serialize(views, None)
        .map_err(|error| Error::model_because(format!("writing tensors: {error}"), error))
}

/// Returns a quantizer from its tensors, each of the shape that the manifest says, and finite.
pub(super) fn decode(
    path: &Path,
    bytes: &[u8],
    manifest: &Manifest,
    spec: &QuantizerSpec,
) -> Result<Quantizer> {
    let refuse = |what: String| Error::model(format!("{}: {what}", path.display()));
    let tensors = SafeTensors::deserialize(bytes)
        .map_err(|error| Error::model_because(format!("{}: {error}", path.display()), error))?;
    let mut used = 0;
    let mut take = |name: &str, shape: &[usize]| -> Result<Vec<f32>> {
        let tensor = tensors
            .tensor(name)
            .map_err(|_| refuse(format!("it holds no {name}")))?;
        if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
            return Err(refuse(format!(
                "{name} is {:?} of {:?}, the manifest says f32 of {shape:?}",
                tensor.shape(),
                tensor.dtype()
            )));
        }
        used += 1;
        let values = from_bytes(tensor.data());
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(refuse(format!("value {at} of {name} is {}", values[at])));
        }
        Ok(values)
    };

    let shape = spec.shape()?;
    let (dim, sub_dim) = (spec.dim, spec.dim / spec.subspaces);
    let all = [spec.subspaces, spec.codewords, sub_dim];
    let codebook = Codebook::new(shape, sub_dim, take("codebook", &all)?)?;
    let head = if spec.head {
        let weight = take("head.weight", &[dim, manifest.input_dim])?;
        let has_bias = tensors.tensor("head.bias").is_ok();
        let bias = has_bias.then(|| take("head.bias", &[dim])).transpose()?;
        Some(Head::new(dim, manifest.input_dim, weight, bias)?)
    } else {
        None
    };
    let rotation = spec
        .rotation
        .then(|| take("rotation", &[dim, dim]))
        .transpose()?;
    let selection = match spec.selection {
        SelectionName::L2 => Selection::L2,
        SelectionName::Cosine => Selection::Cosine,
        SelectionName::Product => Selection::Product,
        SelectionName::Bilinear => Selection::Bilinear {
            w: take("bilinear", &[sub_dim, sub_dim])?,
        },
        SelectionName::Keys => Selection::Keys {
            keys: take("keys", &all)?,
        },
    };
    let cells = match spec.cells {
        Some(cells) => {
            let centroids = take("cells", &[cells.count, dim])?;
            let groups = match cells.groups {
                0 => Vec::new(),
                groups => take("cells.groups", &[groups, dim])?,
            };
            let cells = Cells::new(dim, centroids, groups, cells.residual);
            Some(cells.map_err(|error| refuse(error.to_string()))?)
        }
        None => None,
    };
    if used != tensors.len() {
        let names = tensors.names().join(", ");
        return Err(refuse(format!(
            "it holds {names}; the manifest uses {used} of them"
        )));
    }
    Quantizer::builder(codebook, manifest.metric)
        .head(head)
        .activation(match spec.activation {
            ActivationName::None => Activation::None,
            ActivationName::Elu => Activation::Elu,
        })
        .rotation(rotation)
        .selection(selection)
        .query_mode(spec.checked_query_mode())
        .cells(cells)
        .build()
        .map_err(|error| refuse(error.to_string()))
}

pub(super) fn to_bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// Requires: whole values, which safetensors checked against the shape.
pub(super) fn from_bytes(bytes: &[u8]) -> Vec<f32> {
    let value = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("chunks of four"));
    bytes.chunks_exact(4).map(value).collect()
}
