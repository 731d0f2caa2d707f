//! Which keys are the negatives of a query, on one device or many.
//!
//! Let device i have N queries Q^i and their keys K^i. F = Sum over all queries of -log softmax over all keys.
//!
//! - *In-batch*: device i's queries against K^i alone.
//! - *NCS*: device i's queries against the keys of all devices, those of the others being constants. The
//!   gradients of other devices' queries to K^i are missing.
//! - *DCS*: the *primary* loss is that of NCS; the *image* on device i of a query of device j is the same loss again,
//!   with everything but K^i constant. Each device differentiates its primary and its images, and the sum over
//!   devices is the gradient of F, as if one device had held the whole batch.
//!
//! A softmax over all keys is put together from log-sum-exps over blocks: lse = log Sum_m exp(lse_m). Device j
//! knows lse_m of its queries for every block m from its primary loss and shares them, so that the image on device i needs
//! only the block Q^j K^i: 2 D N² scores per device instead of D² N².

use anyhow::Result;
use tch::{Kind, Tensor};

use super::loss::{collisions, scores};
use crate::config::Sampling;
use crate::devices::Gather;

/// The contrast of one step on one device. Its losses are shares: summed over the devices they are the mean over the
/// whole batch, in value and in gradient.
#[derive(Debug)]
pub struct Contrast<'a> {
    sampling: Sampling,
    gather: &'a Gather,
    /// Rows per device.
    rows: i64,
    /// Collisions of this device's queries with the keys of each block; these keys are no candidates.
    own_masks: Vec<Option<Tensor>>,
    /// Collisions of each device's queries with this device's keys.
    image_masks: Vec<Option<Tensor>>,
}

impl<'a> Contrast<'a> {
    /// `keys`: the key ids of the whole batch, in device order, equally many per device; `None` masks nothing.
    pub fn new(sampling: Sampling, gather: &'a Gather, rows: i64, keys: Option<&Tensor>) -> Self {
        let (rank, devices) = (gather.rank(), gather.devices());
        let mut own_masks: Vec<Option<Tensor>> = (0..devices).map(|_| None).collect();
        let mut image_masks: Vec<Option<Tensor>> = (0..devices).map(|_| None).collect();
        if let Some(keys) = keys {
            let block = |device: usize| keys.narrow(0, device as i64 * rows, rows);
            own_masks[rank] = collisions(&block(rank), &block(rank), Some(0));
            for other in (0..devices).filter(|&other| other != rank) {
                if sampling != Sampling::InBatch {
                    own_masks[other] = collisions(&block(rank), &block(other), None);
                }
                if sampling == Sampling::Dcs {
                    image_masks[other] = collisions(&block(other), &block(rank), None);
                }
            }
        }
        Self {
            sampling,
            gather,
            rows,
            own_masks,
            image_masks,
        }
    }

    /// This device's share of CE(q, k) for each of `keys`, views of the same rows (un-quantized, quantized).
    pub fn cross_entropies(&self, q: &Tensor, keys: &[&Tensor]) -> Result<Vec<Tensor>> {
        let given: Vec<&Tensor> = std::iter::once(q).chain(keys.iter().copied()).collect();
        let gathered = match self.sampling {
            Sampling::InBatch => Vec::new(),
            Sampling::Ncs | Sampling::Dcs => self.gather.all(&given)?,
        };
        keys.iter()
            .enumerate()
            .map(|(view, k)| {
                let primary = self.primary(q, k, |device| &gathered[device][1 + view]);
                let loss = match self.sampling {
                    Sampling::InBatch | Sampling::Ncs => self.mean(&primary.loss()),
                    Sampling::Dcs => {
                        let images = self.images(k, &primary, |device| &gathered[device][0])?;
                        // The device of a query counts the value of its loss; the images add only gradients.
                        let images = self.mean(&images);
                        self.mean(&primary.loss()) + (&images - images.detach())
                    }
                };
                Ok(loss)
            })
            .collect()
    }

    /// This device's share of the mean over all devices' rows: x (rows, ..) -> ()
    pub fn mean(&self, x: &Tensor) -> Tensor {
        let all_rows = self.rows * self.gather.devices() as i64;
        x.sum(x.kind()) / all_rows as f64
    }

    /// Scores this device's queries against each block of keys that it may use; only its own keys get a gradient.
    fn primary<'b>(
        &self,
        q: &Tensor,
        k: &Tensor,
        keys_of: impl Fn(usize) -> &'b Tensor,
    ) -> Primary {
        let rank = self.gather.rank();
        let own = scores(q, k, self.own_masks[rank].as_ref());
        let positives = own.diagonal(0, 0, 1).copy();
        let blocks: Vec<Tensor> = match self.sampling {
            Sampling::InBatch => vec![own.logsumexp(-1, false)],
            Sampling::Ncs | Sampling::Dcs => (0..self.gather.devices())
                .map(|device| {
                    if device == rank {
                        own.logsumexp(-1, false)
                    } else {
                        scores(q, keys_of(device), self.own_masks[device].as_ref())
                            .logsumexp(-1, false)
                    }
                })
                .collect(),
        };
        Primary {
            positives,
            blocks: Tensor::stack(&blocks, 1),
        }
    }

    /// Returns the losses of the other devices' queries ((devices-1) * rows), in which only K^i has a gradient.
    fn images<'b>(
        &self,
        k: &Tensor,
        primary: &Primary,
        queries_of: impl Fn(usize) -> &'b Tensor,
    ) -> Result<Tensor> {
        let rank = self.gather.rank();
        let shared = self.gather.all(&[&primary.positives, &primary.blocks])?;
        let mut images = vec![k.narrow(0, 0, 0).sum_dim_intlist(-1, false, None::<Kind>)];
        for device in (0..self.gather.devices()).filter(|&device| device != rank) {
            let (positives, blocks) = (&shared[device][0], &shared[device][1]); // (rows), (rows, devices)
            let here = scores(queries_of(device), k, self.image_masks[device].as_ref())
                .logsumexp(-1, false);
            let elsewhere: Vec<Tensor> = (0..self.gather.devices())
                .filter(|&block| block != rank)
                .map(|block| blocks.select(1, block as i64))
                .collect();
            let elsewhere = Tensor::stack(&elsewhere, 1).logsumexp(-1, false);
            images.push(here.logaddexp(&elsewhere) - positives);
        }
        Ok(Tensor::cat(&images, 0))
    }
}

/// A device's own queries: the score of each positive, and the log-sum-exp over each block of keys.
#[derive(Debug)]
struct Primary {
    /// (rows)
    positives: Tensor,
    /// (rows, blocks)
    blocks: Tensor,
}

impl Primary {
    /// -log softmax of each row (rows).
    fn loss(&self) -> Tensor {
        self.blocks.logsumexp(-1, false) - &self.positives
    }
}
