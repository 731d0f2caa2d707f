mod html;
mod measure;
mod page_file;

use crate::exit::usage;
use crate::out::{Out, Table, say};
use crate::rows::pairs::{Columns, groups};
use crate::settings::Settings;
use crate::stop;
use anyhow::{Result, bail};
use clap::Args;
use measure::{Measured, Measurer, tells_ceiling};
use mopqdb::eval::{FindOptions, Questions, bootstrap};
use mopqdb::{ModelId, find_model};
use page_file::PageFile;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::PathBuf;

/// Measure the recall of one or several models on pairs of query and right answer
///
/// Recall@k is the mean over queries of the share of right rows among the first k of all living rows. Right rows that tie
/// with others count by their chance of being among the first k; `recall_worst` and `recall_best` are those of losing
/// and winning every tie. Intervals are 95% by bootstrap over queries, paired where models are compared. Beside it: the
/// recall of the encoder's whole vectors (what codes of them can hope for), the reconstruction loss (also relative to
/// the spread of the rows), and how evenly codewords are used.
///
/// Any two models can be compared: `--model 3f2a --model exact`. `all` is the active model, then every other that has
/// codes, then `exact`, which searches rows by their stored vectors. In a pipe the first line names the columns.
///
/// Pairs are lines `query TAB right answer`; lines with the same query are one query with many right answers. A
/// right answer that is no row of the database is an error; with --skip-missing such lines are left out and counted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb eval my.db --pairs test.tsv
  mopqdb eval my.db --pairs test.tsv --model all --html report.html
  mopqdb eval my.db --pairs test.tsv --model 3f2a --model exact --html report.html
  mopqdb eval my.db --pairs test.tsv --exclude-self --groups keys_group.txt
  mopqdb eval vectors.db --pairs pairs.tsv --queries q.npy -k 1,10,100 --json")]
pub struct Eval {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Pairs to test with
    #[arg(long, value_name = "TEST.tsv")]
    pairs: PathBuf,
    #[command(flatten)]
    columns: Columns,
    /// Where recall is measured
    #[arg(
        short,
        value_name = "K,...",
        value_delimiter = ',',
        default_value = "10,50,100"
    )]
    k: Vec<usize>,
    /// A model by the first digits of its id, `exact` or `all`; default: the active one. May be given several times: the
    /// others are compared with the first
    #[arg(long, value_name = "ID|exact|all")]
    model: Vec<String>,
    /// Leave a row that is the query itself (same text, or same vector) out of its ranking
    #[arg(long)]
    exclude_self: bool,
    /// The group of each key: a line `key TAB group`, or a group alone for the key that is the line's number. All rows
    /// of a right row's group (or the query's own) are right
    #[arg(long, value_name = "FILE")]
    groups: Option<PathBuf>,
    /// Write a page with curves, codeword use, and the hits of the first two models side by side
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Eval {
    /// Measures and prints.
    pub fn run(self, settings: &Settings) -> Result<()> {
        let mut cuts = self.k.clone();
        cuts.sort_unstable();
        cuts.dedup();
        if cuts.is_empty() || cuts[0] == 0 || cuts[cuts.len() - 1] > mopqdb::MAX_K {
            return Err(usage(format!(
                "-k takes numbers from 1 to {}",
                mopqdb::MAX_K
            )));
        }
        let page = self.html.as_deref().map(PageFile::open).transpose()?;
        stop::listen();
        let reader = super::read(&self.db, settings)?;
        let snapshot = reader.snapshot();
        let models = self.models(snapshot.model().model_id())?;
        let pairs = self.columns.read(&self.pairs)?;
        let find = FindOptions {
            by_key: self.columns.by_key(),
            exclude_self: self.exclude_self,
            groups: self.groups.as_deref().map(groups).transpose()?,
        };
        let questions = Questions::find(&snapshot, &pairs.asks, &find)?;
        self.columns.check_missing(&pairs, &questions)?;
        if questions.all.is_empty() {
            bail!(
                "{}: no query has a right answer but itself, which --exclude-self leaves out",
                self.pairs.display()
            );
        }
        let mut measurer = Measurer::new(
            &self.db,
            settings,
            &snapshot,
            &questions,
            *cuts.last().expect("one k"),
        )?;
        measurer.samples = if self.html.is_some() {
            html::SAMPLES
        } else {
            0
        };
        let measured: Vec<Measured> = models
            .into_iter()
            .map(|id| measurer.measure(id))
            .collect::<Result<_>>()?;
        let mut out = Out::new(settings);
        match out.is_json() {
            true => {
                for model in &measured {
                    out.object(&object(
                        model,
                        &measured[0],
                        &cuts,
                        &questions,
                        snapshot.rows(),
                    ))?;
                }
            }
            false => out.table(&table(&measured, &cuts))?,
        }
        out.flush()?;
        if let Some(page) = page {
            let path = page.write(&html::page(&measured, &cuts, &questions, &snapshot)?)?;
            say(format!("wrote {}", path.display()));
        }
        Ok(())
    }

    /// The models to measure, each once, in the order in which they were asked for.
    fn models(&self, active: ModelId) -> Result<Vec<ModelId>> {
        if self.model.is_empty() {
            return Ok(vec![active]);
        }
        let mut models = Vec::new();
        for model in &self.model {
            match model.as_str() {
                "all" => models.extend(self.all(active)?),
                prefix => models.push(find_model(&self.db, prefix)?),
            }
        }
        let mut seen = HashSet::new();
        models.retain(|id| seen.insert(*id));
        Ok(models)
    }

    /// The active model, the others with codes by age, then `exact`.
    fn all(&self, active: ModelId) -> Result<Vec<ModelId>> {
        let known = mopqdb::models(&self.db)?;
        let coded = known.iter().filter(|info| info.shape.is_some());
        let exact = known.iter().filter(|info| info.exact);
        let others = coded.chain(exact).map(|info| info.id);
        Ok([active].into_iter().chain(others).collect())
    }
}

const SEED: u64 = 42;

fn object(
    model: &Measured,
    first: &Measured,
    cuts: &[usize],
    questions: &Questions,
    rows: u64,
) -> Value {
    let by_cut = |value: &dyn Fn(usize) -> Value| -> Value {
        Value::Object(cuts.iter().map(|&k| (k.to_string(), value(k))).collect())
    };
    let places = &model.evaluation.places;
    let mut object = json!({
        "model": model.id,
        "method": model.method,
        "active": model.active,
        "recall": by_cut(&|k| json!(places.recall(k))),
        "interval": by_cut(&|k| json!(bootstrap::interval(&places.recalls(k), SEED))),
        "recall_worst": by_cut(&|k| json!(places.bounds(k).0)),
        "recall_best": by_cut(&|k| json!(places.bounds(k).1)),
        "unquantized": by_cut(&|k| json!(model.ceiling.recall(k))),
        "queries": questions.all.len(),
        "missing_answers": questions.missing_answers.len(),
        "unanswerable": questions.unanswerable,
        "rows": rows,
        "seconds": model.seconds,
    });
    if let Some(head) = &model.evaluation.head {
        object["unquantized_head"] = by_cut(&|k| json!(head.recall(k)));
    }
    if let Some(codes) = &model.evaluation.codes {
        object["reconstruction_loss"] = json!(codes.distortion);
        object["relative_distortion"] = json!(codes.relative_distortion);
        object["codewords_used"] = json!(codes.used);
        object["entropy_bits"] = json!(codes.entropy);
        object["distinct_codes"] = json!(codes.distinct);
    }
    if !std::ptr::eq(model, first) {
        object["compared_with"] = json!(first.id);
        object["difference"] = by_cut(&|k| {
            let (ours, theirs) = (places.recalls(k), first.evaluation.places.recalls(k));
            let mean = places.recall(k) - first.evaluation.places.recall(k);
            let interval = bootstrap::difference(&ours, &theirs, SEED);
            json!({"mean": mean, "low": interval.low, "high": interval.high})
        });
    }
    object
}

/// A line a model and a line for what its encoder could do.
fn table(measured: &[Measured], cuts: &[usize]) -> Table {
    let mut headers = vec!["model".to_owned(), "method".to_owned()];
    headers.extend(cuts.iter().map(|k| format!(">recall@{k}")));
    headers.extend([">loss".to_owned(), ">used".to_owned()]);
    let mut table = Table::new(&headers);
    let mut row = |name: String,
                   method: &str,
                   recall: &dyn Fn(usize) -> String,
                   loss: String,
                   used: String| {
        let mut cells = vec![name, method.to_owned()];
        cells.extend(cuts.iter().map(|&k| recall(k)));
        cells.extend([loss, used]);
        table.row(cells);
    };
    let blank = || "-".to_owned();
    for (n, model) in measured.iter().enumerate() {
        let places = &model.evaluation.places;
        let (loss, used) = match &model.evaluation.codes {
            None => (blank(), blank()),
            Some(codes) => {
                let used = codes.used.iter().sum::<usize>() as f64;
                let of = codes.usage.iter().map(Vec::len).sum::<usize>() as f64;
                (
                    format!("{:.3}", codes.relative_distortion),
                    format!("{:.0}%", 100.0 * used / of),
                )
            }
        };
        let mark = if model.active { "*" } else { "" };
        let told = |k: usize| {
            let interval = bootstrap::interval(&places.recalls(k), SEED);
            format!(
                "{:.3} ±{:.3}",
                places.recall(k),
                (interval.high - interval.low) / 2.0
            )
        };
        row(
            format!("{}{mark}", model.short()),
            &model.method,
            &told,
            loss,
            used,
        );
        if let Some(head) = &model.evaluation.head {
            row(
                blank(),
                "its head, whole",
                &|k| format!("{:.3}", head.recall(k)),
                blank(),
                blank(),
            );
        }
        if tells_ceiling(measured, n) {
            row(
                blank(),
                "whole vectors",
                &|k| format!("{:.3}", model.ceiling.recall(k)),
                blank(),
                blank(),
            );
        }
    }
    table
}
