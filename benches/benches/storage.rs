//! The storage engine in figures: inserts, opening, memory, and a reader's latency beside a writer.
//!
//! `cargo bench --bench storage` (a minute or two). Answers are checked before anything is timed.

use mopqdb::bundle::BundleWriter;
use mopqdb::quantizer::{TrainPq, train_pq};
use mopqdb::{CreateOptions, Database, Metric, Options, Reader, Row};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const DIM: usize = 128;

fn main() {
    // Run as a child, this process only reports its own memory, or burns a core.
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("--memory-of") => return report_memory(Path::new(&arguments[2])),
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
}

/// Clustered vectors, the same every time.
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
    let options = TrainPq {
        subspaces: 8,
        codewords: 256,
        iterations: 5,
        ..TrainPq::default()
    };
    let trained = train_pq(&sample, DIM, Metric::Ip, &options).expect("trained");
    let writer = BundleWriter::new(dir)
        .metric(Metric::Ip)
        .vectors(DIM)
        .method("pq")
        .quantizer(&trained.quantizer);
    writer.finish().expect("written").dir().to_path_buf()
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
        println!("single-row inserts, {threads} callers: {rate:.0} acknowledged a second");
    }
    assert!(db.get("1/0/1999").expect("read").is_some());
}

fn bulk(db: &Database, rows: usize) {
    const BATCH: usize = 8192;
    let started = Instant::now();
    let mut making = Duration::ZERO;
    for start in (0..rows).step_by(BATCH) {
        let made = Instant::now();
        let batch: Vec<Row> = (start..(start + BATCH).min(rows))
            .map(|n| Row::vector(n.to_string(), vector(n)))
            .collect();
        making += made.elapsed();
        db.insert(&batch).expect("inserted");
    }
    let taken = started.elapsed() - making;
    println!(
        "bulk inserts of {BATCH}, d={DIM}, M=8: {:.0} rows/s",
        rows as f64 / taken.as_secs_f64()
    );
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
    let output = Command::new(std::env::current_exe().expect("own path"))
        .args(["--memory-of".as_ref(), path.as_os_str()])
        .output()
        .expect("ran");
    let bytes: f64 = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .expect("a number of bytes");
    let allowed = 12.0 * rows as f64 + 40e6;
    println!(
        "resident after 100 queries: {:.1} MB; 12 bytes a row + 40 MB are {:.1} MB",
        bytes / 1e6,
        allowed / 1e6
    );
}

fn report_memory(path: &Path) {
    let db = Database::open(path, Options::default()).expect("opened");
    for n in 0..100 {
        db.query(&vector(n), 10).expect("answered");
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("a Linux machine");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .expect("resident memory");
    let kib: u64 = line
        .split_whitespace()
        .nth(1)
        .expect("a figure")
        .parse()
        .expect("a number");
    println!("{}", kib * 1024);
}

fn burn() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

/// p99 of a closed-loop reader beside a process that burns a core, and beside a writer at 2,000 rows a second.
fn latency(path: &Path) {
    let options = Options {
        threads: 1,
        ..Options::default()
    };
    let db = Database::open(path, options).expect("opened");
    let mut burner = Command::new(std::env::current_exe().expect("own path"))
        .arg("--burn")
        .spawn()
        .expect("ran");
    let beside_burner = closed_loop(&db);
    burner.kill().and_then(|()| burner.wait()).expect("stopped");
    let stop = AtomicBool::new(false);
    let beside_writer = std::thread::scope(|scope| {
        scope.spawn(|| {
            let started = Instant::now();
            let mut written = 0u64;
            while !stop.load(Ordering::Relaxed) {
                // 20 rows every 10 ms.
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
        let times = closed_loop(&db);
        stop.store(true, Ordering::Relaxed);
        times
    });
    println!(
        "closed-loop reader, 10,000 queries: p50 {:.0} us, p99 {:.0} us beside a burning process; p50 {:.0} us, p99 {:.0} us \
         beside a writer of 2,000 rows/s: p99 x{:.2}",
        beside_burner.0,
        beside_burner.1,
        beside_writer.0,
        beside_writer.1,
        beside_writer.1 / beside_burner.1
    );
}

/// p50 and p99 in microseconds.
fn closed_loop(db: &Database) -> (f64, f64) {
    let queries: Vec<Vec<f32>> = (0..64).map(vector).collect();
    let mut times: Vec<f64> = (0..10_000)
        .map(|n| {
            let started = Instant::now();
            let hits = db.query(&queries[n % 64], 10).expect("answered");
            assert!(!hits.is_empty());
            started.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    (times[times.len() / 2], times[times.len() * 99 / 100])
}
