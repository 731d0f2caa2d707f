//! The training loop: warm-up by CE(q, k), initialisation of the codewords, then epochs of the method's objective. After
//! each epoch it measures recall over all keys, and writes the checkpoint and a line of the log.

mod adam;
mod clock;
mod distill;
mod lessons;
pub(crate) mod loss;
mod replica;
mod sampling;
mod served;
mod start;
mod worker;

pub use adam::{AdamConfig, Moments};
pub use clock::cpu_seconds;
pub use lessons::{Lessons, Outcome, Texts, Trained, Unwatched, Watch};
pub use replica::{Rates, Replica, Slice};
pub use sampling::Contrast;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use tch::Device;

use crate::config::{Method, Sampling, Schedule, TrainConfig};
use crate::devices::{self, Fleet, Seat};
use crate::methods::Objective;
use crate::model::Model;
use crate::model::bert::Bert;
use crate::program::checkpoint::{Checkpoint, Named};
use crate::program::{EpochRecord, Run};
use crate::random::Random;
use distill::Course;
use served::Learned;
use worker::{Job, Load, Material, State, Step, Worker, ask};

/// One training run.
pub struct Trainer<'a> {
    config: &'a TrainConfig,
    lessons: &'a Lessons<'a>,
    run: &'a Run,
    stop: &'a AtomicBool,
    fleet: Fleet<Job, ()>,
    /// Pairs (or queries of `distill`) per device and step: the configured batch, or fewer if there are not enough.
    rows: usize,
    /// The queries from which `distill` draws its batches.
    course: Option<Arc<Course>>,
    /// For each row of the corpus, the first row with the same text: rows with equal texts are no negatives of each other.
    twins: Vec<u32>,
    /// The vectors that the most recent encoder gave for the texts.
    learned: Option<Arc<Learned>>,
}

/// Checks that there are enough rows and pairs, before any time is spent; `distill` needs no pairs. Returns the devices.
pub fn check_sizes(config: &TrainConfig, pairs: usize, rows: usize) -> Result<Vec<devices::Named>> {
    config.check()?;
    let devices = devices::parse(&config.devices)?;
    ensure!(
        pairs >= 2 * devices.len() || !config.learns_from_pairs(),
        "{pairs} pairs are too few: a device needs 2 at least, and there are {} devices",
        devices.len()
    );
    ensure!(
        rows >= config.codewords,
        "{} codewords are more than the {rows} rows to be quantized; choose --codewords {} or fewer, or insert more rows",
        config.codewords,
        rows.min(256)
    );
    Ok(devices)
}

impl<'a> Trainer<'a> {
    /// Checks that configuration and data fit, and starts the devices. `stop` is checked between steps.
    pub fn new(
        config: &'a TrainConfig,
        lessons: &'a Lessons<'a>,
        run: &'a Run,
        stop: &'a AtomicBool,
    ) -> Result<Self> {
        let pairs = lessons.pairs.len();
        let devices = check_sizes(config, pairs, lessons.corpus.rows())?;
        ensure!(
            config.joint.is_some() == lessons.texts.is_some(),
            "an encoder that learns needs texts"
        );
        let course = match config.method {
            Method::Distill => Some(Arc::new(Course::new(config, lessons))),
            _ => None,
        };
        let queries = course
            .as_ref()
            .map_or(pairs, |course| course.queries(lessons));
        let material = match lessons.texts {
            None => Material::Vectors {
                hidden: lessons.corpus.hidden,
                queries: Arc::new(lessons.queries.to_vec()),
                keys: Arc::clone(&lessons.corpus.vectors),
            },
            Some(texts) => Material::Texts {
                queries: Arc::clone(&texts.queries),
                keys: Arc::clone(&texts.keys),
            },
        };
        let shared = Arc::new(material);
        let bert = lessons.texts.map(|texts| texts.shape.clone());
        let settings = config.clone();
        let timeout = Duration::from_secs_f64(config.device_timeout);
        let fleet = Fleet::start(&devices, timeout, move |seat: Seat| {
            tch::set_num_threads(settings.threads as i32);
            let material = Arc::clone(&shared);
            let mut worker = Worker {
                config: settings.clone(),
                seat,
                material,
                bert: bert.clone(),
                replica: None,
                reader: None,
            };
            Ok(move |job: Job| job(&mut worker))
        })?;
        Ok(Self {
            config,
            lessons,
            run,
            stop,
            rows: config.batch.min(queries / devices.len()),
            course,
            fleet,
            twins: lessons.corpus.twins(),
            learned: None,
        })
    }

    /// Runs to the end, from the last checkpoint if there is one.
    pub fn run(mut self, watch: &mut dyn Watch) -> Result<Outcome> {
        tch::set_num_threads(self.config.threads as i32);
        let began = cpu_seconds();
        let objective = Objective::of(self.config);
        let total = self.config.warmup + self.config.epochs;
        let mut checkpoint = match self.run.resume()? {
            Some(checkpoint) => {
                watch.note(&format!(
                    "resumed after epoch {}",
                    checkpoint.progress.epochs
                ));
                checkpoint
            }
            None => {
                self.run.begin()?;
                fresh(&self.start()?)
            }
        };
        let spent_before = checkpoint.progress.cpu_seconds;
        let mut loaded = false;
        while checkpoint.progress.epochs < total && !self.patience_is_over(&checkpoint) {
            let epoch = checkpoint.progress.epochs;
            let joint = epoch >= self.config.warmup && objective.is_some();
            if joint && !checkpoint.values.iter().any(|(name, _)| name == "codebook") {
                watch.note("starting the codewords");
                let model = self.restore(&checkpoint.values, &checkpoint.constants)?;
                let seen = self.seen(&checkpoint.values)?;
                let (head, codebook) = start::codebook(&model.head, seen.vectors(), self.config)?;
                let model = Model {
                    encoder: model.encoder,
                    head,
                    codebook: Some(codebook),
                };
                checkpoint = Checkpoint {
                    progress: checkpoint.progress,
                    ..fresh(&model)
                };
                checkpoint.progress.steps = 0;
                loaded = false;
            }
            let phase = match (&objective, joint) {
                (Some(objective), true) => objective.clone(),
                _ => Objective::warmup(self.config),
            };
            if !loaded {
                let sampling = match (&objective, joint) {
                    (Some(_), false) => self.config.warmup_sampling(),
                    _ => self.config.sampling,
                };
                self.load(&checkpoint, &phase, sampling)?;
                loaded = true;
            }
            let name = if joint {
                self.config.method.name()
            } else {
                "warmup"
            };
            let begin = Instant::now();
            let Some(loss) = self.epoch(epoch, name, joint || objective.is_none(), watch)? else {
                return Ok(Outcome::Stopped { epochs: epoch });
            };
            let trained_for = begin.elapsed().as_secs_f64();
            let state = self.state()?;
            checkpoint.values = state.values;
            checkpoint.means = state.means;
            checkpoint.squares = state.squares;
            checkpoint.progress.steps = state.steps;
            checkpoint.progress.epochs = epoch + 1;
            let (recall, used) = if joint || objective.is_none() {
                self.validate(&checkpoint)?
            } else {
                (None, None)
            };
            if self.config.method != Method::Distill {
                remember_best(&mut checkpoint, recall);
            }
            checkpoint.progress.cpu_seconds = spent_before + cpu_seconds() - began;
            let record = EpochRecord {
                epoch: epoch + 1,
                phase: name.to_owned(),
                loss,
                recall,
                used,
                pairs_per_second: self.pairs_an_epoch() as f64 / trained_for,
                seconds: begin.elapsed().as_secs_f64(),
                cpu_seconds: checkpoint.progress.cpu_seconds,
            };
            self.run.record(&checkpoint, &record)?;
            watch.record(&record);
        }
        watch.note("quantizing and evaluating");
        let trained = self.finish(&checkpoint)?;
        Ok(Outcome::Trained(Box::new(trained)))
    }

    /// Returns the initial model: the encoder as given, a head from its vectors, no codewords yet.
    fn start(&mut self) -> Result<Model> {
        let encoder = match self.lessons.texts {
            Some(texts) => Some(Bert::new(&texts.shape, &texts.weights)?),
            None => None,
        };
        // An encoder cut to its first layers gives other vectors than the complete one. The head starts from these.
        let values = encoder.iter().flat_map(Bert::parameters);
        let values: Named = values.map(|p| (p.name, p.tensor.detach())).collect();
        let head = start::head(self.seen(&values)?.vectors(), self.config)?;
        Ok(Model {
            encoder,
            head,
            codebook: None,
        })
    }

    fn patience_is_over(&self, checkpoint: &Checkpoint) -> bool {
        self.config.patience > 0 && checkpoint.progress.since_best >= self.config.patience
    }

    fn steps_an_epoch(&self) -> usize {
        let queries = match &self.course {
            Some(course) => course.queries(self.lessons),
            None => self.lessons.pairs.len(),
        };
        queries / (self.rows * self.fleet.devices())
    }

    fn pairs_an_epoch(&self) -> usize {
        self.steps_an_epoch() * self.rows * self.fleet.devices()
    }

    /// Makes one pass over the pairs in a random order. Returns the mean loss, or `None` if the run was stopped. The last
    /// pairs, too few for a step, are left out of this epoch.
    fn epoch(
        &mut self,
        epoch: usize,
        phase: &str,
        own: bool,
        watch: &mut dyn Watch,
    ) -> Result<Option<f64>> {
        let (rows, devices, steps) = (self.rows, self.fleet.devices(), self.steps_an_epoch());
        let order =
            Random::new(self.config.seed, "shuffle", epoch as u64).order(self.lessons.pairs.len());
        let course = self.course.clone();
        let asked = course.as_ref().map_or(Vec::new(), |course| {
            course.asked(self.config, self.lessons, epoch)
        });
        watch.epoch(
            epoch + 1,
            self.config.warmup + self.config.epochs,
            phase,
            steps,
        );
        let mut total = 0.0;
        for step in 0..steps {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let rates = self.rates(epoch, step, steps, own);
            if let Some(course) = &course {
                let loss = self.teach(course, &asked[step * rows..][..rows], rates)?;
                total += loss;
                watch.step(loss, rows);
                continue;
            }
            let batch = &order[step * rows * devices..][..rows * devices];
            let of = |index: &u32| self.lessons.pairs[*index as usize];
            let key_ids: Option<Vec<i64>> = self.config.mask_collisions.then(|| {
                batch
                    .iter()
                    .map(|i| i64::from(self.twins[of(i).1 as usize]))
                    .collect()
            });
            let jobs = batch
                .chunks(rows)
                .map(|slice| {
                    let step = Step {
                        queries: slice.iter().map(|i| i64::from(of(i).0)).collect(),
                        keys: slice.iter().map(|i| i64::from(of(i).1)).collect(),
                        key_ids: key_ids.clone(),
                        rates,
                    };
                    move |worker: &mut Worker| worker.step(step)
                })
                .collect();
            let loss: f64 = ask(&mut self.fleet, jobs)?.into_iter().sum();
            total += loss;
            watch.step(loss, rows * devices);
        }
        Ok(Some(total / steps as f64))
    }

    fn rates(&self, epoch: usize, step: usize, steps: usize, own: bool) -> Rates {
        let config = self.config;
        let (first, epochs) = match (own, Objective::of(config).is_some()) {
            (false, _) => (0, config.warmup),
            (true, true) => (config.warmup, config.epochs),
            (true, false) => (0, config.warmup + config.epochs),
        };
        let done = ((epoch - first) * steps + step) as f64 / (epochs * steps) as f64;
        let factor = match config.schedule {
            Schedule::Constant => 1.0,
            Schedule::Linear => 1.0 - 0.95 * done,
            Schedule::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * done).cos()),
        };
        Rates {
            encoder: factor
                * config
                    .joint
                    .as_ref()
                    .map_or(0.0, |joint| joint.learning_rate),
            quantizer: factor * config.learning_rate,
        }
    }

    fn load(
        &mut self,
        checkpoint: &Checkpoint,
        objective: &Objective,
        sampling: Sampling,
    ) -> Result<()> {
        let jobs = (0..self.fleet.devices())
            .map(|_| {
                let load = Load {
                    values: copies(&checkpoint.values),
                    constants: copies(&checkpoint.constants),
                    means: copies(&checkpoint.means),
                    squares: copies(&checkpoint.squares),
                    steps: checkpoint.progress.steps,
                    objective: objective.clone(),
                    sampling,
                };
                move |worker: &mut Worker| worker.load(load)
            })
            .collect();
        ask(&mut self.fleet, jobs).map(|_| ())
    }

    /// Returns the state of the first device. The states of all CPU devices must be equal, bit for bit.
    fn state(&mut self) -> Result<State> {
        let job = |_| |worker: &mut Worker| Ok(worker.state());
        let jobs = (0..self.fleet.devices()).map(job).collect();
        let mut states: Vec<State> = ask(&mut self.fleet, jobs)?;
        let names = devices::parse(&self.config.devices)?;
        let mut processors = (states.iter().zip(&names)).filter(|(_, of)| of.device == Device::Cpu);
        if let Some((first, of_first)) = processors.next()
            && let Some((_, other)) =
                processors.find(|(state, _)| state.fingerprint != first.fingerprint)
        {
            bail!(
                "device {} has drifted from {}: replicas must stay equal",
                other.name,
                of_first.name
            );
        }
        Ok(states.swap_remove(0))
    }

    fn restore(&self, values: &Named, constants: &Named) -> Result<Model> {
        let bert = self.lessons.texts.map(|texts| &texts.shape);
        Model::restore(values, constants, self.config, bert, Device::Cpu)
    }
}

/// Copies tensors for another thread, which may change them.
fn copies(named: &Named) -> Named {
    let copied = named.iter().map(|(name, t)| (name.clone(), t.copy()));
    copied.collect()
}

/// Returns the checkpoint of a model that has taken no step.
fn fresh(model: &Model) -> Checkpoint {
    let zeros = |named: &Named| {
        named
            .iter()
            .map(|(name, t)| (name.clone(), t.zeros_like()))
            .collect::<Named>()
    };
    let values = model.values();
    Checkpoint {
        means: zeros(&values),
        squares: zeros(&values),
        values,
        constants: model.constants(),
        ..Checkpoint::default()
    }
}

fn remember_best(checkpoint: &mut Checkpoint, recall: Option<f64>) {
    let Some(recall) = recall else { return };
    let progress = &mut checkpoint.progress;
    if progress.best.is_none_or(|(best, _)| recall > best) {
        progress.best = Some((recall, progress.epochs));
        progress.since_best = 0;
        checkpoint.best = copies(&checkpoint.values);
    } else {
        progress.since_best += 1;
    }
}

#[cfg(test)]
mod tests;
