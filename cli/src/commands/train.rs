mod quantize;
mod trainer;

use crate::exit::usage;
use crate::out::{Out, say};
use crate::progress::Progress;
use crate::rows::pairs::Columns;
use crate::settings::Settings;
use crate::stop;
use anyhow::Result;
use clap::{Args, ValueEnum};
use mopqdb::quantizer::TrainPq;
use mopqdb::{CellCount, LearnOptions, Metric, Reader, draft_cells};
use quantize::Trained;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

/// Learn a new model over the rows of a database
///
/// The database keeps answering with the old model until `mopqdb rebuild`. Prints the id of the new model.
///
/// Without flags it learns from the rows alone (--method distill): codes whose scores are close to those of the stored
/// vectors. It needs only rows, texts or vectors. --query-log adds real queries without answers, which help a little.
/// --pairs adds answers, which help most: the method is then mopq. (--method distill takes pairs and a log together, and
/// finds slightly less than mopq.) On 31,549 texts, 8 bytes per row found .48 of the right rows among ten hits with opq, .63
/// with distill, .66 with a query log and .72 with mopq. Databases with metric l2 use opq.
///
/// Pairs are lines `query TAB key text` (--key-ids: `query TAB key`; --queries Q.npy: `row number TAB key`). A pair
/// whose key is not in the database is an error; --skip-missing skips and counts such lines, as in `mopqdb eval`.
///
/// The methods pq and opq minimise the reconstruction error of the rows. The others run `mopqdb-train`, which must be next
/// to this program or on PATH; further flags for it follow `--`. Without it, `mopqdb train DB` uses opq, of all dimensions or
/// of the first 256 or 128 principal axes, whichever finds most of the nearest rows, and says what it finds. The
/// same command continues an interrupted run from its last complete epoch, and prints the model of a finished one;
/// --fresh starts over.
///
/// --only scorer learns how candidates are scored, a query map and the weight of words, and keeps the codes. It takes
/// seconds, and `rebuild` then writes no codes.
///
/// Cells let a query look at a part of the rows. --cells N makes them together with the codes of pq and opq, which are more
/// accurate for it. --only cells --cells N adds them to the active model, whichever method made its codes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb train my.db                                         # from the rows alone
  mopqdb train my.db --query-log searches.txt                # and what people have asked
  mopqdb train my.db --pairs train.tsv --valid valid.tsv     # and what answers it
  mopqdb train my.db --pairs train.tsv --devices cpu:4 --sampling dcs --epochs 20
  mopqdb train my.db --pairs clicks.tsv --skip-missing       # some rows were deleted since
  mopqdb train my.db --only scorer --pairs train.tsv         # how candidates are scored; the codes stay
  mopqdb train my.db --method opq                            # without mopqdb-train
  mopqdb train my.db --pairs train.tsv -- --patience 5       # a flag of mopqdb-train's own")]
pub struct Train {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Training pairs
    #[arg(long, value_name = "TRAIN.tsv")]
    pairs: Option<PathBuf>,
    /// Queries without answers: one text per line, or vectors (.npy, .fvecs, .fbin)
    #[arg(long, value_name = "LOG.txt")]
    query_log: Option<PathBuf>,
    /// Validation pairs; default: some of the training queries. Without pairs, recall is that of the exact first ten rows
    #[arg(long, value_name = "VALID.tsv")]
    valid: Option<PathBuf>,
    #[command(flatten)]
    columns: Columns,
    /// Learn this part alone, and keep the others of the active model: the scorer, from --pairs, or cells, from the rows
    #[arg(long, value_enum)]
    only: Option<Only>,
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
    /// Cells of opq, pq and --only cells, so that a query looks at a part of the rows: a number, `auto` or 0 for none. `auto`
    /// is none below a million rows, then the power of two nearest to four times their square root [default: auto]
    #[arg(long, value_name = "auto|N|0", value_parser = cells)]
    cells: Option<CellCount>,
    /// Dimensions of the projection [default: 128 or those of narrower vectors; pq and opq keep those of the vectors]
    #[arg(long, value_name = "N")]
    dim: Option<usize>,
    /// Epochs; for pq and opq the rounds of k-means
    #[arg(long, value_name = "N")]
    epochs: Option<usize>,
    /// Pairs (or queries of distill) per device and step
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
    /// Write the report at the end of mopqdb-train as a page, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// More flags for mopqdb-train
    #[arg(last = true, value_name = "FLAGS")]
    more: Vec<String>,
}

/// Printed if `mopqdb train DB` runs without the trainer. The figure is that of docs/learning.md.
const WITHOUT_TRAINER: &str = "mopqdb-train is not installed, so the method is opq; codes learned by mopqdb-train from the same rows find some \
     1.2 times as many right rows (`make setup`, then `cargo build --package mopqdb-trainer`)";

/// How a model is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Method {
    /// The scores of the stored vectors, without pairs (the default without --pairs)
    Distill,
    /// The contrast of queries with quantized keys (the default with --pairs)
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

/// A part of a model that can be learned alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Only {
    /// The query map and the weight of words, which score candidates
    Scorer,
    /// Cells, so that a query looks at a part of the codes, which stay what they are
    Cells,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::Distill => "distill",
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
        if let Some(Only::Scorer) = self.only {
            if self.pairs.is_none() {
                return Err(usage(
                    "--only scorer learns from pairs: give --pairs TRAIN.tsv",
                ));
            }
            return trainer::run(&self, self.method, settings);
        }
        if let Some(Only::Cells) = self.only {
            return self.cells_alone(settings);
        }
        match self.method {
            Some(method @ (Method::Pq | Method::Opq)) => {
                self.only_for_pairs(method)?;
                self.quantize(method, self.learn_options(method), settings)
            }
            None if self.pairs.is_none() && self.query_log.is_none() => self.rows_alone(settings),
            Some(method) if method != Method::Distill && self.pairs.is_none() => {
                Err(usage(format!(
                    "--method {} learns from pairs: give --pairs TRAIN.tsv; --method distill and --method opq need none",
                    method.name()
                )))
            }
            method => self.with_trainer(method, settings),
        }
    }

    /// Trains with `mopqdb-train`.
    fn with_trainer(&self, method: Option<Method>, settings: &Settings) -> Result<()> {
        match self.cells {
            Some(CellCount::Exactly(1..)) => Err(usage(
                "--cells is for --method opq and pq; `mopqdb train DB --only cells --cells N` adds cells to a model of another method",
            )),
            _ => trainer::run(self, method, settings),
        }
    }

    /// Adds cells to the active model.
    fn cells_alone(&self, settings: &Settings) -> Result<()> {
        self.only_for_pairs(Method::Opq)?;
        let given = [
            ("--pairs", self.pairs.is_some()),
            ("--valid", self.valid.is_some()),
            ("--method", self.method.is_some()),
            ("--subspaces", self.subspaces.is_some()),
            ("--codewords", self.codewords.is_some()),
            ("--epochs", self.epochs.is_some()),
        ];
        if let Some((flag, _)) = given.iter().find(|(_, given)| *given) {
            return Err(usage(format!("{flag} has no meaning for --only cells")));
        }
        stop::listen();
        let snapshot = Reader::open(&self.db, settings.options())?.snapshot();
        let mut options = self.learn_options(Method::Opq);
        options.pq.threads = settings.threads;
        options.memory_limit = settings.memory_limit;
        let progress = Progress::new("training cells", "steps", Some(0));
        options.pq.watch = progress.watch();
        let draft = draft_cells(&snapshot, &options, &self.db)?;
        drop(progress);
        let spec = draft.bundle().manifest().quantizer.clone();
        let cells = spec
            .and_then(|spec| spec.cells)
            .map_or(0, |cells| cells.count);
        let id = draft.register()?;
        let mut out = Out::new(settings);
        match out.is_json() {
            true => out.object(&json!({"model": id.to_string(), "cells": cells}))?,
            false => {
                out.line(id.to_string())?;
                say(format!("{cells} cells; `mopqdb rebuild DB` switches to it"));
            }
        }
        out.flush()
    }

    /// Trains without flags: by distillation if the trainer is installed, otherwise by opq, which is also the method for l2.
    fn rows_alone(&self, settings: &Settings) -> Result<()> {
        let (metric, dim) = {
            let model = Arc::clone(
                Reader::open(&self.db, settings.options())?
                    .snapshot()
                    .model(),
            );
            (model.metric(), model.dim())
        };
        let options = || -> Result<LearnOptions> {
            self.only_for_pairs(Method::Opq)?;
            if self.epochs.is_some() {
                return Err(usage(
                    "--epochs means another number to each method: say --method",
                ));
            }
            let mut options = self.learn_options(Method::Opq);
            let automatic = LearnOptions::automatic(dim);
            options.projection = automatic.projection;
            if self.subspaces.is_none() {
                options.pq.subspaces = automatic.pq.subspaces;
            }
            Ok(options)
        };
        if metric == Metric::L2 {
            let options = options()?;
            say("the metric is l2, for which the method is opq");
            return self.quantize(Method::Opq, options, settings);
        }
        match (trainer::find(), options()) {
            (Ok(_), _) => self.with_trainer(None, settings),
            (Err(_), Ok(options)) => {
                say(WITHOUT_TRAINER);
                self.quantize(Method::Opq, options, settings)
            }
            // Some flag needs the trainer: the error says how to install it.
            (Err(missing), Err(_)) => Err(missing),
        }
    }

    /// Trains with the engine, from the rows alone.
    fn quantize(&self, method: Method, options: LearnOptions, settings: &Settings) -> Result<()> {
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
        tell(
            &quantize::train(&self.db, options, valid, settings)?,
            settings,
        )
    }

    /// Returns an error for flags that have no effect on k-means.
    fn only_for_pairs(&self, method: Method) -> Result<()> {
        let given = [
            ("--query-log", self.query_log.is_some()),
            ("--sampling", self.sampling.is_some()),
            ("--devices", self.devices.is_some()),
            ("--select", self.select.is_some()),
            ("--dim", self.dim.is_some()),
            ("--batch", self.batch.is_some()),
            ("--lr", self.lr.is_some()),
            ("--joint", self.joint),
            ("--config", self.config.is_some()),
            ("--fresh", self.fresh),
            ("--html", self.html.is_some()),
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
            .cells(self.cells.unwrap_or_default())
    }
}

/// Reads a number of cells, or `auto`.
fn cells(text: &str) -> Result<CellCount, String> {
    if text == "auto" {
        return Ok(CellCount::Auto);
    }
    let cells = text.parse().map(CellCount::Exactly);
    cells.map_err(|_| "a number of cells, 0 for none, or auto".into())
}

fn tell(trained: &Trained, settings: &Settings) -> Result<()> {
    let (mut out, learned) = (Out::new(settings), &trained.learned);
    match out.is_json() {
        true => out.object(&json!({
            "model": trained.id.to_string(), "method": learned.method, "rows": learned.trained.rows,
            "distortion": learned.trained.distortions.last(), "recall": trained.recall, "seconds": trained.seconds,
            "dim": learned.trained.quantizer.dim(),
            "own_rows": {
                "recall": learned.own_rows.recall,
                "queries": learned.own_rows.queries,
                "rows": learned.own_rows.rows,
            },
        }))?,
        false => {
            out.line(trained.id.to_string())?;
            say(format!(
                "{} from {} rows in {:.1} s; `mopqdb rebuild DB` switches to it",
                learned.method, learned.trained.rows, trained.seconds
            ));
            let own = learned.own_rows;
            if own.queries > 0 {
                say(format!(
                    "the codes alone find {:.2} of the ten nearest rows, which exact search finds ({} of your rows asked among {}); \
                     `--search auto` adds stored vectors, and words of texts",
                    own.recall, own.queries, own.rows
                ));
            }
        }
    }
    out.flush()
}
