//! Ourselves beside faiss-cpu: same codes, same run, one core, CPU time, faiss at its fastest SIMD level. Every
//! answer is compared with a plain sum first, and faiss's scores with ours. Writes a table, its numbers as JSON and
//! a plot.
//!
//! `make bench` has the right arguments.

use anyhow::{Context, Result, bail};
use clap::Parser;
use mopqdb::Metric;
use mopqdb::kernel::Kernel;
use mopqdb::quantizer::{LookupTable, Quantizer, TrainPq, train_opq, train_pq};
use mopqdb::scan::Scanner;
use mopqdb_benches::chart::{Group, bars};
use mopqdb_benches::clock::{bandwidth, cpu_time, fastest};
use mopqdb_benches::data::{Blocks, Stream, check, plain_top};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const DIM: usize = 128;
const QUERIES: usize = 16;
const KS: [usize; 3] = [10, 100, 1000];

/// Ourselves beside faiss-cpu, on the same codes, in the same run.
#[derive(Debug, Parser)]
struct Options {
    /// An interpreter with faiss-cpu.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Where the table, its numbers and the plot go.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// Rows of a scan.
    #[arg(long, default_value_t = 1_000_000)]
    rows: usize,
    /// Few rows, for checking.
    #[arg(long)]
    quick: bool,
}

fn main() -> Result<()> {
    let options = Options::parse();
    fs::create_dir_all(&options.out)?;
    let kernel = Kernel::detect()?;
    let mut lines = Vec::new();
    let mut cases = vec![
        ("isotropic", 8, 256, options.rows),
        ("clustered", 8, 256, options.rows),
        ("isotropic", 16, 256, options.rows),
        ("clustered", 16, 256, options.rows),
        ("isotropic", 16, 16, options.rows),
        ("clustered", 16, 16, options.rows),
    ];
    if options.quick {
        cases.truncate(2);
    } else {
        cases.push(("clustered", 8, 256, 10 * options.rows));
    }
    for (data, subspaces, codewords, rows) in cases {
        eprintln!("{data} {subspaces}x{codewords}, {rows} rows");
        scan_case(
            &options,
            kernel,
            data,
            (subspaces, codewords),
            rows,
            &mut lines,
        )?;
        report(&options, kernel, &lines)?;
    }
    for subspaces in [8, 16] {
        eprintln!("training and encoding {subspaces}x256");
        train_case(&options, subspaces, &mut lines)?;
        report(&options, kernel, &lines)?;
    }
    println!("{}", fs::read_to_string(options.out.join("table.md"))?);
    Ok(())
}

/// One measured thing: ours and the peer's, in a unit in which more is better.
struct Line {
    what: String,
    unit: &'static str,
    ours: f64,
    peer: f64,
    peer_is: String,
    note: String,
}

fn stream(data: &str, seed: u64) -> Stream {
    match data {
        "clustered" => Stream::clustered(seed, DIM),
        _ => Stream::isotropic(seed, DIM),
    }
}

fn scan_case(
    options: &Options,
    kernel: Kernel,
    data: &str,
    (subspaces, codewords): (usize, usize),
    rows: usize,
    lines: &mut Vec<Line>,
) -> Result<()> {
    let mut vectors = stream(data, 7);
    let training = TrainPq {
        subspaces,
        codewords,
        iterations: 12,
        ..TrainPq::default()
    };
    let quantizer = train_pq(&vectors.take(30_000), DIM, Metric::Ip, &training)?.quantizer;
    let mut codes = vec![0; rows * subspaces];
    for codes in codes.chunks_mut(10_000 * subspaces) {
        quantizer.quantize(&vectors.take(codes.len() / subspaces), codes)?;
    }
    let blocks = Blocks::new(quantizer.shape(), &codes);
    let queries = vectors.take(QUERIES);
    let tables: Vec<LookupTable> = queries
        .chunks_exact(DIM)
        .map(|q| quantizer.table(q))
        .collect::<Result<_, _>>()?;
    let scanner = Scanner::with_kernel(kernel, 1);
    let repeats = if options.quick { 6 } else { 12 };

    let folder = options.out.join("exchange");
    write_exchange(&folder, &quantizer, &codes, &queries, repeats)?;
    for k in KS {
        let found = scanner.scan(&[&blocks], &tables, k)?;
        let mut scores = Vec::new();
        for (table, found) in tables.iter().zip(&found) {
            scores.extend(found.iter().take(k).flat_map(|f| f.score.to_le_bytes()));
            if std::ptr::eq(table, &tables[0]) {
                check(found, &plain_top(table, &codes, k));
            }
        }
        fs::write(folder.join(format!("scores.{k}.f32")), scores)?;
    }
    drop(codes);

    let one = |k: usize| {
        fastest(repeats / 2, || {
            scanner
                .scan(&[&blocks], &tables[..1], k)
                .expect("in memory")
        })
    };
    let all = || {
        fastest(3, || {
            scanner.scan(&[&blocks], &tables, 10).expect("in memory")
        })
    };
    let before: Vec<f64> = KS.iter().map(|&k| one(k)).collect();
    let batch_before = all();
    let peer = peer(options, &folder, &[])?;
    let memory = bandwidth(blocks.bytes(), repeats);

    let name = format!("{data}, {subspaces}x{codewords}, {} rows", thousands(rows));
    let rate = |seconds: f64| rows as f64 / seconds / 1e9;
    for (&k, before) in KS.iter().zip(before) {
        let seconds = before.min(one(k));
        let bytes = blocks.bytes().len() as f64 / seconds;
        for index in ["pq", "fastscan"] {
            let Some(theirs) = peer.get(format!("{index} k={k}")) else {
                continue;
            };
            lines.push(Line {
                what: format!("scan {name}, k={k}"),
                unit: "Grows/s",
                ours: rate(seconds),
                peer: rate(theirs["seconds"].as_f64().context("seconds")?),
                peer_is: format!(
                    "faiss {index} ({})",
                    theirs["level"].as_str().unwrap_or("?")
                ),
                note: format!(
                    "{:.1} GB/s, {:.0}% of bandwidth",
                    bytes / 1e9,
                    100.0 * bytes / memory
                ),
            });
        }
    }
    let batch = batch_before.min(all()) / QUERIES as f64;
    for index in ["pq", "fastscan"] {
        if let Some(theirs) = peer.get(format!("{index} 16 queries")) {
            lines.push(Line {
                what: format!("scan {name}, k=10, 16 queries a pass"),
                unit: "Grows/s",
                ours: rate(batch),
                peer: rate(theirs["seconds"].as_f64().context("seconds")? / QUERIES as f64),
                peer_is: format!(
                    "faiss {index} ({})",
                    theirs["level"].as_str().unwrap_or("?")
                ),
                note: String::new(),
            });
        }
    }
    Ok(())
}

fn write_exchange(
    folder: &Path,
    quantizer: &Quantizer,
    codes: &[u8],
    queries: &[f32],
    repeats: usize,
) -> Result<()> {
    fs::create_dir_all(folder)?;
    let shape = quantizer.shape();
    let meta = json!({
        "dim": DIM, "subspaces": shape.subspaces(), "codewords": shape.codewords(),
        "rows": codes.len() / shape.subspaces(), "k": KS, "repeats": repeats,
    });
    fs::write(folder.join("meta.json"), meta.to_string())?;
    fs::write(folder.join("codes.u8"), codes)?;
    fs::write(
        folder.join("codebook.f32"),
        little_endian(quantizer.codebook().values()),
    )?;
    fs::write(folder.join("queries.f32"), little_endian(queries))?;
    Ok(())
}

fn little_endian(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Runs the peer's script on a folder.
fn peer(options: &Options, folder: &Path, args: &[&str]) -> Result<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/faiss_peer.py");
    let output = Command::new(&options.python)
        .arg(script)
        .arg(folder)
        .args(args)
        .env("OMP_NUM_THREADS", "1")
        .output()
        .with_context(|| format!("running {}", options.python.display()))?;
    if !output.status.success() {
        bail!(
            "the peer failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    serde_json::from_slice(&output.stdout).context("reading what the peer measured")
}

fn train_case(options: &Options, subspaces: usize, lines: &mut Vec<Line>) -> Result<()> {
    let rows = Stream::clustered(9, DIM).take(if options.quick { 20_000 } else { 65_536 });
    let count = rows.len() / DIM;
    let training = TrainPq {
        subspaces,
        threads: 1,
        ..TrainPq::default()
    };
    let folder = options.out.join("exchange");
    fs::create_dir_all(&folder)?;
    let meta = json!({"dim": DIM, "subspaces": subspaces, "iterations": training.iterations});
    fs::write(folder.join("meta.json"), meta.to_string())?;
    fs::write(folder.join("rows.f32"), little_endian(&rows))?;

    let start = cpu_time();
    let pq = train_pq(&rows, DIM, Metric::L2, &training)?;
    let pq_seconds = (cpu_time() - start).as_secs_f64();
    let start = cpu_time();
    let opq = train_opq(&rows, DIM, Metric::L2, &training)?;
    let opq_seconds = (cpu_time() - start).as_secs_f64();
    let some = &rows[..DIM * count.min(20_000)];
    let mut codes = vec![0; some.len() / DIM * subspaces];
    let encode = fastest(3, || pq.quantizer.quantize(some, &mut codes));

    let peer = peer(options, &folder, &["--train"])?;
    let theirs = |what: &str, field: &str| {
        peer[what][field]
            .as_f64()
            .with_context(|| format!("{what} {field}"))
    };
    lines.push(Line {
        what: format!("encode {subspaces}x256"),
        unit: "Mvectors/s",
        ours: (some.len() / DIM) as f64 / encode / 1e6,
        peer: (some.len() / DIM) as f64 / theirs("encode", "seconds")? / 1e6,
        peer_is: format!(
            "faiss compute_codes ({})",
            peer["encode"]["level"].as_str().unwrap_or("?")
        ),
        note: String::new(),
    });
    for (name, seconds, trained, what) in [
        ("PQ", pq_seconds, &pq, "train"),
        ("OPQ", opq_seconds, &opq, "opq"),
    ] {
        let ours = distortion(&trained.quantizer, &rows)?;
        let distortion = theirs(what, "distortion")?;
        lines.push(Line {
            what: format!(
                "train {name} {subspaces}x256, {} rows, {} iterations",
                thousands(count),
                training.iterations
            ),
            unit: "runs/s",
            ours: 1.0 / seconds,
            peer: 1.0 / theirs(what, "seconds")?,
            peer_is: format!("faiss {name}"),
            note: format!(
                "error {ours:.3}, faiss {distortion:.3}: {:+.2}%",
                100.0 * (ours / distortion - 1.0)
            ),
        });
    }
    Ok(())
}

/// Mean squared error of a row.
fn distortion(quantizer: &Quantizer, rows: &[f32]) -> Result<f64> {
    let n = rows.len() / DIM;
    let (mut projected, mut decoded) = (vec![0.0; rows.len()], vec![0.0; rows.len()]);
    let mut codes = vec![0; n * quantizer.shape().subspaces()];
    quantizer.project(rows, &mut projected)?;
    quantizer.quantize(rows, &mut codes)?;
    quantizer.decode(&codes, &mut decoded);
    let sum: f64 = projected
        .iter()
        .zip(&decoded)
        .map(|(a, b)| f64::from(a - b).powi(2))
        .sum();
    Ok(sum / n as f64)
}

fn thousands(n: usize) -> String {
    match n {
        n if n >= 1_000_000 && n.is_multiple_of(1_000_000) => format!("{}M", n / 1_000_000),
        n if n.is_multiple_of(1_000) => format!("{}k", n / 1_000),
        n => n.to_string(),
    }
}

/// Writes what there is so far.
fn report(options: &Options, kernel: Kernel, lines: &[Line]) -> Result<()> {
    let mut table = format!(
        "One core, CPU time, kernel {kernel:?}; kernels this CPU can't run: {:?}. Answers checked against a plain f32 \
         sum, and the peer's scores against ours, before the clock.\n\n\
         | work | ours | peer | ratio | peer is | |\n|---|---|---|---|---|---|\n",
        Kernel::unavailable()
    );
    for line in lines {
        writeln!(
            table,
            "| {} | {:.3} {} | {:.3} | **{:.2}x** | {} | {} |",
            line.what,
            line.ours,
            line.unit,
            line.peer,
            line.ours / line.peer,
            line.peer_is,
            line.note
        )?;
    }
    fs::write(options.out.join("table.md"), &table)?;
    let groups: Vec<Group> = lines
        .iter()
        .filter(|line| line.unit == "Grows/s")
        .map(|line| Group {
            label: line.what.clone(),
            values: vec![Some(line.ours), Some(line.peer)],
        })
        .collect();
    let svg = bars(
        "Exact scans of PQ codes, one core",
        "Grows/s",
        &["mopqdb", "faiss at its best level"],
        &groups,
    );
    fs::write(options.out.join("plot.svg"), svg)?;
    let numbers: Vec<Value> = lines
        .iter()
        .map(|l| json!({"what": l.what, "unit": l.unit, "ours": l.ours, "peer": l.peer, "peer_is": l.peer_is, "note": l.note}))
        .collect();
    fs::write(
        options.out.join("numbers.json"),
        serde_json::to_string_pretty(&json!({"kernel": kernel.name(), "lines": numbers}))?,
    )?;
    Ok(())
}
