//! MoPQ: matching-oriented product quantization (Xiao et al., EMNLP 2021).

use anyhow::Result;
use tch::Tensor;

use crate::config::ProbabilityTerm;
use crate::model::codebook::SoftCodebook;
use crate::train::Contrast;
use crate::train::loss::{log_probability, reconstruction, straight_through_probability};

/// Weights of the terms that are added to CE(q, k^).
#[derive(Debug, Clone)]
pub struct Mopq {
    /// The weight of CE(q, k).
    pub dense_weight: f64,
    /// gamma.
    pub probability_weight: f64,
    /// The form of gamma's term.
    pub probability_term: ProbabilityTerm,
    /// lambda.
    pub reconstruction_weight: f64,
}

impl Mopq {
    /// The multinoulli contrastive loss, with the terms that the reference program adds to it:
    ///
    /// Loss = CE(q, k^) + w CE(q, k) + gamma mean -Sum_i log p(C_ij* | k_i) + lambda mean |k - k^|²
    ///
    /// with k^ straight-through. MCL's first term, the probability of the chosen codewords, is the one with gamma. With
    /// the straight-through P' of the paper its value is 0, and the reference program omits it.
    pub fn loss(
        &self,
        q: &Tensor,
        k: &Tensor,
        codebook: &SoftCodebook,
        contrast: &Contrast<'_>,
    ) -> Result<Tensor> {
        let quantized = codebook.quantize(k);
        let k_hat = &quantized.hat;
        let mut loss = if self.dense_weight == 0.0 {
            contrast.cross_entropies(q, &[k_hat])?.remove(0)
        } else {
            let both = contrast.cross_entropies(q, &[k_hat, k])?;
            &both[0] + &both[1] * self.dense_weight
        };
        if self.probability_weight != 0.0 {
            let term = match self.probability_term {
                ProbabilityTerm::Log => log_probability(
                    &(&quantized.logits / codebook.temperature),
                    &quantized.codes,
                ),
                ProbabilityTerm::StraightThrough => straight_through_probability(
                    &codebook.probabilities(&quantized.logits),
                    &quantized.codes,
                ),
            };
            loss += contrast.mean(&term) * self.probability_weight;
        }
        if self.reconstruction_weight != 0.0 {
            loss += contrast.mean(&reconstruction(k, k_hat)) * self.reconstruction_weight;
        }
        Ok(loss)
    }
}
