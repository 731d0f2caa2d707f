//! The trained model: an optional [`bert`] encoder, a linear [`head`], a [`codebook`].

pub mod bert;
pub mod codebook;
pub mod head;

use anyhow::{Context, Result};
use tch::{Device, Tensor};

use self::bert::{Bert, BertShape, Tokens};
use self::codebook::{Selection, SoftCodebook};
use self::head::Head;
use crate::config::{Method, Select, TrainConfig};

/// The learning rate that a parameter uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// The rate of a transformer's weights.
    Encoder,
    /// The rate of head, codewords and the parameters of their selection.
    Quantizer,
}

/// A trainable tensor, with its name in checkpoints.
#[derive(Debug)]
pub struct Parameter {
    /// Unique in a model; also the tensor's name in a bundle.
    pub name: String,
    /// The learning rate that it uses.
    pub group: Group,
    /// Shares its storage with the model's own tensor.
    pub tensor: Tensor,
}

/// The input of the model.
#[derive(Debug)]
pub enum Input {
    /// The vectors of a frozen encoder (rows, hidden).
    Vectors(Tensor),
    /// Texts, for a trainable encoder.
    Tokens(Tokens),
}

/// Encoder, head and codewords.
#[derive(Debug)]
pub struct Model {
    /// Token ids -> hidden, if the encoder is trained too.
    pub encoder: Option<Bert>,
    /// hidden -> dim.
    pub head: Head,
    /// `None` during the dense warm-up.
    pub codebook: Option<SoftCodebook>,
}

impl Model {
    /// Returns everything that is trained, in a fixed order.
    pub fn parameters(&self) -> Vec<Parameter> {
        let mut all = self.encoder.as_ref().map_or(Vec::new(), Bert::parameters);
        all.extend(self.head.parameters());
        if let Some(codebook) = &self.codebook {
            all.extend(codebook.parameters());
        }
        all
    }

    /// Returns the embeddings of some inputs together (rows, dim).
    pub fn embed(&self, inputs: &[&Input]) -> Tensor {
        let hidden: Vec<Tensor> = inputs
            .iter()
            .map(|input| match (input, &self.encoder) {
                (Input::Vectors(vectors), None) => vectors.shallow_clone(),
                (Input::Tokens(tokens), Some(encoder)) => encoder.forward(tokens),
                _ => unreachable!("vectors are for a frozen encoder, texts for a trainable one"),
            })
            .collect();
        self.head.forward(&Tensor::cat(&hidden, 0))
    }

    /// Returns the trainable values, by name.
    pub fn values(&self) -> Vec<(String, Tensor)> {
        self.parameters()
            .into_iter()
            .map(|p| (p.name, p.tensor.detach()))
            .collect()
    }

    /// Returns the constants, by name.
    pub fn constants(&self) -> Vec<(String, Tensor)> {
        let rotation = self.head.rotation.iter();
        rotation
            .map(|rotation| ("rotation".to_owned(), rotation.shallow_clone()))
            .collect()
    }

    /// Creates a model on a device from the results of [`Model::values`] and [`Model::constants`].
    pub fn restore(
        values: &[(String, Tensor)],
        constants: &[(String, Tensor)],
        config: &TrainConfig,
        bert: Option<&BertShape>,
        device: Device,
    ) -> Result<Self> {
        let find = |from: &[(String, Tensor)], name: &str| {
            let found = from.iter().find(|(other, _)| other == name);
            found.map(|(_, tensor)| tensor.to_device(device).copy())
        };
        let value = |name: &str| {
            find(values, name).with_context(|| format!("no {name} among the parameters"))
        };
        let encoder = match bert {
            None => None,
            Some(shape) => Some(Bert::restore(shape, values, device)?),
        };
        let mut head = Head::new(
            &value("head.weight")?,
            &value("head.bias")?,
            config.activation,
        );
        head.rotation = find(constants, "rotation");
        let codebook = match find(values, "codebook") {
            None => None,
            Some(codewords) => {
                let selection = match (config.method, config.select) {
                    (Method::Dpq, _) => Selection::Keys(value("keys")?),
                    (_, Select::L2) => Selection::L2,
                    (_, Select::Cosine) => Selection::Cosine,
                    (_, Select::Product) => Selection::Product,
                    (_, Select::Bilinear) => Selection::Bilinear(value("W")?),
                };
                Some(SoftCodebook::new(
                    &codewords,
                    selection,
                    config.temperature,
                    config.straight_through,
                ))
            }
        };
        Ok(Self {
            encoder,
            head,
            codebook,
        })
    }
}

/// Returns a trainable leaf.
pub(crate) fn leaf(tensor: &Tensor) -> Tensor {
    tensor.detach().copy().set_requires_grad(true)
}

pub(crate) fn parameter(name: &str, group: Group, tensor: &Tensor) -> Parameter {
    Parameter {
        name: name.into(),
        group,
        tensor: tensor.shallow_clone(),
    }
}
