//! Random operations compared with a `BTreeMap` and a plain scan.

use mopqdb::{Bundle, Database, Metric, Options, Reader, RebuildOptions, Row, register_model};
use mopqdb_tests::support::{Oracle, Random, codebooks, in_cells, put, small, vectors};

const DIM: usize = 8;

/// Runs random operations. Rows come from a small pool of keys and vectors, so that replacing, deleting and inserting
/// the same row again all happen, and ties are common.
fn run(seed: u64, metric: Metric, steps: usize) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut random = Random::new(seed);
    let pool: Vec<Vec<f32>> = (0..40).map(|_| random.vector(DIM)).collect();
    let flat = pool.concat();
    let bundles = [
        codebooks(dir.path(), &flat, DIM, metric, false, seed),
        codebooks(
            dir.path(),
            &flat,
            DIM,
            metric,
            metric != Metric::L2,
            seed + 1,
        ),
        in_cells(dir.path(), &flat, DIM, metric, 6, seed),
        in_cells(dir.path(), &flat, DIM, metric, 60, seed),
    ];
    let mut db = Some(vectors(&path, DIM, metric));
    for bundle in &bundles {
        register_model(&path, bundle).unwrap();
    }
    let mut oracle = Oracle::default();
    let mut active: Option<&Bundle> = None;
    let readers = [0, 1].map(|_| Reader::open(&path, Options::default().threads(1)).unwrap());
    let mut held: Vec<(std::sync::Arc<mopqdb::Snapshot>, Oracle, Option<&Bundle>)> = Vec::new();
    for step in 0..steps {
        let open = db.as_ref().expect("open between steps");
        match random.below(100) {
            0..45 => {
                let rows: Vec<Row> = (0..1 + random.below(12))
                    .map(|_| {
                        put(
                            &format!("k{}", random.below(150)),
                            &pool[random.below(pool.len())],
                        )
                    })
                    .collect();
                open.insert(&rows).unwrap();
                // If a batch has several rows with one key, the last counts, at its own place in the order.
                for (at, row) in rows.iter().enumerate() {
                    if rows[at + 1..].iter().any(|later| later.key == row.key) {
                        continue;
                    }
                    let mopqdb::Value::Vector(vector) = &row.value else {
                        unreachable!()
                    };
                    oracle.put(&row.key, vector.clone());
                }
            }
            45..65 => {
                let keys: Vec<String> = (0..1 + random.below(8))
                    .map(|_| format!("k{}", random.below(150)))
                    .collect();
                let count = open
                    .delete(&keys.iter().map(String::as_str).collect::<Vec<_>>())
                    .unwrap();
                let expected = keys.iter().filter(|key| oracle.remove(key)).count();
                assert_eq!(count, expected as u64, "step {step}");
            }
            65..73 => drop(open.seal().unwrap()),
            73..78 => drop(open.compact().unwrap()),
            78..84 => {
                drop(db.take());
                // The contents never depend on when a tail is sealed.
                let options = small().seal_in_background(random.below(2) == 0);
                db = Some(Database::open(&path, options).unwrap());
            }
            84..88 => {
                let bundle = &bundles[random.below(bundles.len())];
                open.rebuild(&RebuildOptions::default().model(Some(bundle.model_id())))
                    .unwrap();
                active = Some(bundle);
            }
            88..92 => held.push((open.snapshot(), oracle.clone(), active)),
            92..96 => drop(readers[random.below(2)].refresh().unwrap()),
            _ => {
                let key = format!("k{}", random.below(150));
                let found = open.get(&key).unwrap();
                let expected = oracle.rows.get(&key).map(|(_, vector)| put(&key, vector));
                assert_eq!(found, expected, "step {step}");
            }
        }
        let open = db.as_ref().expect("open between steps");
        assert_eq!(
            open.snapshot().rows(),
            oracle.rows.len() as u64,
            "step {step}"
        );
        if step % 7 == 0 {
            let query = random.vector(DIM);
            oracle.check(&open.snapshot(), &[query], metric, active);
        }
    }
    let queries = [random.vector(DIM), random.vector(DIM)];
    for (snapshot, then, bundle) in &held {
        then.check(snapshot, &queries, metric, *bundle);
    }
    for reader in &readers {
        reader.refresh().unwrap();
        oracle.check(&reader.snapshot(), &queries, metric, active);
    }
}

#[test]
fn random_operations_agree_with_a_map_and_a_plain_scan_ip() {
    for seed in 1..=6 {
        run(seed, Metric::Ip, 220);
    }
}

#[test]
fn random_operations_agree_with_a_map_and_a_plain_scan_l2() {
    for seed in 11..=16 {
        run(seed, Metric::L2, 220);
    }
}
