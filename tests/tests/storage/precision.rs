//! How vectors are rounded when they are stored, and what is returned.

use mopqdb::{
    CreateOptions, Database, Metric, Precision, Reader, RebuildOptions, Row, Value, VerifyOptions,
};
use mopqdb_tests::support::{Random, codebooks, put, small};
use std::path::Path;

const DIM: usize = 24;

fn create(path: &Path, metric: Metric, precision: Precision) -> Database {
    let new = CreateOptions::vectors(DIM, metric).store(precision);
    Database::create(path, &new, small()).unwrap()
}

fn given(db: &Database, key: &str) -> Vec<f32> {
    match db.get(key).unwrap().unwrap().value {
        Value::Vector(vector) => vector,
        Value::Text(text) => panic!("{text:?} is a text"),
    }
}

/// Returns the largest difference between values, relative to the largest value.
fn apart(a: &[f32], b: &[f32]) -> f32 {
    let largest = a.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    let pairs = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    pairs.fold(0.0, f32::max) / largest
}

/// Returns random vectors with lengths from a thousandth to a thousand.
fn rows(seed: u64, count: usize) -> Vec<(String, Vec<f32>)> {
    let mut random = Random::new(seed);
    let row = |n: usize| {
        let mut vector = random.vector(DIM);
        let scale = 10f32.powi(n as i32 % 7 - 3);
        vector.iter_mut().for_each(|x| *x *= scale);
        (n.to_string(), vector)
    };
    (0..count).map(row).collect()
}

#[test]
fn rows_are_returned_within_their_precision_from_log_segments_and_compaction() {
    for (metric, precision) in [Metric::Ip, Metric::L2, Metric::Cosine]
        .into_iter()
        .flat_map(|metric| Precision::ALL.map(|precision| (metric, precision)))
    {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let rows = rows(71, 300);
        let tolerance = match (precision, metric) {
            (Precision::F32, Metric::Cosine) => 2.4e-7,
            (Precision::F32, _) => 0.0,
            (Precision::F16, _) => 1e-3,
            (Precision::I8, _) => 8e-3,
            _ => panic!("this precision has no tolerance"),
        };
        let check = |db: &Database| {
            for (key, vector) in &rows {
                let found = given(db, key);
                let apart = apart(vector, &found);
                assert!(apart <= tolerance, "{metric} {precision}: {apart:e}");
            }
        };
        let db = create(&path, metric, precision);
        for rows in rows.chunks(100) {
            let rows: Vec<Row> = rows.iter().map(|(key, vector)| put(key, vector)).collect();
            db.insert(&rows).unwrap();
        }
        check(&db);
        db.close().unwrap();
        let db = Database::open(&path, small()).unwrap();
        assert_eq!(db.model().precision(), precision);
        check(&db);
        db.seal().unwrap();
        check(&db);
        db.insert(&[put("another", &rows[0].1)]).unwrap();
        db.compact().unwrap();
        check(&db);
        // Inserting what was returned changes nothing.
        let again: Vec<Row> = (rows.iter())
            .map(|(key, _)| put(key, &given(&db, key)))
            .collect();
        let inserted = db.insert(&again).unwrap();
        assert_eq!(
            (inserted.unchanged, inserted.rows()),
            (300, 300),
            "{metric} {precision}"
        );
        let deep = VerifyOptions::default().deep(true);
        let verified = db.verify(&deep).unwrap();
        assert!(verified.is_sound(), "{:?}", verified.problems);
    }
}

#[test]
fn changing_the_length_of_a_cosine_row_changes_the_row_but_not_its_hits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = create(&path, Metric::Cosine, Precision::F32);
    let (_, vector) = rows(72, 1).pop().unwrap();
    let twice: Vec<f32> = vector.iter().map(|x| x * 2.0).collect();
    for sealed in [false, true] {
        db.insert(&[put("a", &vector)]).unwrap();
        if sealed {
            db.seal().unwrap();
        }
        let before = db.query(&vector, 1).unwrap();
        let done = db.insert(&[put("a", &vector)]).unwrap();
        assert_eq!((done.unchanged, done.replaced), (1, 0));
        let done = db.insert(&[put("a", &twice)]).unwrap();
        assert_eq!((done.unchanged, done.replaced), (0, 1));
        assert!(apart(&given(&db, "a"), &twice) <= 2.4e-7);
        let after = db.query(&vector, 1).unwrap();
        assert_eq!(before[0].score.to_bits(), after[0].score.to_bits());
        assert!(before[0].seq < after[0].seq);
    }
}

#[test]
fn codes_are_computed_from_rounded_vectors_and_a_rebuild_reproduces_them() {
    for precision in Precision::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let db = create(&path, Metric::Cosine, precision);
        let rows = rows(73, 400);
        let all: Vec<Row> = rows.iter().map(|(key, vector)| put(key, vector)).collect();
        db.insert(&all).unwrap();
        let sample: Vec<f32> = rows.iter().flat_map(|row| row.1.clone()).collect();
        let bundle = codebooks(
            &dir.path().join("bundle"),
            &sample,
            DIM,
            Metric::Cosine,
            false,
            5,
        );
        mopqdb::register_model(&path, &bundle).unwrap();
        db.rebuild(&RebuildOptions::default()).unwrap();
        assert_eq!(db.model().precision(), precision);
        db.insert(&[put("later", &rows[7].1)]).unwrap();
        let deep = VerifyOptions::default().deep(true);
        let verified = db.verify(&deep).unwrap();
        assert!(verified.is_sound(), "{:?}", verified.problems);
        assert_eq!(verified.codes, 400);
        let hits = db.query(&rows[7].1, 3).unwrap();
        let reader = Reader::open(&path, small()).unwrap();
        assert_eq!(reader.query(&rows[7].1, 3).unwrap(), hits);
    }
}

#[test]
fn vectors_that_do_not_fit_into_halves_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = create(&dir.path().join("db"), Metric::Ip, Precision::F16);
    let error = db.insert(&[put("a", &[70_000.0; DIM])]).unwrap_err();
    assert!(error.to_string().contains("65504"), "{error}");
    assert_eq!(db.snapshot().rows(), 0);
}

#[test]
fn fewer_bits_take_less_disk_space() {
    let sizes = Precision::ALL.map(|precision| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let new = CreateOptions::vectors(768, Metric::Cosine).store(precision);
        let db = Database::create(&path, &new, small()).unwrap();
        let mut random = Random::new(74);
        let rows: Vec<Row> = (0..500)
            .map(|n| put(&n.to_string(), &random.vector(768)))
            .collect();
        db.insert(&rows).unwrap();
        db.seal().unwrap();
        let segments = std::fs::read_dir(path.join("segments")).unwrap();
        let len =
            |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().metadata().unwrap().len();
        segments.map(len).sum::<u64>() as f64
    });
    let [full, half, quarter] = sizes;
    assert!((0.49..0.53).contains(&(half / full)), "{sizes:?}");
    assert!((0.24..0.29).contains(&(quarter / full)), "{sizes:?}");
}
