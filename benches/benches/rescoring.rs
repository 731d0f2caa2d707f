//! The cost of re-scoring: candidates by codes, ordered by their stored vectors, for each precision of the vectors.
//!
//! `cargo bench --bench rescoring [f32] [f16] [i8]`. One core, `MOPQDB_BENCH_ROWS` rows (a million) of 384 dimensions
//! in one segment, 400 candidates. Warm: after other queries. Cold, as root on Linux: after the system has dropped its
//! page cache. With as many candidates as rows, the hits must equal those of exact search before anything is timed.

use mopqdb::bundle::BundleWriter;
use mopqdb::quantizer::{TrainPq, train_pq};
use mopqdb::{
    CreateOptions, Database, Metric, Options, Precision, Query, QueryOptions, Reader, Row, Search,
};
use mopqdb_benches::data::Stream;
use std::path::Path;

const DIM: usize = 384;
const K: usize = 10;

fn main() {
    let rows: usize =
        std::env::var("MOPQDB_BENCH_ROWS").map_or(1_000_000, |n| n.parse().expect("a number"));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut stream = Stream::clustered(7, DIM);
    let options = TrainPq::default().subspaces(8).codewords(256).iterations(5);
    let trained = train_pq(&stream.take(10_000), DIM, Metric::Cosine, &options).expect("trained");
    let bundle = BundleWriter::new(dir.path().join("bundle"))
        .metric(Metric::Cosine)
        .vectors(DIM)
        .method("pq")
        .quantizer(&trained.quantizer)
        .finish()
        .expect("written");
    let queries = stream.take(1000);
    // The precisions that are named, or all.
    let named: Vec<String> = std::env::args().collect();
    let is_named = |precision: &Precision| named.iter().any(|name| name == precision.name());
    let any = Precision::ALL.iter().any(is_named);
    for precision in (Precision::ALL.into_iter()).filter(|one| !any || is_named(one)) {
        let path = dir.path().join(precision.name());
        let create = CreateOptions::bundle(bundle.dir()).store(precision);
        let db = Database::create(&path, &create, Options::default()).expect("created");
        for first in (0..rows).step_by(8192) {
            let n = (rows - first).min(8192);
            let batch: Vec<Row> = (stream.take(n).chunks_exact(DIM).enumerate())
                .map(|(at, row)| Row::vector((first + at).to_string(), row))
                .collect();
            db.insert(&batch).expect("inserted");
        }
        db.seal().expect("sealed");
        while db.compact().expect("compacted").outputs > 0 {}
        db.close().expect("closed");
        warm(&path, precision, &queries);
        for candidates in [100, 400] {
            cold(&path, precision, &queries, candidates);
        }
        std::fs::remove_dir_all(&path).expect("removed");
    }
}

fn reader(path: &Path) -> Reader {
    let options = Options::default().threads(1);
    Reader::open(path, options).expect("opened")
}

fn options(search: Search, candidates: Option<usize>) -> QueryOptions {
    let mut options = QueryOptions::top(K);
    options.search = search;
    options.candidates = candidates;
    options
}

/// Returns the times of the stages that order candidates, and of the whole query.
fn ask(reader: &Reader, query: &[f32], options: &QueryOptions) -> (f64, f64) {
    let asked = reader
        .snapshot()
        .query_explained(&[Query::Vector(query)], options);
    let (_, explained) = asked.expect("answered");
    let micros = |name: &str| -> f64 {
        let stages = explained.stages.iter().filter(|stage| stage.name == name);
        stages.map(|stage| stage.micros).sum()
    };
    let all = explained.stages.iter().map(|stage| stage.micros).sum();
    (micros("score"), all)
}

fn warm(path: &Path, precision: Precision, queries: &[f32]) {
    let reader = reader(path);
    let rows = reader.snapshot().rows() as usize;
    for query in queries.chunks_exact(DIM).take(3) {
        let hits = |options: &QueryOptions| {
            let hits = reader
                .query_with(Query::Vector(query), options)
                .expect("answered");
            hits.into_iter()
                .map(|hit| (hit.key, hit.score))
                .collect::<Vec<_>>()
        };
        let all = options(Search::Auto, Some(rows));
        assert_eq!(hits(&all), hits(&options(Search::Exact, None)));
    }
    let ways = [
        options(Search::Codes, None),
        options(Search::Auto, Some(400)),
    ];
    let mut times = [const { Vec::new() }; 4];
    for round in 0..3 {
        for query in queries.chunks_exact(DIM) {
            for (way, options) in ways.iter().enumerate() {
                let (score, all) = ask(&reader, query, options);
                if round > 0 {
                    times[2 * way].push(score);
                    times[2 * way + 1].push(all);
                }
            }
        }
    }
    let [_, codes, score, auto] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        (times[0], times[times.len() / 2])
    });
    println!(
        "{precision}, {rows} rows, warm, minimum and median: re-scoring 400 candidates {:.0} and {:.0} us; a whole query {:.0} and {:.0}, by \
         codes alone {:.0} and {:.0}",
        score.0, score.1, auto.0, auto.1, codes.0, codes.1
    );
}

fn cold(path: &Path, precision: Precision, queries: &[f32], candidates: usize) {
    let mut times = Vec::new();
    for query in queries.chunks_exact(DIM).take(5) {
        // The codes are read into memory first. Then the cache is dropped except what is mapped, which is the codes.
        let reader = reader(path);
        ask(&reader, query, &options(Search::Codes, None));
        if !drop_caches() {
            println!("cold: only root can drop the system's cache");
            return;
        }
        times.push(ask(&reader, query, &options(Search::Auto, Some(candidates))).0 / 1e3);
    }
    println!("{precision}, {candidates} candidates, cold: scoring takes {times:.1?} ms");
}

fn drop_caches() -> bool {
    let synced = std::process::Command::new("sync").status();
    synced.is_ok() && std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}
