mod quantize;
mod trainer;

use crate::exit::usage;
use crate::out::{Out, say};
use crate::rows::pairs::Columns;
use crate::settings::Settings;
use crate::stop;
use anyhow::Result;
use clap::{Args, ValueEnum};
use mopqdb::LearnOptions;
use mopqdb::quantizer::TrainPq;
use quantize::Trained;
use serde_json::json;
use std::path::PathBuf;

/// Learn a new model from pairs of query and key, over the rows of a database
///
/// The database keeps answering with the old model until `mopqdb rebuild`. Prints the id of the new model.
///
/// Pairs are lines `query TAB key text` (--key-ids: `query TAB key`; --queries Q.npy: `row number TAB key`). A pair
/// whose key is not in the database is an error; --skip-missing skips and counts such lines, as in `mopqdb eval`.
///
/// The methods pq and opq learn from the rows alone, without pairs. The others run `mopqdb-train`, which must be next
/// to this program or on PATH; further flags for it follow `--`. The same command continues an interrupted run from its
/// last complete epoch, and prints the model of a finished one; --fresh starts over.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb train my.db --pairs train.tsv --valid valid.tsv
  mopqdb train my.db --pairs train.tsv --devices cpu:4 --sampling dcs --epochs 20
  mopqdb train my.db --pairs clicks.tsv --skip-missing       # some rows were deleted since
  mopqdb train my.db --method opq                            # from the rows alone
  mopqdb train my.db --pairs train.tsv -- --patience 5       # a flag of mopqdb-train's own")]
pub struct Train {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Training pairs
    #[arg(long, value_name = "TRAIN.tsv")]
    pairs: Option<PathBuf>,
    /// Validation pairs; default: some of the training queries
    #[arg(long, value_name = "VALID.tsv")]
    valid: Option<PathBuf>,
    #[command(flatten)]
    columns: Columns,
    /// Training method
    #[arg(long, value_enum)]
    method: Option<Method>,
    /// Negatives of a query: in-batch, ncs or dcs
    #[arg(long)]
    sampling: Option<String>,
    /// Devices: cpu:4, or cuda:0,cuda:1
    #[arg(long)]
    devices: Option<String>,
    /// How a codeword is chosen: l2, cosine, product or bilinear
    #[arg(long)]
    select: Option<String>,
    /// Codes per row (bytes, with 256 codewords) [default: 8]
    #[arg(long, value_name = "M")]
    subspaces: Option<usize>,
    /// Codewords per subspace [default: 256]
    #[arg(long, value_name = "L")]
    codewords: Option<usize>,
    /// Dimensions of the projection [default: 128; pq and opq keep those of the vectors]
    #[arg(long, value_name = "N")]
    dim: Option<usize>,
    /// Epochs; for pq and opq the rounds of k-means
    #[arg(long, value_name = "N")]
    epochs: Option<usize>,
    /// Pairs per device and step
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Learning rate of projection and codebooks
    #[arg(long)]
    lr: Option<f64>,
    /// Random seed [default: 42]
    #[arg(long)]
    seed: Option<u64>,
    /// Train the encoder too
    #[arg(long)]
    joint: bool,
    /// A configuration in TOML; flags override it
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,
    /// Start over, even if the same run was interrupted or finished
    #[arg(long)]
    fresh: bool,
    /// More flags for mopqdb-train
    #[arg(last = true, value_name = "FLAGS")]
    more: Vec<String>,
}

/// How a model is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Method {
    /// The contrast of queries with quantized keys (the default)
    Mopq,
    /// Contrast of queries and keys, and the reconstruction error
    Dqn,
    /// Contrast of queries and keys, and the error of inner products
    Dvsq,
    /// Contrast of soft against hard quantization
    Spq,
    /// As dqn, selecting by a separate matrix of keys
    Dpq,
    /// k-means in each subspace, from the rows alone
    Pq,
    /// The same after a learned rotation
    Opq,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::Mopq => "mopq",
            Self::Dqn => "dqn",
            Self::Dvsq => "dvsq",
            Self::Spq => "spq",
            Self::Dpq => "dpq",
            Self::Pq => "pq",
            Self::Opq => "opq",
        }
    }
}

impl Train {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<()> {
        match self.method {
            Some(method @ (Method::Pq | Method::Opq)) => {
                self.only_for_pairs(method)?;
                stop::listen();
                // Training pairs are not used for training here, but can measure recall.
                let pairs = self.valid.as_deref().or(self.pairs.as_deref());
                if let Some(given) = &self.pairs {
                    let use_of_pairs = match self.valid {
                        Some(_) => "is not read",
                        None => "only measures it",
                    };
                    say(format!(
                        "{} learns from the rows alone: {} {use_of_pairs} (`mopqdb-train --method {0}` learns a head from pairs first)",
                        method.name(),
                        given.display()
                    ));
                }
                let valid = pairs.map(|path| (path, &self.columns));
                let options = self.learn_options(method);
                tell(
                    &quantize::train(&self.db, options, valid, settings)?,
                    settings,
                )
            }
            _ if self.pairs.is_none() => Err(usage(
                "learning from pairs needs --pairs TRAIN.tsv; without pairs there is --method opq",
            )),
            method => trainer::run(&self, method, settings),
        }
    }

    /// Returns an error for flags that have no effect on k-means.
    fn only_for_pairs(&self, method: Method) -> Result<()> {
        let given = [
            ("--sampling", self.sampling.is_some()),
            ("--devices", self.devices.is_some()),
            ("--select", self.select.is_some()),
            ("--dim", self.dim.is_some()),
            ("--batch", self.batch.is_some()),
            ("--lr", self.lr.is_some()),
            ("--joint", self.joint),
            ("--config", self.config.is_some()),
            ("--fresh", self.fresh),
            ("flags after --", !self.more.is_empty()),
        ];
        if let Some((flag, _)) = given.iter().find(|(_, given)| *given) {
            let method = method.name();
            return Err(usage(format!(
                "{flag} has no meaning for --method {method}"
            )));
        }
        let of_pairs = [
            ("--key-ids", self.columns.key_ids),
            ("--queries", self.columns.queries.is_some()),
            ("--skip-missing", self.columns.skip_missing),
        ];
        match of_pairs.iter().find(|(_, given)| *given) {
            Some((flag, _)) if self.pairs.is_none() && self.valid.is_none() => Err(usage(format!(
                "{flag} has a meaning for --method {} only with --valid VALID.tsv, which measures it",
                method.name()
            ))),
            _ => Ok(()),
        }
    }

    fn learn_options(&self, method: Method) -> LearnOptions {
        let defaults = TrainPq::default();
        LearnOptions::default()
            .rotate(method == Method::Opq)
            .pq(TrainPq::default()
                .subspaces(self.subspaces.unwrap_or(defaults.subspaces))
                .codewords(self.codewords.unwrap_or(defaults.codewords))
                .iterations(self.epochs.unwrap_or(defaults.iterations))
                .seed(self.seed.unwrap_or(defaults.seed)))
    }
}

fn tell(trained: &Trained, settings: &Settings) -> Result<()> {
    let (mut out, learned) = (Out::new(settings), &trained.learned);
    match out.is_json() {
        true => out.object(&json!({
            "model": trained.id.to_string(), "method": learned.method, "rows": learned.trained.rows,
            "distortion": learned.trained.distortions.last(), "recall": trained.recall, "seconds": trained.seconds,
        }))?,
        false => {
            out.line(trained.id.to_string())?;
            say(format!(
                "{} from {} rows in {:.1} s; `mopqdb rebuild DB` switches to it",
                learned.method, learned.trained.rows, trained.seconds
            ));
        }
    }
    out.flush()
}
