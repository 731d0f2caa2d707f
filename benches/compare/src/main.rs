//! `make compare`: mopqdb and its peers on the same vectors and texts, measured in one run on one machine. Prints
//! tables and writes JSON; docs/comparison.md describes the method.

mod builds;
mod case;
mod exact;
mod peer;
mod peers;
mod prepare;
mod process;
mod search;
mod sweep;
mod tables;
mod whole;

use anyhow::{Context, Result};
use case::Case;
use clap::{Args, Parser};
use peers::Programs;
use prepare::Prepared;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Measures mopqdb and other indexes and databases in one run.
#[derive(Debug, Parser)]
enum Command {
    /// Measure, write JSON and print the tables.
    Run(Flags),
    /// Print the tables of an earlier run.
    Tables(Flags),
    /// Measure one index of mopqdb, by the protocol of peers/peer.py.
    #[command(hide = true)]
    Peer {
        #[arg(trailing_var_arg = true)]
        arguments: Vec<String>,
    },
}

#[derive(Debug, Args)]
struct Flags {
    /// Folder for everything that is made.
    #[arg(long, default_value = "target/compare")]
    out: PathBuf,
    /// A Python interpreter with the peers.
    #[arg(long, default_value = "target/peers/venv/bin/python")]
    python: PathBuf,
    /// Folder with one folder per data set; without it only synthetic rows are searched.
    #[arg(long)]
    data: Option<OsString>,
    /// Data sets to use.
    #[arg(long, value_delimiter = ',', default_value = "quora,wiki")]
    sets: Vec<String>,
    /// Numbers of synthetic rows [default: 1000000,10000000; quick: 100000].
    #[arg(long, value_delimiter = ',')]
    rows: Option<Vec<usize>>,
    /// Only cases whose names begin with one of these: wiki-384, clustered-1M, ...; whole is the whole job.
    #[arg(long, value_delimiter = ',')]
    cases: Vec<String>,
    /// Only peers whose names begin with one of these.
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    /// Queries per case [default: 1000, synthetic 500; quick: 500].
    #[arg(long)]
    queries: Option<usize>,
    /// Repeats of each timing [default: 5; quick: 3].
    #[arg(long)]
    repeats: Option<usize>,
    /// Texts of the whole job [default: 100000; quick: 2000].
    #[arg(long)]
    texts: Option<usize>,
    /// Small sizes, to check that everything works.
    #[arg(long)]
    quick: bool,
}

impl Flags {
    fn wants(&self, case: &str) -> bool {
        let mut cases = self.cases.iter();
        self.cases.is_empty() || cases.any(|only| case.starts_with(only.as_str()))
    }

    fn or<T>(&self, given: Option<T>, quick: T, full: T) -> T {
        given.unwrap_or(if self.quick { quick } else { full })
    }

    /// Returns the requested data sets that exist.
    fn data_sets(&self) -> Vec<(&str, PathBuf)> {
        let Some(data) = self.data.as_ref().filter(|data| !data.is_empty()) else {
            eprintln!(
                "compare: no data sets were given (COMPARE_DATA); only synthetic rows are searched"
            );
            return Vec::new();
        };
        let path = |set| (set, Path::new(data).join(set));
        let all = self.sets.iter().map(|set| path(set.as_str()));
        let exists = |path: &PathBuf| path.join("test.tsv").exists();
        let (found, lost): (Vec<_>, Vec<_>) = all.partition(|(_, path)| exists(path));
        for (set, path) in lost {
            eprintln!(
                "compare: no test.tsv in {}: {set} is left out",
                path.display()
            );
        }
        found
    }
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Run(flags) => run(&flags),
        Command::Tables(flags) => tables::print(&flags.out),
        Command::Peer { arguments } => peer::answer(&arguments),
    }
}

fn run(flags: &Flags) -> Result<()> {
    let programs = Programs::new(&flags.python)?;
    let sets = flags.data_sets();
    // Encoding and training take most of an hour and are not measured, so they come first.
    let mut prepared = Vec::new();
    for (name, data) in &sets {
        let of_set = |case: &String| case.starts_with(name) || name.starts_with(case.as_str());
        if flags.cases.is_empty() || flags.cases.iter().any(of_set) {
            let mut one = Prepared::new(&flags.out, name, data, &programs, flags.quick)?;
            one.test.truncate(flags.or(flags.queries, 500, 1_000));
            prepared.push(one);
        }
    }
    if let Some((_, data)) = sets.first().filter(|_| flags.wants("whole")) {
        let texts = flags.or(flags.texts, 2_000, 100_000);
        let queries = if flags.quick { 200 } else { 1_000 };
        let job = whole::measure(&flags.out, data, &programs, texts, queries)?;
        save(&flags.out.join("whole.json"), &job)?;
    }
    for set in &prepared {
        for projected in [false, true] {
            if let Some(dim) = set.dim(projected)
                && flags.wants(&case::real_name(&set.name, dim))
            {
                search(flags, &programs, &case::real(&flags.out, set, projected)?)?;
            }
        }
    }
    let sizes = (vec![100_000], vec![1_000_000, 10_000_000]);
    for rows in flags.or(flags.rows.clone(), sizes.0, sizes.1) {
        if flags.wants(&case::synthetic_name(rows)) {
            let case = case::synthetic(&flags.out, rows, flags.queries.unwrap_or(500))?;
            search(flags, &programs, &case)?;
        }
    }
    tables::print(&flags.out)?;
    eprintln!("compare: the figures are in {}/*.json", flags.out.display());
    Ok(())
}

fn search(flags: &Flags, programs: &Programs, case: &Case) -> Result<()> {
    let path = flags.out.join(format!("search-{}.json", case.name));
    let repeats = flags.or(flags.repeats, 3, 5);
    search::run(case, programs, repeats, &flags.peers, |compared| {
        save(&path, compared)
    })?;
    // These are gigabytes, and quickly created again.
    fs::remove_dir_all(&case.dir).with_context(|| case.dir.display().to_string())
}

fn save(path: &Path, what: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(what)?;
    fs::write(path, text).with_context(|| format!("{}: writing", path.display()))
}
