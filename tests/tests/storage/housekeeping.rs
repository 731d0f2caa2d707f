//! verify, repair, backup, prune.

use crate::support::{Oracle, Random, ask, codebooks, put, small, vectors};
use mopqdb::{
    Database, Error, Metric, Options, PruneOptions, Reader, RebuildOptions, RepairOptions,
    VerifyOptions, backup, prune, register_model, repair, verify,
};
use std::fs;
use std::path::{Path, PathBuf};

const DEEP: VerifyOptions = VerifyOptions {
    deep: true,
    encode: 0,
};

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.retain(|path| path.extension().is_some_and(|e| e == extension));
    found.sort();
    found
}

/// A database with codes, several segments, deletions and a tail; and what it holds.
fn sample(dir: &Path, seed: u64) -> (PathBuf, Oracle, mopqdb::Bundle) {
    let path = dir.join("db");
    let mut random = Random::new(seed);
    let db = vectors(&path, 8, Metric::Ip);
    let mut oracle = Oracle::default();
    let flat: Vec<f32> = (0..100).flat_map(|_| random.vector(8)).collect();
    let bundle = codebooks(dir, &flat, 8, Metric::Ip, false, seed);
    register_model(&path, &bundle).unwrap();
    db.rebuild(&RebuildOptions::default()).unwrap();
    for n in 0..230 {
        let key = (n * 7 % 200).to_string();
        let vector = random.vector(8);
        db.insert(&[put(&key, &vector)]).unwrap();
        oracle.put(&key, vector);
        if n % 9 == 4 {
            let key = (n * 5 % 200).to_string();
            assert_eq!(db.delete(&[&key]).unwrap() == 1, oracle.remove(&key));
        }
    }
    db.close().unwrap();
    (path, oracle, bundle)
}

#[test]
fn a_sound_database_verifies_to_the_last_code() {
    let dir = tempfile::tempdir().unwrap();
    let (path, ..) = sample(dir.path(), 31);
    let found = verify(&path, &DEEP).unwrap();
    assert!(found.is_sound(), "{:?}", found.problems);
    assert!(found.codes >= 200 && found.files > 10, "{found:?}");
}

#[test]
fn verify_names_every_damaged_file_of_a_database_that_does_not_open() {
    let dir = tempfile::tempdir().unwrap();
    let (path, ..) = sample(dir.path(), 32);
    let codes = files(&path.join("segments"), "codes").remove(0);
    let rows = files(&path.join("segments"), "rows").remove(1);
    for file in [&codes, &rows] {
        let mut bytes = fs::read(file).unwrap();
        let middle = bytes.len() / 3;
        bytes[middle] ^= 2;
        fs::remove_file(file).unwrap();
        fs::write(file, bytes).unwrap();
    }
    let found = verify(&path, &DEEP).unwrap();
    for file in [&codes, &rows] {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(
            found.problems.iter().any(|p| p.contains(name)),
            "{name}: {:?}",
            found.problems
        );
    }
}

#[test]
fn repair_makes_the_version_from_the_segments_when_both_witnesses_are_lost() {
    for seed in [33, 34] {
        let dir = tempfile::tempdir().unwrap();
        let (path, oracle, bundle) = sample(dir.path(), seed);
        if seed == 34 {
            // Rows that compaction dropped must not come back either.
            Database::open(&path, small()).unwrap().compact().unwrap();
        }
        fs::remove_dir_all(path.join("catalog")).unwrap();
        for entry in fs::read_dir(&path).unwrap() {
            let file = entry.unwrap().path();
            if file
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("MANIFEST")
            {
                fs::remove_file(file).unwrap();
            }
        }
        assert!(Database::open(&path, small()).is_err());
        let done = repair(&path, &RepairOptions::default().accept_loss(true)).unwrap();
        assert_eq!(done.rows, Some(oracle.rows.len() as u64), "{done:?}");
        let db = Database::open(&path, small()).unwrap();
        assert!(db.warnings().is_empty(), "{:?}", db.warnings());
        let mut random = Random::new(seed);
        oracle.check(
            ask(&db),
            &[random.vector(8), random.vector(8)],
            Metric::Ip,
            Some(&bundle),
        );
        drop(db);
        assert!(verify(&path, &DEEP).unwrap().is_sound());
        assert!(
            repair(&path, &RepairOptions::default())
                .unwrap()
                .done
                .is_empty(),
            "nothing is left to mend"
        );
    }
}

#[test]
fn repair_puts_a_damaged_segment_aside_and_says_what_was_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (path, oracle, _) = sample(dir.path(), 35);
    let rows = files(&path.join("segments"), "rows").remove(0);
    let bytes = fs::read(&rows).unwrap();
    fs::remove_file(&rows).unwrap();
    fs::write(&rows, &bytes[..bytes.len() / 2]).unwrap();
    assert!(matches!(
        Reader::open(&path, small()),
        Err(Error::Corrupt(_))
    ));
    let done = repair(&path, &RepairOptions::default().accept_loss(true)).unwrap();
    assert!(
        done.lost.iter().any(|line| line.contains("can't be read")),
        "{done:?}"
    );
    let db = Database::open(&path, small()).unwrap();
    assert!(db.snapshot().rows() < oracle.rows.len() as u64);
    for hit in db.query(&vec![0.1; 8], 1000).unwrap() {
        assert!(
            oracle.rows.contains_key(&hit.key),
            "{} was deleted",
            hit.key
        );
    }
}

#[test]
fn a_backup_of_a_live_database_is_a_database() {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut oracle, bundle) = sample(dir.path(), 36);
    let db = Database::open(&path, small()).unwrap();
    let mut random = Random::new(36);
    let vector = random.vector(8);
    db.insert(&[put("last", &vector)]).unwrap();
    oracle.put("last", vector);
    let copy = dir.path().join("copy");
    let done = backup(&path, &copy).unwrap();
    assert!(done.files > 5 && done.bytes > 1000, "{done:?}");
    db.insert(&[put("after", &random.vector(8))]).unwrap();
    db.compact().unwrap();
    let restored = Database::open(&copy, small()).unwrap();
    assert!(restored.warnings().is_empty(), "{:?}", restored.warnings());
    oracle.check(
        ask(&restored),
        &[random.vector(8)],
        Metric::Ip,
        Some(&bundle),
    );
    assert!(
        backup(&path, &copy)
            .unwrap_err()
            .to_string()
            .contains("not empty")
    );
}

#[test]
fn prune_drops_inactive_models_with_their_codes_and_nothing_that_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, oracle, first) = sample(dir.path(), 37);
    let mut random = Random::new(37);
    let flat: Vec<f32> = (0..100).flat_map(|_| random.vector(8)).collect();
    let second = codebooks(dir.path(), &flat, 8, Metric::Ip, true, 99);
    register_model(&path, &second).unwrap();
    let db = Database::open(&path, small()).unwrap();
    db.rebuild(&RebuildOptions {
        model: Some(second.model_id()),
        ..Default::default()
    })
    .unwrap();
    assert!(matches!(
        prune(&path, &PruneOptions::default()),
        Err(Error::Locked { .. })
    ));
    drop(db);
    let would = prune(
        &path,
        &PruneOptions {
            dry_run: true,
            ..Default::default()
        },
    )
    .unwrap();
    assert_eq!(would.models, [first.model_id()]);
    let before = files(&path.join("segments"), "codes").len();
    let done = prune(&path, &PruneOptions::default()).unwrap();
    assert_eq!(
        (done.bytes, done.paths.len()),
        (would.bytes, would.paths.len())
    );
    assert!(files(&path.join("segments"), "codes").len() < before);
    let reader = Reader::open(&path, Options::default()).unwrap();
    oracle.check(
        |q, k| reader.query(q, k).unwrap(),
        &[random.vector(8)],
        Metric::Ip,
        Some(&second),
    );
}
