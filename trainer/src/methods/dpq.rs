//! DPQ: differentiable product quantization (Chen et al., ICML 2020). Like DQN, but a codeword C_ij is chosen by a
//! separate key K_ij, which [`crate::model::codebook::Selection::Keys`] holds.

use anyhow::Result;
use tch::Tensor;

use super::dqn::Dqn;
use crate::model::codebook::SoftCodebook;
use crate::train::Contrast;

/// The weight of the reconstruction error.
#[derive(Debug, Clone)]
pub struct Dpq {
    /// w.
    pub weight: f64,
}

impl Dpq {
    /// Loss = CE(q, k) + w mean |k - k^|², code_i = argmax_j <k_i, K_ij>
    pub fn loss(
        &self,
        q: &Tensor,
        k: &Tensor,
        codebook: &SoftCodebook,
        contrast: &Contrast<'_>,
    ) -> Result<Tensor> {
        Dqn {
            weight: self.weight,
        }
        .loss(q, k, codebook, contrast)
    }
}
