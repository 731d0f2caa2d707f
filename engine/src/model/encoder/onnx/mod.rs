//! The encoder that runs an ONNX model: tokenize, batch, ONNX Runtime, pool, normalise.

mod batch;
mod infer;
mod inspect;
mod runtime;
mod session;
mod tokenize;
mod wrap;

#[cfg(test)]
mod tests;
#[cfg(all(test, feature = "onnx-write"))]
mod variants;

pub use inspect::inspect;
pub use runtime::locate_onnxruntime;
pub use session::{GraphInfo, GraphSource, Port};
pub use wrap::{Export, Findings, wrap};

use super::{Encoder, EncoderOptions, EncoderSpec};
use crate::disk::mmap::Mapping;
use crate::error::{Error, Result};
use crate::threads;
use crate::watch::Watch;
use batch::{Batch, WINDOW, batches};
use crossbeam::channel;
use session::Graph;
pub use tokenize::SideTokenizer;

/// The sources of an encoder's files. A graph is read again for each new session.
pub struct EncoderFiles {
    /// Returns the graph of the keys, and of the queries if they have no graph of their own.
    pub graph: GraphSource,
    /// Returns the graph of the queries, if the towers differ.
    pub query_graph: Option<GraphSource>,
    /// The contents of `tokenizer.json`.
    pub tokenizer: Vec<u8>,
}

impl EncoderFiles {
    /// Returns sources for files that are already in memory.
    pub fn from_bytes(graph: Vec<u8>, tokenizer: Vec<u8>) -> Self {
        Self {
            graph: Box::new(move || Ok(Mapping::copy_of(&graph))),
            query_graph: None,
            tokenizer,
        }
    }
}

/// Runs an ONNX model. Several threads can encode at once, on a small pool of sessions.
pub struct OnnxEncoder {
    dim: usize,
    key: Tower,
    /// `None` if queries use the encoder of keys.
    query: Option<Tower>,
}

/// The tokenizer and graph of one side (queries or keys).
struct Tower {
    tokenizer: SideTokenizer,
    /// Shared by both sides if the towers don't differ.
    graph: std::sync::Arc<Graph>,
}

impl OnnxEncoder {
    /// Loads ONNX Runtime if necessary, the graph and the tokenizer, and checks that they fit the spec.
    pub fn load(spec: &EncoderSpec, files: EncoderFiles, options: &EncoderOptions) -> Result<Self> {
        spec.check()?;
        threads::count(options.threads)?;
        let graph = |source: GraphSource| -> Result<std::sync::Arc<Graph>> {
            let inspected: GraphSource = Box::new(move || {
                let bytes = source()?;
                inspect(&bytes)?;
                Ok(bytes)
            });
            Graph::load(spec, options, inspected).map(std::sync::Arc::new)
        };
        // Half of the time to the first vector is spent in ONNX Runtime, a quarter in the tokenizer, so they run in
        // parallel.
        let (tokenizers, key_graph) = std::thread::scope(|scope| {
            // The library is loaded while the graph is checked. Its error is reported when the library is needed.
            let _ = threads::start_in(scope, "mopqdb-runtime", || drop(runtime::environment()));
            let load = || -> Result<_> {
                let key = SideTokenizer::load(&files.tokenizer, &spec.key)?;
                let same = spec.key == spec.query && files.query_graph.is_none();
                let query = (!same)
                    .then(|| SideTokenizer::load(&files.tokenizer, &spec.query))
                    .transpose()?;
                Ok((key, query))
            };
            let tokenizers = threads::start_in(scope, "mopqdb-tokenizer", load);
            let key_graph = graph(files.graph);
            let tokenizers = tokenizers
                .and_then(|thread| thread.join().expect("a panic of the tokenizer was caught"));
            (tokenizers, key_graph)
        });
        let ((key_tokenizer, query_tokenizer), key_graph) = (tokenizers?, key_graph?);
        let query_graph = files.query_graph.map(graph).transpose()?;
        let key = Tower {
            tokenizer: key_tokenizer,
            graph: key_graph.clone(),
        };
        let query = query_tokenizer.map(|tokenizer| Tower {
            tokenizer,
            graph: query_graph.unwrap_or(key_graph),
        });
        let dim = key.dim()?;
        if let Some(other) = query.as_ref().map(Tower::dim).transpose()?
            && other != dim
        {
            return Err(Error::model(format!(
                "the vectors of keys have {dim} dimensions and those of queries {other}; they must have the same"
            )));
        }
        Ok(Self { dim, key, query })
    }

    /// Returns the number of tokens in the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.key.tokenizer.vocabulary()
    }
}

impl Encoder for OnnxEncoder {
    fn name(&self) -> String {
        "onnx".into()
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn encode_keys(&self, texts: &[&str]) -> Result<Vec<f32>> {
        self.encode_keys_watched(texts, &Watch::new())
    }

    fn encode_queries(&self, texts: &[&str]) -> Result<Vec<f32>> {
        self.query
            .as_ref()
            .unwrap_or(&self.key)
            .encode(texts, self.dim, &Watch::new())
    }

    fn encode_keys_watched(&self, texts: &[&str], watch: &Watch) -> Result<Vec<f32>> {
        self.key.encode(texts, self.dim, watch)
    }
}

impl Tower {
    /// Returns the dimensions of the vectors, from the graph or by encoding one text.
    fn dim(&self) -> Result<usize> {
        match self.graph.static_dim() {
            Some(dim) => Ok(dim),
            None => {
                let tokens = vec![(0, self.tokenizer.ids("a")?)];
                Ok(self.graph.run(&batches(tokens)[0])?.len())
            }
        }
    }

    /// Encodes texts; `watch` is looked at after each batch.
    fn encode(&self, texts: &[&str], dim: usize, watch: &Watch) -> Result<Vec<f32>> {
        let mut vectors = vec![0.0; texts.len() * dim];
        let mut place = |batch: &Batch, made: &[f32]| -> Result<()> {
            watch.check()?;
            if made.len() != batch.len() * dim {
                return Err(Error::model(format!(
                    "the encoder gave {} dimensions, but {dim} before",
                    made.len() / batch.len()
                )));
            }
            for (&place, vector) in batch.places.iter().zip(made.chunks_exact(dim)) {
                vectors[place * dim..][..dim].copy_from_slice(vector);
            }
            Ok(())
        };
        if texts.len() <= 1 || self.graph.max_sessions() == 1 && texts.len() <= 16 {
            // A single query is too small for another thread.
            for batch in self.window(0, texts)? {
                place(&batch, &self.graph.run(&batch)?)?;
            }
        } else {
            self.pipeline(texts, place)?;
        }
        Ok(vectors)
    }

    /// Returns the batches of one window of texts. The position of its first text is `first`.
    fn window(&self, first: usize, texts: &[&str]) -> Result<Vec<Batch>> {
        let tokenized = texts.iter().enumerate().map(|(n, text)| {
            let place = first + n;
            let ids = self.tokenizer.ids(text).map_err(|error| match error {
                Error::Invalid(what) => Error::Invalid(format!("text {place}: {what}")),
                other => other,
            })?;
            Ok((place, ids))
        });
        Ok(batches(tokenized.collect::<Result<_>>()?))
    }

    /// One thread tokenizes, one per session runs batches, and this one puts the vectors in their places. The first
    /// error stops them all.
    fn pipeline(
        &self,
        texts: &[&str],
        mut place: impl FnMut(&Batch, &[f32]) -> Result<()>,
    ) -> Result<()> {
        std::thread::scope(|scope| {
            // Each thread owns its ends of the channels, so that the others see a channel close if a thread stops with
            // an error.
            let (batch_in, batch_out) =
                channel::bounded::<Result<Batch>>(2 * self.graph.max_sessions());
            let (made_in, made_out) =
                channel::bounded::<Result<(Batch, Vec<f32>)>>(2 * self.graph.max_sessions());
            threads::start_in(scope, "mopqdb-tokenize", move || {
                for (n, texts) in texts.chunks(WINDOW).enumerate() {
                    let window = self.window(n * WINDOW, texts);
                    let batches = window.map_or_else(
                        |error| vec![Err(error)],
                        |all| all.into_iter().map(Ok).collect(),
                    );
                    for batch in batches {
                        if batch_in.send(batch).is_err() {
                            return;
                        }
                    }
                }
            })?;
            for _ in 0..self.graph.max_sessions() {
                let (batch_out, made_in) = (batch_out.clone(), made_in.clone());
                threads::start_in(scope, "mopqdb-encode", move || {
                    for batch in batch_out {
                        let made = batch.and_then(|batch| Ok((self.graph.run(&batch)?, batch)));
                        if made_in
                            .send(made.map(|(vectors, batch)| (batch, vectors)))
                            .is_err()
                        {
                            return;
                        }
                    }
                })?;
            }
            drop((batch_out, made_in));
            for made in made_out {
                let (batch, vectors) = made?;
                place(&batch, &vectors)?;
            }
            Ok(())
        })
    }
}
