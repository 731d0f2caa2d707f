//! Rows are stored and returned, and rows that can't be stored are refused with a message.

use mopqdb::{
    CreateOptions, Database, Error, Filter, Inserted, Metric, Model, Options, QueryOptions, Reader,
    Row,
};
use mopqdb_tests::support::{Random, codebooks, keys, put, small, vectors};

/// Returns the numbers of new, replaced and unchanged rows.
fn counts(inserted: Inserted) -> (u64, u64, u64) {
    (inserted.new, inserted.replaced, inserted.unchanged)
}

#[test]
fn vectors_too_large_for_finite_scores_are_refused_and_those_at_the_limit_are_found() {
    for metric in [Metric::Ip, Metric::L2] {
        let dir = tempfile::tempdir().unwrap();
        let db = vectors(&dir.path().join("db"), 4, metric);
        for huge in [f32::MAX, -1e20, 2e18] {
            let error = db.insert(&[put("huge", &[huge; 4])]).unwrap_err();
            assert!(matches!(error, mopqdb::Error::Invalid(_)), "{error}");
            assert!(
                error.to_string().contains("scale the vectors down"),
                "{error}"
            );
            let error = db.query(&[huge; 4], 1).unwrap_err();
            assert!(matches!(error, mopqdb::Error::Invalid(_)), "{error}");
        }
        let most = 1.58e18;
        db.insert(&[put("most", &[most; 4]), put("least", &[-most; 4])])
            .unwrap();
        let hits = db.query(&[most; 4], 2).unwrap();
        assert_eq!(keys(&hits), ["most", "least"]);
        assert!(hits.iter().all(|hit| hit.score.is_finite()));
    }
}

#[test]
fn inserts_replacements_and_deletions_are_visible_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = vectors(&dir.path().join("db"), 2, Metric::Ip);
    let inserted = db
        .insert(&[put("a", &[1.0, 0.0]), put("b", &[0.0, 1.0])])
        .unwrap();
    assert_eq!(counts(inserted), (2, 0, 0));
    assert_eq!(keys(&db.query(&[1.0, 0.1], 9).unwrap()), ["a", "b"]);
    let inserted = db
        .insert(&[
            put("a", &[0.0, 2.0]),
            put("b", &[0.0, 1.0]),
            put("c", &[0.5, 0.0]),
        ])
        .unwrap();
    assert_eq!(counts(inserted), (1, 1, 1));
    assert_eq!(keys(&db.query(&[0.0, 1.0], 9).unwrap()), ["a", "b", "c"]);
    assert_eq!(db.get("a").unwrap(), Some(put("a", &[0.0, 2.0])));
    assert_eq!(db.delete(&["a", "nobody", "a"]).unwrap(), 1);
    assert_eq!(db.get("a").unwrap(), None);
    assert_eq!(keys(&db.query(&[0.0, 1.0], 9).unwrap()), ["b", "c"]);
    db.seal().unwrap();
    assert_eq!(keys(&db.query(&[0.0, 1.0], 9).unwrap()), ["b", "c"]);
    assert_eq!(db.delete(&["b"]).unwrap(), 1);
    assert_eq!(keys(&db.query(&[0.0, 1.0], 9).unwrap()), ["c"]);
}

#[test]
fn an_empty_database_returns_no_hits_and_k_may_exceed_the_rows() {
    let dir = tempfile::tempdir().unwrap();
    let db = vectors(&dir.path().join("db"), 2, Metric::L2);
    assert!(db.query(&[1.0, 0.0], 10).unwrap().is_empty());
    assert!(!db.seal().unwrap());
    db.insert(&[put("a", &[1.0, 0.0])]).unwrap();
    assert_eq!(db.query(&[1.0, 0.0], 10_000).unwrap().len(), 1);
}

#[test]
fn the_last_of_several_rows_with_one_key_in_a_batch_counts() {
    let dir = tempfile::tempdir().unwrap();
    let db = vectors(&dir.path().join("db"), 1, Metric::Ip);
    let inserted = db
        .insert(&[put("a", &[1.0]), put("b", &[2.0]), put("a", &[3.0])])
        .unwrap();
    assert_eq!(counts(inserted), (2, 1, 0));
    assert_eq!(db.get("a").unwrap(), Some(put("a", &[3.0])));
    assert_eq!(db.snapshot().rows(), 2);
}

#[test]
fn rows_that_cannot_be_stored_are_refused_and_nothing_changes() {
    let dir = tempfile::tempdir().unwrap();
    let db = vectors(&dir.path().join("db"), 2, Metric::Cosine);
    db.insert(&[put("kept", &[3.0, 4.0])]).unwrap();
    let long = "k".repeat(1 << 20);
    for (row, words) in [
        (put("", &[1.0, 0.0]), "the key is empty"),
        (put(&long, &[1.0, 0.0]), "65536 at most can be stored"),
        (put("x", &[1.0]), "has 1 values, this database takes 2"),
        (put("x", &[f32::NAN, 0.0]), "NaN at position 0"),
        (put("x", &[0.0, f32::NEG_INFINITY]), "-inf at position 1"),
        (put("x", &[0.0, 0.0]), "is zero"),
        (Row::text("x", "words"), "has no encoder"),
    ] {
        // The bad row comes last, and those before it are not stored either.
        let error = db.insert(&[put("good", &[1.0, 1.0]), row]).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(db.snapshot().rows(), 1);
    }
    for (query, k, words) in [
        (&[1.0, 0.0][..], 0, "k is 0"),
        (&[1.0, 0.0], 10_001, "k is 10001"),
        (&[1.0], 1, "has 1 values"),
        (&[f32::NAN, 1.0], 1, "NaN"),
        (&[0.0, 0.0], 1, "is zero"),
    ] {
        let error = db.query(query, k).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    let error = db.query("a text", 1).unwrap_err();
    assert!(error.to_string().contains("no encoder"), "{error}");
    // The vector is stored normalised, and returned as it was given.
    assert_eq!(db.get("kept").unwrap(), Some(put("kept", &[3.0, 4.0])));
}

#[test]
fn keys_may_be_any_strings_and_are_distinguished() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = vectors(&path, 1, Metric::Ip);
    let mut odd: Vec<String> = (1..=255u8)
        .map(|b| String::from_utf8_lossy(&[b]).into_owned())
        .collect();
    odd.extend([
        "\0".into(),
        "a\0b".into(),
        "a\0".into(),
        " ".into(),
        "é".into(),
        "e\u{301}".into(),
        "k".repeat(65_536),
    ]);
    odd.sort();
    odd.dedup();
    let rows: Vec<_> = odd
        .iter()
        .zip(1..)
        .map(|(key, n)| put(key, &[n as f32]))
        .collect();
    db.insert(&rows).unwrap();
    for sealed in [false, true] {
        if sealed {
            db.seal().unwrap();
        }
        for row in &rows {
            assert_eq!(
                db.get(&row.key).unwrap().as_ref(),
                Some(row),
                "sealed {sealed}"
            );
        }
    }
}

#[test]
fn a_filter_is_applied_before_the_top_k() {
    let dir = tempfile::tempdir().unwrap();
    let db = vectors(&dir.path().join("db"), 4, Metric::Ip);
    let mut random = Random::new(5);
    let rows: Vec<_> = (0..300)
        .map(|n| put(&format!("{}/{n}", n % 7), &random.vector(4)))
        .collect();
    db.insert(&rows[..200]).unwrap();
    db.insert(&rows[200..]).unwrap();
    db.delete(&["3/3", "3/199"]).unwrap();
    let query = random.vector(4);
    let all = db.query(&query, 1000).unwrap();
    assert_eq!(all.len(), 298);
    let within = |filter: Filter| {
        db.query_with(&query, &QueryOptions::top(5).among(filter))
            .unwrap()
    };
    let expected: Vec<_> = all
        .iter()
        .filter(|hit| hit.key.starts_with("3/"))
        .take(5)
        .cloned()
        .collect();
    assert_eq!(within(Filter::Prefix("3/".into())), expected);
    assert!(within(Filter::Prefix("9".into())).is_empty());
    let some: Vec<_> = rows.iter().step_by(11).map(|row| row.key.clone()).collect();
    let expected: Vec<_> = all
        .iter()
        .filter(|hit| some.contains(&hit.key))
        .take(5)
        .cloned()
        .collect();
    let mut named: std::collections::BTreeSet<_> = some.into_iter().collect();
    named.insert("not there".into());
    assert_eq!(within(Filter::Keys(named)), expected);
    assert!(within(Filter::Keys(Default::default())).is_empty());
}

#[test]
fn equal_scores_are_ordered_by_insertion_before_and_after_every_operation() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut db = vectors(&path, 2, Metric::Ip);
    // Keys out of order and equal vectors. One row is inserted again and so comes last.
    let order: Vec<String> = (0..180).map(|n| format!("k{}", (n * 77) % 180)).collect();
    for chunk in order.chunks(30) {
        db.insert(
            &chunk
                .iter()
                .map(|key| put(key, &[1.0, 0.0]))
                .collect::<Vec<_>>(),
        )
        .unwrap();
    }
    db.insert(&[put("k77", &[0.5, 0.0])]).unwrap();
    db.insert(&[put("k77", &[1.0, 0.0]), put("k0", &[1.0, 0.0])])
        .unwrap();
    let mut expected: Vec<_> = order.iter().filter(|key| *key != "k77").cloned().collect();
    expected.push("k77".into());
    let check = |db: &Database, when: &str| {
        for k in [1, 10, 64, 65, 180] {
            let hits = db.query(&[1.0, 1.0], k).unwrap();
            assert_eq!(keys(&hits), expected[..k], "{when}, k {k}");
        }
    };
    check(&db, "at first");
    db.seal().unwrap();
    check(&db, "sealed");
    drop(db);
    db = Database::open(&path, small()).unwrap();
    check(&db, "reopened");
    db.compact().unwrap();
    check(&db, "compacted");
    assert_eq!(db.stats().unwrap().segments, 1);
    assert_eq!(db.stats().unwrap().dead_rows, 0);
}

#[test]
fn compaction_frees_space_and_an_old_snapshot_stays_complete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = vectors(&path, 64, Metric::Ip);
    let mut random = Random::new(8);
    let rows: Vec<_> = (0..2000)
        .map(|n| put(&n.to_string(), &random.vector(64)))
        .collect();
    for chunk in rows.chunks(200) {
        db.insert(chunk).unwrap();
    }
    db.seal().unwrap();
    let before = db.snapshot();
    let query = random.vector(64);
    let answer = before.query(&query, 50).unwrap();
    let gone: Vec<_> = (0..2000)
        .filter(|n| n % 10 != 0)
        .map(|n| n.to_string())
        .collect();
    let gone: Vec<_> = gone.iter().map(String::as_str).collect();
    assert_eq!(db.delete(&gone).unwrap(), 1800);
    let full = db.stats().unwrap().bytes;
    let compacted = db.compact().unwrap();
    assert_eq!(compacted.dropped, 1800);
    let freed = db.stats().unwrap().bytes;
    assert!(
        freed.rows * 8 < full.rows,
        "{} of {}",
        freed.rows,
        full.rows
    );
    assert_eq!(db.query(&query, 1000).unwrap().len(), 200);
    assert_eq!(before.query(&query, 50).unwrap(), answer);
    assert_eq!(before.get("17").unwrap().as_ref(), Some(&rows[17]));
}

#[test]
fn creating_reports_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let none = CreateOptions::vectors(0, Metric::Ip);
    let error = Database::create(dir.path().join("a"), &none, Options::default()).unwrap_err();
    assert!(error.to_string().contains("1 to 65536"), "{error}");
    std::fs::write(dir.path().join("file"), "x").unwrap();
    let error = Database::create(
        dir.path(),
        &CreateOptions::vectors(2, Metric::Ip),
        Options::default(),
    )
    .unwrap_err();
    assert!(error.to_string().contains("is not empty"), "{error}");
    vectors(&dir.path().join("b"), 2, Metric::Ip);
    let error = Database::create(
        dir.path().join("b"),
        &CreateOptions::vectors(2, Metric::Ip),
        Options::default(),
    );
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("is already a database")
    );
    let db = Database::open(dir.path().join("b"), small()).unwrap();
    assert!(matches!(db.get("x"), Ok(None)));
    let row = Row::vector("v", vec![1.0, 2.0]);
    db.insert(&[row]).unwrap();
}

#[test]
fn a_background_thread_seals_a_large_tail_before_the_database_closes() {
    let dir = tempfile::tempdir().unwrap();
    let options = small().seal_in_background(true);
    let new = CreateOptions::vectors(4, Metric::Ip);
    let db = Database::create(dir.path().join("db"), &new, options).unwrap();
    let mut random = Random::new(5);
    // Inserts that seal by themselves, at twice the threshold, would leave the last 60 rows.
    for n in 0..1060 {
        db.insert(&[put(&n.to_string(), &random.vector(4))])
            .unwrap();
        let tail = db.stats().unwrap().tail_rows;
        assert!(tail < 100, "{tail} rows wait where 50 are due");
    }
    let path = db.dir().to_path_buf();
    db.close().unwrap();
    let reader = Reader::open(&path, small()).unwrap();
    let stats = reader.stats().unwrap();
    assert_eq!(stats.rows, 1060);
    assert!(stats.tail_rows < 50, "{} rows are due", stats.tail_rows);
}

#[test]
fn quantizing_a_batch_on_several_threads_gives_the_same_codes_and_errors() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random::new(6);
    let mut vectors = random.vector(8 * 5000);
    let bundle = codebooks(dir.path(), &vectors[..8 * 500], 8, Metric::Ip, true, 6);
    for threads in [1, 2, 3, 8] {
        let model = Model::open(bundle.clone(), threads).unwrap();
        for rows in [0, 1, 1023, 2047, 2048, 2049, 5000] {
            let some = &vectors[..8 * rows];
            assert_eq!(
                model.quantize_batch(some).unwrap(),
                model.quantize(some).unwrap(),
                "{rows} rows, {threads} threads"
            );
        }
    }
    vectors[8 * 4321 + 3] = f32::NAN;
    let model = Model::open(bundle, 2).unwrap();
    let (one, two) = (model.quantize(&vectors), model.quantize_batch(&vectors));
    assert_eq!(one.unwrap_err().to_string(), two.unwrap_err().to_string());
}
