//! The loop: warm-up by CE(q, k), start of the codewords, epochs of the method's own objective; after each, the recall
//! over all keys, the checkpoint, the line in the log.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use mopqdb::quantizer::Quantizer;
use mopqdb::scan::Scanner;
use serde_json::json;
use tch::{Device, Kind, Tensor};

use crate::adam::{AdamConfig, Moments};
use crate::checkpoint::{Checkpoint, Named};
use crate::clock::cpu_seconds;
use crate::config::{Method, Schedule, TrainConfig};
use crate::corpus::Corpus;
use crate::devices::{self, Fleet, Seat};
use crate::evaluate::{CodeReport, Encoded, Places, Questions, dense_places, usage};
use crate::export;
use crate::methods::Objective;
use crate::model::bert::{Bert, BertShape, Tokens, write_weights};
use crate::model::{Input, Model};
use crate::random::Random;
use crate::replica::{Rates, Replica, Slice};
use crate::run::{EpochRecord, Run};
use crate::start;

/// What a run learns from.
#[derive(Debug)]
pub struct Lessons<'a> {
    /// All keys.
    pub corpus: &'a Corpus,
    /// The training queries' vectors (queries, hidden).
    pub queries: &'a [f32],
    /// (query, row of the corpus).
    pub pairs: &'a [(u32, u32)],
    /// What decides which epoch is best; none: the last one is.
    pub validation: &'a Questions,
    /// Where the encoder learns too; all vectors above are then of the encoder that it starts from.
    pub texts: Option<&'a Texts>,
}

/// What an encoder that learns reads.
#[derive(Debug)]
pub struct Texts {
    /// How the encoder is built.
    pub shape: BertShape,
    /// What it starts from.
    pub weights: Vec<(String, Tensor)>,
    /// Token ids of the training queries.
    pub queries: Arc<Vec<Vec<u32>>>,
    /// Of all keys.
    pub keys: Arc<Vec<Vec<u32>>>,
    /// Of the validation queries.
    pub validation: Vec<Vec<u32>>,
}

/// Who watches a run.
pub trait Watch {
    /// An epoch begins.
    fn epoch(&mut self, _epoch: usize, _of: usize, _phase: &str, _steps: usize) {}
    /// A step is done.
    fn step(&mut self, _loss: f64, _pairs: usize) {}
    /// Something else goes on.
    fn note(&mut self, _words: &str) {}
    /// An epoch is over.
    fn record(&mut self, _record: &EpochRecord) {}
}

/// Nobody watches.
#[derive(Debug)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// What came of a run.
#[derive(Debug)]
pub struct Trained {
    /// As served.
    pub quantizer: Quantizer,
    /// The epoch it is of, and all its numbers.
    pub report: serde_json::Value,
    /// The encoder's weights as a safetensors file, where it learned too.
    pub encoder: Option<Vec<u8>>,
}

impl Trained {
    /// The places of right keys by whole vectors: as the head projects them, before quantization.
    pub fn dense_places(&self, keys: &[f32], questions: &Questions) -> Result<Places> {
        let project = |vectors: &[f32]| -> Result<Tensor> {
            let mut projected =
                vec![0.0; vectors.len() / self.quantizer.input_dim() * self.quantizer.dim()];
            self.quantizer.project(vectors, &mut projected)?;
            Ok(Tensor::from_slice(&projected).view([-1, self.quantizer.dim() as i64]))
        };
        Ok(dense_places(
            &project(keys)?,
            &project(&questions.vectors)?,
            questions,
        ))
    }
}

/// How a run ended.
#[derive(Debug)]
pub enum Outcome {
    /// To its end.
    Trained(Box<Trained>),
    /// By request, with the checkpoint of the last whole epoch (none if 0) left for the next session.
    Stopped {
        /// Whole epochs done.
        epochs: usize,
    },
}

/// A job of one device.
enum Job {
    Load(Box<Load>),
    Step(Step),
    State,
}

struct Load {
    values: Named,
    constants: Named,
    means: Named,
    squares: Named,
    steps: i64,
    objective: Objective,
}

struct Step {
    queries: Vec<i64>,
    keys: Vec<i64>,
    key_ids: Option<Vec<i64>>,
    rates: Rates,
}

enum Answer {
    Loaded,
    Loss(f64),
    State(Box<State>),
}

/// What a device has learned so far.
struct State {
    values: Named,
    means: Named,
    squares: Named,
    steps: i64,
    fingerprint: u64,
}

/// One run.
pub struct Trainer<'a> {
    config: &'a TrainConfig,
    lessons: &'a Lessons<'a>,
    run: &'a Run,
    stop: &'a AtomicBool,
    scanner: Scanner,
    fleet: Fleet<Job, Answer>,
    /// Pairs a device and step: the configured batch, or fewer where there are too few pairs.
    rows: usize,
}

impl<'a> Trainer<'a> {
    /// Checks configuration and data against each other, and starts the devices. `stop` is looked at between steps.
    pub fn new(
        config: &'a TrainConfig,
        lessons: &'a Lessons<'a>,
        run: &'a Run,
        stop: &'a AtomicBool,
    ) -> Result<Self> {
        config.check()?;
        let devices = devices::parse(&config.devices)?;
        let (pairs, rows) = (lessons.pairs.len(), lessons.corpus.rows());
        ensure!(
            pairs >= 2 * devices.len(),
            "{pairs} pairs are too few: a device needs 2 at least, and there are {} devices",
            devices.len()
        );
        ensure!(
            rows >= config.codewords,
            "{} codewords are more than the {rows} rows to be quantized; choose --codewords {} or fewer, or insert more rows",
            config.codewords,
            rows.min(256)
        );
        ensure!(
            config.joint.is_some() == lessons.texts.is_some(),
            "an encoder that learns needs texts"
        );
        let material = match lessons.texts {
            None => {
                let of = |vectors: &[f32]| {
                    Tensor::from_slice(vectors).view([-1, lessons.corpus.hidden as i64])
                };
                Material::Vectors {
                    queries: of(lessons.queries),
                    keys: of(&lessons.corpus.vectors),
                }
            }
            Some(texts) => Material::Texts {
                queries: Arc::clone(&texts.queries),
                keys: Arc::clone(&texts.keys),
            },
        };
        // A tensor may go to another thread but not be looked at by two: each device takes its own from here.
        let shared = Arc::new(std::sync::Mutex::new(material));
        let bert = lessons.texts.map(|texts| texts.shape.clone());
        let settings = config.clone();
        let timeout = Duration::from_secs_f64(config.device_timeout);
        let fleet = Fleet::start(&devices, timeout, move |seat: Seat| {
            tch::set_num_threads(settings.threads as i32);
            let material = shared
                .lock()
                .expect("nobody panics with it")
                .on(seat.device);
            let mut worker = Worker {
                config: settings.clone(),
                seat,
                material,
                bert: bert.clone(),
                replica: None,
            };
            Ok(move |job| worker.work(job))
        })?;
        Ok(Self {
            config,
            lessons,
            run,
            stop,
            scanner: Scanner::new(config.threads)?,
            rows: config.batch.min(pairs / devices.len()),
            fleet,
        })
    }

    /// To the end, from the last checkpoint if there is one.
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
                let keys = self.seen(&model).keys_tensor();
                let (head, codebook) = start::codebook(&model.head, &keys, self.config)?;
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
                _ => Objective::Dense,
            };
            if !loaded {
                self.load(&checkpoint, &phase)?;
                loaded = true;
            }
            let name = if joint {
                method_name(self.config.method)
            } else {
                "warmup".into()
            };
            let begin = Instant::now();
            let Some(loss) = self.epoch(epoch, &name, joint || objective.is_none(), watch)? else {
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
            remember_best(&mut checkpoint, recall);
            checkpoint.progress.cpu_seconds = spent_before + cpu_seconds() - began;
            let record = EpochRecord {
                epoch: epoch + 1,
                phase: name,
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

    /// The encoder as given, the head from its vectors, no codewords yet.
    fn start(&self) -> Result<Model> {
        let encoder = match self.lessons.texts {
            Some(texts) => Some(Bert::new(&texts.shape, &texts.weights)?),
            None => None,
        };
        let hidden = self.lessons.corpus.hidden as i64;
        // An encoder cut to its first layers gives other vectors than the whole: those are what the head starts from.
        let keys = match (&encoder, self.lessons.texts) {
            (Some(encoder), Some(texts)) => encode(encoder, &texts.keys),
            _ => Tensor::from_slice(&self.lessons.corpus.vectors).view([-1, hidden]),
        };
        let head = start::head(&keys, self.config)?;
        Ok(Model {
            encoder,
            head,
            codebook: None,
        })
    }

    /// Keys and validation queries as this model's encoder sees them.
    fn seen(&self, model: &Model) -> Seen<'_> {
        match (&model.encoder, self.lessons.texts) {
            (Some(encoder), Some(texts)) => {
                let stored = |texts: &[Vec<u32>]| {
                    let mut vectors = export::floats(&encode(encoder, texts));
                    mopqdb::encoder::round_to_f16(&mut vectors);
                    vectors
                };
                let questions = Questions {
                    vectors: stored(&texts.validation),
                    ..self.lessons.validation.clone()
                };
                Seen {
                    keys: Cow::Owned(stored(&texts.keys)),
                    questions: Cow::Owned(questions),
                    hidden: texts.shape.config.hidden,
                }
            }
            _ => Seen {
                keys: Cow::Borrowed(&self.lessons.corpus.vectors),
                questions: Cow::Borrowed(self.lessons.validation),
                hidden: self.lessons.corpus.hidden,
            },
        }
    }

    fn patience_is_over(&self, checkpoint: &Checkpoint) -> bool {
        self.config.patience > 0 && checkpoint.progress.since_best >= self.config.patience
    }

    fn steps_an_epoch(&self) -> usize {
        self.lessons.pairs.len() / (self.rows * self.fleet.devices())
    }

    fn pairs_an_epoch(&self) -> usize {
        self.steps_an_epoch() * self.rows * self.fleet.devices()
    }

    /// One pass over the pairs in an order of its own; the mean loss, or nothing if a stop was asked for. The last
    /// pairs of the order, too few for a step, wait for the next epoch's.
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
            let batch = &order[step * rows * devices..][..rows * devices];
            let of = |index: &u32| self.lessons.pairs[*index as usize];
            let key_ids: Option<Vec<i64>> = self
                .config
                .mask_collisions
                .then(|| batch.iter().map(|i| i64::from(of(i).1)).collect());
            let rates = self.rates(epoch, step, steps, own);
            let jobs = batch
                .chunks(rows)
                .map(|slice| {
                    Job::Step(Step {
                        queries: slice.iter().map(|i| i64::from(of(i).0)).collect(),
                        keys: slice.iter().map(|i| i64::from(of(i).1)).collect(),
                        key_ids: key_ids.clone(),
                        rates,
                    })
                })
                .collect();
            let shares = self.fleet.run(jobs)?;
            let loss: f64 = shares
                .iter()
                .map(|answer| match answer {
                    Answer::Loss(share) => *share,
                    _ => unreachable!("a step is answered by its loss"),
                })
                .sum();
            total += loss;
            watch.step(loss, rows * devices);
        }
        Ok(Some(total / steps as f64))
    }

    fn rates(&self, epoch: usize, step: usize, steps: usize, own: bool) -> Rates {
        let config = self.config;
        let factor = match config.schedule {
            Schedule::Constant => 1.0,
            Schedule::Linear => {
                let (first, epochs) = match (own, Objective::of(config).is_some()) {
                    (false, _) => (0, config.warmup),
                    (true, true) => (config.warmup, config.epochs),
                    (true, false) => (0, config.warmup + config.epochs),
                };
                let done = ((epoch - first) * steps + step) as f64 / (epochs * steps) as f64;
                1.0 - 0.95 * done
            }
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

    fn load(&mut self, checkpoint: &Checkpoint, objective: &Objective) -> Result<()> {
        let copy = |named: &Named| {
            named
                .iter()
                .map(|(name, t)| (name.clone(), t.copy()))
                .collect::<Named>()
        };
        let jobs = (0..self.fleet.devices())
            .map(|_| {
                Job::Load(Box::new(Load {
                    values: copy(&checkpoint.values),
                    constants: copy(&checkpoint.constants),
                    means: copy(&checkpoint.means),
                    squares: copy(&checkpoint.squares),
                    steps: checkpoint.progress.steps,
                    objective: objective.clone(),
                }))
            })
            .collect();
        self.fleet.run(jobs).map(|_| ())
    }

    /// The first device's state; all others must have the same, to the bit on processors.
    fn state(&mut self) -> Result<State> {
        let jobs = (0..self.fleet.devices()).map(|_| Job::State).collect();
        let mut states = self
            .fleet
            .run(jobs)?
            .into_iter()
            .map(|answer| match answer {
                Answer::State(state) => *state,
                _ => unreachable!("a state is answered by a state"),
            });
        let first = states.next().expect("there is a device");
        let names = devices::parse(&self.config.devices)?;
        for (other, named) in states.zip(&names[1..]) {
            if other.fingerprint != first.fingerprint && named.device == Device::Cpu {
                bail!(
                    "device {} has drifted from {}: replicas must stay equal",
                    named.name,
                    names[0].name
                );
            }
        }
        Ok(first)
    }

    fn restore(&self, values: &Named, constants: &Named) -> Result<Model> {
        let bert = self.lessons.texts.map(|texts| &texts.shape);
        Model::restore(values, constants, self.config, bert, Device::Cpu)
    }

    /// Validation recall at 10 and mean codeword use, as they would be served.
    fn validate(&self, checkpoint: &Checkpoint) -> Result<(Option<f64>, Option<f64>)> {
        let model = self.restore(&checkpoint.values, &checkpoint.constants)?;
        let seen = self.seen(&model);
        let Some(codebook) = &model.codebook else {
            let asked = !seen.questions.is_empty();
            return Ok((asked.then(|| seen.dense_recall(&model, &[10])[0]), None));
        };
        let metric = self.lessons.corpus.metric;
        let quantizer = export::quantizer(&model.head, codebook, self.config.method, metric)?;
        let encoded = Encoded::new(&quantizer, &seen.keys, self.config.threads)?;
        let shape = quantizer.shape();
        let (used, _) = usage(&encoded.codes, shape.subspaces(), shape.codewords());
        let used = used.iter().sum::<usize>() as f64 / used.len() as f64;
        let recall = match seen.questions.is_empty() {
            true => None,
            false => Some(
                encoded
                    .places(&quantizer, &seen.questions, &self.scanner, 10)?
                    .recall(10),
            ),
        };
        Ok((recall, Some(used)))
    }

    /// The best epoch's model as it is served, and its numbers.
    fn finish(&self, checkpoint: &Checkpoint) -> Result<Trained> {
        let values = if checkpoint.best.is_empty() {
            &checkpoint.values
        } else {
            &checkpoint.best
        };
        let model = self.restore(values, &checkpoint.constants)?;
        let metric = self.lessons.corpus.metric;
        let seen = self.seen(&model);
        let quantizer = match &model.codebook {
            Some(codebook) => export::quantizer(&model.head, codebook, self.config.method, metric)?,
            None => {
                let (head, trained) =
                    start::quantize_after(&model.head, &seen.keys_tensor(), self.config)?;
                export::with_codebook(&head, &trained, metric)?
            }
        };
        // Numbered for the scan, before anything has codes.
        let quantizer = quantizer.arranged()?;
        let encoded = Encoded::new(&quantizer, &seen.keys, self.config.threads)?;
        let codes = CodeReport::new(&quantizer, &seen.keys, &encoded.codes)?;
        let at = [10, 50, 100];
        let questions = &*seen.questions;
        let mut report = json!({
            "rows": self.lessons.corpus.rows(),
            "pairs": self.lessons.pairs.len(),
            "epochs": checkpoint.progress.epochs,
            "best_epoch": checkpoint.progress.best.map(|(_, epoch)| epoch),
            "cpu_seconds": checkpoint.progress.cpu_seconds,
            "codes": codes,
        });
        if !questions.is_empty() {
            let places = encoded.places(&quantizer, questions, &self.scanner, 100)?;
            let dense = seen.dense_recall(&model, &at);
            report["validation_queries"] = json!(questions.len());
            for (n, dense) in at.iter().zip(dense) {
                report["recall"][n.to_string()] = json!(places.recall(*n));
                report["unquantized_recall"][n.to_string()] = json!(dense);
            }
        }
        let encoder = match &model.encoder {
            Some(_) => Some(write_weights(values)?),
            None => None,
        };
        Ok(Trained {
            quantizer,
            report,
            encoder,
        })
    }
}

/// A checkpoint of a model that has taken no step.
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
        checkpoint.best = checkpoint
            .values
            .iter()
            .map(|(name, t)| (name.clone(), t.copy()))
            .collect();
    } else {
        progress.since_best += 1;
    }
}

/// A method's name in files.
pub fn method_name(method: Method) -> String {
    serde_json::to_value(method)
        .ok()
        .and_then(|v| v.as_str().map(str::to_owned))
        .expect("a name")
}

/// Stored vectors as a model's encoder gives them.
struct Seen<'a> {
    /// (rows, hidden)
    keys: Cow<'a, [f32]>,
    questions: Cow<'a, Questions>,
    hidden: usize,
}

impl Seen<'_> {
    fn keys_tensor(&self) -> Tensor {
        Tensor::from_slice(&self.keys).view([-1, self.hidden as i64])
    }

    /// Recall of the head's whole vectors.
    fn dense_recall(&self, model: &Model, at: &[usize]) -> Vec<f64> {
        let queries = Tensor::from_slice(&self.questions.vectors).view([-1, self.hidden as i64]);
        let embed = |x: &Tensor| tch::no_grad(|| model.head.forward(x));
        let places = dense_places(
            &embed(&self.keys_tensor()),
            &embed(&queries),
            &self.questions,
        );
        at.iter().map(|&n| places.recall(n)).collect()
    }
}

/// Pooled vectors of texts (texts, hidden); a batch holds texts of like length.
pub fn encode(encoder: &Bert, texts: &[Vec<u32>]) -> Tensor {
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|&text| texts[text].len());
    tch::no_grad(|| {
        let parts: Vec<Tensor> = order
            .chunks(64)
            .map(|some| {
                let ids: Vec<&[u32]> = some.iter().map(|&text| texts[text].as_slice()).collect();
                encoder.forward(&Tokens::pad(&ids, Device::Cpu))
            })
            .collect();
        let mut back = vec![0i64; texts.len()];
        for (place, &text) in order.iter().enumerate() {
            back[text] = place as i64;
        }
        Tensor::cat(&parts, 0).index_select(0, &Tensor::from_slice(&back))
    })
}

/// What a device draws its slices from.
enum Material {
    Vectors {
        queries: Tensor,
        keys: Tensor,
    },
    Texts {
        queries: Arc<Vec<Vec<u32>>>,
        keys: Arc<Vec<Vec<u32>>>,
    },
}

impl Material {
    fn on(&self, device: Device) -> Self {
        match self {
            Self::Vectors { queries, keys } => Self::Vectors {
                queries: queries.to_device(device),
                keys: keys.to_device(device),
            },
            Self::Texts { queries, keys } => Self::Texts {
                queries: Arc::clone(queries),
                keys: Arc::clone(keys),
            },
        }
    }

    /// The queries and keys of some pairs.
    fn pick(&self, queries: &[i64], keys: &[i64], device: Device) -> (Input, Input) {
        let rows = |from: &Tensor, rows: &[i64]| {
            Input::Vectors(from.index_select(0, &Tensor::from_slice(rows).to_device(device)))
        };
        let texts = |from: &[Vec<u32>], rows: &[i64]| {
            let ids: Vec<&[u32]> = rows
                .iter()
                .map(|&row| from[row as usize].as_slice())
                .collect();
            Input::Tokens(Tokens::pad(&ids, device))
        };
        match self {
            Self::Vectors {
                queries: q,
                keys: k,
            } => (rows(q, queries), rows(k, keys)),
            Self::Texts {
                queries: q,
                keys: k,
            } => (texts(q, queries), texts(k, keys)),
        }
    }
}

/// What runs in a device's thread.
struct Worker {
    config: TrainConfig,
    bert: Option<BertShape>,
    seat: Seat,
    material: Material,
    replica: Option<Replica>,
}

impl Worker {
    fn work(&mut self, job: Job) -> Result<Answer> {
        match job {
            Job::Load(load) => {
                self.replica = Some(self.restore(*load)?);
                Ok(Answer::Loaded)
            }
            Job::Step(step) => {
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
                replica
                    .step(&self.seat.gather, &slice, step.rates)
                    .map(Answer::Loss)
            }
            Job::State => {
                let replica = self
                    .replica
                    .as_ref()
                    .expect("loaded before its state is asked for");
                Ok(Answer::State(Box::new(state_of(replica))))
            }
        }
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
        let mut replica = Replica::new(model, adam, load.objective, self.config.sampling);
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
fn fingerprint(values: &Named) -> u64 {
    values
        .iter()
        .flat_map(|(_, tensor)| export::floats(&tensor.to_kind(Kind::Float)))
        .fold(0xcbf2_9ce4_8422_2325, |hash, value| {
            (hash ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3)
        })
}

#[cfg(test)]
mod tests;
