use crate::exit::usage;
use crate::out::Out;
use crate::settings::Settings;
use anyhow::Result;
use clap::Args;
use mopqdb::{CreateOptions, Metric};
use serde_json::json;
use std::path::PathBuf;

/// Make an empty database
///
/// With an encoder it takes texts; with `--encoder none` it takes ready-made vectors of `--dim`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb create my.db                              # texts, the default encoder
  mopqdb create my.db --encoder ./my-bundle        # texts, an encoder of your own (see `mopqdb bundle`)
  mopqdb create my.db --encoder none --dim 128 --metric ip")]
pub struct Create {
    /// Directory to make
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// `default`, `none`, or the directory of a bundle; `none` when --dim is given
    #[arg(long, value_name = "BUNDLE")]
    encoder: Option<String>,
    /// Width of ready-made vectors
    #[arg(long, value_name = "N")]
    dim: Option<usize>,
    /// How queries and keys are compared: ip, cosine or l2; the encoder's own where it has one, else cosine
    #[arg(long)]
    metric: Option<Metric>,
}

impl Create {
    /// Makes it.
    pub fn run(self, settings: &Settings) -> Result<()> {
        let bundle = match self.encoder.as_deref() {
            Some("none") => None,
            Some("default") => Some(mopqdb::encoder::default_bundle()?),
            Some(directory) => Some(PathBuf::from(directory)),
            None if self.dim.is_some() => None,
            None => Some(mopqdb::encoder::default_bundle()?),
        };
        if bundle.is_none() && self.dim.is_none() {
            return Err(usage(
                "--encoder none takes ready-made vectors: give their width with --dim N",
            ));
        }
        let options = CreateOptions {
            bundle,
            dim: self.dim,
            metric: self.metric,
        };
        let database = super::create(&self.db, &options, settings)?;
        let model = database.model();
        let mut out = Out::new(settings);
        let rows = if model.bundle().is_some_and(|bundle| bundle.has_encoder()) {
            "texts"
        } else {
            "vectors"
        };
        match out.is_json() {
            true => out.object(&json!({
                "created": self.db.display().to_string(),
                "rows": rows,
                "dim": model.dim(),
                "metric": model.metric().name(),
            }))?,
            false => out.line(format!(
                "created {}: {rows}, {} dimensions, {}",
                self.db.display(),
                model.dim(),
                model.metric()
            ))?,
        }
        out.flush()?;
        Ok(database.close()?)
    }
}
