//! What is trained: an optional [`bert`] encoder, a linear [`head`], a [`codebook`].

pub mod bert;
pub mod codebook;
pub mod head;

use anyhow::{Context, Result};
use tch::{Device, Tensor};

use self::bert::{Bert, BertShape, Tokens};
use self::codebook::{Selection, SoftCodebook};
use self::head::Head;
use crate::config::{Method, Select, TrainConfig};

/// Which learning rate a parameter follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// A transformer's weights.
    Encoder,
    /// Head, codewords and what selects them.
    Quantizer,
}

/// A tensor that learns, with its name in checkpoints.
#[derive(Debug)]
pub struct Parameter {
    /// Unique in a model, and the tensor's name in a bundle.
    pub name: String,
    /// Which learning rate it follows.
    pub group: Group,
    /// Shares its storage with the model's own.
    pub tensor: Tensor,
}

/// What is embedded.
#[derive(Debug)]
pub enum Input {
    /// The vectors of a frozen encoder (rows, hidden).
    Vectors(Tensor),
    /// Texts, for an encoder that learns.
    Tokens(Tokens),
}

/// Encoder, head and codewords; the codewords only once they have started.
#[derive(Debug)]
pub struct Model {
    /// Token ids -> hidden, where the encoder learns too.
    pub encoder: Option<Bert>,
    /// hidden -> dim.
    pub head: Head,
    /// Absent in the dense warm-up.
    pub codebook: Option<SoftCodebook>,
}

impl Model {
    /// Everything that learns, in a fixed order.
    pub fn parameters(&self) -> Vec<Parameter> {
        let mut all = self.encoder.as_ref().map_or(Vec::new(), Bert::parameters);
        all.extend(self.head.parameters());
        if let Some(codebook) = &self.codebook {
            all.extend(codebook.parameters());
        }
        all
    }

    /// Embeddings of some inputs together (rows, dim).
    pub fn embed(&self, inputs: &[&Input]) -> Tensor {
        let hidden: Vec<Tensor> = inputs
            .iter()
            .map(|input| match (input, &self.encoder) {
                (Input::Vectors(vectors), None) => vectors.shallow_clone(),
                (Input::Tokens(tokens), Some(encoder)) => encoder.forward(tokens),
                _ => unreachable!("vectors are for a frozen encoder, texts for one that learns"),
            })
            .collect();
        self.head.forward(&Tensor::cat(&hidden, 0))
    }

    /// What learns, by name.
    pub fn values(&self) -> Vec<(String, Tensor)> {
        self.parameters()
            .into_iter()
            .map(|p| (p.name, p.tensor.detach()))
            .collect()
    }

    /// What does not learn, by name.
    pub fn constants(&self) -> Vec<(String, Tensor)> {
        let rotation = self.head.rotation.iter();
        rotation
            .map(|rotation| ("rotation".to_owned(), rotation.shallow_clone()))
            .collect()
    }

    /// A model of its own on a device, from what [`Model::values`] and [`Model::constants`] said.
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

/// A leaf that learns.
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
