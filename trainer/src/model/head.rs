//! The linear head shared by queries and keys: z = act(x Wᵀ + b) R.
//!
//! Scores are raw inner products of its outputs: no normalisation, no learned scale. R is used only if an activation
//! prevents OPQ's rotation from being folded into W and b.

use tch::Tensor;

use super::{Group, Parameter, leaf, parameter};
use crate::config::Activation;

/// A linear layer, hidden -> dim.
#[derive(Debug)]
pub struct Head {
    /// W: (dim, hidden).
    pub weight: Tensor,
    /// b: (dim).
    pub bias: Tensor,
    /// The activation after the linear layer.
    pub activation: Activation,
    /// R: (dim, dim), orthogonal, constant; z R.
    pub rotation: Option<Tensor>,
}

impl Head {
    /// Creates a trainable head from its starting values.
    pub fn new(weight: &Tensor, bias: &Tensor, activation: Activation) -> Self {
        Self {
            weight: leaf(weight),
            bias: leaf(bias),
            activation,
            rotation: None,
        }
    }

    /// Maps x (rows, hidden) to (rows, dim).
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let z = x.linear(&self.weight, Some(&self.bias));
        let z = match self.activation {
            Activation::None => z,
            Activation::Elu => z.elu(),
        };
        match &self.rotation {
            Some(rotation) => z.matmul(rotation),
            None => z,
        }
    }

    /// Returns a copy with separate values.
    pub fn copy(&self) -> Self {
        Self {
            rotation: self.rotation.as_ref().map(Tensor::copy),
            ..Self::new(&self.weight, &self.bias, self.activation)
        }
    }

    /// Returns this head followed by a rotation (dim, dim), z R, folded into the weights if there is no activation.
    pub fn rotated(&self, rotation: &Tensor) -> Self {
        match self.activation {
            // (x Wᵀ + b) R = x (Rᵀ W)ᵀ + b R
            Activation::None => Self::new(
                &rotation.tr().matmul(&self.weight.detach()),
                &self
                    .bias
                    .detach()
                    .unsqueeze(0)
                    .matmul(rotation)
                    .squeeze_dim(0),
                self.activation,
            ),
            Activation::Elu => Self {
                rotation: Some(match &self.rotation {
                    Some(before) => before.matmul(rotation),
                    None => rotation.copy(),
                }),
                ..Self::new(&self.weight, &self.bias, self.activation)
            },
        }
    }

    pub(super) fn parameters(&self) -> Vec<Parameter> {
        vec![
            parameter("head.weight", Group::Quantizer, &self.weight),
            parameter("head.bias", Group::Quantizer, &self.bias),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{max_difference, random_tensor};

    #[test]
    fn a_folded_rotation_equals_a_rotated_output() {
        let (x, weight, bias) = (
            random_tensor(1, &[7, 5]),
            random_tensor(2, &[4, 5]),
            random_tensor(3, &[4]),
        );
        let (rotation, _) = Tensor::linalg_qr(&random_tensor(4, &[4, 4]), "reduced");
        for activation in [Activation::None, Activation::Elu] {
            let head = Head::new(&weight, &bias, activation);
            let rotated = head.rotated(&rotation);
            assert_eq!(rotated.rotation.is_some(), activation == Activation::Elu);
            let difference =
                max_difference(&rotated.forward(&x), &head.forward(&x).matmul(&rotation));
            assert!(difference < 1e-14, "{activation:?}: {difference}");
        }
    }
}
