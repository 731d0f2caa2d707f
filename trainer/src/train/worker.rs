//! The thread of a device: its replica, its slices of batches, and its jobs.

use std::sync::Arc;
use std::sync::mpsc::channel;

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use super::adam::{AdamConfig, Moments};
use super::replica::{Rates, Replica, Slice};
use crate::config::{Sampling, TrainConfig};
use crate::devices::{Fleet, Seat};
use crate::export;
use crate::methods::Objective;
use crate::methods::distill::{Batch, Recipe};
use crate::model::bert::{Bert, BertShape, Tokens};
use crate::model::{Input, Model};
use crate::program::checkpoint::Named;

/// A job of one device.
pub(super) type Job = Box<dyn FnOnce(&mut Worker) -> Result<()> + Send>;

/// Gives each device a job and waits for all results, which are in device order.
pub(super) fn ask<T: Send + 'static>(
    fleet: &mut Fleet<Job, ()>,
    jobs: Vec<impl FnOnce(&mut Worker) -> Result<T> + Send + 'static>,
) -> Result<Vec<T>> {
    let (answer, answers) = channel();
    let jobs = jobs.into_iter().enumerate().map(|(rank, work)| -> Job {
        let answer = answer.clone();
        Box::new(move |worker| {
            // The receiver is gone if another device has failed.
            let _ = answer.send((rank, work(worker)?));
            Ok(())
        })
    });
    fleet.run(jobs.collect())?;
    drop(answer);
    let mut answers: Vec<(usize, T)> = answers.into_iter().collect();
    answers.sort_by_key(|(rank, _)| *rank);
    Ok(answers.into_iter().map(|(_, answer)| answer).collect())
}

pub(super) struct Load {
    pub(super) values: Named,
    pub(super) constants: Named,
    pub(super) means: Named,
    pub(super) squares: Named,
    pub(super) steps: i64,
    pub(super) objective: Objective,
    pub(super) sampling: Sampling,
}

/// A step of a method that learns from pairs.
pub(super) struct Step {
    pub(super) queries: Vec<i64>,
    pub(super) keys: Vec<i64>,
    pub(super) key_ids: Option<Vec<i64>>,
    pub(super) rates: Rates,
}

/// A step of `distill`: made queries first, then real ones.
pub(super) struct Lecture {
    pub(super) made: Vec<Recipe>,
    pub(super) queries: Vec<i64>,
    /// Distinct rows.
    pub(super) pool: Vec<i64>,
    /// (place in the batch, place in the pool)
    pub(super) labels: Vec<(i64, i64)>,
    /// The length of queries, which is the mean length of keys.
    pub(super) length: f64,
    pub(super) learns_bias: bool,
    pub(super) rates: Rates,
}

/// The state of a replica.
pub(super) struct State {
    pub(super) values: Named,
    pub(super) means: Named,
    pub(super) squares: Named,
    pub(super) steps: i64,
    pub(super) fingerprint: u64,
}

/// The data from which a device takes its slices.
pub(super) enum Material {
    /// (queries, hidden) and (rows, hidden), which all devices share.
    Vectors {
        hidden: usize,
        queries: Arc<Vec<f32>>,
        keys: Arc<Vec<f32>>,
    },
    Texts {
        queries: Arc<Vec<Vec<u32>>>,
        keys: Arc<Vec<Vec<u32>>>,
    },
}

impl Material {
    /// Returns the queries and keys of some pairs.
    fn pick(&self, queries: &[i64], keys: &[i64], device: Device) -> (Input, Input) {
        let texts = |from: &[Vec<u32>], rows: &[i64]| {
            let ids: Vec<&[u32]> = rows
                .iter()
                .map(|&row| from[row as usize].as_slice())
                .collect();
            Input::Tokens(Tokens::pad(&ids, device))
        };
        match self {
            Self::Vectors {
                hidden,
                queries: q,
                keys: k,
            } => {
                let of = |from: &[f32], rows: &[i64]| {
                    Input::Vectors(gathered(from, *hidden, rows).to_device(device))
                };
                (of(q, queries), of(k, keys))
            }
            Self::Texts {
                queries: q,
                keys: k,
            } => (texts(q, queries), texts(k, keys)),
        }
    }
}

/// Copies some rows of `values` (_, hidden) into a tensor.
fn gathered(values: &[f32], hidden: usize, rows: &[i64]) -> Tensor {
    let mut some = Vec::with_capacity(rows.len() * hidden);
    for &row in rows {
        some.extend_from_slice(&values[row as usize * hidden..][..hidden]);
    }
    Tensor::from_slice(&some).view([-1, hidden as i64])
}

/// What a device's thread works with.
pub(super) struct Worker {
    pub(super) config: TrainConfig,
    pub(super) bert: Option<BertShape>,
    pub(super) seat: Seat,
    pub(super) material: Arc<Material>,
    pub(super) replica: Option<Replica>,
    pub(super) reader: Option<Bert>,
}

impl Worker {
    /// Loads a model with its moments.
    pub(super) fn load(&mut self, load: Load) -> Result<()> {
        self.replica = Some(self.restore(load)?);
        Ok(())
    }

    /// Takes one step. Returns this device's share of the loss.
    pub(super) fn step(&mut self, step: Step) -> Result<f64> {
        self.reader = None;
        let device = self.seat.device;
        let (queries, keys) = self.material.pick(&step.queries, &step.keys, device);
        let slice = Slice {
            queries,
            keys,
            rows: step.keys.len() as i64,
            key_ids: step
                .key_ids
                .map(|ids| Tensor::from_slice(&ids).to_device(device)),
        };
        let replica = self.replica.as_mut().expect("loaded before the first step");
        replica.step(&self.seat.gather, &slice, step.rates)
    }

    /// Takes a step of `distill`. Returns its loss.
    pub(super) fn lecture(&mut self, lecture: Lecture) -> Result<f64> {
        let Material::Vectors {
            hidden,
            queries,
            keys,
        } = &*self.material
        else {
            unreachable!("distill learns from stored vectors")
        };
        let replica = self.replica.as_mut().expect("loaded before the first step");
        let Objective::Distill(distill) = replica.objective.clone() else {
            unreachable!("a lecture is of distill")
        };
        let (hidden, length) = (*hidden, lecture.length as f32);
        let asked = lecture.made.len() + lecture.queries.len();
        let mut vectors = Vec::with_capacity(asked * hidden);
        for recipe in &lecture.made {
            recipe.make(keys, hidden, length, &mut vectors);
        }
        for &query in &lecture.queries {
            let query = &queries[query as usize * hidden..][..hidden];
            let norm = query.iter().map(|x| x * x).sum::<f32>().sqrt();
            let factor = if norm > 0.0 { length / norm } else { 0.0 };
            vectors.extend(query.iter().map(|x| factor * x));
        }
        let device = self.seat.device;
        let queries = Tensor::from_slice(&vectors)
            .view([-1, hidden as i64])
            .to_device(device);
        let keys = gathered(keys, hidden, &lecture.pool).to_device(device);
        let batch = Batch {
            target: distill.target(&queries, &keys, lecture.length, &lecture.labels),
            queries,
            keys,
        };
        replica.distill(&distill, &batch, lecture.learns_bias, lecture.rates)
    }

    /// Returns the state of the replica.
    pub(super) fn state(&self) -> State {
        let replica = self.replica.as_ref();
        state_of(replica.expect("loaded before its state is asked for"))
    }

    /// Loads an encoder, with which texts are encoded until the next step.
    pub(super) fn take_reader(&mut self, values: &Named) -> Result<()> {
        let shape = self.bert.as_ref().expect("only an encoder that learns");
        self.reader = Some(Bert::restore(shape, values, self.seat.device)?);
        Ok(())
    }

    /// Returns the vectors of texts (texts, hidden), which are given as token ids.
    pub(super) fn read(&self, texts: &[Vec<u32>]) -> Vec<f32> {
        let reader = self.reader.as_ref().expect("given before the first text");
        reader.read(texts, self.seat.device)
    }

    fn restore(&self, load: Load) -> Result<Replica> {
        let device = self.seat.device;
        let model = Model::restore(
            &load.values,
            &load.constants,
            &self.config,
            self.bert.as_ref(),
            device,
        )?;
        let adam = AdamConfig {
            beta1: self.config.beta1,
            beta2: self.config.beta2,
            epsilon: self.config.epsilon,
        };
        let mut replica = Replica::new(model, adam, load.objective, load.sampling);
        let find = |from: &Named, name: &str| {
            let found = from.iter().find(|(other, _)| other == name);
            found.map(|(_, tensor)| tensor.to_device(device).copy())
        };
        for (parameter, moments) in replica.model.parameters().iter().zip(&mut replica.moments) {
            if let (Some(mean), Some(square)) = (
                find(&load.means, &parameter.name),
                find(&load.squares, &parameter.name),
            ) {
                *moments = Moments {
                    mean,
                    square,
                    steps: load.steps,
                };
            }
        }
        Ok(replica)
    }
}

fn state_of(replica: &Replica) -> State {
    let cpu = |tensor: &Tensor| tensor.detach().to_device(Device::Cpu).copy();
    let parameters = replica.model.parameters();
    let named = |of: &dyn Fn(usize) -> Tensor| -> Named {
        parameters
            .iter()
            .enumerate()
            .map(|(i, p)| (p.name.clone(), of(i)))
            .collect()
    };
    let values = named(&|i| cpu(&parameters[i].tensor));
    State {
        fingerprint: fingerprint(&values),
        values,
        means: named(&|i| cpu(&replica.moments[i].mean)),
        squares: named(&|i| cpu(&replica.moments[i].square)),
        steps: replica.moments.first().map_or(0, |m| m.steps),
    }
}

/// FNV-1a over the bits of every value.
pub(super) fn fingerprint(values: &Named) -> u64 {
    values
        .iter()
        .flat_map(|(_, tensor)| export::floats(&tensor.to_kind(Kind::Float)))
        .fold(0xcbf2_9ce4_8422_2325, |hash, value| {
            (hash ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3)
        })
}
