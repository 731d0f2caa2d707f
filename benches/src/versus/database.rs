//! A query through the whole database, compared with the scan alone.

use super::codes::stream;
use super::figures::{Figures, Line, Target};
use super::{Bench, DIM, thousands};
use crate::clock::cpu_time;
use crate::data::Blocks;
use anyhow::{Result, ensure};
use mopqdb::quantizer::{LookupTable, TrainPq, train_pq};
use mopqdb::testing::scan::Scanner;
use mopqdb::{BundleWriter, CreateOptions, Database, Metric, Options, QueryOptions, Row, Search};
use std::hint::black_box;

const SEGMENTS: usize = 8;
const K: usize = 10;

/// Measures rows in eight segments, on one thread.
pub fn case(bench: &Bench, rows: usize, figures: &mut Figures) -> Result<()> {
    let folder = tempfile::tempdir_in(&bench.out)?;
    let (bundle, place) = (folder.path().join("bundle"), folder.path().join("db"));
    let mut vectors = stream("clustered", 7);
    let training = TrainPq::default().iterations(12);
    let trained = train_pq(&vectors.take(30_000), DIM, Metric::Ip, &training)?.quantizer;
    BundleWriter::new(&bundle)
        .metric(Metric::Ip)
        .vectors(DIM)
        .method("pq")
        .quantizer(&trained)
        .finish()?;
    let options = Options::default()
        .threads(1)
        .seal_rows(usize::MAX)
        .seal_bytes(u64::MAX)
        .auto_compact(false);
    let db = Database::create(&place, &CreateOptions::bundle(&bundle), options)?;
    let mut codes = vec![0; rows * 8];
    let part = rows / SEGMENTS;
    for first in (0..rows).step_by(5_000) {
        let mut some = vectors.take(5_000.min(rows - first));
        // In the layout of the database.
        mopqdb::encoder::round_to_f16(&mut some);
        let count = some.len() / DIM;
        trained.quantize(&some, &mut codes[first * 8..][..count * 8])?;
        let numbered = some.chunks_exact(DIM).zip(first..);
        let batch: Vec<Row> = numbered
            .map(|(vector, n)| Row::vector(format!("{n:08}"), vector))
            .collect();
        db.insert(&batch)?;
        if (first + count).is_multiple_of(part) {
            db.seal()?;
        }
    }
    let segments = db.stats()?.segments;
    ensure!(segments == SEGMENTS, "{segments} segments");

    let queries = vectors.take(16);
    let queries: Vec<&[f32]> = queries.chunks_exact(DIM).collect();
    let tables: Vec<LookupTable> = queries
        .iter()
        .map(|query| trained.table(query))
        .collect::<mopqdb::Result<_>>()?;
    let blocks = Blocks::new(trained.shape(), &codes);
    let scanner = Scanner::with_kernel(bench.kernel, 1);
    let alone = |table: &LookupTable| scanner.scan(&[&blocks], std::slice::from_ref(table), K);
    let by_codes = QueryOptions::top(K).search(Search::Codes);
    for (query, table) in queries.iter().zip(&tables) {
        let hits: Vec<(String, f32)> = db
            .query_with(*query, &by_codes)?
            .into_iter()
            .map(|hit| (hit.key, hit.score))
            .collect();
        let found: Vec<(String, f32)> = alone(table)?[0]
            .iter()
            .take(K)
            .map(|found| (format!("{:08}", found.row), found.score))
            .collect();
        ensure!(
            hits == found,
            "the database answers {hits:?}, the scan {found:?}"
        );
    }
    let (mut whole, mut scan) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..2 * bench.repeats() {
        let start = cpu_time();
        for query in &queries {
            black_box(db.query_with(*query, &by_codes)?);
        }
        let between = cpu_time();
        for table in &tables {
            black_box(alone(table)?);
        }
        whole = whole.min((between - start).as_secs_f64());
        scan = scan.min((cpu_time() - between).as_secs_f64());
    }
    let rate = |seconds: f64| (rows * queries.len()) as f64 / seconds / 1e9;
    let what = format!(
        "database, clustered 8x256, {} rows, {SEGMENTS} segments, k={K}",
        thousands(rows)
    );
    figures.lines.push(Line {
        what: what.clone(),
        unit: "Grows/s",
        ours: rate(whole),
        peer: Some((rate(scan), "our own scan of codes in memory".into())),
        note: format!("{:.0} us a query", whole / queries.len() as f64 * 1e6),
    });
    figures.reach(&what, "vs the scan", scan / whole);
    db.close()?;
    Ok(())
}

/// The target for a whole query.
pub const TARGETS: [Target; 1] = [Target::new(
    "database, clustered 8x256, 1M rows, 8 segments, k=10",
    "vs the scan",
    0.85,
    0.95,
)];
