use crate::exit::usage;
use crate::out::{Out, Table};
use crate::progress::Progress;
use crate::rows::pairs::Columns;
use crate::rows::read_queries;
use crate::settings::Settings;
use crate::stop;
use anyhow::{Result, bail};
use clap::Args;
use mopqdb::eval::{FindOptions, Questions, tune};
use mopqdb::{Database, Error};
use serde_json::json;
use std::path::PathBuf;

/// Choose how many candidates queries take, for a recall that you name
///
/// Measures recall and time of `--search auto` with growing numbers of candidates, prints both, and stores the smallest
/// number that finds at least `--recall` of what the largest finds. Queries under this model then take this number, in
/// proportion to their hits, unless they set their own. After a switch to another model, that model's setting applies.
///
/// Under a model with cells it tries pairs of probes and candidates, and stores the fastest that finds as much.
///
/// With --pairs, recall counts the right answers; with --queries (one text per line, or vectors as .npy), the hits of
/// exact search. Use real queries: a query that is a stored row finds itself, which is misleading.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb tune my.db --pairs valid.tsv --recall 0.99
  mopqdb tune my.db --queries log.txt --recall 0.95 -k 20")]
pub struct Tune {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Pairs of query and right answer, as for `mopqdb eval`. Without them, --queries names a file of queries: texts, one
    /// per line, or vectors
    #[arg(long, value_name = "VALID.tsv", required_unless_present = "queries")]
    pairs: Option<PathBuf>,
    #[command(flatten)]
    columns: Columns,
    /// The share of what the largest number of candidates finds: above 0, at most 1
    #[arg(long, value_name = "R")]
    recall: f64,
    /// Hits per query
    #[arg(short, value_name = "K", default_value_t = 10)]
    k: usize,
}

impl Tune {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<()> {
        if !(self.recall > 0.0 && self.recall <= 1.0) {
            return Err(usage("--recall takes a share above 0 and at most 1"));
        }
        stop::listen();
        // Takes the lock first, so that the measurement is not in vain. Without the lock the measurement is still
        // printed.
        let opened = match Database::open(&self.db, settings.options()) {
            Ok(db) => Ok(db),
            Err(e @ Error::Locked { .. }) => Err(e),
            Err(e) => return Err(e.into()),
        };
        let snapshot = match &opened {
            Ok(db) => db.snapshot(),
            Err(_) => super::read(&self.db, settings)?.snapshot(),
        };
        let questions = self.questions(&snapshot)?;
        if questions.all.is_empty() {
            bail!("there is no query to measure with");
        }
        let progress = Progress::new("measuring", "queries", Some(0));
        let tuned = tune(
            &snapshot,
            &questions,
            self.k,
            self.recall,
            &progress.watch(),
        )?;
        drop(progress);
        let mut out = Out::new(settings);
        if out.is_json() {
            out.object(&json!({
                "model": snapshot.model().model_id().to_string(),
                "k": tuned.k,
                "target": self.recall,
                "tried": tuned.tried,
                "chosen": tuned.chosen.map(|serving| serving.candidates),
                "chosen_probes": tuned.chosen.and_then(|serving| serving.probes),
                "stored": tuned.chosen.is_some() && opened.is_ok(),
            }))?;
        } else {
            let mut names = vec!["candidates", "found", "of the most", "us per query", ""];
            let has_cells = tuned.tried.iter().any(|tried| tried.probes.is_some());
            if has_cells {
                names.insert(0, "probes");
            }
            let mut table = Table::new(&names);
            for tried in &tuned.tried {
                let is_chosen = tuned.chosen.is_some_and(|serving| {
                    serving.candidates as usize == tried.candidates
                        && serving.probes.map(|probes| probes as usize) == tried.probes
                });
                let mut row = vec![
                    tried.candidates.to_string(),
                    format!("{:.4}", tried.found),
                    format!("{:.4}", tried.share),
                    format!("{:.0}", tried.micros),
                    if is_chosen { "chosen" } else { "" }.into(),
                ];
                if let Some(probes) = tried.probes {
                    row.insert(0, probes.to_string());
                }
                table.row(row);
            }
            out.table(&table)?;
        }
        out.flush()?;
        let Some(serving) = tuned.chosen else {
            bail!(
                "no number of candidates finds {} of what the largest number finds",
                self.recall
            );
        };
        let db = opened?;
        db.serve(serving)?;
        Ok(db.close()?)
    }

    fn questions(&self, snapshot: &mopqdb::Snapshot) -> Result<Questions> {
        let Some(path) = &self.pairs else {
            let path = self.columns.queries.as_deref();
            let path = path.expect("clap asks for one of both");
            return Ok(Questions::unlabelled(read_queries(path)?));
        };
        let pairs = self.columns.read(path)?;
        let find = FindOptions::default().by_key(self.columns.by_key());
        let questions = Questions::find(snapshot, &pairs.asks, &find)?;
        self.columns.check_missing(&pairs, &questions)?;
        Ok(questions)
    }
}
