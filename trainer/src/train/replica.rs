//! One device's copy of the model. It computes the gradient of its slice of the batch, the gradients of all devices are
//! summed, and each device takes the same step.

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use super::adam::{AdamConfig, Moments};
use super::sampling::Contrast;
use crate::config::Sampling;
use crate::devices::Gather;
use crate::methods::Objective;
use crate::methods::distill::{Batch, Distill};
use crate::model::{Group, Input, Model};

/// One device's slice of a batch.
#[derive(Debug)]
pub struct Slice {
    /// The queries.
    pub queries: Input,
    /// The key of each query.
    pub keys: Input,
    /// The number of pairs.
    pub rows: i64,
    /// Key ids of the whole batch in device order (devices * rows); `None`: collisions count as negatives.
    pub key_ids: Option<Tensor>,
}

/// Learning rates of one step.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    /// The rate of [`Group::Encoder`].
    pub encoder: f64,
    /// The rate of [`Group::Quantizer`].
    pub quantizer: f64,
}

/// The model and the moments of one device.
#[derive(Debug)]
pub struct Replica {
    /// The model that is trained.
    pub model: Model,
    /// The moments of each parameter, in the model's order.
    pub moments: Vec<Moments>,
    /// Adam's constants.
    pub adam: AdamConfig,
    /// The loss that is minimised.
    pub objective: Objective,
    /// Whose keys are the negatives.
    pub sampling: Sampling,
}

impl Replica {
    /// Returns a replica that has taken no step.
    pub fn new(model: Model, adam: AdamConfig, objective: Objective, sampling: Sampling) -> Self {
        let moments = model
            .parameters()
            .iter()
            .map(|p| Moments::zero(&p.tensor))
            .collect();
        Self {
            model,
            moments,
            adam,
            objective,
            sampling,
        }
    }

    /// Returns the gradient of the loss of the whole batch, which is the same on every device, and this device's share of
    /// the loss.
    pub fn gradients(&self, gather: &Gather, slice: &Slice) -> Result<(Vec<Tensor>, f64)> {
        let rows = slice.rows;
        let embedded = self.model.embed(&[&slice.queries, &slice.keys]);
        let (q, k) = (embedded.narrow(0, 0, rows), embedded.narrow(0, rows, rows));
        let contrast = Contrast::new(self.sampling, gather, rows, slice.key_ids.as_ref());
        let loss = self
            .objective
            .loss(&q, &k, self.model.codebook.as_ref(), &contrast)?;
        let value = loss.detach().to_kind(Kind::Double).double_value(&[]);
        check_finite(value)?;
        let parameters = self.model.parameters();
        let tensors: Vec<&Tensor> = parameters.iter().map(|p| &p.tensor).collect();
        let own: Vec<Tensor> = Tensor::f_run_backward(&[&loss], &tensors, false, false)?
            .into_iter()
            .zip(&tensors)
            // Parameters that this step's loss does not depend on have an undefined gradient.
            .map(|(gradient, of)| {
                if gradient.defined() {
                    gradient
                } else {
                    of.zeros_like()
                }
            })
            .collect();
        if gather.devices() == 1 {
            return Ok((own, value));
        }
        // Summed in device order on every device, so that replicas stay bit-identical.
        let all = gather.all(&own.iter().collect::<Vec<_>>())?;
        let summed = (0..own.len())
            .map(|p| {
                let mut sum = all[0][p].copy();
                for device in &all[1..] {
                    let _ = sum.g_add_(&device[p]);
                }
                sum
            })
            .collect();
        Ok((summed, value))
    }

    /// Takes one step. Returns this device's share of the loss.
    pub fn step(&mut self, gather: &Gather, slice: &Slice, rates: Rates) -> Result<f64> {
        let (gradients, value) = self.gradients(gather, slice)?;
        self.descend(&gradients, rates);
        Ok(value)
    }

    /// Takes one step of `distill`, which runs on one device. Returns its loss.
    pub fn distill(
        &mut self,
        distill: &Distill,
        batch: &Batch,
        learns_bias: bool,
        rates: Rates,
    ) -> Result<f64> {
        let (mut gradients, value) =
            distill.gradients(batch, &self.model.head, self.model.codebook.as_ref());
        check_finite(value)?;
        if !learns_bias {
            let _ = gradients[1].zero_(); // W, b, C
        }
        self.descend(&gradients, rates);
        Ok(value)
    }

    fn descend(&mut self, gradients: &[Tensor], rates: Rates) {
        for ((mut parameter, moments), gradient) in self
            .model
            .parameters()
            .into_iter()
            .zip(&mut self.moments)
            .zip(gradients)
        {
            let rate = match parameter.group {
                Group::Encoder => rates.encoder,
                Group::Quantizer => rates.quantizer,
            };
            self.adam
                .step(&mut parameter.tensor, moments, gradient, rate);
        }
    }
}

fn check_finite(loss: f64) -> Result<()> {
    ensure!(
        loss.is_finite(),
        "the loss is {loss}: the run has diverged; a smaller --lr or a longer --warmup helps"
    );
    Ok(())
}
