//! `make compare`: ourselves beside peers. `compare search`, `compare whole` measure; `compare pages` writes the docs.

use anyhow::{Context, Result, bail};
use mopqdb_benches::compare::case::{self, Case};
use mopqdb_benches::compare::embeddings::Embeddings;
use mopqdb_benches::compare::peers::Programs;
use mopqdb_benches::compare::search::{self, Effort};
use mopqdb_benches::compare::set::Set;
use mopqdb_benches::compare::whole::{self, Size};
use mopqdb_benches::compare::{learning, model, pages};
use std::fs;
use std::path::{Path, PathBuf};

const USAGE: &str = "\
compare search|whole|pages [FLAGS]
  --out DIR            what is measured (target/compare)
  --python PYTHON      an interpreter with the peers (target/peers/venv/bin/python)
  --programs DIR       where peer, mopqdb and mopqdb-train are (beside this program)
  --data DIR           data sets, a folder each; without it synthetic rows only
  --sets A,B           of those (quora,wiki; those that are there)
  --embeddings DIR     texts that are encoded already, beside those of --out
  --rows N,N           synthetic rows (1000000,10000000)
  --bytes N,N          bytes a row that are compared (8,16)
  --peers A,B          only peers whose names begin so
  --graph-rows N       graphs and sqlite-vec to so many rows (1000000)
  --queries N          queries of a case (2000; synthetic: 500)
  --seconds S          of each timing (1); --repeats N (5)
  --texts N            of the whole job (100000)
  --quick              small sizes, for checking
  --table DIR          what `make table` found (target/table)
  --docs DIR, --readme FILE   pages to rewrite (docs, README.md)";

struct Flags {
    out: PathBuf,
    python: PathBuf,
    programs: Option<PathBuf>,
    data: Option<PathBuf>,
    sets: Vec<String>,
    embeddings: Vec<PathBuf>,
    rows: Vec<usize>,
    queries: Option<usize>,
    texts: usize,
    table: PathBuf,
    docs: PathBuf,
    readme: PathBuf,
    effort: Effort,
}

fn flags(arguments: impl Iterator<Item = String>) -> Result<Flags> {
    let arguments: Vec<String> = arguments.collect();
    // First, so that other flags can change what it sets.
    let quick = arguments.iter().any(|a| a == "--quick");
    let mut flags = Flags {
        out: "target/compare".into(),
        python: "target/peers/venv/bin/python".into(),
        programs: None,
        data: None,
        sets: vec!["quora".into(), "wiki".into()],
        embeddings: Vec::new(),
        rows: if quick {
            vec![100_000]
        } else {
            vec![1_000_000, 10_000_000]
        },
        queries: quick.then_some(500),
        texts: if quick { 2_000 } else { 100_000 },
        table: "target/table".into(),
        docs: "docs".into(),
        readme: "README.md".into(),
        effort: Effort {
            seconds: if quick { 0.3 } else { 1.0 },
            repeats: if quick { 3 } else { 5 },
            bytes: if quick { vec![8] } else { vec![8, 16] },
            graph_rows: 1_000_000,
            only: Vec::new(),
            quick,
        },
    };
    let mut arguments = arguments.into_iter();
    while let Some(name) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .with_context(|| format!("{name} needs a value"))
        };
        match name.as_str() {
            "--quick" => {}
            "--out" => flags.out = value()?.into(),
            "--python" => flags.python = value()?.into(),
            "--programs" => flags.programs = Some(value()?.into()),
            "--data" => {
                flags.data =
                    Some(value()?.into()).filter(|path: &PathBuf| !path.as_os_str().is_empty())
            }
            "--sets" => flags.sets = list(&value()?)?,
            "--embeddings" => flags.embeddings.push(value()?.into()),
            "--rows" => flags.rows = list(&value()?)?,
            "--bytes" => flags.effort.bytes = list(&value()?)?,
            "--peers" => flags.effort.only = list(&value()?)?,
            "--graph-rows" => flags.effort.graph_rows = value()?.parse()?,
            "--queries" => flags.queries = Some(value()?.parse()?),
            "--seconds" => flags.effort.seconds = value()?.parse()?,
            "--repeats" => flags.effort.repeats = value()?.parse()?,
            "--texts" => flags.texts = value()?.parse()?,
            "--table" => flags.table = value()?.into(),
            "--docs" => flags.docs = value()?.into(),
            "--readme" => flags.readme = value()?.into(),
            other => bail!("{other}?\n{USAGE}"),
        }
    }
    Ok(flags)
}

fn list<T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    text: &str,
) -> Result<Vec<T>> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    parts
        .map(|part| part.parse().with_context(|| part.to_owned()))
        .collect()
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let flags = flags(arguments)?;
    match command.as_str() {
        "search" => searches(&flags),
        "whole" => whole(&flags),
        "pages" => {
            learning::write(&flags.table, &flags.docs)?;
            pages::write(&flags.out, &flags.docs, &flags.readme)
        }
        _ => bail!("{USAGE}"),
    }
}

/// The sets that were asked for and are there.
fn sets(flags: &Flags) -> Vec<(String, PathBuf)> {
    let Some(data) = &flags.data else {
        eprintln!(
            "compare: NO DATA SETS: COMPARE_DATA is not set, so nothing is measured on real texts, and the pages keep what they \
             have of them. Name a folder of unpacked sets: make compare COMPARE_DATA=FOLDER"
        );
        return Vec::new();
    };
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
        let set = Set::load(&path)?;
        let embeddings = Embeddings::new(folders.clone())?;
        let queries = flags.queries.unwrap_or(2_000);
        let learned = model::learned(
            &flags.out,
            &name,
            &set,
            &embeddings,
            &programs,
            flags.effort.quick,
        );
        let learned = learned
            .inspect_err(|why| eprintln!("{name}: no learned codes: {why:#}"))
            .ok();
        let mut whole = case::real(&flags.out, &name, &set, &embeddings, None, queries)?;
        whole
            .models
            .extend(learned.iter().map(|bundle| (8, bundle.clone())));
        run(flags, &programs, &whole)?;
        if let Some(bundle) = learned {
            let codes = flags.out.join("models").join(format!("{name}-codes"));
            let (head, codes) = model::without_head(&bundle, &codes)?;
            let mut narrow =
                case::real(&flags.out, &name, &set, &embeddings, Some(&head), queries)?;
            narrow.models.push((8, codes));
            run(flags, &programs, &narrow)?;
        }
    }
    for &rows in &flags.rows {
        let case = case::synthetic(&flags.out, rows, flags.queries.unwrap_or(500))?;
        run(flags, &programs, &case)?;
    }
    Ok(())
}

fn run(flags: &Flags, programs: &Programs, case: &Case) -> Result<()> {
    let path = flags.out.join("search").join(format!("{}.json", case.name));
    fs::create_dir_all(path.parent().context("a folder")?)?;
    search::run(case, programs, &flags.effort, |compared| {
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
        texts: flags.texts,
        queries: if flags.effort.quick { 200 } else { 1_000 },
    };
    let job = whole::measure(&flags.out, &name, &Set::load(&path)?, &programs, size)?;
    save(&flags.out.join("whole.json"), &job)
}
