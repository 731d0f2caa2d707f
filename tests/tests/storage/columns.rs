//! Columns of rows: written, read and changed, in the tail, in segments and after opening again.

use mopqdb::columns::{ColumnType, ColumnValue, Columns};
use mopqdb::encoder::Encoder;
use mopqdb::{
    CreateOptions, Database, Error, Filter, Metric, Options, QueryOptions, Reader, Result, Row,
    RowBatch, Watch, read_rows,
};
use mopqdb_tests::support::{put, small, vectors};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn sql(text: &str) -> Filter {
    Filter::sql(text).unwrap()
}

fn keys(db: &Database, filter: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let each = |key: &str| {
        keys.push(key.to_owned());
        Ok(())
    };
    db.snapshot()
        .for_each_key_where(&sql(filter), each)
        .unwrap();
    keys
}

fn said<T: std::fmt::Debug>(outcome: Result<T>) -> String {
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    error.to_string()
}

fn papers() -> Vec<Row> {
    let at = ColumnValue::timestamp("2024-05-01T12:00:00Z").unwrap();
    vec![
        put("a", &[1.0, 0.0])
            .set("year", 2019)
            .set("tags", vec!["x", "y"])
            .set("open", true),
        put("b", &[2.0, 0.0]).set("year", 2020).set("lang", "de"),
        put("c", &[3.0, 0.0]).set("at", at).set("score", 0.5),
        put("d", &[4.0, 0.0]),
    ]
}

/// What has to hold of the papers wherever their rows are.
fn check(db: &Database) {
    for row in papers() {
        assert_eq!(db.get(&row.key).unwrap(), Some(row.clone()));
        assert!(!db.snapshot().differs(&row).unwrap());
    }
    let all: Vec<Row> = db.rows().collect::<Result<_>>().unwrap();
    assert_eq!(all, papers());
    for (filter, expected) in [
        ("year >= 2020", &["b"][..]),
        ("year < 2020 OR lang = 'de'", &["a", "b"]),
        ("NOT year = 2019", &["b"]),
        ("year IS NULL AND key != 'd'", &["c"]),
        ("tags HAS 'y'", &["a"]),
        ("open IS NOT TRUE", &["b", "c", "d"]),
        ("at > '2024-01-01' AND score = 0.5", &["c"]),
        ("lang LIKE 'd%'", &["b"]),
    ] {
        assert_eq!(keys(db, filter), expected, "{filter}");
        assert_eq!(db.count_where(&sql(filter)).unwrap(), expected.len() as u64);
        let among = QueryOptions::top(10)
            .among(sql(filter))
            .columns(["year", "tags"]);
        let hits = db.query_with(&[1.0, 0.0], &among).unwrap();
        let found: Vec<_> = hits.iter().rev().map(|hit| hit.key.as_str()).collect();
        assert_eq!(found, expected, "{filter}");
        for hit in hits {
            let row = db.get(&hit.key).unwrap().unwrap();
            for (name, value) in hit.columns {
                let null = ColumnValue::Null;
                assert_eq!(value, *row.columns.get(&name).unwrap_or(&null));
            }
        }
        let cursor = db.rows().among(&sql(filter)).unwrap();
        let found: Vec<_> = cursor.map(|row| row.unwrap().key).collect();
        assert_eq!(found, expected, "{filter}");
    }
    let both = QueryOptions::top(10)
        .among(sql("year > 0"))
        .among(Filter::Prefix("b".into()));
    assert_eq!(db.query_with(&[1.0, 0.0], &both).unwrap().len(), 1);
}

#[test]
fn rows_keep_their_columns_wherever_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut db = vectors(&path, 2, Metric::Ip);
    assert_eq!(db.insert(&papers()).unwrap().new, 4);
    check(&db);
    assert_eq!(db.insert(&papers()).unwrap().unchanged, 4);
    db.close().unwrap();
    db = Database::open(&path, small()).unwrap();
    check(&db);
    let reader = Reader::open(&path, small()).unwrap();
    assert_eq!(reader.get("a").unwrap(), Some(papers().remove(0)));
    db.seal().unwrap();
    check(&db);
    assert!(reader.refresh().unwrap());
    assert_eq!(reader.count_where(&sql("year >= 2020")).unwrap(), 1);
    assert_eq!(db.insert(&papers()).unwrap().unchanged, 4);
    db.insert(&[put("e", &[0.0, 0.0]).set("year", 7)]).unwrap();
    db.seal().unwrap();
    db.delete(&["e"]).unwrap();
    db.compact().unwrap();
    check(&db);
    assert!(db.stats().unwrap().bytes.columns > 0);
    db.close().unwrap();
    db = Database::open(&path, small()).unwrap();
    check(&db);
    assert!(db.verify(&Default::default()).unwrap().is_sound());
    let copy = dir.path().join("copy");
    mopqdb::backup(&path, &copy).unwrap();
    check(&Database::open(&copy, small()).unwrap());
    let mut rows = Vec::new();
    read_rows(&path, false, |row| {
        let value = row.value.given();
        let row = row
            .columns
            .into_iter()
            .fold(Row::new(row.key, value), |row, (name, value)| {
                row.set(name, value)
            });
        rows.push(row);
        Ok(())
    })
    .unwrap();
    assert_eq!(rows, papers());
}

#[test]
fn a_changed_column_is_a_replaced_row() {
    let dir = tempfile::tempdir().unwrap();
    let db = vectors(&dir.path().join("db"), 2, Metric::Ip);
    db.insert(&papers()).unwrap();
    db.seal().unwrap();
    let row = |year: i64| put("b", &[2.0, 0.0]).set("year", year).set("lang", "de");
    assert!(db.snapshot().differs(&row(2021)).unwrap());
    let before = db.snapshot();
    assert_eq!(db.insert(&[row(2021)]).unwrap().replaced, 1);
    assert_eq!(db.insert(&[row(2021)]).unwrap().unchanged, 1);
    assert_eq!(db.get("b").unwrap(), Some(row(2021)));
    assert_eq!(before.get("b").unwrap(), Some(row(2020)));
    assert_eq!(keys(&db, "year > 0"), ["a", "b"]);
    // What is not given is null.
    db.insert(&[put("b", &[2.0, 0.0])]).unwrap();
    assert_eq!(db.get("b").unwrap(), Some(put("b", &[2.0, 0.0])));
    assert_eq!(keys(&db, "year IS NULL"), ["c", "d", "b"]);
    let null = put("b", &[2.0, 0.0]).set("year", None::<i64>);
    assert_eq!(db.insert(&[null]).unwrap().unchanged, 1);
}

/// Counts the texts that it encodes.
struct Counting(AtomicUsize);

impl Encoder for Counting {
    fn name(&self) -> String {
        "counting-1".into()
    }
    fn dim(&self) -> usize {
        2
    }
    fn encode_keys(&self, texts: &[&str]) -> Result<Vec<f32>> {
        self.0.fetch_add(texts.len(), Ordering::SeqCst);
        let texts = texts.iter();
        Ok(texts.flat_map(|text| [text.len() as f32, 1.0]).collect())
    }
    fn encode_queries(&self, texts: &[&str]) -> Result<Vec<f32>> {
        self.encode_keys(texts)
    }
}

#[test]
fn changing_columns_encodes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let encoder = Arc::new(Counting(AtomicUsize::new(0)));
    let new = CreateOptions::encoder(encoder.clone(), Metric::Cosine);
    let db = Database::create(dir.path().join("db"), &new, small()).unwrap();
    let row = |n: usize, year: i64| Row::text(n.to_string(), "x".repeat(n)).set("year", year);
    let rows: Vec<Row> = (1..120).map(|n| row(n, 2000)).collect();
    db.insert(&rows).unwrap();
    assert_eq!(encoder.0.load(Ordering::SeqCst), 119);
    let before = db.query("xxxxx", 119).unwrap();
    encoder.0.store(0, Ordering::SeqCst);
    let changed: Vec<Row> = (1..60).map(|n| row(n, 2001)).collect();
    let mixed = [&changed[..], &[row(500, 2001)]].concat();
    assert_eq!(db.insert(&mixed).unwrap().replaced, 59);
    assert_eq!(encoder.0.load(Ordering::SeqCst), 1, "the new text alone");
    db.delete(&["500"]).unwrap();
    let set = [("year", ColumnValue::from(2002)), ("new", true.into())];
    let changed = db.update_where(&sql("year = 2000"), &set, &Watch::new());
    assert_eq!(changed.unwrap(), 60);
    assert_eq!(encoder.0.load(Ordering::SeqCst), 1);
    let after = db.query("xxxxx", 119).unwrap();
    let scores = |hits: &[mopqdb::Hit]| -> BTreeMap<String, f32> {
        hits.iter()
            .map(|hit| (hit.key.clone(), hit.score))
            .collect()
    };
    assert_eq!(scores(&before), scores(&after));
    assert_eq!(db.count_where(&sql("year = 2002 AND new")).unwrap(), 60);
}

#[test]
fn a_batch_with_a_value_of_another_type_fails_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = vectors(&path, 1, Metric::Ip);
    let row = |key: &str, value: ColumnValue| put(key, &[1.0]).set("year", value);
    db.insert(&[row("a", 2020.into())]).unwrap();
    for (value, why) in [
        (
            ColumnValue::from("x"),
            "\"x\" is a string, but the column has type int",
        ),
        (10.5.into(), "10.5 is not an int"),
        (f64::NAN.into(), "NaN"),
        (vec!["x"].into(), "a list of strings"),
    ] {
        let error = said(db.insert(&[row("b", 1.into()), row("c", value)]));
        assert!(
            error.contains("key \"c\"") && error.contains("\"year\""),
            "{error}"
        );
        assert!(error.contains(why), "{error}");
    }
    let error = said(db.insert(&[put("c", &[1.0]).set("key", 7)]));
    assert!(error.contains("part of every row"), "{error}");
    assert_eq!(db.len(), 1);
    // A float that is an int is one, and so is what a timestamp is written as.
    db.insert(&[row("b", 2021.0.into())]).unwrap();
    assert_eq!(db.get("b").unwrap().unwrap().columns["year"], 2021.into());
    let many = (0..1001).fold(put("z", &[1.0]), |row, n| row.set(format!("c{n}"), n));
    assert!(said(db.insert(&[many])).contains("1000"));
    assert_eq!(db.columns().len(), 1);
    drop(db);
    assert_eq!(Database::open(&path, small()).unwrap().len(), 2);
}

#[test]
fn threads_that_bring_a_column_together_agree_on_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = vectors(&path, 1, Metric::Ip);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let db = &db;
            scope.spawn(move || {
                for n in 0..40 {
                    let row = put(&format!("{thread}/{n}"), &[1.0]);
                    let row = row
                        .set(format!("c{}", n / 4), n as i64)
                        .set("thread", thread);
                    db.insert(&[row]).unwrap();
                }
            });
        }
    });
    let check = |db: &Database| {
        assert_eq!(db.columns().len(), 11);
        for thread in 0..4 {
            let of_thread = sql(&format!("thread = {thread} AND c3 >= 12"));
            assert_eq!(db.count_where(&of_thread).unwrap(), 4);
        }
    };
    check(&db);
    drop(db);
    check(&Database::open(&path, small()).unwrap());
}

#[test]
fn columns_are_declared_listed_dropped_and_retyped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let new = CreateOptions::vectors(1, Metric::Ip)
        .column("year", ColumnType::Int)
        .column("at", ColumnType::Timestamp);
    let twice = new.clone().column("at", ColumnType::Int);
    assert!(said(Database::create(dir.path().join("no"), &twice, small())).contains("\"at\""));
    let mut db = Database::create(&path, &new, small()).unwrap();
    let list = |db: &Database| -> Vec<String> {
        let columns = db.columns().into_iter();
        columns.map(|c| format!("{} {}", c.name, c.kind)).collect()
    };
    assert_eq!(list(&db), ["year int", "at timestamp"]);
    db.insert(&[
        put("a", &[1.0]).set("year", 2020).set("at", "2024-05-01"),
        put("b", &[1.0]).set("year", 2021).set("lang", "7"),
    ])
    .unwrap();
    db.seal().unwrap();
    db.insert(&[put("c", &[1.0]).set("year", 2022).set("lang", "08")])
        .unwrap();
    assert_eq!(list(&db), ["year int", "at timestamp", "lang string"]);
    let error = said(db.retype_column("lang", ColumnType::Int));
    assert!(error.contains("the row \"c\" has \"08\""), "{error}");
    assert!(said(db.retype_column("at", ColumnType::Int)).contains("without loss"));
    assert!(said(db.retype_column("Lang", ColumnType::Int)).contains("did you mean \"lang\""));
    assert!(said(db.drop_column("none")).contains("there is no column \"none\""));
    db.delete(&["c"]).unwrap();
    db.retype_column("lang", ColumnType::Int).unwrap();
    db.retype_column("year", ColumnType::Float).unwrap();
    for _ in 0..2 {
        assert_eq!(keys(&db, "lang = 7 AND year > 2020.5"), ["b"]);
        assert_eq!(db.get("a").unwrap().unwrap().columns["year"], 2020.0.into());
        db.insert(&[put("d", &[1.0]).set("lang", 8).set("year", 0.5)])
            .unwrap();
        assert_eq!(keys(&db, "lang > 1"), ["b", "d"]);
        db.delete(&["d"]).unwrap();
        db.compact().unwrap();
        drop(db);
        db = Database::open(&path, small()).unwrap();
    }
    db.drop_column("year").unwrap();
    assert_eq!(list(&db), ["at timestamp", "lang int"]);
    let error = said(db.count_where(&sql("year > 0")));
    assert!(
        error.contains("the columns are at (timestamp), lang (int)"),
        "{error}"
    );
    assert!(error.contains("at character 1"), "{error}");
    assert!(said(db.query_with(&[1.0], &QueryOptions::top(1).columns(["year"]))).contains("year"));
    db.insert(&[put("e", &[1.0]).set("year", "MMXX")]).unwrap();
    db.compact().unwrap();
    drop(db);
    db = Database::open(&path, small()).unwrap();
    assert_eq!(list(&db), ["at timestamp", "lang int", "year string"]);
    assert_eq!(keys(&db, "year IS NOT NULL"), ["e"]);
}

#[test]
fn rows_in_columns_are_what_rows_are() {
    let dir = tempfile::tempdir().unwrap();
    let db = vectors(&dir.path().join("db"), 1, Metric::Ip);
    let mut columns = Columns::default();
    columns.set("year", [Some(2020), None, Some(2021)]).unwrap();
    columns
        .set_typed(
            "at",
            ColumnType::Timestamp,
            ["2024-05-01", "1970-01-01", "2000-02-29"],
        )
        .unwrap();
    let (keys_, values) = (["a", "b", "c"], [1.0, 2.0, 3.0]);
    let batch = RowBatch::vectors(&keys_, &values).unwrap();
    let batch = batch.with_columns(&columns).unwrap();
    assert_eq!(db.insert_batch(batch).unwrap().new, 3);
    assert_eq!(db.insert_batch(batch).unwrap().unchanged, 3);
    let at = ColumnValue::timestamp("2024-05-01").unwrap();
    let expected = put("a", &[1.0]).set("year", 2020).set("at", at);
    assert_eq!(db.get("a").unwrap(), Some(expected.clone()));
    assert_eq!(db.insert(&[expected]).unwrap().unchanged, 1);
    let few = RowBatch::vectors(&keys_[..2], &values[..2]).unwrap();
    assert!(said(few.with_columns(&columns)).contains("3 values for 2 rows"));
}

#[test]
fn rows_that_pass_are_deleted_and_updated_in_batches() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let options = small().seal_rows(4000);
    let new = CreateOptions::vectors(1, Metric::Ip);
    let db = Database::create(&path, &new, options).unwrap();
    let rows: Vec<Row> = (0..10_000)
        .map(|n| put(&n.to_string(), &[n as f32]).set("n", n as i64))
        .collect();
    db.insert(&rows).unwrap();
    let even = sql("n >= 100 AND m IS NULL");
    assert!(said(db.update_where(&even, &[], &Watch::new())).contains("\"m\""));
    let some = sql("n >= 100");
    let error = said(db.update_where(&some, &[("n", "x".into())], &Watch::new()));
    assert!(
        error.contains("key \"100\"") && error.contains("\"n\""),
        "{error}"
    );
    // Stopped after a batch: the oldest rows are done, and counted.
    let (seen, stop) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let counting = {
        let (seen, stop) = (Arc::clone(&seen), Arc::clone(&stop));
        Watch::new().on_progress(move |progress| {
            seen.store(progress.done as usize, Ordering::SeqCst);
            stop.store(progress.done >= 5000, Ordering::SeqCst);
        })
    };
    let counting = counting.stop_when(stop);
    let set = [("m", ColumnValue::from("done"))];
    let stopped = db.update_where(&some, &set, &counting);
    assert!(matches!(stopped, Err(Error::Cancelled(_))));
    let done = seen.load(Ordering::SeqCst);
    assert!((5000..9900).contains(&done));
    let all: Vec<String> = (100..100 + done).map(|n| n.to_string()).collect();
    let mut found = keys(&db, "m = 'done'");
    found.sort_by_key(|key| key.parse::<u32>().unwrap());
    assert_eq!(found, all);
    let rest = db.update_where(&some, &set, &Watch::new()).unwrap();
    assert_eq!(rest as usize, 9900 - done);
    assert_eq!(db.update_where(&some, &set, &Watch::new()).unwrap(), 0);
    let clear = [("m", ColumnValue::Null), ("n", 7.0.into())];
    assert_eq!(
        db.update_where(&sql("n = 9999"), &clear, &Watch::new())
            .unwrap(),
        1
    );
    let expected = put("9999", &[9999.0]).set("n", 7);
    assert_eq!(db.get("9999").unwrap(), Some(expected));
    let deleted = db.delete_where(&sql("m = 'done' AND n < 9000"), &Watch::new());
    assert_eq!(deleted.unwrap(), 8900);
    assert_eq!(db.len(), 1100);
    drop(db);
    let db = Database::open(&path, small()).unwrap();
    assert_eq!(
        (db.len(), db.count_where(&sql("m = 'done'")).unwrap()),
        (1100, 999)
    );
}

#[test]
fn an_update_never_takes_back_what_others_write_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let db = vectors(&dir.path().join("db"), 1, Metric::Ip);
    let row = |n: usize, by: &str| put(&n.to_string(), &[n as f32]).set("by", by);
    let rows: Vec<Row> = (0..200).map(|n| row(n, "nobody")).collect();
    db.insert(&rows).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..200 {
                db.insert(&[row(n, "insert").set("new", true)]).unwrap();
            }
        });
        let set = [("by", ColumnValue::from("update"))];
        while db.count_where(&sql("by = 'nobody'")).unwrap() > 0 {
            db.update_where(&sql("by = 'nobody'"), &set, &Watch::new())
                .unwrap();
        }
    });
    assert_eq!(db.count_where(&sql("by = 'insert' AND new")).unwrap(), 200);
}

#[test]
fn a_database_without_columns_opens_and_takes_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = vectors(&path, 1, Metric::Ip);
    db.insert(&[put("a", &[1.0])]).unwrap();
    db.seal().unwrap();
    assert!(cols(&path).is_empty());
    db.insert(&[put("b", &[1.0]).set("year", 2020)]).unwrap();
    db.seal().unwrap();
    assert_eq!(cols(&path).len(), 1);
    assert_eq!(keys(&db, "year IS NULL"), ["a"]);
    db.compact().unwrap();
    assert_eq!(keys(&db, "year IS NULL"), ["a"]);
    assert_eq!(cols(&path).len(), 1);
    drop(db);
    let db = Database::open(&path, Options::default()).unwrap();
    assert_eq!(keys(&db, "year = 2020"), ["b"]);
}

/// The columns files of a database.
fn cols(path: &Path) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(path.join("segments")).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|ext| ext == "cols"))
        .collect()
}

#[test]
fn damaged_columns_are_found_and_become_null_only_if_that_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = vectors(&path, 1, Metric::Ip);
    let rows: Vec<Row> = (0..1000_i64)
        .map(|n| put(&n.to_string(), &[1.0]).set("a", n).set("b", n * 2))
        .collect();
    db.insert(&rows).unwrap();
    db.seal().unwrap();
    db.close().unwrap();
    let file = cols(&path).remove(0);
    let bytes = std::fs::read(&file).unwrap();
    let mut damaged = bytes.clone();
    // In the first page of the first column, which has 512 of its values.
    damaged[4096 + 640..4096 + 700].fill(0xee);
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, &damaged).unwrap();
    assert!(
        !mopqdb::verify(&path, &Default::default())
            .unwrap()
            .is_sound()
    );
    let db = Database::open(&path, small()).unwrap();
    assert!(matches!(
        db.count_where(&sql("a = 1")),
        Err(Error::Corrupt(_))
    ));
    assert_eq!(db.count_where(&sql("b = 2")).unwrap(), 1);
    drop(db);
    let asked = mopqdb::repair(&path, &Default::default()).unwrap();
    assert!(!asked.is_whole() && asked.rows.is_none());
    assert_eq!(asked.lost_keys.len(), 512);
    assert_eq!(std::fs::read(&file).unwrap(), damaged, "nothing was done");
    let mut salvaged = 0;
    let read = read_rows(&path, true, |row| {
        salvaged += row.columns.len();
        Ok(())
    });
    assert_eq!((read.unwrap().lost_keys.len(), salvaged), (512, 2000 - 512));
    let options = mopqdb::RepairOptions::default().accept_loss(true);
    let repaired = mopqdb::repair(&path, &options).unwrap();
    assert_eq!((repaired.rows, repaired.lost.len()), (Some(1000), 1));
    let again = mopqdb::repair(&path, &Default::default()).unwrap();
    assert!(again.done.is_empty() && again.is_whole(), "{again:?}");
    let db = Database::open(&path, small()).unwrap();
    assert_eq!(db.count_where(&sql("a IS NULL AND b >= 0")).unwrap(), 512);
    assert_eq!(db.count_where(&sql("a = 900")).unwrap(), 1);
    assert!(db.verify(&Default::default()).unwrap().is_sound());
}

#[test]
fn a_flipped_bit_of_a_columns_file_is_corrected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = vectors(&path, 2, Metric::Ip);
    db.insert(&papers()).unwrap();
    db.seal().unwrap();
    db.close().unwrap();
    let file = cols(&path).remove(0);
    let bytes = std::fs::read(&file).unwrap();
    for at in (0..bytes.len()).step_by(97) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 4;
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, &flipped).unwrap();
        let repaired = mopqdb::repair(&path, &Default::default()).unwrap();
        assert!(repaired.is_whole(), "byte {at}: {repaired:?}");
        let db = Database::open(&path, small()).unwrap();
        check(&db);
    }
}

#[test]
fn without_a_record_the_columns_come_from_files_and_logs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = vectors(&path, 2, Metric::Ip);
    let (first, rest) = (papers()[..2].to_vec(), papers()[2..].to_vec());
    db.insert(&first).unwrap();
    db.seal().unwrap();
    db.insert(&rest).unwrap();
    db.close().unwrap();
    for entry in std::fs::read_dir(&path).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("MANIFEST") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    std::fs::remove_dir_all(path.join("catalog")).unwrap();
    let repaired = mopqdb::repair(&path, &Default::default()).unwrap();
    assert!(repaired.is_whole(), "{repaired:?}");
    let said = repaired.done.join("\n");
    assert!(said.contains("the columns are"), "{said}");
    check(&Database::open(&path, small()).unwrap());
}
