//! Scans of codes.

use super::codes::{Case, Coded};
use super::figures::{Figures, Line, Target};
use super::{Bench, faiss, thousands};
use crate::clock::{cpu_time, fastest};
use crate::data::{check, plain_top};
use anyhow::Result;
use mopqdb::testing::kernel::Kernel;
use mopqdb::testing::scan::Scanner;
use std::hint::black_box;
use std::time::{Duration, Instant};

const KS: [usize; 3] = [10, 100, 1000];

/// The measurement of a scan.
struct Timed {
    /// Seconds per query.
    seconds: f64,
    /// The scan's bandwidth, relative to plain loads of the same memory by one core.
    share: f64,
}

/// Measures one case: mopqdb for several k, in batches and on every kernel, and both indexes of faiss.
pub fn case(bench: &Bench, case: &Case, figures: &mut Figures) -> Result<()> {
    verify(&case.eight, &KS)?;
    verify(&case.four, &KS[..1])?;
    // Measured before and after the peer, because the speed of a machine varies.
    let ours = |k: usize| one_at_a_time(bench, bench.kernel, &case.eight, k);
    let before: Vec<Timed> = KS.iter().map(|&k| ours(k)).collect();
    let batch_before = batched(bench, &case.eight);
    let peer = faiss::search(bench, case, &KS)?;
    let named = |what: &str| {
        format!(
            "{} {}, {} rows, {what}",
            case.data,
            case.eight.name(),
            thousands(case.rows)
        )
    };
    let rate = |seconds: f64| case.rows as f64 / seconds / 1e9;
    for (&k, before) in KS.iter().zip(before) {
        let timed = before.or(ours(k));
        let what = named(&format!("k={k}"));
        for index in ["IndexPQ", "FastScan"] {
            let (theirs, level) = peer.seconds(&format!("{index} k={k}"))?;
            figures.lines.push(Line {
                what: format!("scan {what}"),
                unit: "Grows/s",
                ours: rate(timed.seconds),
                peer: Some((rate(theirs), format!("{index}, level {level}"))),
                note: format!(
                    "{:.1} GB/s, {:.0}% of bandwidth",
                    case.eight.blocks.bytes().len() as f64 / timed.seconds / 1e9,
                    100.0 * timed.share
                ),
            });
            figures.reach(&what, &format!("vs {index}"), theirs / timed.seconds);
        }
        figures.reach(&what, "of bandwidth", timed.share);
    }
    let batch = batch_before.min(batched(bench, &case.eight));
    let what = named("k=10, 16 queries a pass");
    for index in ["IndexPQ", "FastScan"] {
        let (theirs, level) = peer.seconds(&format!("{index} batch"))?;
        figures.lines.push(Line {
            what: format!("scan {what}"),
            unit: "Grows/s",
            ours: rate(batch),
            peer: Some((rate(theirs), format!("{index}, level {level}"))),
            note: String::new(),
        });
        figures.reach(&what, &format!("vs {index}"), theirs / batch);
    }
    let four = one_at_a_time(bench, bench.kernel, &case.four, 10);
    let (theirs, level) = peer.seconds("FastScan k=10")?;
    let what = format!(
        "{} {}, {} rows, k=10",
        case.data,
        case.four.name(),
        thousands(case.rows)
    );
    figures.lines.push(Line {
        what: format!("scan {what}"),
        unit: "Grows/s",
        ours: rate(four.seconds),
        peer: Some((rate(theirs), format!("FastScan, level {level}"))),
        note: format!("{:.0}% of bandwidth", 100.0 * four.share),
    });
    let (theirs, level) = peer.seconds("IndexPQ k=10")?;
    for kernel in Kernel::available() {
        if kernel == bench.kernel || kernel.name() == "scalar" {
            continue;
        }
        let timed = one_at_a_time(bench, kernel, &case.eight, 10);
        let what = named(&format!("k=10, {} only", kernel.name()));
        figures.lines.push(Line {
            what: format!("scan {what}"),
            unit: "Grows/s",
            ours: rate(timed.seconds),
            peer: Some((rate(theirs), format!("IndexPQ, level {level}"))),
            note: format!("{:.0}% of bandwidth", 100.0 * timed.share),
        });
        figures.reach(&what, "vs IndexPQ", theirs / timed.seconds);
    }
    Ok(())
}

/// Compares two threads with one, in wall-clock time.
pub fn threads(bench: &Bench, case: &Case, figures: &mut Figures) {
    let [one, two] = [1, 2].map(|threads| Scanner::with_kernel(bench.kernel, threads));
    let wall = |scanner: &Scanner| {
        let start = Instant::now();
        for table in &case.eight.tables {
            let found = scanner.scan(&[&case.eight.blocks], std::slice::from_ref(table), 10);
            black_box(found.expect("a scan in memory does not fail"));
        }
        start.elapsed().as_secs_f64() / case.eight.tables.len() as f64
    };
    // The bandwidth of two threads relative to one: no scan can gain more.
    let bytes = case.eight.blocks.bytes();
    let read = |parts: &[&[u8]]| {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for part in parts {
                scope.spawn(|| black_box(bench.kernel.sum_of_words(part)));
            }
        });
        start.elapsed().as_secs_f64()
    };
    let (low, high) = bytes.split_at(bytes.len() / 2);
    // In turns, so that each has the machine's good moments.
    let mut best = [f64::INFINITY; 4];
    for _ in 0..bench.repeats() {
        let times = [wall(&one), wall(&two), read(&[bytes]), read(&[low, high])];
        best = std::array::from_fn(|i| best[i].min(times[i]));
    }
    let [one, two, read_one, read_two] = best;
    let what = format!(
        "{} {}, {} rows, k=10, two threads",
        case.data,
        case.eight.name(),
        thousands(case.rows)
    );
    let rate = |seconds: f64| case.rows as f64 / seconds / 1e9;
    figures.lines.push(Line {
        what: format!("scan {what}"),
        unit: "Grows/s",
        ours: rate(two),
        peer: Some((rate(one), "mopqdb, one thread, wall-clock time".into())),
        note: format!(
            "plain reading gains {:.2}x by a second thread: {:.1} and {:.1} GB/s",
            read_one / read_two,
            bytes.len() as f64 / read_one / 1e9,
            bytes.len() as f64 / read_two / 1e9
        ),
    });
    figures.reach(&what, "vs one", one / two);
}

impl Timed {
    fn or(self, other: Self) -> Self {
        Self {
            seconds: self.seconds.min(other.seconds),
            share: self.share.max(other.share),
        }
    }
}

/// Checks every query that is timed: one at a time for each k, and all in one pass; on every kernel, on one thread and
/// on two.
fn verify(coded: &Coded, ks: &[usize]) -> Result<()> {
    let most = ks.iter().copied().max().unwrap_or(0);
    let plain = |table| plain_top(table, &coded.codes, most);
    let tops: Vec<_> = coded.tables.iter().map(plain).collect();
    let kernels = Kernel::available().into_iter();
    for (kernel, threads) in kernels.flat_map(|kernel| [(kernel, 1), (kernel, 2)]) {
        let scanner = Scanner::with_kernel(kernel, threads);
        let scan = |tables: &[_], k| scanner.scan(&[&coded.blocks], tables, k);
        for &k in ks {
            let mut found = scan(&coded.tables, k)?;
            for table in &coded.tables {
                found.extend(scan(std::slice::from_ref(table), k)?);
            }
            for (found, top) in found.iter().zip(tops.iter().chain(&tops)) {
                check(found, &top[..k]);
            }
        }
    }
    Ok(())
}

/// Times single queries, alternating with plain reads of the memory that they scan.
fn one_at_a_time(bench: &Bench, kernel: Kernel, coded: &Coded, k: usize) -> Timed {
    let scanner = Scanner::with_kernel(kernel, 1);
    let bytes = coded.blocks.bytes();
    let (mut seconds, mut reading) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..bench.repeats() {
        let start = cpu_time();
        for _ in &coded.tables {
            black_box(bench.kernel.sum_of_words(bytes));
        }
        let between = cpu_time();
        for table in &coded.tables {
            let found = scanner.scan(&[&coded.blocks], std::slice::from_ref(table), k);
            black_box(found.expect("a scan in memory does not fail"));
        }
        let each = |time: Duration| time.as_secs_f64() / coded.tables.len() as f64;
        reading = reading.min(each(between - start));
        seconds = seconds.min(each(cpu_time() - between));
    }
    Timed {
        seconds,
        share: reading / seconds,
    }
}

/// Returns the seconds per query with all queries in one pass.
fn batched(bench: &Bench, coded: &Coded) -> f64 {
    let scanner = Scanner::with_kernel(bench.kernel, 1);
    let pass = || scanner.scan(&[&coded.blocks], &coded.tables, 10);
    fastest(bench.repeats(), || {
        pass().expect("a scan in memory does not fail")
    }) / coded.tables.len() as f64
}

/// The targets of the scans.
pub const TARGETS: [Target; 15] = [
    Target::new("clustered 8x256, 1M rows, k=10", "of bandwidth", 0.90, 0.96),
    Target::new("clustered 8x256, 1M rows, k=10", "vs IndexPQ", 6.5, 7.5),
    Target::new("clustered 8x256, 1M rows, k=10", "vs FastScan", 1.8, 2.0),
    Target::new(
        "clustered 8x256, 10M rows, k=10",
        "of bandwidth",
        0.72,
        0.85,
    ),
    Target::new("clustered 8x256, 10M rows, k=10", "vs FastScan", 2.3, 2.5),
    Target::new(
        "clustered 8x256, 10M rows, k=10, 16 queries a pass",
        "vs FastScan",
        1.9,
        3.0,
    ),
    Target::new(
        "clustered 8x256, 1M rows, k=1000",
        "of bandwidth",
        0.43,
        0.65,
    ),
    Target::new(
        "clustered 16x256, 1M rows, k=10",
        "of bandwidth",
        0.85,
        0.95,
    ),
    Target::new(
        "clustered 8x256, 10M rows, k=10, two threads",
        "vs one",
        1.7,
        1.9,
    ),
    Target::new(
        "isotropic 8x256, 1M rows, k=10, avx2 only",
        "vs IndexPQ",
        1.1,
        1.1,
    ),
    Target::new(
        "clustered 8x256, 1M rows, k=10, avx2 only",
        "vs IndexPQ",
        1.1,
        2.0,
    ),
    Target::new("isotropic 8x256, 1M rows, k=10", "of bandwidth", 0.90, 0.96),
    Target::new("isotropic 8x256, 1M rows, k=10", "vs IndexPQ", 6.5, 7.5),
    Target::new("isotropic 8x256, 1M rows, k=10", "vs FastScan", 1.8, 2.0),
    Target::new(
        "isotropic 16x256, 1M rows, k=10",
        "of bandwidth",
        0.85,
        0.95,
    ),
];
