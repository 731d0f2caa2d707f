//! Keys by prefix: listed, and deleted in batches in the order of insertion.

use mopqdb::{Database, Metric, Reader, Snapshot, Watch};
use mopqdb_tests::support::{put, small, vectors};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn keys(snapshot: &Snapshot, prefix: &str) -> Vec<String> {
    let mut keys = Vec::new();
    snapshot
        .for_each_key(prefix, |key| {
            keys.push(key.to_owned());
            Ok(())
        })
        .unwrap();
    keys
}

/// Inserts rows in one batch, nine in ten of which have keys that begin with `log/`.
fn filled(path: &std::path::Path, rows: usize) -> Database {
    let options = small().seal_rows(rows / 3);
    let new = mopqdb::CreateOptions::vectors(1, Metric::Ip);
    let db = Database::create(path, &new, options).unwrap();
    let name = |n: usize| match n % 10 {
        0 => format!("kept/{n}"),
        _ => format!("log/{n}"),
    };
    for start in (0..rows).step_by(5000) {
        let rows: Vec<_> = (start..(start + 5000).min(rows))
            .map(|n| put(&name(n), &[n as f32]))
            .collect();
        db.insert(&rows).unwrap();
    }
    db
}

#[test]
fn keys_are_in_the_order_of_insertion_wherever_the_rows_are() {
    let dir = tempfile::tempdir().unwrap();
    let db = vectors(&dir.path().join("db"), 1, Metric::Ip);
    let mut expected = Vec::new();
    for n in 0..170 {
        // Steps of 7 and 200 have different orders, so rows sorted by key would fail the test.
        let key = format!("{}/{}", ["a", "ab", "é"][n % 3], n * 7 % 200);
        db.insert(&[put(&key, &[n as f32])]).unwrap();
        expected.push(key);
    }
    // A replaced row is as new as its replacement; a deleted one is absent.
    db.insert(&[put(&expected[5], &[-1.0])]).unwrap();
    let replaced = expected.remove(5);
    expected.push(replaced);
    db.delete(&[&expected.remove(60)]).unwrap();
    assert!(db.stats().unwrap().segments > 1 && db.stats().unwrap().tail_rows > 0);
    let with = |prefix: &str| -> Vec<String> {
        let all = expected.iter().filter(|key| key.starts_with(prefix));
        all.cloned().collect()
    };
    let reader = Reader::open(dir.path().join("db"), small()).unwrap();
    for prefix in ["", "a", "a/", "ab/1", "é", "nothing"] {
        assert_eq!(keys(&db.snapshot(), prefix), with(prefix), "{prefix:?}");
        assert_eq!(keys(&reader.snapshot(), prefix), with(prefix), "{prefix:?}");
    }
    // An error of the caller ends it.
    let mut seen = 0;
    let error = db.snapshot().for_each_key("", |_| {
        seen += 1;
        Err(mopqdb::Error::invalid("enough"))
    });
    assert_eq!(
        (seen, error.unwrap_err().to_string().as_str()),
        (1, "enough")
    );
}

#[test]
fn deleting_a_prefix_deletes_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let db = filled(&dir.path().join("db"), 12_000);
    assert_eq!(db.delete_prefix("nothing", &Watch::new()).unwrap(), 0);
    let reports: Arc<std::sync::Mutex<Vec<(u64, u64)>>> = Arc::default();
    let heard = Arc::clone(&reports);
    let watch =
        Watch::new().on_progress(move |now| heard.lock().unwrap().push((now.done, now.total)));
    assert_eq!(db.delete_prefix("log/", &watch).unwrap(), 10_800);
    let reports = reports.lock().unwrap();
    assert!(reports.len() > 2, "in batches: {reports:?}");
    assert_eq!(reports.last(), Some(&(10_800, 10_800)));
    assert_eq!(db.snapshot().rows(), 1200);
    assert_eq!(keys(&db.snapshot(), "log/"), [""; 0]);
    assert_eq!(keys(&db.snapshot(), "kept/").len(), 1200);
    assert_eq!(db.delete_prefix("log/", &Watch::new()).unwrap(), 0);
    assert_eq!(db.delete_prefix("", &Watch::new()).unwrap(), 1200);
    assert_eq!(db.snapshot().rows(), 0);
}

#[test]
fn an_interrupted_deletion_has_deleted_the_oldest_rows_and_can_be_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = filled(&path, 12_000);
    let before = keys(&db.snapshot(), "log/");
    let stop = Arc::new(AtomicBool::new(false));
    let setting = Arc::clone(&stop);
    let watch = Watch::new()
        .on_progress(move |_| setting.store(true, Ordering::Relaxed))
        .stop_when(stop);
    let error = db.delete_prefix("log/", &watch).unwrap_err();
    assert!(error.to_string().contains("stopped"), "{error}");
    db.close().unwrap();

    let db = Database::open(&path, small()).unwrap();
    let left = keys(&db.snapshot(), "log/");
    let gone = before.len() - left.len();
    assert!(gone > 0 && gone < before.len(), "{gone}");
    assert_eq!(left, before[gone..], "the oldest are deleted first");
    let rest = db.delete_prefix("log/", &Watch::new()).unwrap();
    assert_eq!(rest, left.len() as u64);
    assert_eq!(keys(&db.snapshot(), "log/"), [""; 0]);
    assert_eq!(keys(&db.snapshot(), "kept/").len(), 1200);
}
