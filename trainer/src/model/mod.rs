//! What is trained: an optional [`bert`] encoder, a linear [`head`], a [`codebook`].

pub mod codebook;
pub mod head;

use tch::Tensor;

use self::codebook::SoftCodebook;
use self::head::Head;

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

/// Head and codewords; the codewords only once they have started.
#[derive(Debug)]
pub struct Model {
    /// hidden -> dim.
    pub head: Head,
    /// Absent in the dense warm-up.
    pub codebook: Option<SoftCodebook>,
}

impl Model {
    /// Everything that learns, in a fixed order.
    pub fn parameters(&self) -> Vec<Parameter> {
        let mut all = self.head.parameters();
        if let Some(codebook) = &self.codebook {
            all.extend(codebook.parameters());
        }
        all
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
