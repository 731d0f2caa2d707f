//! mopqdb as a search peer: one process that prints one JSON object to stdout. `peers/peer.py` documents the protocol.

use crate::process;
use anyhow::{Context, Result, bail};
use mopqdb::quantizer::{TrainPq, train_opq};
use mopqdb::{
    BundleWriter, CreateOptions, Database, Metric, Options, Query, QueryOptions, Reader, Row,
    Search,
};
use mopqdb_formats::vectors::{VectorReader, read_all};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// If repeats take this many times longer than requested, three are enough.
const LONG: f64 = 3.0;

pub fn answer(arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answer = match arguments[..] {
        [name, "about"] => about(name)?,
        [name, "settings", _rows, dim, bytes] => settings(name, dim.parse()?, bytes.parse()?),
        [_, "build", case, index, setting] => {
            Case::open(case)?.build(Path::new(index), &serde_json::from_str(setting)?)?
        }
        [_, "search", case, index, setting, asking, hits] => {
            let (setting, asking) = (
                serde_json::from_str(setting)?,
                serde_json::from_str(asking)?,
            );
            Case::open(case)?.search(Path::new(index), &setting, &asking, Path::new(hits))?
        }
        [_, "insert", case, index, _setting] => Case::open(case)?.insert(Path::new(index))?,
        _ => bail!("peers/peer.py documents what a peer is asked"),
    };
    println!("{answer}");
    Ok(())
}

fn about(name: &str) -> Result<Value> {
    let name = match name {
        "mopqdb_exact" => "mopqdb, full precision",
        "mopqdb_opq" => "mopqdb, OPQ codes",
        "mopqdb_mopq" => "mopqdb, MoPQ codes",
        "mopqdb_opq_rescored" => "mopqdb, OPQ codes, re-scored",
        "mopqdb_mopq_rescored" => "mopqdb, MoPQ codes, re-scored",
        _ => bail!("there is no peer {name}"),
    };
    Ok(json!({"name": name, "version": env!("CARGO_PKG_VERSION"), "durable": "yes"}))
}

/// The ways in which an index of ours is searched: by codes alone, or with stored vectors of so many candidates.
pub fn searches(name: &str) -> Value {
    match name.ends_with("_rescored") {
        true => {
            json!([100, 200, 400, 1000, 4000].map(|candidates| json!({"candidates": candidates})))
        }
        false => json!([{}]),
    }
}

fn settings(name: &str, dim: usize, bytes: usize) -> Value {
    match name {
        "mopqdb_opq" | "mopqdb_opq_rescored" if dim.is_multiple_of(bytes) => {
            json!([{"build": {"subspaces": bytes}, "bytes": bytes, "search": searches(name)}])
        }
        "mopqdb_exact" => json!([{"build": {}, "bytes": 4 * dim, "search": [{}]}]),
        _ => json!([]),
    }
}

fn timed(work: impl FnOnce() -> Result<usize>) -> Result<Value> {
    let (wall, before) = (Instant::now(), process::cpu());
    let count = work()?;
    let (wall, cpu) = (wall.elapsed().as_secs_f64(), process::cpu() - before);
    Ok(json!({"count": count, "wall": wall, "cpu": cpu}))
}

#[derive(Deserialize)]
struct Asking {
    threads: usize,
    seconds: f64,
    repeats: usize,
    batch: usize,
    limit: f64,
}

#[derive(Deserialize)]
struct Case {
    #[serde(skip)]
    dir: PathBuf,
    rows: usize,
    dim: usize,
    fetch: usize,
    normalised: bool,
}

impl Case {
    fn open(dir: &str) -> Result<Self> {
        let dir = PathBuf::from(dir);
        let case: Self = serde_json::from_slice(&fs::read(dir.join("case.json"))?)?;
        Ok(Self { dir, ..case })
    }

    fn metric(&self) -> Metric {
        if self.normalised {
            Metric::Cosine
        } else {
            Metric::Ip
        }
    }

    fn build(&self, index: &Path, setting: &Value) -> Result<Value> {
        let build = timed(|| {
            let mut new = CreateOptions::vectors(self.dim, self.metric());
            if let Some(bundle) = setting["bundle"].as_str() {
                new = CreateOptions::bundle(bundle);
            } else if let Some(subspaces) = setting["subspaces"].as_u64() {
                let bundle = index.with_extension("bundle");
                self.train(&bundle, subspaces as usize)?;
                new = CreateOptions::bundle(&bundle);
            }
            fs::create_dir_all(index.parent().context("a folder")?)?;
            let db = Database::create(index, &new, Options::default())?;
            let mut next = 0;
            self.for_each_batch(|some| {
                let numbered = some.chunks_exact(self.dim).zip(next..);
                let rows: Vec<Row> = numbered.map(row).collect();
                next += rows.len();
                db.insert(&rows)?;
                Ok(())
            })?;
            db.seal()?;
            while db.compact()?.outputs > 0 {}
            db.close()?;
            Ok(next)
        })?;
        Ok(json!({"build": build, "disk": process::disk(index)?}))
    }

    fn for_each_batch(&self, mut work: impl FnMut(&[f32]) -> Result<()>) -> Result<()> {
        let mut reader = VectorReader::open(&self.dir.join("rows.npy"))?;
        let mut some = Vec::new();
        while reader.read_rows(8192, &mut some)? > 0 {
            work(&some)?;
            some.clear();
        }
        Ok(())
    }

    /// Trains OPQ on rows sampled evenly, and writes a bundle.
    fn train(&self, bundle: &Path, subspaces: usize) -> Result<()> {
        let options = TrainPq::default().subspaces(subspaces).threads(0);
        let step = (self.rows / options.sample).max(1);
        let (mut sample, mut at) = (Vec::new(), 0);
        self.for_each_batch(|some| {
            for row in some.chunks_exact(self.dim) {
                if at % step == 0 && sample.len() < options.sample * self.dim {
                    sample.extend_from_slice(row);
                }
                at += 1;
            }
            Ok(())
        })?;
        let trained = train_opq(&sample, self.dim, self.metric(), &options)?;
        let _ = fs::remove_dir_all(bundle);
        let writer = BundleWriter::new(bundle)
            .metric(self.metric())
            .vectors(self.dim);
        writer
            .method("opq")
            .quantizer(&trained.quantizer)
            .finish()?;
        Ok(())
    }

    fn search(&self, index: &Path, setting: &Value, asking: &Asking, hits: &Path) -> Result<Value> {
        let (dim, queries) = read_all(&self.dir.join("queries.npy"))?;
        let queries: Vec<&[f32]> = queries.chunks_exact(dim).collect();
        let before = process::resident()?;
        let opened = Instant::now();
        let options = Options::default().threads(asking.threads);
        let reader = Reader::open(index, options)?;
        let top = QueryOptions::top(self.fetch);
        let top = match (
            setting["candidates"].as_u64(),
            reader.snapshot().model().quantizer(),
        ) {
            (Some(candidates), _) => top.candidates(candidates as usize),
            (None, Some(_)) => top.search(Search::Codes),
            (None, None) => top.search(Search::Exact),
        };
        reader.query_with(queries[0], &top)?;
        let opened = opened.elapsed().as_secs_f64();

        let ask = |some: &[&[f32]]| {
            let some: Vec<Query<'_>> = some.iter().map(|&query| query.into()).collect();
            reader.query_batch(&some, &top)
        };
        let (mut found, began) = (Vec::new(), Instant::now());
        // The first calls are small, so that a slow peer does not exceed its limit by much.
        let (mut rest, mut size) = (&queries[..], 8);
        while !rest.is_empty() && began.elapsed().as_secs_f64() <= asking.limit {
            let (some, later) = rest.split_at(size.min(rest.len()));
            (rest, size) = (later, 64.min(2 * size));
            for hits in ask(some)? {
                for at in 0..self.fetch {
                    let key = hits.get(at).map_or(Ok(-1), |hit| hit.key.parse::<i64>());
                    found.extend(key.context("a key must be a row number")?.to_le_bytes());
                }
            }
        }
        fs::write(hits, found)?;

        let passes = |batch: usize| -> Result<Vec<Value>> {
            let pass = || {
                let (mut done, began) = (0, Instant::now());
                while done == 0 || began.elapsed().as_secs_f64() < asking.seconds {
                    let at = done % queries.len().saturating_sub(batch).max(1);
                    ask(&queries[at..(at + batch).min(queries.len())])?;
                    done += batch;
                }
                Ok(done)
            };
            let (mut all, began) = (Vec::new(), Instant::now());
            let long =
                || began.elapsed().as_secs_f64() >= LONG * asking.seconds * asking.repeats as f64;
            while all.len() < asking.repeats && !(all.len() >= 3 && long()) {
                all.push(timed(pass)?);
            }
            Ok(all)
        };
        let one = passes(1)?;
        let batch = if asking.batch == 0 {
            Vec::new()
        } else {
            passes(asking.batch)?
        };
        let ram = (process::resident()? - before).max(0.0);
        Ok(json!({"open": opened, "one": one, "batch": batch, "ram": ram}))
    }

    fn insert(&self, index: &Path) -> Result<Value> {
        let (dim, more) = read_all(&self.dir.join("more.npy"))?;
        let db = Database::open(index, Options::default())?;
        let rows: Vec<Row> = more.chunks_exact(dim).zip(self.rows..).map(row).collect();
        let insert = timed(|| {
            for some in rows.chunks(100) {
                db.insert(some)?;
            }
            Ok(rows.len())
        })?;
        Ok(json!({ "insert": insert }))
    }
}

fn row((vector, number): (&[f32], usize)) -> Row {
    Row::vector(number.to_string(), vector)
}
