//! SPQ: self-supervised product quantization (Jang and Cho, ICCV 2021), which contrasts soft and hard quantization.
//!
//! The query is searched as its soft reconstruction q̄, so a bundle of this method has `query: soft`.

use anyhow::Result;
use tch::Tensor;

use crate::model::codebook::SoftCodebook;
use crate::train::Contrast;
use crate::train::loss::distance;

/// The weight of the distance between soft and hard quantization.
#[derive(Debug, Clone)]
pub struct Spq {
    /// w.
    pub weight: f64,
}

impl Spq {
    /// Loss = CE(q̄, k̄) + CE(q̄, k^) + w mean over the 2N vectors z of |z̄ - z^|, with z̄_i = Sum_j p_ij C_ij
    pub fn loss(
        &self,
        q: &Tensor,
        k: &Tensor,
        codebook: &SoftCodebook,
        contrast: &Contrast<'_>,
    ) -> Result<Tensor> {
        let (hard_q, hard_k) = (codebook.quantize(q), codebook.quantize(k));
        let (soft_q, soft_k) = (codebook.soft(&hard_q.logits), codebook.soft(&hard_k.logits));
        let both = contrast.cross_entropies(&soft_q, &[&soft_k, &hard_k.hat])?;
        let gap = distance(&soft_q, &hard_q.hat) + distance(&soft_k, &hard_k.hat);
        Ok(&both[0] + &both[1] + contrast.mean(&gap) * (self.weight / 2.0))
    }
}
