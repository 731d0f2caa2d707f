mod html;
mod lines;
mod measure;
mod page_file;

use crate::exit::usage;
use crate::out::{Out, say};
use crate::rows::pairs::{Columns, groups};
use crate::settings::Settings;
use crate::stop;
use anyhow::{Result, bail};
use clap::Args;
use measure::{Measured, Measurer};
use mopqdb::eval::{EvalOptions, FindOptions, Questions};
use mopqdb::{ModelId, Probes, Search, find_model};
use page_file::PageFile;
use std::collections::HashSet;
use std::path::PathBuf;

/// Measure the recall of one or several models on pairs of query and right answer
///
/// Recall@k is the mean over queries of the share of right rows among the first k of all live rows. Right rows that tie
/// with others count by their chance of being among the first k; `recall_worst` and `recall_best` are those of losing
/// and winning every tie. Intervals are 95% by bootstrap over queries, paired where lines are compared: each with the
/// first, and with exact search where that is among them (`--search auto,exact`). Also printed: the recall of exact
/// search by the encoder's full-precision vectors, the reconstruction loss (also relative to the spread of the rows),
/// and how evenly codewords are used.
///
/// Rows are searched as by `mopqdb query`. `--search` takes one or several of `auto`, `codes`, `exact` and `words`; there
/// is one line per model and search mode. Each k is measured with the candidates that a query for k hits takes.
///
/// Any two models can be compared: `--model 3f2a --model exact`. `all` is the active model, then every other that has
/// codes, then `exact`, which searches rows by their stored vectors. In a pipe the first line names the columns.
///
/// Pairs are lines `query TAB right answer`; lines with the same query are one query with many right answers. A right
/// answer that is not a row of the database is an error; --skip-missing skips and counts such lines.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb eval my.db --pairs test.tsv
  mopqdb eval my.db --pairs test.tsv --search codes,auto,exact,words
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
    /// Values of k
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
    /// How rows are searched: `auto`, `codes`, `exact`, `words`, or several of them; default: auto
    #[arg(long, value_name = "HOW,...", value_delimiter = ',', value_parser = super::query::search)]
    search: Vec<Search>,
    /// Candidates of `--search auto`, for every k; default: those of a query for k hits
    #[arg(long, value_name = "C")]
    candidates: Option<usize>,
    /// Cells that `--search auto` looks at, or `all`, under a model with cells; default: as for queries. `codes` ranks the
    /// rows of all cells
    #[arg(long, value_name = "P|all", value_parser = super::query::probes)]
    probes: Option<Probes>,
    /// Exclude the row that is the query itself (same text or vector)
    #[arg(long)]
    exclude_self: bool,
    /// The group of each key: lines `key TAB group`, or only a group, for the key equal to the line number. All rows
    /// of a right row's group (or the query's own) are right
    #[arg(long, value_name = "FILE")]
    groups: Option<PathBuf>,
    /// Write a page with curves, codeword use, and the hits of some queries side by side. Without --search it shows all
    /// ways of searching
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Eval {
    /// Runs the command.
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
        let (printed, shown) = self.searches();
        if let (false, Some(search)) = (shown.contains(&Search::Auto), shown.first()) {
            super::query::check_candidates(*search, self.candidates)?;
            if self.probes.is_some() {
                return Err(usage(format!(
                    "--probes is for --search auto; --search {search} is measured over all rows"
                )));
            }
        }
        let page = self.html.as_deref().map(PageFile::open).transpose()?;
        stop::listen();
        let reader = super::read(&self.db, settings)?;
        let snapshot = reader.snapshot();
        let models = self.models(snapshot.model().model_id())?;
        let pairs = self.columns.read(&self.pairs)?;
        let find = FindOptions::default()
            .by_key(self.columns.by_key())
            .exclude_self(self.exclude_self)
            .groups(self.groups.as_deref().map(groups).transpose()?);
        let questions = Questions::find(&snapshot, &pairs.asks, &find)?;
        self.columns.check_missing(&pairs, &questions)?;
        if questions.all.is_empty() {
            bail!(
                "{}: the only right answer of each query is the query itself, which --exclude-self excludes",
                self.pairs.display()
            );
        }
        let options = EvalOptions::default()
            .cuts(cuts.clone())
            .candidates(self.candidates)
            .probes(self.probes)
            .samples(match self.html {
                Some(_) => html::SAMPLES,
                None => 0,
            })
            .memory_limit(settings.memory_limit);
        let mut measurer = Measurer::new(&self.db, settings, &snapshot, &questions, options)?;
        let (mut measured, mut without) = (Vec::new(), Vec::new());
        for id in models {
            let lines = measurer.measure(id, &shown)?;
            if printed.contains(&Search::Codes) && lines.len() < shown.len() {
                without.push(id);
            }
            measured.extend(lines);
        }
        let is_printed = |line: &&Measured| printed.contains(&line.ranks.search);
        let lines: Vec<&Measured> = measured.iter().filter(is_printed).collect();
        if lines.is_empty() {
            bail!(
                "none of the requested models has codes to search by; omit --search codes, or name another --model"
            );
        }
        for id in without {
            say(format!(
                "model {id} has no codes to search by, so that line is omitted"
            ));
        }
        let mut out = Out::new(settings);
        match out.is_json() {
            true => {
                for line in &lines {
                    out.object(&lines::object(
                        line,
                        &lines,
                        &cuts,
                        &questions,
                        snapshot.rows(),
                    ))?;
                }
            }
            false => out.table(&lines::table(&lines, &cuts))?,
        }
        out.flush()?;
        if let Some(page) = page {
            let path = page.write(&html::page(&measured, &cuts, &questions, &snapshot)?)?;
            say(format!("wrote {}", path.display()));
        }
        Ok(())
    }

    /// Returns the search modes that are printed, and those that are measured: a page shows all modes, unless some were
    /// requested.
    fn searches(&self) -> (Vec<Search>, Vec<Search>) {
        let mut asked = self.search.clone();
        let mut seen = HashSet::new();
        asked.retain(|search| seen.insert(*search));
        match (asked.is_empty(), &self.html) {
            (false, _) => (asked.clone(), asked),
            (true, None) => (vec![Search::Auto], vec![Search::Auto]),
            (true, Some(_)) => (
                vec![Search::Auto],
                vec![Search::Codes, Search::Words, Search::Auto, Search::Exact],
            ),
        }
    }

    /// Returns the models to measure, each once, in the order in which they were requested.
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

    /// Returns the active model, the others with codes by age, then `exact`.
    fn all(&self, active: ModelId) -> Result<Vec<ModelId>> {
        let known = mopqdb::models(&self.db)?;
        let coded = known.iter().filter(|info| info.shape.is_some());
        let exact = known.iter().filter(|info| info.exact);
        let others = coded.chain(exact).map(|info| info.id);
        Ok([active].into_iter().chain(others).collect())
    }
}

/// The seed of the bootstrap.
const SEED: u64 = 42;
