//! `mopqdb bundle`: make a bundle from an encoder, make an int8 variant, show a bundle.

use crate::out::Out;
use crate::settings::Settings;
use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use mopqdb::Metric;
use mopqdb::bundle::{Bundle, BundleWriter, bundle_from_weights};
use mopqdb::encoder::write::quantize_graph;
use mopqdb::encoder::{EncoderOptions, EncoderSpec, Export, Findings, Pooling, Port, Side, wrap};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Make a bundle from your own encoder, make an int8 variant, or show a bundle
#[derive(Debug, Args)]
pub struct BundleCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Make(Make),
    Quantize(Quantize),
    Show(Show),
}

/// Make a bundle of an ONNX encoder and its tokenizer, or of published BERT weights
///
/// Runs the encoder on a few texts and prints what it found. An encoder that cannot be used is refused with a reason.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb bundle make my-encoder --onnx model.onnx --tokenizer tokenizer.json
  mopqdb bundle make e5 --onnx model.onnx --tokenizer tokenizer.json --query-prefix 'query: ' --key-prefix 'passage: '
  mopqdb bundle make small --weights all-MiniLM-L6-v2/ --layers 3
  mopqdb create my.db --encoder my-encoder")]
struct Make {
    /// The bundle to write
    #[arg(value_name = "BUNDLE")]
    to: PathBuf,

    /// The encoder: token ids and mask to hidden states or sentence embeddings
    #[arg(long, value_name = "FILE", required_unless_present = "weights")]
    onnx: Option<PathBuf>,

    /// A separate encoder for queries
    #[arg(long, value_name = "FILE", conflicts_with = "weights")]
    query_onnx: Option<PathBuf>,

    /// tokenizer.json of the encoder
    #[arg(long, value_name = "FILE", required_unless_present = "weights")]
    tokenizer: Option<PathBuf>,

    /// Instead of --onnx: a directory with model.safetensors, config.json and tokenizer.json of a BERT-like
    /// model
    #[arg(long, value_name = "DIR", conflicts_with_all = ["onnx", "tokenizer"])]
    weights: Option<PathBuf>,

    /// Use only the first N layers of --weights
    #[arg(long, value_name = "N", requires = "weights")]
    layers: Option<usize>,

    /// How queries and keys are compared: cosine, ip or l2
    #[arg(long, default_value = "cosine")]
    metric: Metric,

    /// mean, cls or none; default: by the shape of the output
    #[arg(long)]
    pooling: Option<Pooling>,

    /// Output of the graph; default: one with a usual name
    #[arg(long, value_name = "NAME")]
    output: Option<String>,

    /// Whether to scale vectors to length 1; default: true for cosine
    #[arg(long, value_name = "BOOL")]
    normalize: Option<bool>,

    /// Maximum tokens of keys, and of queries unless --max-query-tokens is given
    #[arg(long, value_name = "N", default_value_t = 256)]
    max_tokens: usize,

    /// Maximum tokens of queries
    #[arg(long, value_name = "N")]
    max_query_tokens: Option<usize>,

    /// Prefix of each key
    #[arg(long, value_name = "TEXT", default_value = "")]
    key_prefix: String,

    /// Prefix of each query
    #[arg(long, value_name = "TEXT", default_value = "")]
    query_prefix: String,
}

/// Make an int8 variant of a bundle's encoder: a quarter of the size, faster, slightly different vectors
///
/// The variant is another encoder with its own id: rows must be encoded again. A trained quantizer is not copied.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb bundle quantize ~/.local/share/mopqdb/bundles/default default-int8")]
struct Quantize {
    /// The bundle
    #[arg(value_name = "BUNDLE")]
    from: PathBuf,

    /// The bundle to write
    #[arg(value_name = "TO")]
    to: PathBuf,
}

/// Show what is in a bundle, and check every file
#[derive(Debug, Args)]
struct Show {
    /// The bundle
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
}

impl BundleCommand {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<()> {
        let report = match self.action {
            Action::Make(make) => make.run()?,
            Action::Quantize(quantize) => quantize.run(settings.threads)?,
            Action::Show(show) => show.run()?,
        };
        let mut out = Out::new(settings);
        match out.is_json() {
            true => out.object(&report)?,
            false => print_lines(&report, &mut out)?,
        }
        out.flush()
    }
}

impl Make {
    fn run(self) -> Result<Value> {
        let side = |prefix: &str, max_tokens| Side {
            prefix: prefix.into(),
            max_tokens,
        };
        let key = side(&self.key_prefix, self.max_tokens);
        let query = side(
            &self.query_prefix,
            self.max_query_tokens.unwrap_or(self.max_tokens),
        );
        if let Some(weights) = &self.weights {
            let mut spec = EncoderSpec::bert(self.max_tokens);
            spec.pooling = match self.pooling {
                Some(Pooling::None) => bail!("weights give hidden states: pooling is mean or cls"),
                Some(pooling) => pooling,
                None => Pooling::Mean,
            };
            spec.normalize = self.normalize.unwrap_or(self.metric == Metric::Cosine);
            (spec.key, spec.query) = (key, query);
            let story = json!({"weights": weights.file_name().and_then(|name| name.to_str()), "layers": self.layers});
            let bundle =
                bundle_from_weights(weights, &self.to, spec, self.metric, self.layers, story)?;
            // Run the encoder once, so that errors appear now.
            let encoder = bundle
                .encoder()?
                .context("the bundle was made with an encoder")?;
            encoder.encode_keys(&["water"])?;
            return describe(&bundle);
        }
        let read = |path: &Option<PathBuf>| -> Result<Vec<u8>> {
            let path = path.as_ref().context("clap requires it")?;
            fs::read(path).with_context(|| format!("reading {}", path.display()))
        };
        let export = Export {
            graph: read(&self.onnx)?,
            query_graph: self
                .query_onnx
                .is_some()
                .then(|| read(&self.query_onnx))
                .transpose()?,
            tokenizer: read(&self.tokenizer)?,
            metric: self.metric,
            output: self.output,
            pooling: self.pooling,
            normalize: self.normalize,
            key,
            query,
        };
        let (bundle, findings) = wrap(export, &self.to)?;
        let mut report = describe(&bundle)?;
        report["found"] = found(&findings);
        Ok(report)
    }
}

/// Returns the findings as JSON.
fn found(findings: &Findings) -> Value {
    let ports = |ports: &[Port]| -> Vec<String> {
        ports
            .iter()
            .map(|port| format!("{} {} {:?}", port.name, port.element, port.shape))
            .collect()
    };
    json!({
        "inputs": ports(&findings.graph.inputs),
        "outputs": ports(&findings.graph.outputs),
        "vocabulary": findings.vocabulary,
        "batch_difference": findings.batch_difference,
    })
}

/// Texts of several lengths, with which the int8 variant is compared with the original.
const SAMPLES: [&str; 6] = [
    "water",
    "How do I split a string at whitespace?",
    "The committee postponed its decision until the next meeting in spring.",
    "Returns the number of elements in the vector, also referred to as its length.",
    "What is the capital of France?",
    "A river flows from the mountains to the sea; on its way it passes forests, villages and an old stone bridge.",
];

impl Quantize {
    fn run(self, threads: usize) -> Result<Value> {
        let from = Bundle::open(&self.from)?;
        let spec = from.manifest().encoder.clone();
        let spec =
            spec.with_context(|| format!("{} has no encoder to quantize", self.from.display()))?;
        from.verify()?;
        let mut files = Vec::new();
        for name in spec.files() {
            let bytes =
                fs::read(from.dir().join(name)).with_context(|| format!("reading {name}"))?;
            let bytes = if name == spec.tokenizer {
                bytes
            } else {
                quantize_graph(&bytes)?
            };
            files.push((name.to_owned(), bytes));
        }
        let made = BundleWriter::new(&self.to)
            .metric(from.metric())
            .encoder(spec, from.input_dim(), files)
            .training(json!({"int8_of": from.encoder_id(), "training": from.manifest().training}))
            .finish()?;
        let options = EncoderOptions::with_threads(threads);
        let encode = |bundle: &Bundle| -> Result<Vec<f32>> {
            let encoder = bundle
                .encoder_with(&options)?
                .context("both have an encoder")?;
            Ok(encoder.encode_keys(&SAMPLES)?)
        };
        let (before, after) = (encode(&from)?, encode(&made)?);
        let dim = from.input_dim();
        let rows = before.chunks(dim).zip(after.chunks(dim));
        let least = rows.map(|(a, b)| cosine(a, b)).fold(1.0, f64::min);
        let mut report = describe(&made)?;
        report["least_cosine"] = json!(least);
        Ok(report)
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| {
        a.iter()
            .zip(b)
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .sum::<f64>()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

impl Show {
    fn run(self) -> Result<Value> {
        let bundle = Bundle::open(&self.bundle)?;
        bundle.verify()?;
        describe(&bundle)
    }
}

/// Returns a description of a bundle.
fn describe(bundle: &Bundle) -> Result<Value> {
    let manifest = bundle.manifest();
    let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
    let mut report = json!({
        "bundle": absolute(bundle.dir()),
        "model": bundle.model_id(),
        "encoder_id": bundle.encoder_id(),
        "metric": manifest.metric,
        "method": manifest.method,
        "dim": manifest.input_dim,
        "bytes": bytes,
    });
    for (name, part) in [
        ("encoder", serde_json::to_value(&manifest.encoder)?),
        ("quantizer", serde_json::to_value(&manifest.quantizer)?),
        ("training", manifest.training.clone()),
        ("evaluation", manifest.evaluation.clone()),
    ] {
        if !part.is_null() {
            report[name] = part;
        }
    }
    Ok(report)
}

fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

/// Prints one line per field; nested fields with their path.
fn print_lines(report: &Value, out: &mut Out) -> Result<()> {
    fn lines(path: &str, value: &Value, out: &mut Out) -> Result<()> {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let path = if path.is_empty() {
                        name.clone()
                    } else {
                        format!("{path}.{name}")
                    };
                    lines(&path, value, out)?;
                }
                Ok(())
            }
            Value::Null => Ok(()),
            Value::String(text) => out.line(format!("{path:<24} {text}")),
            other => out.line(format!("{path:<24} {other}")),
        }
    }
    lines("", report, out)
}
