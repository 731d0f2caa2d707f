//! Reading named weights from a safetensors file.

use crate::error::{Error, Result};
use half::{bf16, f16};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

/// The weights of a model, by name.
pub(super) struct Weights<'a> {
    tensors: SafeTensors<'a>,
    /// A prefix of all names, as in some exports ("bert.").
    prefix: &'static str,
}

impl<'a> Weights<'a> {
    /// Reads the header. `known` is a tensor that every such model has; it determines the prefix.
    pub(super) fn read(bytes: &'a [u8], known: &str, prefixes: &[&'static str]) -> Result<Self> {
        let tensors = SafeTensors::deserialize(bytes)
            .map_err(|error| Error::model_because(format!("the weights: {error}"), error))?;
        let has = |prefix: &&&str| tensors.tensor(&format!("{prefix}{known}")).is_ok();
        let Some(prefix) = prefixes.iter().find(has).copied() else {
            return Err(Error::model(format!(
                "the weights contain no {known}; is this a BERT-like model?"
            )));
        };
        Ok(Self { tensors, prefix })
    }

    /// Returns the shape of a tensor.
    pub(super) fn shape(&self, name: &str) -> Result<Vec<usize>> {
        self.view(name).map(|tensor| tensor.shape().to_vec())
    }

    /// Returns the values of a tensor of this shape, as f32. Refuses values that are not finite.
    pub(super) fn take(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let tensor = self.view(name)?;
        if tensor.shape() != shape {
            return Err(Error::model(format!(
                "{name} has shape {:?}, but the model needs {shape:?}",
                tensor.shape()
            )));
        }
        let data = tensor.data();
        let values: Vec<f32> = match tensor.dtype() {
            Dtype::F32 => words(data).map(f32::from_le_bytes).collect(),
            Dtype::F16 => words(data)
                .map(|word| f16::from_le_bytes(word).to_f32())
                .collect(),
            Dtype::BF16 => words(data)
                .map(|word| bf16::from_le_bytes(word).to_f32())
                .collect(),
            other => {
                return Err(Error::model(format!(
                    "{name} is of type {other:?}; F32, F16 and BF16 are supported"
                )));
            }
        };
        match values.iter().position(|value| !value.is_finite()) {
            Some(at) => Err(Error::model(format!(
                "value {at} of {name} is {}",
                values[at]
            ))),
            None => Ok(values),
        }
    }

    fn view(&self, name: &str) -> Result<TensorView<'a>> {
        let full = format!("{}{name}", self.prefix);
        self.tensors
            .tensor(&full)
            .map_err(|_| Error::model(format!("the weights contain no {full}")))
    }
}

/// Requires: the bytes are complete words, which safetensors checked against the shape.
fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes
        .chunks_exact(N)
        .map(|word| word.try_into().expect("chunks of N"))
}
