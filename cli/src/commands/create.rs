use crate::exit::usage;
use crate::out::Out;
use crate::settings::Settings;
use anyhow::Result;
use clap::Args;
use mopqdb::columns::ColumnType;
use mopqdb::{CreateOptions, Language, Metric, Precision, WordsSettings};
use serde_json::json;
use std::path::PathBuf;

/// Create an empty database
///
/// With an encoder the database stores texts; with `--encoder none` it stores vectors of `--dim` dimensions.
///
/// `--store` chooses how vectors are rounded on disk: f32 takes 4 bytes per value, f16 2, i8 1. The size of codes,
/// which stay in memory, does not depend on it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb create my.db                              # texts, the default encoder
  mopqdb create my.db --encoder ./my-bundle        # texts, an encoder of your own (see `mopqdb bundle`)
  mopqdb create my.db --encoder none --dim 128 --metric ip
  mopqdb create my.db --column published:timestamp --column tags:strings
  mopqdb create my.db --dim 768 --store i8         # a quarter of the disk, nearly the same answers")]
pub struct Create {
    /// Directory to create
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// `default`, `none`, or the directory of a bundle; `none` when --dim is given
    #[arg(long, value_name = "BUNDLE")]
    encoder: Option<String>,
    /// Dimensions of the vectors
    #[arg(long, value_name = "N")]
    dim: Option<usize>,
    /// Metric: ip, cosine or l2; default: the encoder's, or cosine
    #[arg(long)]
    metric: Option<Metric>,
    /// Precision of stored vectors: f32, f16 or i8; cannot be changed later; default: f32 for vectors, f16
    /// for texts
    #[arg(long, value_name = "PRECISION", value_parser = precision)]
    store: Option<Precision>,
    /// Do not index the words of texts. The index takes disk space and time, and `--search words` needs it
    #[arg(long, conflicts_with = "language")]
    no_words: bool,
    /// Language of the texts, for stemming: english (the default), german, ..., or none
    #[arg(long, value_name = "LANG", value_parser = language)]
    language: Option<Language>,
    /// Declare a column; types: bool, int, float, string, strings, timestamp. Others appear when rows have values of them
    #[arg(long = "column", value_name = "NAME:TYPE", value_parser = super::columns::declaration)]
    columns: Vec<(String, ColumnType)>,
}

/// Parses the name of a precision.
fn precision(name: &str) -> Result<Precision, String> {
    let named = (Precision::ALL.into_iter()).find(|precision| precision.name() == name);
    named.ok_or_else(|| {
        format!(
            "it is one of {}",
            Precision::ALL.map(Precision::name).join(", ")
        )
    })
}

/// Parses the name of a language.
fn language(name: &str) -> Result<Language, String> {
    let named = (Language::ALL.iter()).find(|language| language.name() == name);
    named.copied().ok_or_else(|| {
        let names: Vec<&str> = Language::ALL
            .iter()
            .map(|language| language.name())
            .collect();
        format!("it is one of {}", names.join(", "))
    })
}

impl Create {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<()> {
        let bundle = match self.encoder.as_deref() {
            Some("none") => None,
            Some("default") => Some(mopqdb::encoder::default_bundle()?),
            Some(directory) => Some(PathBuf::from(directory)),
            None if self.dim.is_some() => None,
            None => Some(mopqdb::encoder::default_bundle()?),
        };
        let mut options = match (bundle, self.dim) {
            (Some(bundle), _) => CreateOptions::bundle(bundle),
            (None, Some(dim)) => CreateOptions::vectors(dim, Metric::Cosine),
            (None, None) => {
                return Err(usage(
                    "--encoder none takes vectors: give their width with --dim N",
                ));
            }
        };
        if let Some(dim) = self.dim {
            options = options.dim(dim);
        }
        if let Some(metric) = self.metric {
            options = options.metric(metric);
        }
        if let Some(store) = self.store {
            options = options.store(store);
        }
        if self.no_words {
            options = options.words(None);
        }
        if let Some(language) = self.language {
            options = options.words(WordsSettings::default().language(language));
        }
        for (name, kind) in &self.columns {
            options = options.column(name, *kind);
        }
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
                "store": model.precision().name(),
            }))?,
            false => out.line(format!(
                "created {}: {rows}, {} dimensions, {}, stored as {}",
                self.db.display(),
                model.dim(),
                model.metric(),
                model.precision()
            ))?,
        }
        out.flush()?;
        Ok(database.close()?)
    }
}
