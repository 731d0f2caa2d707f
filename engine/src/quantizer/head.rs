//! The learned projection in front of the codebook.

use crate::error::{Error, Result};

/// A linear layer `y = W x + b`, finite, with W as torch keeps it: (dim, hidden).
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    dim: usize,
    hidden: usize,
    /// (dim, hidden)
    weight: Vec<f32>,
    /// (dim)
    bias: Option<Vec<f32>>,
}

impl Head {
    /// Takes `weight` of shape (dim, hidden) and a bias of `dim` values.
    pub fn new(
        dim: usize,
        hidden: usize,
        weight: Vec<f32>,
        bias: Option<Vec<f32>>,
    ) -> Result<Self> {
        if dim == 0 || hidden == 0 || weight.len() != dim * hidden {
            return Err(Error::invalid(format!(
                "a head of {dim} x {hidden} has {} weights, got {}",
                dim * hidden,
                weight.len()
            )));
        }
        if bias.as_ref().is_some_and(|b| b.len() != dim) {
            return Err(Error::invalid(format!(
                "a head with {dim} outputs has {dim} biases, got {}",
                bias.map_or(0, |b| b.len())
            )));
        }
        if weight
            .iter()
            .chain(bias.iter().flatten())
            .any(|v| !v.is_finite())
        {
            return Err(Error::invalid("the head holds a value that is not finite"));
        }
        Ok(Self {
            dim,
            hidden,
            weight,
            bias,
        })
    }

    /// Returns the number of outputs.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Returns the number of inputs.
    pub fn hidden(&self) -> usize {
        self.hidden
    }

    /// Returns the weights, (dim, hidden).
    pub fn weight(&self) -> &[f32] {
        &self.weight
    }

    /// Returns the biases, (dim).
    pub fn bias(&self) -> Option<&[f32]> {
        self.bias.as_deref()
    }
}
