//! DQN: deep quantization network (Cao et al., AAAI 2016), with the contrast instead of its pairwise loss.

use anyhow::Result;
use tch::Tensor;

use crate::model::codebook::SoftCodebook;
use crate::train::Contrast;
use crate::train::loss::reconstruction;

/// The weight of the reconstruction error.
#[derive(Debug, Clone)]
pub struct Dqn {
    /// w.
    pub weight: f64,
}

impl Dqn {
    /// Loss = CE(q, k) + w mean |k - k^|²
    pub fn loss(
        &self,
        q: &Tensor,
        k: &Tensor,
        codebook: &SoftCodebook,
        contrast: &Contrast<'_>,
    ) -> Result<Tensor> {
        let k_hat = codebook.quantize(k).hat;
        let dense = contrast.cross_entropies(q, &[k])?.remove(0);
        Ok(dense + contrast.mean(&reconstruction(k, &k_hat)) * self.weight)
    }
}
