//! The objectives, one file each, with the equation above the function.
//!
//! CE(A, B) is the contrast of [`crate::train::Contrast`]. "mean" is over the whole batch of all devices, of which each
//! device computes its share. In the papers only MoPQ has cross-device negatives; here any method may have them.

pub mod distill;
pub mod dpq;
pub mod dqn;
pub mod dvsq;
pub mod mopq;
pub mod spq;

use anyhow::Result;
use tch::Tensor;

use crate::config::{Method, TrainConfig};
use crate::model::codebook::SoftCodebook;
use crate::train::Contrast;

/// What a step minimises.
#[derive(Debug, Clone)]
pub enum Objective {
    /// CE(q, k): the warm-up of all methods, and the whole training of PQ and OPQ.
    Dense,
    /// [`mopq`]
    Mopq(mopq::Mopq),
    /// [`dqn`]
    Dqn(dqn::Dqn),
    /// [`dvsq`]
    Dvsq(dvsq::Dvsq),
    /// [`spq`]
    Spq(spq::Spq),
    /// [`dpq`]
    Dpq(dpq::Dpq),
    /// [`distill`]
    Distill(distill::Distill),
}

impl Objective {
    /// Returns the method's own objective; `None` for methods that learn only a head.
    pub fn of(config: &TrainConfig) -> Option<Self> {
        let weight = config.weight();
        Some(match config.method {
            Method::Pq | Method::Opq => return None,
            Method::Mopq => Self::Mopq(mopq::Mopq {
                dense_weight: config.dense_weight,
                probability_weight: config.probability_weight,
                probability_term: config.probability_term,
                reconstruction_weight: weight,
            }),
            Method::Dqn => Self::Dqn(dqn::Dqn { weight }),
            Method::Dvsq => Self::Dvsq(dvsq::Dvsq { weight }),
            Method::Spq => Self::Spq(spq::Spq { weight }),
            Method::Dpq => Self::Dpq(dpq::Dpq { weight }),
            Method::Distill => Self::distill(config),
        })
    }

    /// Returns the objective of the head's warm-up.
    pub fn warmup(config: &TrainConfig) -> Self {
        match config.method {
            Method::Distill => Self::distill(config),
            _ => Self::Dense,
        }
    }

    fn distill(config: &TrainConfig) -> Self {
        let distill = config.distill();
        Self::Distill(distill::Distill {
            dense_weight: config.dense_weight,
            teacher_temperature: distill.teacher_temperature,
            label_share: distill.label_share,
        })
    }

    /// Returns this device's share of the loss of queries q (rows, dim) and their keys k (rows, dim).
    pub fn loss(
        &self,
        q: &Tensor,
        k: &Tensor,
        codebook: Option<&SoftCodebook>,
        contrast: &Contrast<'_>,
    ) -> Result<Tensor> {
        let codebook = || codebook.expect("codewords start before their objective does");
        match self {
            Self::Dense => Ok(contrast.cross_entropies(q, &[k])?.remove(0)),
            Self::Mopq(mopq) => mopq.loss(q, k, codebook(), contrast),
            Self::Dqn(dqn) => dqn.loss(q, k, codebook(), contrast),
            Self::Dvsq(dvsq) => dvsq.loss(q, k, codebook(), contrast),
            Self::Spq(spq) => spq.loss(q, k, codebook(), contrast),
            Self::Dpq(dpq) => dpq.loss(q, k, codebook(), contrast),
            Self::Distill(_) => unreachable!("its steps have a pool of keys, not pairs"),
        }
    }
}

#[cfg(test)]
mod tests;
