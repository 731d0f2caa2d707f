//! `make compare`: ourselves beside peers. `compare all` is the whole of it: `prepare` encodes and learns, `whole` and `search`
//! measure, `pages` writes the docs.

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use mopqdb_benches::compare::case::{self, Case};
use mopqdb_benches::compare::embeddings::Embeddings;
use mopqdb_benches::compare::excerpt::{self, Room};
use mopqdb_benches::compare::peers::Programs;
use mopqdb_benches::compare::search::{self, Effort};
use mopqdb_benches::compare::set::Set;
use mopqdb_benches::compare::when::Run;
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
    /// Everything, in one run: prepare, whole, search, pages.
    All(Flags),
    /// Encode the texts of the sets and learn from their pairs; what was done is not done again.
    Prepare(Flags),
    /// Vectors in, hits out: every peer on every case.
    Search(Flags),
    /// Texts in, hits out.
    Whole(Flags),
    /// Write the pages from what was measured.
    Pages(Flags),
}

/// The commands share their flags, so that what is right for one is right for all.
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
    /// Bytes a row that are compared.
    #[arg(long, value_delimiter = ',', default_value = "8")]
    bytes: Vec<usize>,
    /// Only cases whose names begin so: quora-384, quora-128, clustered-1M, ...; whole is the whole job.
    #[arg(long, value_delimiter = ',')]
    cases: Vec<String>,
    /// Only peers whose names begin so; the others keep what this machine measured of them before.
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    /// For less time: text of each set's keys that is encoded at most, in MB, and an eighth of it of training queries [default: all].
    #[arg(long)]
    text: Option<usize>,
    /// Graphs to so many rows.
    #[arg(long, default_value_t = 1_000_000)]
    graph_rows: usize,
    /// Queries of a case [default: 1000, synthetic 500; quick: 500].
    #[arg(long)]
    queries: Option<usize>,
    /// Seconds of each timing.
    #[arg(long, default_value_t = 0.3)]
    seconds: f64,
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
    /// Whether a case of the set may be wanted.
    fn wants_some(&self, set: &str) -> bool {
        let of_set = |case: &String| case.starts_with(set) || set.starts_with(case.as_str());
        self.cases.is_empty() || self.cases.iter().any(of_set)
    }

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

    /// Test queries of a set.
    fn asked(&self) -> usize {
        self.or(self.queries, 500, 1_000)
    }

    fn room(&self) -> Room {
        let bytes = self.text.map_or(usize::MAX, |mb| mb * 1_000_000);
        Room {
            keys: bytes,
            queries: bytes / 8,
        }
    }

    fn effort(&self, run: Run) -> Effort {
        Effort {
            run,
            seconds: self.seconds,
            repeats: self.or(self.repeats, 3, 5),
            bytes: self.bytes.clone(),
            graph_rows: self.graph_rows,
            only: self.peers.clone(),
            quick: self.quick,
        }
    }
}

fn main() -> Result<()> {
    match Program::parse().command {
        Command::All(flags) => {
            prepare(&flags)?;
            let run = Run::begin();
            if flags.wants("whole") {
                whole(&flags, run)?;
            }
            searches(&flags, run)?;
            write_pages(&flags)
        }
        Command::Prepare(flags) => prepare(&flags),
        Command::Search(flags) => searches(&flags, Run::begin()),
        Command::Whole(flags) => whole(&flags, Run::begin()),
        Command::Pages(flags) => write_pages(&flags),
    }
}

fn write_pages(flags: &Flags) -> Result<()> {
    learning::write(&flags.table, &flags.docs)?;
    pages::write(&flags.out, &flags.docs, &flags.readme)
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

fn wanted_sets(flags: &Flags) -> Vec<(String, PathBuf)> {
    let mut all = sets(flags);
    all.retain(|(name, _)| flags.wants_some(name));
    all
}

/// A set with what was made of it.
struct Prepared {
    name: String,
    set: Set,
    embeddings: Embeddings,
    /// Codes that were learned from its pairs.
    learned: Option<PathBuf>,
}

impl Prepared {
    fn new(flags: &Flags, programs: &Programs, name: String, path: &Path) -> Result<Self> {
        let mut folders = vec![flags.out.join("embeddings")];
        folders.extend(flags.embeddings.clone());
        let set = excerpt::of(Set::load(path)?, flags.room(), flags.asked());
        let embeddings = Embeddings::new(folders)?;
        let learned = model::learned(&flags.out, &name, &set, &embeddings, programs, flags.quick)
            .inspect_err(|why| eprintln!("{name}: no learned codes: {why:#}"))
            .ok();
        Ok(Self {
            name,
            set,
            embeddings,
            learned,
        })
    }
}

/// Encoding takes most of an hour, and is no figure of anybody's: it is done before the run.
fn prepare(flags: &Flags) -> Result<()> {
    let programs = Programs::new(flags.python.clone(), flags.programs.clone())?;
    for (name, path) in wanted_sets(flags) {
        let one = Prepared::new(flags, &programs, name, &path)?;
        case::encoded(&one.set, &one.embeddings, flags.asked())?;
    }
    Ok(())
}

fn searches(flags: &Flags, run: Run) -> Result<()> {
    let programs = Programs::new(flags.python.clone(), flags.programs.clone())?;
    for (name, path) in wanted_sets(flags) {
        let one = Prepared::new(flags, &programs, name, &path)?;
        let Prepared {
            name,
            set,
            embeddings,
            learned,
        } = one;
        if flags.wants(&case::real_name(&name, embeddings.dim())) {
            let mut whole = case::real(&flags.out, &name, &set, &embeddings, None, flags.asked())?;
            if let Some(bundle) = &learned {
                whole.learned(bundle.clone(), &set);
            }
            measure(flags, run, &programs, &whole)?;
        }
        let Some(bundle) = learned else {
            continue;
        };
        let codes = flags.out.join("models").join(format!("{name}-codes"));
        let (head, codes) = model::without_head(&bundle, &codes)?;
        if flags.wants(&case::real_name(&name, head.dim())) {
            let mut narrow = case::real(
                &flags.out,
                &name,
                &set,
                &embeddings,
                Some(&head),
                flags.asked(),
            )?;
            narrow.learned(codes, &set);
            measure(flags, run, &programs, &narrow)?;
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
            measure(flags, run, &programs, &case)?;
        }
    }
    Ok(())
}

fn measure(flags: &Flags, run: Run, programs: &Programs, case: &Case) -> Result<()> {
    let path = flags.out.join("search").join(format!("{}.json", case.name));
    fs::create_dir_all(path.parent().context("a folder")?)?;
    let before = fs::read(&path).ok();
    let before = before.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    search::run(case, programs, &flags.effort(run), before, |compared| {
        save(&path, compared)
    })?;
    // Gigabytes, and quickly made again.
    fs::remove_dir_all(&case.dir).with_context(|| case.dir.display().to_string())
}

fn save(path: &Path, what: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(what)?;
    fs::write(path, text).with_context(|| format!("{}: writing", path.display()))
}

fn whole(flags: &Flags, run: Run) -> Result<()> {
    let programs = Programs::new(flags.python.clone(), flags.programs.clone())?;
    let Some((name, path)) = sets(flags).into_iter().next() else {
        return Ok(());
    };
    let size = Size {
        texts: flags.or(flags.texts, 2_000, 100_000),
        queries: if flags.quick { 200 } else { 1_000 },
    };
    let set = Set::load(&path)?;
    let job = whole::measure(&flags.out, &name, &set, &programs, size, run)?;
    save(&flags.out.join("whole.json"), &job)
}
