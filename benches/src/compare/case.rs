//! A case: rows, queries and right answers, in files that every peer reads.

use super::embeddings::{Embeddings, Side};
use super::exact;
use super::set::Set;
use super::when;
use crate::data::Stream;
use anyhow::{Context, Result};
use mopqdb::quantizer::Quantizer;
use mopqdb::vectors::VectorWriter;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// Hits that are compared.
pub const K: usize = 10;
/// Rows inserted to time inserts.
const MORE: usize = 1000;
/// Numbers a synthetic row.
const DIM: usize = 128;

/// A case on disk.
pub struct Case {
    /// Its name.
    pub name: String,
    /// In words.
    pub what: String,
    /// Where its files are.
    pub dir: PathBuf,
    /// Rows searched.
    pub rows: usize,
    /// Numbers a row.
    pub dim: usize,
    /// Exact top of each query, K each, without the query itself.
    pub exact: Vec<Vec<u32>>,
    /// Right keys of each query; none for synthetic rows.
    pub right: Option<Vec<Vec<u32>>>,
    /// Rows to leave out of each query's result.
    pub own: Vec<Option<u32>>,
    /// Bundles of ours for it: bytes a row, folder.
    pub models: Vec<(usize, PathBuf)>,
    /// When it began to be made.
    pub began: u64,
}

impl Case {
    /// Adds codes of 8 bytes that were learned from the set's training pairs, and says from how many.
    pub fn learned(&mut self, bundle: PathBuf, set: &Set) {
        let pairs = part(set.train.pairs.len(), set.all_pairs);
        self.what += &format!("; MoPQ learned from {pairs} training pairs");
        self.models.push((8, bundle));
    }
}

/// `the 10`, or `3 of the 10`
fn part(some: usize, all: usize) -> String {
    let thousands = |n: usize| crate::report::markdown::thousands(n as i64);
    match some < all {
        true => format!("{} of the {}", thousands(some), thousands(all)),
        false => format!("the {}", thousands(all)),
    }
}

/// Vectors before they are a case.
struct Vectors {
    rows: Vec<f32>,
    queries: Vec<f32>,
    more: Vec<f32>,
    dim: usize,
}

/// Synthetic rows: clusters whose directions matter less and less, as those of real embeddings do; all of length 1.
pub fn synthetic(out: &Path, rows: usize, queries: usize) -> Result<Case> {
    let what = format!(
        "{} synthetic rows of {DIM} numbers in 2,000 clusters, of length 1",
        crate::report::markdown::thousands(rows as i64)
    );
    let began = when::now();
    let mut stream = Stream::embedding_like(11, DIM);
    let vectors = Vectors {
        rows: stream.take(rows),
        queries: stream.take(queries),
        more: stream.take(MORE),
        dim: DIM,
    };
    let case = write(out, synthetic_name(rows), what, vectors, None, true)?;
    Ok(Case { began, ..case })
}

/// What [`synthetic`] calls its case.
pub fn synthetic_name(rows: usize) -> String {
    match rows {
        n if n % 1_000_000 == 0 => format!("clustered-{}M", n / 1_000_000),
        n => format!("clustered-{}k", n / 1000),
    }
}

/// What [`real`] calls its case.
pub fn real_name(set: &str, dim: usize) -> String {
    format!("{set}-{dim}")
}

/// A real set as its encoder gives it, or projected by the head of a learned model.
pub fn real(
    out: &Path,
    name: &str,
    set: &Set,
    embeddings: &Embeddings,
    head: Option<&Quantizer>,
    queries: usize,
) -> Result<Case> {
    let began = when::now();
    let hidden = embeddings.dim();
    let (rows, asked) = encoded(set, embeddings, queries)?;
    let project = |vectors: &[f32]| -> Result<Vec<f32>> {
        let Some(head) = head else {
            return Ok(vectors.to_vec());
        };
        let mut out = vec![0.0; vectors.len() / hidden * head.dim()];
        head.project(vectors, &mut out)?;
        Ok(out)
    };
    let dim = head.map_or(hidden, Quantizer::dim);
    let what = format!(
        "{keys} keys of `{name}`, by the default encoder{}",
        if head.is_some() {
            format!(", projected to {dim} by the head that MoPQ learned from the training pairs")
        } else {
            format!(" ({dim} numbers, of length 1)")
        },
        keys = part(set.keys.len(), set.all_keys),
    );
    let vectors = Vectors {
        more: project(&asked[..asked.len().min(MORE * hidden)])?,
        queries: project(&asked)?,
        rows: project(&rows)?,
        dim,
    };
    let count = vectors.queries.len() / dim;
    let truth = (
        set.test.right[..count].to_vec(),
        set.test.own[..count].to_vec(),
    );
    let name = real_name(name, dim);
    let case = write(out, name, what, vectors, Some(truth), head.is_none())?;
    Ok(Case { began, ..case })
}

/// The vectors of a set's keys, and of its first test queries.
pub fn encoded(set: &Set, embeddings: &Embeddings, queries: usize) -> Result<(Vec<f32>, Vec<f32>)> {
    let keys: Vec<&str> = set.keys.iter().map(String::as_str).collect();
    let test = set.test.queries.iter().take(queries);
    let test: Vec<&str> = test.map(String::as_str).collect();
    Ok((
        embeddings.of(Side::Key, &keys)?,
        embeddings.of(Side::Query, &test)?,
    ))
}

type Truth = (Vec<Vec<u32>>, Vec<Option<u32>>);

fn write(
    out: &Path,
    name: String,
    what: String,
    vectors: Vectors,
    truth: Option<Truth>,
    normalised: bool,
) -> Result<Case> {
    let dir = out.join("cases").join(&name);
    fs::create_dir_all(&dir).with_context(|| format!("{}: making it", dir.display()))?;
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
    let (rows, queries) = (vectors.rows.len() / dim, vectors.queries.len() / dim);
    // One more than is compared where the query itself may be among them.
    let fetch = K + usize::from(truth.is_some());
    let about = json!({"rows": rows, "dim": dim, "normalised": normalised, "fetch": fetch});
    fs::write(dir.join("case.json"), about.to_string())?;
    eprintln!("{name}: the exact top of {queries} queries");
    let (right, own) = match truth {
        Some((right, own)) => (Some(right), own),
        None => (None, vec![None; queries]),
    };
    let exact = exact::top(&vectors.rows, &vectors.queries, dim, fetch)
        .chunks_exact(fetch)
        .zip(&own)
        .map(|(top, own)| {
            let top: Vec<i64> = top.iter().map(|&row| i64::from(row)).collect();
            exact::without(&top, *own, K)
                .into_iter()
                .map(|row| row as u32)
                .collect()
        })
        .collect();
    Ok(Case {
        name,
        what,
        dir,
        rows,
        dim,
        exact,
        right,
        own,
        models: Vec::new(),
        began: when::now(),
    })
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn what_is_a_part_is_said_to_be_one() {
        assert_eq!(part(31_329, 147_313), "31,329 of the 147,313");
        assert_eq!(part(10, 10), "the 10");
    }
}
