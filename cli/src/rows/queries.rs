//! Queries without answers, from a file.

use super::Lines;
use anyhow::{Context, Result};
use mopqdb::Value;
use mopqdb_formats::vectors::read_all;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// Reads queries: vectors from `.npy`, `.fvecs` and `.fbin`, otherwise one text per line. Blank lines are skipped.
pub fn read_queries(path: &Path) -> Result<Vec<Value>> {
    let ending = path.extension().and_then(|ending| ending.to_str());
    if matches!(ending, Some("npy" | "fvecs" | "fbin")) {
        let (dim, values) = read_all(path)?;
        let vectors = values.chunks_exact(dim);
        return Ok(vectors
            .map(|vector| Value::Vector(vector.to_vec()))
            .collect());
    }
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut lines = Lines::new(path.display().to_string(), Box::new(BufReader::new(file)));
    let mut texts = Vec::new();
    while let Some(line) = lines.read()? {
        let line = line?;
        if !line.trim().is_empty() {
            texts.push(Value::Text(line.to_owned()));
        }
    }
    Ok(texts)
}
