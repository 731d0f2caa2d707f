//! Extreme cases: thousands of segments, every byte, clocks that go backwards, several file systems.

use crate::encoders::{runtime, tiny};
use crate::world::{DIM, METRIC, Models, Step, World, options, row};
use crate::{report, scratch, torture};
use mopqdb::{
    CreateOptions, Database, Filter, Metric, Options, Query, QueryOptions, Reader, Row, Value,
    VerifyOptions,
};
use mopqdb_tests::mounted::Mounted;
use mopqdb_tests::support::Random;
use std::time::{Duration, Instant, SystemTime};

#[test]
fn thousands_of_tiny_segments_are_written_read_and_merged() {
    let segments = if torture() { 10_000 } else { 2_000 };
    let dir = scratch();
    let path = dir.path().join("db");
    let new = CreateOptions::vectors(DIM, METRIC);
    let db = Database::create(&path, &new, options()).unwrap();
    let mut random = Random::new(1201);
    let mut world = World::default();
    let started = Instant::now();
    for n in 0..segments {
        let vector = random.vector(DIM);
        db.insert(&[row(&format!("k{n}"), &vector)]).unwrap();
        db.seal().unwrap();
        world.oracle.put(&format!("k{n}"), vector);
    }
    let written = started.elapsed();
    assert_eq!(db.stats().unwrap().segments, segments);
    db.close().unwrap();
    let opened = Instant::now();
    let reader = Reader::open(&path, options()).unwrap();
    let db = Database::open(&path, options()).unwrap();
    let opened = opened.elapsed();
    let asked = Instant::now();
    let queries = [random.vector(DIM), random.vector(DIM)];
    for snapshot in [reader.snapshot(), db.snapshot()] {
        (world.oracle).check(&snapshot, &queries, METRIC, None);
    }
    let asked = asked.elapsed();
    assert_eq!(db.delete(&["k5", "k999"]).unwrap(), 2);
    world.oracle.remove("k5");
    world.oracle.remove("k999");
    let merging = Instant::now();
    let done = db.compact().unwrap();
    assert!(done.inputs >= segments && db.stats().unwrap().segments == 1);
    report(
        segments,
        format_args!(
            "segments of a row: written in {written:.1?}, opened twice in {opened:.1?}, 12 queries in {asked:.1?}, merged in {:.1?}",
            merging.elapsed()
        ),
    );
    let snapshot = db.snapshot();
    (world.oracle).check(&snapshot, &queries, METRIC, None);
    // A snapshot of all of them still works.
    assert_eq!(reader.snapshot().rows(), segments as u64);
    assert!(reader.refresh().unwrap());
    assert_eq!(reader.snapshot().rows(), segments as u64 - 2);
}

/// Returns every character whose UTF-8 has a byte that no earlier one has, so that all 243 bytes of UTF-8 occur, and
/// unusual strings.
fn odd_strings() -> Vec<String> {
    let mut chars: Vec<char> = (0..=0x7fu8).map(char::from).collect();
    let mut seen = [false; 256];
    for c in (0x80..=0x10_ffffu32).filter_map(char::from_u32) {
        let mut buffer = [0; 4];
        let bytes = c.encode_utf8(&mut buffer).as_bytes();
        if bytes.iter().any(|&byte| !seen[usize::from(byte)]) {
            bytes
                .iter()
                .for_each(|&byte| seen[usize::from(byte)] = true);
            chars.push(c);
        }
    }
    let all: String = chars.iter().collect();
    let bytes: std::collections::BTreeSet<u8> = all.bytes().collect();
    assert_eq!(
        bytes.len(),
        256 - 13,
        "C0, C1 and F5 to FF do not occur in UTF-8"
    );
    let mut strings: Vec<String> = chars.iter().map(char::to_string).collect();
    strings.extend(chars.windows(3).map(|three| three.iter().collect()));
    strings.extend(["\0\0".into(), "../../etc".into(), "\u{feff}".into(), all]);
    strings.push("x".repeat(mopqdb::MAX_KEY));
    strings.sort();
    strings.dedup();
    strings
}

#[test]
fn keys_with_every_byte_are_returned_unchanged() {
    let strings = odd_strings();
    let dir = scratch();
    let path = dir.path().join("db");
    let new = CreateOptions::vectors(1, Metric::Ip);
    let db = Database::create(&path, &new, options()).unwrap();
    let value = |n: usize| [n as f32 + 1.0];
    let expect = |check: &dyn Fn(&str) -> Option<Row>| {
        for (n, key) in strings.iter().enumerate() {
            let row = check(key).unwrap_or_else(|| panic!("{key:?} is gone"));
            assert_eq!((&row.key, row.value), (key, Value::Vector(value(n).into())));
        }
    };
    for (n, key) in strings.iter().enumerate() {
        db.insert(&[Row::vector(key.clone(), value(n))]).unwrap();
    }
    expect(&|key| db.get(key).unwrap());
    db.close().unwrap();
    let db = Database::open(&path, options()).unwrap();
    expect(&|key| db.get(key).unwrap());
    db.compact().unwrap();
    expect(&|key| db.get(key).unwrap());
    let reader = Reader::open(&path, options()).unwrap();
    expect(&|key| reader.get(key).unwrap());
    for prefix in ["", "\0", "\n", "\t", "é", "\u{10ffff}", "../", "x"] {
        let wanted = QueryOptions::top(10_000).among(Filter::Prefix(prefix.into()));
        let hits = reader.query_with(Query::Vector(&[1.0]), &wanted).unwrap();
        let mut found: Vec<&str> = hits.iter().map(|hit| hit.key.as_str()).collect();
        found.sort_unstable();
        let expected: Vec<&str> = (strings.iter().map(String::as_str))
            .filter(|key| key.starts_with(prefix))
            .collect();
        assert_eq!(found, expected, "{prefix:?}");
    }
    let keys: Vec<&str> = strings.iter().map(String::as_str).collect();
    assert_eq!(db.delete(&keys).unwrap(), keys.len() as u64);
    assert_eq!(db.snapshot().rows(), 0);
}

#[test]
fn texts_with_every_byte_are_returned_unchanged() {
    if !runtime() {
        return;
    }
    let dir = scratch();
    let path = dir.path().join("db");
    let options = || Options::default().threads(1);
    let db = Database::create(&path, &CreateOptions::bundle(tiny()), options()).unwrap();
    let strings = odd_strings();
    let rows: Vec<Row> = (strings.iter().enumerate())
        .map(|(n, text)| Row::text(format!("{n}"), text.clone()))
        .collect();
    db.insert(&rows).unwrap();
    let expect = |db: &Database| {
        for row in &rows {
            assert_eq!(db.get(&row.key).unwrap().as_ref(), Some(row));
        }
    };
    expect(&db);
    db.close().unwrap();
    let db = Database::open(&path, options()).unwrap();
    expect(&db);
    db.compact().unwrap();
    expect(&db);
    let hits = db.query(strings[70].as_str(), 10_000).unwrap();
    assert_eq!(hits.len(), strings.len());
    for hit in hits {
        let n: usize = hit.key.parse().unwrap();
        assert_eq!(hit.text.as_ref(), Some(&strings[n]));
    }
}

/// A rebuild uses the model registered last, whatever the clock said at the time.
#[test]
fn a_clock_that_goes_backwards_changes_nothing() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    let new = CreateOptions::vectors(DIM, METRIC);
    let db = Database::create(&path, &new, options()).unwrap();
    let ids = [0, 1].map(|n| mopqdb::register_model(&path, &models.0[n]).unwrap());
    // The second model has an older time than the first, and so have all files of the database.
    let set = |path: &std::path::Path, time: SystemTime| {
        let file = std::fs::File::open(path).unwrap();
        file.set_modified(time).unwrap();
    };
    let now = SystemTime::now();
    let years = Duration::from_secs(20 * 365 * 86_400);
    set(&path.join("models").join(ids[0].to_string()), now + years);
    set(&path.join("models").join(ids[1].to_string()), now - years);
    let step = Step::Insert(vec![("a".into(), vec![0.5; DIM])]);
    models.run(&db, &step).unwrap();
    let mut listed = mopqdb::models(&path).unwrap();
    listed.retain(|model| !model.exact);
    assert_eq!(listed.iter().map(|m| m.id).collect::<Vec<_>>(), ids);
    db.rebuild(&mopqdb::RebuildOptions::default()).unwrap();
    assert_eq!(db.model().id(), Some(ids[1]), "the newest is used");
    db.close().unwrap();
    for folder in ["", "segments", "logs"] {
        for (n, entry) in (std::fs::read_dir(path.join(folder)).unwrap()).enumerate() {
            let time = if n % 2 == 0 {
                now + years
            } else {
                SystemTime::UNIX_EPOCH
            };
            set(&entry.unwrap().path(), time);
        }
    }
    let db = Database::open(&path, options()).unwrap();
    assert!(db.warnings().is_empty(), "{:?}", db.warnings());
    let mut world = World::default().after(&step);
    world.model = Some(1);
    models.check(&db.snapshot(), &[world]);
}

/// `segments` is on another file system, as in a large database, so that staged files can't be renamed into it.
/// renamed into it.
#[test]
fn a_rebuild_works_if_segments_and_staged_files_are_on_different_file_systems() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    models.create(&path);
    let Some(_mounted) = Mounted::new(&path.join("segments"), "size=8m") else {
        return;
    };
    let db = Database::open(&path, options()).unwrap();
    let mut random = Random::new(1203);
    let mut world = World::default();
    let mut insert = |from: usize| {
        let rows = (from..from + 9).map(|n| (format!("k{n}"), random.vector(DIM)));
        Step::Insert(rows.collect())
    };
    for step in [
        insert(0),
        Step::Seal,
        insert(5),
        Step::Rebuild(0),
        insert(20),
        Step::Delete(vec!["k3".into()]),
        Step::Rebuild(1),
        Step::Compact,
    ] {
        models.run(&db, &step).unwrap();
        world = world.after(&step);
        models.check(&db.snapshot(), std::slice::from_ref(&world));
    }
    db.close().unwrap();
    let found = mopqdb::verify(&path, &VerifyOptions::default()).unwrap();
    assert!(found.problems.is_empty(), "{:?}", found.problems);
    let db = Database::open(&path, Options::default()).unwrap();
    models.check(&db.snapshot(), &[world]);
}
