//! faiss-cpu, called through a script and a folder of arrays.

use super::codes::{Case, Coded};
use super::{Bench, DIM};
use anyhow::{Context, Result, bail};
use mopqdb::testing::scan::Scanner;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the script measured.
pub struct Measured(Value);

impl Measured {
    /// Returns the seconds that some work took, and the fastest SIMD level.
    pub fn seconds(&self, work: &str) -> Result<(f64, String)> {
        let found = &self.0[work];
        let seconds = found["seconds"].as_f64();
        Ok((
            seconds.with_context(|| format!("faiss measured no {work:?}"))?,
            found["level"].as_str().unwrap_or("default").to_owned(),
        ))
    }

    /// Returns the mean squared error per row after a training.
    pub fn distortion(&self, work: &str) -> Result<f64> {
        let distortion = self.0[work]["distortion"].as_f64();
        distortion.with_context(|| format!("faiss measured no distortion of {work:?}"))
    }
}

/// Searches the same codes with both indexes, and compares their scores with ours for each k.
pub fn search(bench: &Bench, case: &Case, ks: &[usize]) -> Result<Measured> {
    let folder = exchange(bench)?;
    let scanner = Scanner::with_kernel(bench.kernel, 1);
    for (name, coded) in [("eight", &case.eight), ("four", &case.four)] {
        fs::write(folder.join(format!("{name}.codes.u8")), &coded.codes)?;
        let codebook = little_endian(coded.quantizer.codebook().values());
        fs::write(folder.join(format!("{name}.codebook.f32")), codebook)?;
    }
    for &k in ks {
        let found = scanner.scan(&[&case.eight.blocks], &case.eight.tables, k)?;
        let scores: Vec<f32> = found
            .iter()
            .flat_map(|found| found.iter().take(k).map(|f| f.score))
            .collect();
        fs::write(
            folder.join(format!("scores.{k}.f32")),
            little_endian(&scores),
        )?;
    }
    fs::write(folder.join("queries.f32"), little_endian(&case.queries))?;
    let subspaces = |coded: &Coded| coded.quantizer.shape().subspaces();
    let meta = json!({
        "dim": DIM, "rows": case.rows, "k": ks, "seconds": if bench.quick { 0.3 } else { 1.5 },
        "eight": subspaces(&case.eight), "four": subspaces(&case.four),
    });
    run(bench, &folder, &meta, "search")
}

/// Trains on and encodes rows (n, DIM).
pub fn train(bench: &Bench, rows: &[f32], subspaces: usize, iterations: usize) -> Result<Measured> {
    let folder = exchange(bench)?;
    fs::write(folder.join("rows.f32"), little_endian(rows))?;
    let meta = json!({"dim": DIM, "subspaces": subspaces, "iterations": iterations});
    run(bench, &folder, &meta, "train")
}

fn exchange(bench: &Bench) -> Result<PathBuf> {
    let folder = bench.out.join("exchange");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn little_endian(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn run(bench: &Bench, folder: &Path, meta: &Value, work: &str) -> Result<Measured> {
    fs::write(folder.join("meta.json"), meta.to_string())?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/faiss_peer.py");
    let output = Command::new(&bench.python)
        .arg(script)
        .args([work.as_ref(), folder.as_os_str()])
        .env("OMP_NUM_THREADS", "1")
        .output()
        .with_context(|| format!("running {}", bench.python.display()))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("faiss failed: {why}");
    }
    let measured =
        serde_json::from_slice(&output.stdout).context("reading the results of faiss")?;
    Ok(Measured(measured))
}
