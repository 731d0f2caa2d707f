//! `scorer.safetensors`: the query map, (dim, dim), and the weight of words, (1). All f32; either may be missing.

use super::tensors::{from_bytes, to_bytes};
use crate::error::{Error, Result};
use crate::model::scorer::Scorer;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::path::Path;

/// The bytes of a scorer. The same scorer gives the same bytes.
pub(super) fn encode(scorer: &Scorer) -> Result<Vec<u8>> {
    let map = scorer.map().map(to_bytes);
    let weight = scorer.weight().map(|weight| to_bytes(&[weight]));
    let dim = scorer.dim();
    let shapes = [("map", map, vec![dim, dim]), ("weight", weight, vec![1])];
    let views = shapes.iter().filter_map(|(name, bytes, shape)| {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes.as_ref()?);
        Some((*name, view.expect("each shape is that of its values")))
    });
    safetensors::serialize(views, None)
        .map_err(|error| Error::model_because(format!("writing tensors: {error}"), error))
}

/// A scorer of vectors of `dim` from its bytes.
pub(super) fn decode(path: &Path, bytes: &[u8], dim: usize) -> Result<Scorer> {
    let refuse = |what: String| Error::model(format!("{}: {what}", path.display()));
    let tensors = SafeTensors::deserialize(bytes)
        .map_err(|error| Error::model_because(format!("{}: {error}", path.display()), error))?;
    let take = |name: &str, shape: &[usize]| -> Result<Option<Vec<f32>>> {
        let Ok(tensor) = tensors.tensor(name) else {
            return Ok(None);
        };
        if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
            return Err(refuse(format!(
                "{name} is {:?} of {:?}, it should be f32 of {shape:?}",
                tensor.shape(),
                tensor.dtype()
            )));
        }
        Ok(Some(from_bytes(tensor.data())))
    };
    let map = take("map", &[dim, dim])?;
    let weight = take("weight", &[1])?.map(|weight| weight[0]);
    let used = usize::from(map.is_some()) + usize::from(weight.is_some());
    if used != tensors.len() {
        let names = tensors.names().join(", ");
        return Err(refuse(format!(
            "it holds {names}; map and weight are known"
        )));
    }
    Scorer::new(dim, map, weight).map_err(|error| refuse(error.to_string()))
}
