//! DVSQ: deep visual-semantic quantization (Cao et al., CVPR 2017), which minimises the error of inner products.

use anyhow::Result;
use tch::Tensor;

use crate::model::codebook::SoftCodebook;
use crate::train::Contrast;
use crate::train::loss::product_error;

/// The weight of the error of inner products.
#[derive(Debug, Clone)]
pub struct Dvsq {
    /// w.
    pub weight: f64,
}

impl Dvsq {
    /// Loss = CE(q, k) + w mean_rc (<q_r, k_c> - <q_r, k^_c>)², over all queries r and keys c of a device
    pub fn loss(
        &self,
        q: &Tensor,
        k: &Tensor,
        codebook: &SoftCodebook,
        contrast: &Contrast<'_>,
    ) -> Result<Tensor> {
        let k_hat = codebook.quantize(k).hat;
        let dense = contrast.cross_entropies(q, &[k])?.remove(0);
        let error = product_error(q, k, &k_hat).mean_dim(-1, false, None::<tch::Kind>); // rows
        Ok(dense + contrast.mean(&error) * self.weight)
    }
}
