//! `make compare`: ourselves beside peers. `compare search`, `compare whole` measure; `compare pages` writes the docs.

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use mopqdb_benches::compare::case::{self, Case};
use mopqdb_benches::compare::embeddings::Embeddings;
use mopqdb_benches::compare::peers::Programs;
use mopqdb_benches::compare::search::{self, Effort};
use mopqdb_benches::compare::set::Set;
use mopqdb_benches::compare::whole::{self, Size};
use mopqdb_benches::compare::{learning, model, pages};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Ourselves beside other databases and indexes.
#[derive(Debug, Parser)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Vectors in, hits out: every peer on every case.
    Search(Flags),
    /// Texts in, hits out.
    Whole(Flags),
    /// Write the pages from what was measured.
    Pages(Flags),
}

/// The three commands share their flags, so that `make compare` can pass all of them the same.
#[derive(Debug, Args)]
struct Flags {
    /// What is measured.
    #[arg(long, default_value = "target/compare")]
    out: PathBuf,
    /// An interpreter with the peers.
    #[arg(long, default_value = "target/peers/venv/bin/python")]
    python: PathBuf,
    /// Where peer, mopqdb and mopqdb-train are [default: beside this program].
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Data sets, a folder each; without it, or if it is empty, synthetic rows only.
    #[arg(long)]
    data: Option<OsString>,
    /// Of those, the ones that are there.
    #[arg(long, value_delimiter = ',', default_value = "quora,wiki")]
    sets: Vec<String>,
    /// Texts that are encoded already, beside those of --out.
    #[arg(long)]
    embeddings: Vec<PathBuf>,
    /// Synthetic rows [default: 1000000,10000000; quick: 100000].
    #[arg(long, value_delimiter = ',')]
    rows: Option<Vec<usize>>,
    /// Bytes a row that are compared [default: 8,16; quick: 8].
    #[arg(long, value_delimiter = ',')]
    bytes: Option<Vec<usize>>,
    /// Only cases whose names begin so: quora-384, quora-128, clustered-1M, ...
    #[arg(long, value_delimiter = ',')]
    cases: Vec<String>,
    /// Only peers whose names begin so; the others keep what this machine measured of them before.
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    /// Graphs to so many rows.
    #[arg(long, default_value_t = 1_000_000)]
    graph_rows: usize,
    /// Queries of a case [default: 2000, synthetic 500; quick: 500].
    #[arg(long)]
    queries: Option<usize>,
    /// Seconds of each timing [default: 1; quick: 0.3].
    #[arg(long)]
    seconds: Option<f64>,
    /// Repeats of each timing [default: 5; quick: 3].
    #[arg(long)]
    repeats: Option<usize>,
    /// Texts of the whole job [default: 100000; quick: 2000].
    #[arg(long)]
    texts: Option<usize>,
    /// Small sizes, for checking.
    #[arg(long)]
    quick: bool,
    /// What `make table` found.
    #[arg(long, default_value = "target/table")]
    table: PathBuf,
    /// Pages to rewrite.
    #[arg(long, default_value = "docs")]
    docs: PathBuf,
    /// The front page, of which a part is rewritten.
    #[arg(long, default_value = "README.md")]
    readme: PathBuf,
}

impl Flags {
    fn wants(&self, case: &str) -> bool {
        self.cases.is_empty()
            || self
                .cases
                .iter()
                .any(|only| case.starts_with(only.as_str()))
    }

    /// What a quick run has less of.
    fn or<T>(&self, given: Option<T>, quick: T, whole: T) -> T {
        given.unwrap_or(if self.quick { quick } else { whole })
    }

    fn effort(&self) -> Effort {
        Effort {
            seconds: self.or(self.seconds, 0.3, 1.0),
            repeats: self.or(self.repeats, 3, 5),
            bytes: self.or(self.bytes.clone(), vec![8], vec![8, 16]),
            graph_rows: self.graph_rows,
            only: self.peers.clone(),
            quick: self.quick,
        }
    }
}

fn main() -> Result<()> {
    match Program::parse().command {
        Command::Search(flags) => searches(&flags),
        Command::Whole(flags) => whole(&flags),
        Command::Pages(flags) => {
            learning::write(&flags.table, &flags.docs)?;
            pages::write(&flags.out, &flags.docs, &flags.readme)
        }
    }
}

/// The sets that were asked for and are there.
fn sets(flags: &Flags) -> Vec<(String, PathBuf)> {
    let Some(data) = flags.data.as_ref().filter(|data| !data.is_empty()) else {
        eprintln!(
            "compare: NO DATA SETS: COMPARE_DATA is not set, so nothing is measured on real texts, and the pages keep what they \
             have of them. Name a folder of unpacked sets: make compare COMPARE_DATA=FOLDER"
        );
        return Vec::new();
    };
    let data = Path::new(data);
    let mut found = Vec::new();
    for set in &flags.sets {
        let path = data.join(set);
        match path.join("test.tsv").exists() {
            true => found.push((set.clone(), path)),
            false => eprintln!("compare: no set {set} in {}: left out", data.display()),
        }
    }
    found
}

fn searches(flags: &Flags) -> Result<()> {
    let programs = Programs::new(flags.python.clone(), flags.programs.clone())?;
    let mut folders = vec![flags.out.join("embeddings")];
    folders.extend(flags.embeddings.clone());
    for (name, path) in sets(flags) {
        let of_set = |case: &String| case.starts_with(&name) || name.starts_with(case.as_str());
        if !flags.cases.is_empty() && !flags.cases.iter().any(of_set) {
            continue;
        }
        let set = Set::load(&path)?;
        let embeddings = Embeddings::new(folders.clone())?;
        let queries = flags.or(flags.queries, 500, 2_000);
        let learned = model::learned(&flags.out, &name, &set, &embeddings, &programs, flags.quick);
        let learned = learned
            .inspect_err(|why| eprintln!("{name}: no learned codes: {why:#}"))
            .ok();
        if flags.wants(&case::real_name(&name, embeddings.dim())) {
            let mut whole = case::real(&flags.out, &name, &set, &embeddings, None, queries)?;
            let models = learned.iter().map(|bundle| (8, bundle.clone()));
            whole.models.extend(models);
            run(flags, &programs, &whole)?;
        }
        let Some(bundle) = learned else {
            continue;
        };
        let codes = flags.out.join("models").join(format!("{name}-codes"));
        let (head, codes) = model::without_head(&bundle, &codes)?;
        if flags.wants(&case::real_name(&name, head.dim())) {
            let mut narrow =
                case::real(&flags.out, &name, &set, &embeddings, Some(&head), queries)?;
            narrow.models.push((8, codes));
            run(flags, &programs, &narrow)?;
        }
    }
    let sizes = flags.or(
        flags.rows.clone(),
        vec![100_000],
        vec![1_000_000, 10_000_000],
    );
    for rows in sizes {
        if flags.wants(&case::synthetic_name(rows)) {
            let case = case::synthetic(&flags.out, rows, flags.queries.unwrap_or(500))?;
            run(flags, &programs, &case)?;
        }
    }
    Ok(())
}

fn run(flags: &Flags, programs: &Programs, case: &Case) -> Result<()> {
    let path = flags.out.join("search").join(format!("{}.json", case.name));
    fs::create_dir_all(path.parent().context("a folder")?)?;
    let before = fs::read(&path).ok();
    let before = before.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    search::run(case, programs, &flags.effort(), before, |compared| {
        save(&path, compared)
    })?;
    // Gigabytes, and quickly made again.
    fs::remove_dir_all(&case.dir).with_context(|| case.dir.display().to_string())
}

fn save(path: &Path, what: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(what)?;
    fs::write(path, text).with_context(|| format!("{}: writing", path.display()))
}

fn whole(flags: &Flags) -> Result<()> {
    let programs = Programs::new(flags.python.clone(), flags.programs.clone())?;
    let Some((name, path)) = sets(flags).into_iter().next() else {
        return Ok(());
    };
    let size = Size {
        texts: flags.or(flags.texts, 2_000, 100_000),
        queries: if flags.quick { 200 } else { 1_000 },
    };
    let job = whole::measure(&flags.out, &name, &Set::load(&path)?, &programs, size)?;
    save(&flags.out.join("whole.json"), &job)
}
