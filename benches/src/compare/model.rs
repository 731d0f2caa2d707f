//! A model that is learned from a set's training pairs, by the programs that a user has: create, insert, train.

use super::embeddings::{Embeddings, Side};
use super::excerpt::VALID;
use super::peers::Programs;
use super::set::Set;
use anyhow::{Context, Result, bail};
use mopqdb::quantizer::Quantizer;
use mopqdb::vectors::VectorWriter;
use mopqdb::{Bundle, BundleWriter, Metric};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Learned codes of 8 bytes, kept in `out` from one run to the next.
pub fn learned(
    out: &Path,
    name: &str,
    set: &Set,
    embeddings: &Embeddings,
    programs: &Programs,
    quick: bool,
) -> Result<PathBuf> {
    let size = if quick { "quick" } else { "full" };
    let pairs = set.train.pairs.len();
    let models = out.join("models");
    let home = models.join(format!("{name}-{size}-{pairs}"));
    if home.join("manifest.json").exists() {
        return Ok(home);
    }
    eprintln!("{name}: learning 8 bytes a row from {pairs} pairs");
    let work = models.join(format!("{name}-{size}.work"));
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work)?;
    // Training and validation queries in one file, pairs by row number.
    let valid = set.valid.first(VALID);
    let texts = |queries: &[String]| -> Result<Vec<f32>> {
        let texts: Vec<&str> = queries.iter().map(String::as_str).collect();
        embeddings.of(Side::Query, &texts)
    };
    let mut queries = VectorWriter::create(&work.join("queries.npy"), embeddings.dim())?;
    queries.write(&texts(&set.train.queries)?)?;
    queries.write(&texts(&valid.queries)?)?;
    queries.finish()?;
    for (file, pairs, first) in [
        ("train.tsv", &set.train.pairs, 0),
        ("valid.tsv", &valid.pairs, set.train.queries.len() as u32),
    ] {
        let mut lines = String::new();
        for (query, row) in pairs {
            writeln!(lines, "{}\t{row}", first + query)?;
        }
        fs::write(work.join(file), lines)?;
    }
    let keys: Vec<&str> = set.keys.iter().map(String::as_str).collect();
    let mut rows = VectorWriter::create(&work.join("rows.npy"), embeddings.dim())?;
    rows.write(&embeddings.of(Side::Key, &keys)?)?;
    rows.finish()?;

    let dim = embeddings.dim().to_string();
    let run = |arguments: &[&str]| -> Result<String> {
        let output = Command::new(programs.ours.join("mopqdb"))
            .args(arguments)
            .current_dir(&work)
            .stderr(std::process::Stdio::inherit())
            .output()
            .context("running mopqdb")?;
        if !output.status.success() {
            bail!("mopqdb {} failed", arguments.join(" "));
        }
        Ok(String::from_utf8(output.stdout)?)
    };
    run(&[
        "create",
        "db",
        "--encoder",
        "none",
        "--dim",
        &dim,
        "--metric",
        "cosine",
    ])?;
    run(&["insert", "db", "rows.npy", "--no-auto"])?;
    let mut train = vec![
        "train",
        "db",
        "--json",
        "--pairs",
        "train.tsv",
        "--valid",
        "valid.tsv",
        "--queries",
        "queries.npy",
        "--devices",
        "cpu:2",
        "--batch",
        "256",
        "--sampling",
        "dcs",
    ];
    if quick {
        train.extend(["--epochs", "2", "--", "--warmup", "2"]);
    }
    let said = run(&train)?;
    let id = said
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|line| Some(line.get("model")?.as_str()?.to_owned()))
        .next_back()
        .with_context(|| format!("no model in what train printed: {said}"))?;
    let models = fs::read_dir(work.join("db/models"))?;
    let found = models
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(&id))
        })
        .with_context(|| format!("no folder of the model {id}"))?;
    fs::rename(found, &home)?;
    fs::remove_dir_all(&work)?;
    Ok(home)
}

/// The same codes for vectors that the head has projected already.
pub fn without_head(bundle: &Path, to: &Path) -> Result<(Quantizer, PathBuf)> {
    let whole = Bundle::open(bundle)?
        .quantizer()?
        .context("the model has codes")?;
    let codes = Quantizer::builder(whole.codebook().clone(), Metric::Ip).build()?;
    if whole.rotation().is_some() || whole.selection() != codes.selection() {
        bail!("the learned model is not a head and codebooks alone");
    }
    let _ = fs::remove_dir_all(to);
    BundleWriter::new(to)
        .metric(Metric::Ip)
        .vectors(whole.dim())
        .method("mopq")
        .quantizer(&codes)
        .finish()?;
    Ok((whole, to.to_path_buf()))
}
