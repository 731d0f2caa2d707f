//! The codebook.

use super::shape::CodeShape;
use crate::error::{Error, Result};

/// The codewords of every subspace, finite, of a checked shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Codebook {
    shape: CodeShape,
    sub_dim: usize,
    /// (subspaces, codewords, sub_dim)
    values: Vec<f32>,
}

impl Codebook {
    /// Takes `values` of shape (subspaces, codewords, sub_dim).
    pub fn new(shape: CodeShape, sub_dim: usize, values: Vec<f32>) -> Result<Self> {
        let expected = shape.subspaces() * shape.codewords() * sub_dim;
        if sub_dim == 0 || values.len() != expected {
            return Err(Error::invalid(format!(
                "a codebook of {} subspaces x {} codewords x {sub_dim} dimensions has {expected} values, got {}",
                shape.subspaces(),
                shape.codewords(),
                values.len()
            )));
        }
        if let Some(at) = values.iter().position(|v| !v.is_finite()) {
            let codeword = at / sub_dim;
            return Err(Error::invalid(format!(
                "codeword {} of subspace {} holds {}",
                codeword % shape.codewords(),
                codeword / shape.codewords(),
                values[at]
            )));
        }
        Ok(Self {
            shape,
            sub_dim,
            values,
        })
    }

    /// Returns the numbers of subspaces and codewords.
    pub fn shape(&self) -> CodeShape {
        self.shape
    }

    /// Returns the dimensions per subspace.
    pub fn sub_dim(&self) -> usize {
        self.sub_dim
    }

    /// Returns the number of dimensions of the vectors that are cut into subspaces.
    pub fn dim(&self) -> usize {
        self.shape.subspaces() * self.sub_dim
    }

    /// Returns all values, (subspaces, codewords, sub_dim).
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Returns the codewords of one subspace, (codewords, sub_dim).
    pub fn subspace(&self, subspace: usize) -> &[f32] {
        let size = self.shape.codewords() * self.sub_dim;
        &self.values[subspace * size..][..size]
    }

    /// Returns one codeword.
    pub fn codeword(&self, subspace: usize, codeword: usize) -> &[f32] {
        &self.subspace(subspace)[codeword * self.sub_dim..][..self.sub_dim]
    }
}
