//! A case: rows, queries and right answers, in files that every peer reads.

use crate::exact;
use crate::prepare::Prepared;
use anyhow::{Context, Result};
use mopqdb_benches::data::Stream;
use mopqdb_formats::vectors::VectorWriter;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// The number of hits that are compared.
pub const K: usize = 10;
/// The number of rows inserted to time inserts.
const MORE: usize = 1000;
/// The width of synthetic rows.
const DIM: usize = 128;

/// A case on disk.
pub struct Case {
    pub name: String,
    pub dir: PathBuf,
    pub rows: usize,
    pub dim: usize,
    /// The exact top K of each query, without the query itself.
    pub exact: Vec<Vec<u32>>,
    /// The right keys of each query; `None` for synthetic rows.
    pub right: Option<Vec<Vec<u32>>>,
    /// The row to leave out of each query's result.
    pub own: Vec<Option<u32>>,
    /// A bundle with codes of 8 bytes that were learned from the set's training pairs.
    pub learned: Option<PathBuf>,
}

impl Case {
    /// Returns how many hits a peer must return per query: one more if the query itself may be among them.
    pub fn fetch(&self) -> usize {
        fetch(self.right.is_some())
    }
}

fn fetch(own: bool) -> usize {
    K + usize::from(own)
}

struct Vectors {
    rows: Vec<f32>,
    queries: Vec<f32>,
    more: Vec<f32>,
    dim: usize,
    normalised: bool,
}

/// Creates clustered rows of length 1 whose axes have decreasing variance, like those of real embeddings.
pub fn synthetic(out: &Path, rows: usize, queries: usize) -> Result<Case> {
    let mut stream = Stream::embedding_like(11, DIM);
    let vectors = Vectors {
        rows: stream.take(rows),
        queries: stream.take(queries),
        more: stream.take(MORE),
        dim: DIM,
        normalised: true,
    };
    let (name, own) = (synthetic_name(rows), vec![None; queries]);
    write(out, name, &vectors, None, own)
}

pub fn synthetic_name(rows: usize) -> String {
    match rows {
        n if n % 1_000_000 == 0 => format!("clustered-{}M", n / 1_000_000),
        n => format!("clustered-{}k", n / 1000),
    }
}

/// Creates a case from a real set, as the default encoder encodes it or projected by the learned head.
pub fn real(out: &Path, set: &Prepared, projected: bool) -> Result<Case> {
    let [mut rows, mut queries] = set.vectors()?;
    let dim = set.dim(projected).context("there is no learned head")?;
    if let Some(head) = set.learned.as_ref().filter(|_| projected) {
        for vectors in [&mut rows, &mut queries] {
            let mut narrow = vec![0.0; vectors.len() / head.input_dim() * dim];
            head.project(vectors, &mut narrow)?;
            *vectors = narrow;
        }
    }
    let vectors = Vectors {
        more: queries[..queries.len().min(MORE * dim)].to_vec(),
        rows,
        queries,
        dim,
        normalised: !projected,
    };
    let (right, own) = (set.test.right.clone(), set.test.own.clone());
    let mut case = write(out, real_name(&set.name, dim), &vectors, Some(right), own)?;
    let bundle = case.dir.join("learned");
    case.learned = set.bundle(&bundle, projected)?.then_some(bundle);
    Ok(case)
}

pub fn real_name(set: &str, dim: usize) -> String {
    format!("{set}-{dim}")
}

fn write(
    out: &Path,
    name: String,
    vectors: &Vectors,
    right: Option<Vec<Vec<u32>>>,
    own: Vec<Option<u32>>,
) -> Result<Case> {
    // Absolute, because peers get this path.
    let dir = std::path::absolute(out.join("cases").join(&name))?;
    fs::create_dir_all(&dir)
        .with_context(|| format!("{}: creating the directory", dir.display()))?;
    let dim = vectors.dim;
    for (file, values) in [
        ("rows.npy", &vectors.rows),
        ("queries.npy", &vectors.queries),
        ("more.npy", &vectors.more),
    ] {
        let mut writer = VectorWriter::create(&dir.join(file), dim)?;
        for part in values.chunks(4096 * dim) {
            writer.write(part)?;
        }
        writer.finish()?;
    }
    let rows = vectors.rows.len() / dim;
    let fetch = fetch(right.is_some());
    let about = json!({"rows": rows, "dim": dim, "normalised": vectors.normalised, "fetch": fetch});
    fs::write(dir.join("case.json"), about.to_string())?;
    eprintln!("{name}: computing the exact top of {} queries", own.len());
    let top = exact::top(&vectors.rows, &vectors.queries, dim, fetch);
    let top = top.iter().zip(&own);
    let exact = top.map(|(top, own)| exact::without(top, *own, K));
    Ok(Case {
        name,
        dir,
        rows,
        dim,
        exact: exact.collect(),
        right,
        own,
        learned: None,
    })
}
