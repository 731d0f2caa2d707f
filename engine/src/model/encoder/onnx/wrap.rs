//! Making a bundle of a user's encoder: inspect the graph, run it, and refuse unsupported graphs with a reason.

use super::infer::infer;
use super::session::GraphInfo;
use super::{EncoderFiles, OnnxEncoder};
use crate::disk::mmap::Mapping;
use crate::error::{Error, Result};
use crate::metric::Metric;
use crate::model::bundle::{Bundle, BundleWriter};
use crate::model::encoder::spec::{EncoderSpec, Pooling, Side};
use crate::model::encoder::{Encoder as _, EncoderOptions};
use std::path::Path;

/// A user's own encoder, as exported.
#[derive(Debug, Clone)]
pub struct Export {
    /// The contents of the ONNX file.
    pub graph: Vec<u8>,
    /// The contents of the ONNX file for queries, if they have their own.
    pub query_graph: Option<Vec<u8>>,
    /// The contents of `tokenizer.json`.
    pub tokenizer: Vec<u8>,
    /// The metric by which keys and queries are compared.
    pub metric: Metric,
    /// The output to use. By default, one with a usual name.
    pub output: Option<String>,
    /// How the output becomes a vector. By default, this depends on the output's shape.
    pub pooling: Option<Pooling>,
    /// Whether vectors are scaled to length 1. By default, as the metric requires.
    pub normalize: Option<bool>,
    /// The preprocessing of keys.
    pub key: Side,
    /// The preprocessing of queries.
    pub query: Side,
}

/// The result of inspecting and running an export.
#[derive(Debug, Clone, PartialEq)]
pub struct Findings {
    /// How the encoder is run.
    pub spec: EncoderSpec,
    /// The inputs and outputs of the graph.
    pub graph: GraphInfo,
    /// The width of the vectors.
    pub dim: usize,
    /// The number of tokens in the vocabulary.
    pub vocabulary: usize,
    /// The largest difference of a value between a text encoded alone and in a batch with longer texts.
    pub batch_difference: f32,
}

/// Texts of three lengths that an encoder of any language and kind accepts.
const SAMPLES: [&str; 3] = [
    "water",
    "How do I split a string at whitespace?",
    "A river flows from the mountains to the sea; on its way it passes forests, villages and an old stone bridge.",
];

/// Runs the export once and writes a bundle at `to`.
pub fn wrap(export: Export, to: &Path) -> Result<(Bundle, Findings)> {
    let findings = try_out(&export)?;
    let spec = findings.spec.clone();
    let mut files = vec![
        (spec.graph.clone(), export.graph),
        (spec.tokenizer.clone(), export.tokenizer),
    ];
    if let (Some(name), Some(graph)) = (&spec.query_graph, export.query_graph) {
        files.push((name.clone(), graph));
    }
    let bundle = BundleWriter::new(to)
        .metric(export.metric)
        .encoder(spec, findings.dim, files)
        .finish()?;
    Ok((bundle, findings))
}

/// Runs the export on a few texts: alone, together, and as long as the limit allows.
fn try_out(export: &Export) -> Result<Findings> {
    let graph = GraphInfo::of(&export.graph)?;
    let mut spec = EncoderSpec::bert(export.key.max_tokens);
    infer(&graph, &mut spec, export.output.as_deref(), export.pooling)?;
    spec.normalize = export.normalize.unwrap_or(export.metric == Metric::Cosine);
    spec.key = export.key.clone();
    spec.query = export.query.clone();
    spec.query_graph = export
        .query_graph
        .is_some()
        .then(|| "query_encoder.onnx".into());
    let mut files = EncoderFiles::from_bytes(export.graph.clone(), export.tokenizer.clone());
    if let Some(graph) = export.query_graph.clone() {
        files.query_graph = Some(Box::new(move || Ok(Mapping::copy_of(&graph))));
    }
    let encoder = OnnxEncoder::load(&spec, files, &EncoderOptions::with_threads(1))?;
    let dim = encoder.dim();
    let mut batch_difference = 0.0f32;
    for encode in [OnnxEncoder::encode_keys, OnnxEncoder::encode_queries] {
        let together = encode(&encoder, &SAMPLES)?;
        for (text, row) in SAMPLES.iter().zip(together.chunks_exact(dim)) {
            let alone = encode(&encoder, &[text])?;
            let most = |vector: &[f32]| {
                vector
                    .iter()
                    .fold(0.0f32, |most, value| most.max(value.abs()))
            };
            let difference = most(
                &alone
                    .iter()
                    .zip(row)
                    .map(|(a, b)| a - b)
                    .collect::<Vec<_>>(),
            );
            batch_difference = batch_difference.max(difference);
            if difference > 0.05 * most(&alone) {
                return Err(Error::model(format!(
                    "the vector of {text:?} changes by {difference} if longer texts are in its batch: \
                     the graph ignores the attention mask{}",
                    if spec.inputs.mask.is_none() {
                        ", because it has no such input"
                    } else {
                        ""
                    }
                )));
            }
        }
        let long = "water ".repeat(spec.key.max_tokens.max(spec.query.max_tokens));
        encode(&encoder, &[long.as_str()]).map_err(|error| {
            Error::model(format!(
                "the encoder fails on a text of as many tokens as allowed; allow fewer ({error})"
            ))
        })?;
    }
    Ok(Findings {
        vocabulary: encoder.vocabulary(),
        spec,
        graph,
        dim,
        batch_difference,
    })
}
