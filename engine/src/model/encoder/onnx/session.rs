//! One graph and the sessions that run it.
//!
//! A session runs one batch at a time, so there is a small pool of them: the first is made when the encoder is loaded,
//! others when there is work for them. Threads of ONNX Runtime do not spin, shapes are not remembered and batches are
//! bounded, so the memory of a long-running program stays small.

use super::batch::Batch;
use super::inspect::inspect;
use super::runtime::environment;
use crate::disk::mmap::Mapping;
use crate::error::{Error, Result};
use crate::model::encoder::options::EncoderOptions;
use crate::model::encoder::spec::{EncoderSpec, Pooling};
use half::f16;
use ort::ep::CPU;
use ort::session::builder::GraphOptimizationLevel;
use ort::session::{OutputSelector, RunOptions, Session, SessionInputValue};
use ort::value::{DynValue, Outlet, Tensor, TensorElementType};
use std::borrow::Cow;
use std::sync::{Condvar, Mutex, PoisonError};

/// Returns the graph's checked bytes. Called for each new session, because the bytes are not kept in between.
pub type GraphSource = Box<dyn Fn() -> Result<Mapping> + Send + Sync>;

/// The maximum number of sessions per graph. Each has its own copy of the weights.
const MAX_SESSIONS: usize = 4;

/// One input or output of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name in the graph.
    pub name: String,
    /// Its element type in ONNX's terms: "int64", "float".
    pub element: String,
    /// Its shape, with -1 for dimensions that depend on the batch.
    pub shape: Vec<i64>,
}

/// The inputs and outputs of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphInfo {
    /// The inputs of the graph.
    pub inputs: Vec<Port>,
    /// The outputs of the graph.
    pub outputs: Vec<Port>,
}

impl GraphInfo {
    /// Reads the inputs and outputs of a graph without running it.
    pub fn of(graph: &[u8]) -> Result<Self> {
        inspect(graph)?;
        make_session(graph, 1).map(|session| Self::of_session(&session))
    }

    fn of_session(session: &Session) -> Self {
        Self {
            inputs: session.inputs().iter().map(port).collect(),
            outputs: session.outputs().iter().map(port).collect(),
        }
    }
}

/// The inputs of a graph, by the names in the spec, checked against the graph.
struct Feed {
    ids: (String, Integer),
    mask: Option<(String, Integer)>,
    types: Option<(String, Integer)>,
}

/// The element types that token ids may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Integer {
    I64,
    I32,
}

impl Integer {
    /// Returns a tensor of shape (texts, width).
    fn tensor(self, shape: [usize; 2], values: impl Iterator<Item = u32>) -> ort::Result<DynValue> {
        match self {
            Self::I64 => {
                let values: Vec<i64> = values.map(i64::from).collect();
                Tensor::from_array((shape, values)).map(Tensor::into_dyn)
            }
            Self::I32 => {
                let values: Vec<i32> = values.map(|value| value as i32).collect();
                Tensor::from_array((shape, values)).map(Tensor::into_dyn)
            }
        }
    }
}

/// One graph and the sessions that run it.
pub(super) struct Graph {
    source: GraphSource,
    feed: Feed,
    output: String,
    pooling: Pooling,
    normalize: bool,
    threads_each: usize,
    max_sessions: usize,
    idle: Mutex<Idle>,
    returned: Condvar,
    /// The last dimension of the output, if the graph specifies it.
    static_dim: Option<usize>,
}

struct Idle {
    sessions: Vec<Session>,
    /// The number of sessions that exist, idle or busy.
    made: usize,
}

impl Graph {
    /// Makes the first session, and checks that the graph has the inputs and the output of the spec.
    pub(super) fn load(
        spec: &EncoderSpec,
        options: &EncoderOptions,
        source: GraphSource,
    ) -> Result<Self> {
        let max_sessions = options.threads.clamp(1, MAX_SESSIONS);
        let threads_each = (options.threads / max_sessions).max(1);
        let session = make_session(&source()?, threads_each)?;
        let info = GraphInfo::of_session(&session);
        let feed = Feed {
            ids: integer_input(&session, &spec.inputs.ids)?,
            mask: spec
                .inputs
                .mask
                .as_deref()
                .map(|name| integer_input(&session, name))
                .transpose()?,
            types: spec
                .inputs
                .types
                .as_deref()
                .map(|name| integer_input(&session, name))
                .transpose()?,
        };
        let fed = [Some(&feed.ids), feed.mask.as_ref(), feed.types.as_ref()];
        let unfed = info
            .inputs
            .iter()
            .find(|input| !fed.iter().flatten().any(|(name, _)| *name == input.name));
        if let Some(input) = unfed {
            return Err(Error::model(format!(
                "the graph requires the input {} ({}), which is none of token ids, attention mask and token types: \
                 only encoders of single texts are supported",
                input.name, input.element
            )));
        }
        let static_dim = check_output(&session, spec)?;
        Ok(Self {
            source,
            feed,
            output: spec.output.clone(),
            pooling: spec.pooling,
            normalize: spec.normalize,
            threads_each,
            max_sessions,
            idle: Mutex::new(Idle {
                sessions: vec![session],
                made: 1,
            }),
            returned: Condvar::new(),
            static_dim,
        })
    }

    /// Returns the width of the vectors, if the graph specifies it.
    pub(super) fn static_dim(&self) -> Option<usize> {
        self.static_dim
    }

    /// Returns how many batches can run at once.
    pub(super) fn max_sessions(&self) -> usize {
        self.max_sessions
    }

    /// Runs one batch and returns one vector per text, pooled and normalised according to the spec.
    pub(super) fn run(&self, batch: &Batch) -> Result<Vec<f32>> {
        let mut session = self.acquire()?;
        let vectors = self.run_on(&mut session, batch);
        self.release(session);
        vectors
    }

    fn acquire(&self) -> Result<Session> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(session) = idle.sessions.pop() {
                return Ok(session);
            }
            if idle.made < self.max_sessions {
                idle.made += 1;
                drop(idle);
                let made =
                    (self.source)().and_then(|bytes| make_session(&bytes, self.threads_each));
                if made.is_err() {
                    self.idle
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .made -= 1;
                    self.returned.notify_one();
                }
                return made;
            }
            idle = self
                .returned
                .wait(idle)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn release(&self, session: Session) {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .sessions
            .push(session);
        self.returned.notify_one();
    }

    fn run_on(&self, session: &mut Session, batch: &Batch) -> Result<Vec<f32>> {
        let failed = |error: ort::Error| {
            Error::model_because(format!("ONNX Runtime failed: {error}"), error)
        };
        let (texts, width) = (batch.len(), batch.width);
        let shape = [texts, width];
        let mut inputs: Vec<(Cow<'_, str>, SessionInputValue<'_>)> = Vec::with_capacity(3);
        let (name, integer) = &self.feed.ids;
        let ids = integer
            .tensor(shape, batch.ids.iter().copied())
            .map_err(failed)?;
        inputs.push((name.into(), ids.into()));
        if let Some((name, integer)) = &self.feed.mask {
            let row = |len: &usize| {
                let len = *len;
                (0..width).map(move |token| u32::from(token < len))
            };
            let mask = integer
                .tensor(shape, batch.lens.iter().flat_map(row))
                .map_err(failed)?;
            inputs.push((name.into(), mask.into()));
        }
        if let Some((name, integer)) = &self.feed.types {
            let types = integer
                .tensor(shape, std::iter::repeat_n(0, texts * width))
                .map_err(failed)?;
            inputs.push((name.into(), types.into()));
        }
        let options = RunOptions::new()
            .map_err(failed)?
            .with_outputs(OutputSelector::no_default().with(self.output.as_str()));
        let outputs = session.run_with_options(inputs, &options).map_err(failed)?;
        let output = outputs
            .get(&self.output)
            .ok_or_else(|| Error::model(format!("the graph returned no {}", self.output)))?;
        match output.data_type() {
            TensorElementType::Float32 => {
                let (shape, values) = output.try_extract_tensor::<f32>().map_err(failed)?;
                self.pool(batch, shape, values, |value| value)
            }
            TensorElementType::Float16 => {
                let (shape, values) = output.try_extract_tensor::<f16>().map_err(failed)?;
                self.pool(batch, shape, values, f16::to_f32)
            }
            other => Err(Error::model(format!(
                "{} is of type {other}; float and float16 are supported",
                self.output
            ))),
        }
    }

    /// Pools (texts, width, dim) or (texts, dim) to (texts, dim).
    fn pool<T: Copy>(
        &self,
        batch: &Batch,
        shape: &[i64],
        values: &[T],
        widen: impl Fn(T) -> f32,
    ) -> Result<Vec<f32>> {
        let texts = batch.len();
        let (tokens, dim) = match (self.pooling, shape) {
            (Pooling::None, &[n, dim]) if n == texts as i64 && dim > 0 => (1, dim as usize),
            (Pooling::Mean | Pooling::Cls, &[n, tokens, dim])
                if n == texts as i64 && tokens == batch.width as i64 && dim > 0 =>
            {
                (batch.width, dim as usize)
            }
            _ => {
                return Err(Error::model(format!(
                    "{} has shape {shape:?} for {texts} texts of {} tokens, which pooling {} can't use",
                    self.output, batch.width, self.pooling
                )));
            }
        };
        let mut vectors = vec![0.0f32; texts * dim];
        for (text, vector) in vectors.chunks_exact_mut(dim).enumerate() {
            let first = text * tokens * dim;
            let kept = match self.pooling {
                Pooling::Mean => batch.lens[text],
                Pooling::Cls | Pooling::None => 1,
            };
            for token in 0..kept {
                let row = &values[first + token * dim..][..dim];
                for (sum, &value) in vector.iter_mut().zip(row) {
                    *sum += widen(value);
                }
            }
            let mut scale = 1.0 / kept as f32;
            if self.normalize {
                let norm = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
                // Same as torch.nn.functional.normalize. A zero vector stays zero, and the caller refuses it.
                scale = 1.0 / norm.max(1e-12);
            }
            vector.iter_mut().for_each(|value| *value *= scale);
            if let Some(bad) = vector.iter().find(|value| !value.is_finite()) {
                return Err(Error::model(format!(
                    "the encoder gave {bad} for a text of {} tokens",
                    batch.lens[text]
                )));
            }
        }
        Ok(vectors)
    }
}

/// Returns a session that does not spin and remembers no shapes. Batches have a bounded number of tokens, so its arena
/// is bounded too. Without an arena each batch would return its memory to the system and request it again, which takes
/// a fifteenth of the time.
fn make_session(bytes: &[u8], threads: usize) -> Result<Session> {
    let environment = environment()?;
    let build = || -> std::result::Result<Session, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        Session::builder(&environment)
            .map_err(|e| text(&e))?
            .with_no_environment_execution_providers()
            .map_err(|e| text(&e))?
            .with_execution_providers([CPU::default().with_arena_allocator(true).build()])
            .map_err(|e| text(&e))?
            .with_optimization_level(GraphOptimizationLevel::All)
            .map_err(|e| text(&e))?
            .with_intra_threads(threads)
            .map_err(|e| text(&e))?
            .with_intra_op_spinning(false)
            .map_err(|e| text(&e))?
            .with_inter_op_spinning(false)
            .map_err(|e| text(&e))?
            .with_memory_pattern(false)
            .map_err(|e| text(&e))?
            .commit_from_memory(bytes)
            .map_err(|e| text(&e))
    };
    build().map_err(|error| {
        Error::model_because(format!("ONNX Runtime can't load the graph: {error}"), error)
    })
}

fn port(outlet: &Outlet) -> Port {
    Port {
        name: outlet.name().into(),
        element: outlet
            .dtype()
            .tensor_type()
            .map_or("no tensor".into(), |element| element.to_string()),
        shape: outlet
            .dtype()
            .tensor_shape()
            .map(|shape| shape.to_vec())
            .unwrap_or_default(),
    }
}

fn names(outlets: &[Outlet]) -> String {
    outlets
        .iter()
        .map(Outlet::name)
        .collect::<Vec<_>>()
        .join(", ")
}

fn integer_input(session: &Session, name: &str) -> Result<(String, Integer)> {
    let Some(input) = session.inputs().iter().find(|input| input.name() == name) else {
        return Err(Error::model(format!(
            "the graph has no input {name}; it has {}",
            names(session.inputs())
        )));
    };
    let integer = match input.dtype().tensor_type() {
        Some(TensorElementType::Int64) => Integer::I64,
        Some(TensorElementType::Int32) => Integer::I32,
        other => {
            let other = other.map_or("no tensor".into(), |element| element.to_string());
            return Err(Error::model(format!(
                "the graph's {name} is of type {other}; int64 and int32 are supported"
            )));
        }
    };
    let shape = port(input).shape;
    if shape.len() != 2 || shape.iter().any(|dim| *dim > 0) {
        return Err(Error::model(format!(
            "the graph's {name} has shape {shape:?}; it must be (texts, tokens) with any number of both: \
             export it with dynamic axes"
        )));
    }
    Ok((name.into(), integer))
}

/// Returns the last dimension of the output if it is known, after checking that pooling can use it.
fn check_output(session: &Session, spec: &EncoderSpec) -> Result<Option<usize>> {
    let Some(output) = session
        .outputs()
        .iter()
        .find(|output| output.name() == spec.output)
    else {
        return Err(Error::model(format!(
            "the graph has no output {}; it has {}",
            spec.output,
            names(session.outputs())
        )));
    };
    match output.dtype().tensor_type() {
        Some(TensorElementType::Float32 | TensorElementType::Float16) => {}
        other => {
            let other = other.map_or("no tensor".into(), |element| element.to_string());
            return Err(Error::model(format!(
                "{} is of type {other}; float and float16 are supported",
                spec.output
            )));
        }
    }
    let shape = output
        .dtype()
        .tensor_shape()
        .map(|shape| shape.to_vec())
        .unwrap_or_default();
    let ranks = match spec.pooling {
        Pooling::None => 2,
        Pooling::Mean | Pooling::Cls => 3,
    };
    if !shape.is_empty() && shape.len() != ranks {
        return Err(Error::model(format!(
            "{} has shape {shape:?}; pooling {} needs {ranks} dimensions",
            spec.output, spec.pooling
        )));
    }
    Ok(shape
        .last()
        .and_then(|dim| usize::try_from(*dim).ok())
        .filter(|dim| *dim > 0))
}
