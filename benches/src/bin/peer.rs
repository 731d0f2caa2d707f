//! Ourselves, by the protocol of the search peers: see `benches/peers/peer.py`, which this mirrors.

use anyhow::{Context, Result, bail};
use mopqdb::quantizer::{TrainPq, train_opq};
use mopqdb::vectors::{VectorReader, read_all};
use mopqdb::{
    BundleWriter, CreateOptions, Database, Metric, Options, Query, QueryOptions, Reader, Row,
};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answer = match arguments[..] {
        [name, "about"] => about(name)?,
        [name, "settings", _rows, dim, bytes] => settings(name, dim.parse()?, bytes.parse()?),
        [_, "build", case, index, setting] => build(
            &Case::open(case)?,
            Path::new(index),
            &serde_json::from_str(setting)?,
        )?,
        [
            _,
            "search",
            case,
            index,
            _setting,
            threads,
            seconds,
            repeats,
            batch,
            hits,
            limit,
        ] => {
            let timing = Timing {
                threads: threads.parse()?,
                seconds: seconds.parse()?,
                repeats: repeats.parse()?,
                batch: batch.parse()?,
                limit: limit.parse()?,
            };
            search(
                &Case::open(case)?,
                Path::new(index),
                &timing,
                Path::new(hits),
            )?
        }
        [_, "insert", case, index, _setting] => insert(&Case::open(case)?, Path::new(index))?,
        _ => bail!("see benches/peers/peer.py for what a peer is asked"),
    };
    println!("{answer}");
    Ok(())
}

struct Case {
    dir: PathBuf,
    about: Value,
}

impl Case {
    fn open(dir: &str) -> Result<Self> {
        let dir = PathBuf::from(dir);
        let about = serde_json::from_slice(&fs::read(dir.join("case.json"))?)?;
        Ok(Self { dir, about })
    }

    fn number(&self, name: &str) -> Result<usize> {
        let number = self.about[name].as_u64();
        Ok(number.with_context(|| format!("case.json: {name}"))? as usize)
    }

    fn metric(&self) -> Metric {
        match self.about["normalised"].as_bool() {
            Some(true) => Metric::Cosine,
            _ => Metric::Ip,
        }
    }
}

fn about(name: &str) -> Result<Value> {
    let name = match name {
        "mopqdb_exact" => "mopqdb, whole vectors",
        "mopqdb_opq" => "mopqdb, OPQ codes",
        "mopqdb_mopq" => "mopqdb, MoPQ codes",
        _ => bail!("no peer {name}"),
    };
    Ok(json!({"name": name, "version": env!("CARGO_PKG_VERSION"), "durable": "yes"}))
}

fn settings(name: &str, dim: usize, bytes: usize) -> Value {
    match name {
        "mopqdb_opq" if dim.is_multiple_of(bytes) => {
            json!([{"build": {"subspaces": bytes}, "bytes": bytes, "search": [{}]}])
        }
        "mopqdb_exact" => json!([{"build": {}, "bytes": 4 * dim, "search": [{}]}]),
        _ => json!([]),
    }
}

/// CPU seconds of all threads.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn timed(work: impl FnOnce() -> Result<usize>) -> Result<Value> {
    let (wall, before) = (Instant::now(), cpu());
    let count = work()?;
    Ok(json!({"count": count, "wall": wall.elapsed().as_secs_f64(), "cpu": cpu() - before}))
}

fn build(case: &Case, index: &Path, setting: &Value) -> Result<Value> {
    let build = timed(|| {
        let (dim, metric) = (case.number("dim")?, case.metric());
        let mut new = CreateOptions::vectors(dim, metric);
        if let Some(bundle) = setting["bundle"].as_str() {
            new = CreateOptions::bundle(bundle);
        } else if let Some(subspaces) = setting["subspaces"].as_u64() {
            let options = TrainPq {
                subspaces: subspaces as usize,
                threads: 0,
                ..TrainPq::default()
            };
            let sample = sample(case, options.sample)?;
            let trained = train_opq(&sample, dim, metric, &options)?;
            let bundle = index.with_extension("bundle");
            let _ = fs::remove_dir_all(&bundle);
            let writer = BundleWriter::new(&bundle).metric(metric).vectors(dim);
            writer
                .method("opq")
                .quantizer(&trained.quantizer)
                .finish()?;
            new = CreateOptions::bundle(&bundle);
        }
        let db = Database::create(index, &new, Options::default())?;
        let mut reader = VectorReader::open(&case.dir.join("rows.npy"))?;
        let (mut some, mut next) = (Vec::new(), 0usize);
        while reader.read_rows(8192, &mut some)? > 0 {
            let numbered = some.chunks_exact(dim).zip(next..);
            let rows: Vec<Row> = numbered
                .map(|(v, n)| Row::vector(n.to_string(), v))
                .collect();
            db.insert(&rows)?;
            next += rows.len();
            some.clear();
        }
        db.seal()?;
        while db.compact()?.outputs > 0 {}
        db.close()?;
        Ok(next)
    })?;
    Ok(json!({"build": build, "disk": disk(index)?}))
}

/// Rows evenly from all.
fn sample(case: &Case, most: usize) -> Result<Vec<f32>> {
    let (dim, rows) = (case.number("dim")?, case.number("rows")?);
    let step = (rows / most).max(1);
    let mut reader = VectorReader::open(&case.dir.join("rows.npy"))?;
    let (mut all, mut some, mut at) = (Vec::new(), Vec::new(), 0);
    while reader.read_rows(8192, &mut some)? > 0 {
        for row in some.chunks_exact(dim) {
            if at % step == 0 && all.len() < most * dim {
                all.extend_from_slice(row);
            }
            at += 1;
        }
        some.clear();
    }
    Ok(all)
}

fn disk(dir: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let about = entry.metadata()?;
        sum += if about.is_dir() {
            disk(&entry.path())?
        } else {
            about.len()
        };
    }
    Ok(sum)
}

/// Where one call takes so many times longer than asked for, three repeats are enough.
const LONG: f64 = 3.0;

struct Timing {
    threads: usize,
    seconds: f64,
    repeats: usize,
    /// Queries of a batch; 0 if none are timed.
    batch: usize,
    /// Seconds for the hits of all queries; if they are too few, of the first ones.
    limit: f64,
}

fn search(case: &Case, index: &Path, timing: &Timing, hits: &Path) -> Result<Value> {
    let (dim, queries) = read_all(&case.dir.join("queries.npy"))?;
    let queries: Vec<&[f32]> = queries.chunks_exact(dim).collect();
    let options = QueryOptions::top(case.number("fetch")?);
    let before = resident()?;
    let opened = Instant::now();
    let threads = timing.threads;
    let reader = Reader::open(
        index,
        Options {
            threads,
            ..Options::default()
        },
    )?;
    reader.query_with(queries[0], &options)?;
    let opened = opened.elapsed().as_secs_f64();

    let ask = |some: &[&[f32]]| {
        let some: Vec<Query<'_>> = some.iter().map(|&query| query.into()).collect();
        reader.query_batch(&some, &options)
    };
    let mut found: Vec<i64> = Vec::new();
    let began = Instant::now();
    // The first calls are small, so that a slow one is not long over its limit.
    let (mut rest, mut size) = (&queries[..], 8);
    while !rest.is_empty() {
        let (some, later) = rest.split_at(size.min(rest.len()));
        (rest, size) = (later, 64.min(2 * size));
        for hits in ask(some)? {
            let keys = hits.iter().map(|hit| hit.key.parse::<i64>());
            let keys: Vec<i64> = keys.collect::<Result<_, _>>().context("a row number")?;
            found.extend(&keys);
            found.extend(std::iter::repeat_n(-1, options.k - keys.len()));
        }
        if began.elapsed().as_secs_f64() > timing.limit {
            break;
        }
    }
    write_hits(hits, &found, options.k)?;

    let passes = |batch: usize| -> Result<Vec<Value>> {
        let work = || {
            let (mut done, began) = (0, Instant::now());
            loop {
                let at = done % queries.len().saturating_sub(batch).max(1);
                ask(&queries[at..(at + batch).min(queries.len())])?;
                done += batch;
                if began.elapsed().as_secs_f64() >= timing.seconds {
                    return Ok(done);
                }
            }
        };
        let (mut done, began) = (Vec::new(), Instant::now());
        let long = LONG * timing.seconds * timing.repeats as f64;
        while done.len() < timing.repeats.min(3)
            || done.len() < timing.repeats && began.elapsed().as_secs_f64() < long
        {
            done.push(timed(work)?);
        }
        Ok(done)
    };
    let one = passes(1)?;
    let batch = match timing.batch {
        0 => Vec::new(),
        size => passes(size)?,
    };
    let ram = resident()?.saturating_sub(before);
    Ok(json!({"open": opened, "one": one, "batch": batch, "ram": ram}))
}

fn resident() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb: u64 = line
        .and_then(|line| line.trim().strip_suffix("kB"))
        .context("VmRSS in /proc/self/status")?
        .trim()
        .parse()?;
    Ok(kb * 1024)
}

/// As numpy does.
fn write_hits(path: &Path, hits: &[i64], width: usize) -> Result<()> {
    let shape = (hits.len() / width, width);
    let mut header = format!("{{'descr': '<i8', 'fortran_order': False, 'shape': {shape:?}, }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.bytes());
    bytes.extend(hits.iter().flat_map(|hit| hit.to_le_bytes()));
    fs::write(path, bytes).with_context(|| format!("{}: writing", path.display()))
}

fn insert(case: &Case, index: &Path) -> Result<Value> {
    let (dim, more) = read_all(&case.dir.join("more.npy"))?;
    let db = Database::open(index, Options::default())?;
    let first = case.number("rows")?;
    let rows: Vec<Row> = more
        .chunks_exact(dim)
        .zip(first..)
        .map(|(v, n)| Row::vector(n.to_string(), v))
        .collect();
    let insert = timed(|| {
        for some in rows.chunks(100) {
            db.insert(some)?;
        }
        Ok(rows.len())
    })?;
    Ok(json!({ "insert": insert }))
}
