//! Measures the storage engine: inserts, opening, memory, rebuilding, compacting, and a reader's latency during each.
//!
//! `cargo bench --bench storage` (a minute or two). Answers are checked before anything is timed.

use mopqdb::bundle::BundleWriter;
use mopqdb::quantizer::{Codebook, Quantizer, TrainPq, train_pq};
use mopqdb::{
    Bundle, CreateOptions, Database, Metric, ModelId, Options, QueryOptions, Reader,
    RebuildOptions, Row, Search, rebuild, register_model,
};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const DIM: usize = 128;

fn main() {
    // Run as a child, this process only reports its own memory, or keeps a core busy.
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("--memory-of") => return report_memory(Path::new(&arguments[2])),
        Some("--rebuild") => return rebuild_once(&arguments[2..]),
        Some("--rebuild-on-and-on") => rebuild_on_and_on(Path::new(&arguments[2])),
        Some("--compact") => return compact_once(&arguments[2..]),
        Some("--burn") => burn(),
        _ => {}
    }
    let rows: usize =
        std::env::var("MOPQDB_BENCH_ROWS").map_or(1_000_000, |n| n.parse().expect("a number"));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let bundle = codebooks(&dir.path().join("bundle"));

    let path = dir.path().join("single.db");
    let db = Database::create(&path, &CreateOptions::bundle(&bundle), Options::default())
        .expect("created");
    single_rows(&db);
    drop(db);

    let path = dir.path().join("bulk.db");
    let db = Database::create(&path, &CreateOptions::bundle(&bundle), Options::default())
        .expect("created");
    bulk(&db, rows);
    db.seal().expect("sealed");
    while db.compact().expect("compacted").outputs > 0 {}
    drop(db);
    opening(&path, rows);
    latency(&path);
    rebuilding(&path, rows);
    latency_during_a_rebuild(&path);
    drop(dir);
    compacting(rows / 2);
}

/// Returns clustered vectors, the same every time.
fn vector(n: usize) -> Vec<f32> {
    let mut state = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    let centre = (n % 1000) as f32;
    (0..DIM)
        .map(|i| (centre * (i as f32 + 1.0)).sin() + next())
        .collect()
}

fn codebooks(dir: &Path) -> std::path::PathBuf {
    let sample: Vec<f32> = (0..10_000).flat_map(vector).collect();
    let options = TrainPq::default().subspaces(8).codewords(256).iterations(5);
    let trained = train_pq(&sample, DIM, Metric::Ip, &options).expect("trained");
    let writer = BundleWriter::new(dir)
        .metric(Metric::Ip)
        .vectors(DIM)
        .method("pq")
        .quantizer(&trained.quantizer);
    writer.finish().expect("written").dir().to_path_buf()
}

/// Returns a bundle with all codebook values scaled, which is a different model that is cheap to make.
fn scaled(bundle: &Bundle, factor: f32, dir: &Path) -> Bundle {
    let quantizer = bundle.quantizer().expect("read").expect("codebooks");
    let book = quantizer.codebook();
    let values = book.values().iter().map(|v| v * factor).collect();
    let book = Codebook::new(book.shape(), book.sub_dim(), values).expect("codebooks");
    let quantizer = Quantizer::builder(book, Metric::Ip)
        .build()
        .and_then(|plain| plain.arranged())
        .expect("a quantizer");
    BundleWriter::new(dir)
        .metric(Metric::Ip)
        .vectors(DIM)
        .method("pq")
        .quantizer(&quantizer)
        .finish()
        .expect("written")
}

/// Registers a model that is new to the database.
fn another_model(path: &Path, n: usize) -> ModelId {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let active = Reader::open(path, Options::default())
        .expect("opened")
        .model();
    let active = active.bundle().expect("a model");
    let bundle = scaled(
        active,
        1.0 + 1e-3 * (n + 1) as f32,
        &dir.path().join("bundle"),
    );
    register_model(path, &bundle).expect("registered")
}

fn child(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.args(arguments);
    command
}

fn text(path: &Path) -> &str {
    path.to_str()
        .expect("a temporary directory has a plain name")
}

/// Rebuilds in a separate process, at two memory limits.
fn rebuilding(path: &Path, rows: usize) {
    for limit in ["32", "256"] {
        let _ = another_model(path, limit.len());
        let output = child(&["--rebuild", text(path), limit])
            .output()
            .expect("ran");
        print!(
            "rebuilding {rows} rows, no head, two threads, {limit} MB allowed: {}",
            String::from_utf8_lossy(&output.stdout)
        );
        assert!(output.status.success());
    }
    let verified = mopqdb::verify(path, &mopqdb::VerifyOptions::default().deep(true));
    assert!(
        verified.expect("verified").problems.is_empty(),
        "the codes must be those of the rows"
    );
}

fn rebuild_once(arguments: &[String]) {
    let limit: usize = arguments[1].parse().expect("a number");
    let before = peak_memory();
    let started = Instant::now();
    let options = RebuildOptions::default().memory_limit(limit << 20);
    let rebuilt = rebuild(&arguments[0], &options).expect("rebuilt");
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{:.0} rows/s; peak resident {:.0} MB, {:.0} before",
        rebuilt.rows as f64 / seconds,
        peak_memory() / 1e6,
        before / 1e6
    );
}

fn rebuild_on_and_on(path: &Path) -> ! {
    for n in 0.. {
        let options = RebuildOptions::default()
            .model(Some(another_model(path, n)))
            .threads(1);
        rebuild(path, &options).expect("rebuilt");
        mopqdb::prune(path, &mopqdb::PruneOptions::default()).expect("pruned");
    }
    unreachable!()
}

/// Measures p99 of a closed-loop reader next to a process that keeps a core busy, and next to one that rebuilds with
/// one thread.
fn latency_during_a_rebuild(path: &Path) {
    let options = Options::default().threads(1);
    let reader = Reader::open(path, options).expect("opened");
    let during = |arguments: &[&str]| {
        let mut other = child(arguments).spawn().expect("ran");
        let times = closed_loop(|query| {
            reader.refresh().expect("refreshed");
            reader.query(query, 10).expect("answered").len()
        });
        assert!(
            other.try_wait().expect("its state can be read").is_none(),
            "it still runs"
        );
        other.kill().and_then(|()| other.wait()).expect("stopped");
        times
    };
    let burning = during(&["--burn"]);
    let rebuilding = during(&["--rebuild-on-and-on", text(path)]);
    compare("during `rebuild` with one thread", burning, rebuilding);
}

/// Merges many small segments in a separate process, at two memory limits.
fn compacting(rows: usize) {
    for limit in ["32", "256"] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("compact.db");
        let bundle = codebooks(&dir.path().join("bundle"));
        let options = Options::default().seal_rows(rows / 32).auto_compact(false);
        let db = Database::create(&path, &CreateOptions::bundle(&bundle), options);
        let db = db.expect("created");
        for start in (0..rows).step_by(8192) {
            let end = (start + 8192).min(rows);
            let batch = (start..end).map(|n| Row::vector(n.to_string(), vector(n)));
            db.insert(&batch.collect::<Vec<_>>()).expect("inserted");
        }
        let deleted: Vec<String> = (0..rows).step_by(5).map(|n| n.to_string()).collect();
        for keys in deleted.chunks(8192) {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            db.delete(&keys).expect("deleted");
        }
        db.close().expect("closed");
        let output = child(&["--compact", text(&path), limit])
            .output()
            .expect("ran");
        print!(
            "compacting {rows} rows, a fifth of them dead, {limit} MB allowed: {}",
            String::from_utf8_lossy(&output.stdout)
        );
        assert!(output.status.success());
    }
}

fn compact_once(arguments: &[String]) {
    let limit: usize = arguments[1].parse().expect("a number");
    let options = Options::default()
        .memory_limit(limit << 20)
        .auto_compact(false);
    let db = Database::open(&arguments[0], options).expect("opened");
    let (rows, segments) = (db.snapshot().rows(), db.stats().expect("stats").segments);
    let before = peak_memory();
    let started = Instant::now();
    while db.compact().expect("compacted").outputs > 0 {}
    println!(
        "{:.0} rows/s, {segments} segments to {}; peak resident {:.0} MB, {:.0} before",
        rows as f64 / started.elapsed().as_secs_f64(),
        db.stats().expect("stats").segments,
        peak_memory() / 1e6,
        before / 1e6
    );
    assert_eq!(db.snapshot().rows(), rows);
}

/// Returns the peak resident memory in bytes, including mapped files.
fn peak_memory() -> f64 {
    memory("VmHWM:")
}

fn memory(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a Linux machine");
    let line = status.lines().find(|line| line.starts_with(field));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.expect("a figure").parse::<f64>().expect("a number") * 1024.0
}

fn single_rows(db: &Database) {
    for threads in [1, 8] {
        let each = 2000 / threads;
        let started = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || {
                    for n in 0..each {
                        let row = Row::vector(format!("{threads}/{thread}/{n}"), vector(n));
                        db.insert(&[row]).expect("inserted");
                    }
                });
            }
        });
        let rate = (each * threads) as f64 / started.elapsed().as_secs_f64();
        println!("single-row inserts, {threads} callers: {rate:.0} acknowledged per second");
    }
    assert!(db.get("1/0/1999").expect("read").is_some());
}

/// Inserts prepared rows, from one caller and from two: while one waits for the disk, the other quantizes. The rows are
/// prepared before the clock starts.
fn bulk(db: &Database, rows: usize) {
    const BATCH: usize = 8192;
    let half = rows / 2;
    for (callers, range) in [(1, 0..half), (2, half..rows)] {
        let all: Vec<Row> = (range.clone())
            .map(|n| Row::vector(n.to_string(), vector(n)))
            .collect();
        let batches = Mutex::new(all.chunks(BATCH));
        let started = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..callers {
                scope.spawn(|| {
                    let next = || batches.lock().expect("no panic").next();
                    while let Some(batch) = next() {
                        db.insert(batch).expect("inserted");
                    }
                });
            }
        });
        println!(
            "bulk inserts of {BATCH}, d={DIM}, M=8, {callers} callers: {:.0} rows/s",
            range.len() as f64 / started.elapsed().as_secs_f64()
        );
    }
    assert_eq!(db.snapshot().rows(), rows as u64);
}

fn opening(path: &Path, rows: usize) {
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let started = Instant::now();
        let db = Database::open(path, Options::default()).expect("opened");
        best = best.min(started.elapsed());
        db.close().expect("closed");
    }
    println!(
        "opening {rows} rows for writing: {:.1} ms",
        best.as_secs_f64() * 1e3
    );
    let started = Instant::now();
    let reader = Reader::open(path, Options::default()).expect("opened");
    println!(
        "opening {rows} rows for reading: {:.1} ms",
        started.elapsed().as_secs_f64() * 1e3
    );
    let hits = reader.query(&vector(77), 10).expect("answered");
    assert_eq!(hits.len(), 10.min(rows));
    let output = child(&["--memory-of", text(path)]).output().expect("ran");
    let bytes: f64 = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .expect("a number of bytes");
    let allowed = 12.0 * rows as f64 + 40e6;
    println!(
        "resident after 100 queries by codes: {:.1} MB; 12 bytes per row + 40 MB would be {:.1} MB",
        bytes / 1e6,
        allowed / 1e6
    );
}

fn report_memory(path: &Path) {
    let db = Database::open(path, Options::default()).expect("opened");
    let by_codes = QueryOptions::top(10).search(Search::Codes);
    for n in 0..100 {
        db.query_with(&vector(n), &by_codes).expect("answered");
    }
    println!("{}", memory("VmRSS:"));
}

fn burn() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

/// Measures p99 of a closed-loop reader next to a process that keeps a core busy, and next to a writer of 2,000 rows
/// per second.
fn latency(path: &Path) {
    let options = Options::default().threads(1);
    let db = Database::open(path, options).expect("opened");
    let mut burner = child(&["--burn"]).spawn().expect("ran");
    let busy = closed_loop(|query| db.query(query, 10).expect("answered").len());
    burner.kill().and_then(|()| burner.wait()).expect("stopped");
    let stop = AtomicBool::new(false);
    let writing = std::thread::scope(|scope| {
        scope.spawn(|| {
            let started = Instant::now();
            let mut written = 0u64;
            while !stop.load(Ordering::Relaxed) {
                // Insert 20 rows every 10 ms.
                let rows: Vec<Row> = (0..20)
                    .map(|n| {
                        Row::vector(format!("w{}", written + n), vector((written + n) as usize))
                    })
                    .collect();
                db.insert(&rows).expect("inserted");
                written += 20;
                let due = Duration::from_secs_f64(written as f64 / 2000.0);
                std::thread::sleep(due.saturating_sub(started.elapsed()));
            }
        });
        let times = closed_loop(|query| db.query(query, 10).expect("answered").len());
        stop.store(true, Ordering::Relaxed);
        times
    });
    compare("during inserts of 2,000 rows/s", busy, writing);
}

fn compare(what: &str, burning: (f64, f64), other: (f64, f64)) {
    println!(
        "closed-loop reader, 10,000 queries: p50 {:.0} us, p99 {:.0} us next to a busy process; p50 {:.0} us, p99 {:.0} \
         us {what}: p99 x{:.2}",
        burning.0,
        burning.1,
        other.0,
        other.1,
        other.1 / burning.1
    );
}

/// Returns p50 and p99 in microseconds.
fn closed_loop(ask: impl Fn(&[f32]) -> usize) -> (f64, f64) {
    let queries: Vec<Vec<f32>> = (0..64).map(vector).collect();
    let mut times: Vec<f64> = (0..10_000)
        .map(|n| {
            let started = Instant::now();
            assert!(ask(&queries[n % 64]) > 0);
            started.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    (times[times.len() / 2], times[times.len() * 99 / 100])
}
