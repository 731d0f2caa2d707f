//! Selection of codewords, activation and query modes.

use super::codebook::Codebook;
use crate::error::{Error, Result};

/// How codewords are scored for a slice `z`. The code is the argmax; ties go to the lowest
/// codeword.
#[derive(Debug, Clone, PartialEq)]
pub enum Selection {
    /// `-|z - C|^2`, computed as `<z, C> - |C|^2 / 2`, which has the same order.
    L2,
    /// The cosine of `z` and `C`; a zero codeword has cosine 0.
    Cosine,
    /// `<z, C>`.
    Product,
    /// `z W C^T` with one W for all subspaces.
    Bilinear {
        /// (sub_dim, sub_dim)
        w: Vec<f32>,
    },
    /// `<z, K>` with keys of their own (DPQ).
    Keys {
        /// (subspaces, codewords, sub_dim)
        keys: Vec<f32>,
    },
}

impl Selection {
    /// Returns the name used in a bundle's manifest.
    pub fn name(&self) -> &'static str {
        match self {
            Self::L2 => "l2",
            Self::Cosine => "cosine",
            Self::Product => "product",
            Self::Bilinear { .. } => "bilinear",
            Self::Keys { .. } => "keys",
        }
    }
}

/// What follows the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activation {
    /// No activation.
    #[default]
    None,
    /// ELU with alpha 1.
    Elu,
}

/// How a query is transformed before its table is built.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum QueryMode {
    /// The query as projected.
    #[default]
    Plain,
    /// SPQ: each slice is replaced by its soft reconstruction, the mean of the codewords weighted by
    /// `softmax(s / temperature)`, with `s` the selection's score (for l2 the whole `-|z - C|^2`).
    Soft {
        /// Above 0.
        temperature: f32,
    },
}

/// A selection reduced to `argmax_j <z, S_j> + offset_j`: what every kernel runs.
#[derive(Debug, Clone)]
pub(crate) struct Selectors {
    /// (subspaces, codewords, sub_dim)
    pub(crate) values: Vec<f32>,
    /// (subspaces, codewords)
    pub(crate) offsets: Vec<f32>,
}

impl Selectors {
    pub(crate) fn new(codebook: &Codebook, selection: &Selection) -> Result<Self> {
        let (subspaces, codewords, sub_dim) = (
            codebook.shape().subspaces(),
            codebook.shape().codewords(),
            codebook.sub_dim(),
        );
        let all = subspaces * codewords;
        let mut offsets = vec![0.0; all];
        let values = match selection {
            Selection::Product => codebook.values().to_vec(),
            Selection::L2 => {
                for (offset, codeword) in offsets
                    .iter_mut()
                    .zip(codebook.values().chunks_exact(sub_dim))
                {
                    *offset = -0.5 * dot(codeword, codeword);
                }
                codebook.values().to_vec()
            }
            Selection::Cosine => {
                let mut values = codebook.values().to_vec();
                for codeword in values.chunks_exact_mut(sub_dim) {
                    let norm = dot(codeword, codeword).sqrt();
                    if norm > 0.0 {
                        codeword.iter_mut().for_each(|v| *v /= norm);
                    }
                }
                values
            }
            Selection::Bilinear { w } => {
                expect_len("the bilinear W", w.len(), sub_dim * sub_dim)?;
                let mut values = Vec::with_capacity(all * sub_dim);
                for codeword in codebook.values().chunks_exact(sub_dim) {
                    values.extend(w.chunks_exact(sub_dim).map(|row| dot(row, codeword)));
                }
                values
            }
            Selection::Keys { keys } => {
                expect_len("the selection keys", keys.len(), all * sub_dim)?;
                keys.clone()
            }
        };
        if values.iter().chain(&offsets).any(|v| !v.is_finite()) {
            return Err(Error::invalid(format!(
                "selection {} meets a value that is not finite",
                selection.name()
            )));
        }
        Ok(Self { values, offsets })
    }
}

fn expect_len(what: &str, got: usize, expected: usize) -> Result<()> {
    if got == expected {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{what} has {got} values, this codebook needs {expected}"
    )))
}

/// In dimension order with fused multiply-add.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).fold(0.0, |sum, (x, y)| x.mul_add(*y, sum))
}
