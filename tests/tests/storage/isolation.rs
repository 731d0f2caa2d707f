//! Readers during writes: in the same process, and like in another one.

use mopqdb::{Database, Error, Metric, Options, Reader};
use mopqdb_tests::support::{Random, keys, put, small, vectors};
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_snapshot_does_not_change() {
    let dir = tempfile::tempdir().unwrap();
    let db = vectors(&dir.path().join("db"), 1, Metric::Ip);
    db.insert(&[put("a", &[1.0]), put("b", &[2.0])]).unwrap();
    let before = db.snapshot();
    db.delete(&["a"]).unwrap();
    db.insert(&[put("c", &[3.0]), put("b", &[0.5])]).unwrap();
    db.compact().unwrap();
    assert_eq!(keys(&before.query(&[1.0], 9).unwrap()), ["b", "a"]);
    assert_eq!(keys(&db.query(&[1.0], 9).unwrap()), ["c", "b"]);
}

#[test]
fn a_refresh_shows_everything_acknowledged_whether_sealed_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = vectors(&path, 1, Metric::Ip);
    db.insert(&[put("a", &[1.0])]).unwrap();
    let reader = Reader::open(&path, Options::default()).unwrap();
    assert_eq!(keys(&reader.query(&[1.0], 9).unwrap()), ["a"]);
    db.insert(&[put("b", &[2.0])]).unwrap();
    assert_eq!(
        keys(&reader.query(&[1.0], 9).unwrap()),
        ["a"],
        "not before it refreshes"
    );
    assert!(reader.refresh().unwrap());
    assert!(!reader.refresh().unwrap());
    assert_eq!(keys(&reader.query(&[1.0], 9).unwrap()), ["b", "a"]);
    db.seal().unwrap();
    db.delete(&["a"]).unwrap();
    assert!(reader.refresh().unwrap());
    assert_eq!(keys(&reader.query(&[1.0], 9).unwrap()), ["b"]);
    db.compact().unwrap();
    reader.refresh().unwrap();
    assert_eq!(keys(&reader.query(&[1.0], 9).unwrap()), ["b"]);
    drop(db);
    assert_eq!(
        keys(
            &Reader::open(&path, Options::default())
                .unwrap()
                .query(&[1.0], 9)
                .unwrap()
        ),
        ["b"]
    );
}

#[test]
fn a_second_writer_is_refused_with_the_name_of_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = vectors(&path, 1, Metric::Ip);
    let error = Database::open(&path, small()).unwrap_err();
    let Error::Locked { holder, .. } = &error else {
        panic!("{error}")
    };
    assert!(holder.contains(&std::process::id().to_string()), "{holder}");
    let second = db.clone();
    drop(db);
    assert!(
        matches!(Database::open(&path, small()), Err(Error::Locked { .. })),
        "a clone still holds the lock"
    );
    drop(second);
    Database::open(&path, small()).unwrap();
}

/// A writer inserts, replaces and deletes pairs of rows together. Readers must never see one without the other, and
/// never miss what was acknowledged before they refreshed.
#[test]
fn readers_never_see_a_partial_batch_while_a_writer_seals_and_compacts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = vectors(&path, 2, Metric::Ip);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (db, path, stop) = (&db, &path, &stop);
            scope.spawn(move || {
                let other = Reader::open(path, Options::default().threads(1)).unwrap();
                let mut last = 0;
                while !stop.load(Ordering::Relaxed) {
                    let hits = if reader == 0 {
                        other.refresh().unwrap();
                        other.query(&[1.0, 0.0], 10_000).unwrap()
                    } else {
                        db.query(&[1.0, 0.0], 10_000).unwrap()
                    };
                    // Each generation of a pair has its own score, equal in both halves.
                    let mut pairs = std::collections::HashMap::new();
                    for hit in &hits {
                        let (side, name) = hit.key.split_once('-').unwrap();
                        let halves: &mut Vec<_> = pairs.entry(name.to_owned()).or_default();
                        halves.push((side.to_owned(), hit.score));
                    }
                    for (name, halves) in &pairs {
                        assert_eq!(halves.len(), 2, "{name}: {halves:?}");
                        assert_eq!(halves[0].1, halves[1].1, "{name}: {halves:?}");
                    }
                    let newest = hits.iter().map(|hit| hit.score as u64).max().unwrap_or(0);
                    assert!(newest >= last, "{newest} after {last}");
                    last = newest;
                }
            });
        }
        let mut random = Random::new(11);
        let mut newest = 0;
        for n in 1..=400u64 {
            let name = random.below(60);
            let (left, right) = (format!("l-{name}"), format!("r-{name}"));
            // The newest pair stays, so that what a reader saw last still exists.
            if n % 5 == 0 && name != newest {
                db.delete(&[&left, &right]).unwrap();
            }
            db.insert(&[put(&left, &[n as f32, 0.0]), put(&right, &[n as f32, 1.0])])
                .unwrap();
            newest = name;
            if n % 60 == 0 {
                db.compact().unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn concurrent_inserts_share_syncs_and_none_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = vectors(&path, 2, Metric::Ip);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let db = db.clone();
            scope.spawn(move || {
                for n in 0..40 {
                    db.insert(&[put(&format!("{thread}/{n}"), &[1.0, n as f32])])
                        .unwrap();
                    assert!(
                        db.get(&format!("{thread}/{n}")).unwrap().is_some(),
                        "seen when acknowledged"
                    );
                }
            });
        }
    });
    drop(db);
    let db = Database::open(&path, small()).unwrap();
    assert_eq!(db.snapshot().rows(), 320);
    assert_eq!(db.query(&[1.0, 0.0], 1000).unwrap().len(), 320);
}
