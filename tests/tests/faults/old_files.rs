//! Databases of every format version are opened; the error for a newer one names its version.

use crate::scratch;
use crate::world::{DIM, Models, Step, options};
use mopqdb::bundle::tiny_bundle;
use mopqdb::quantizer::TrainPq;
use mopqdb::{
    ColumnType, CreateOptions, Database, Error, Filter, Hit, LearnOptions, Metric, Precision,
    QueryOptions, Reader, RebuildOptions, Row, Search, Serving,
};
use mopqdb_tests::recording::copy_dir;
use mopqdb_tests::support::{Random, keys};
use std::path::{Path, PathBuf};

fn fixture(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/format-{version}"))
}

/// Makes the contents of the fixture of version 1, which the first engine of that version wrote. The fixture itself
/// never changes.
fn make(models: &Models, path: &Path) {
    models.create(path);
    let db = Database::open(path, options()).unwrap();
    let mut random = Random::new(1);
    let mut insert = |range: std::ops::Range<usize>| {
        let rows = range.map(|n| (format!("key {n}"), random.vector(DIM)));
        Step::Insert(rows.collect())
    };
    let steps = [
        insert(0..20),
        Step::Rebuild(0),
        insert(20..40),
        Step::Seal,
        Step::Delete(vec!["key 3".into(), "key 30".into()]),
        Step::Seal,
        insert(40..44),
        Step::Delete(vec!["key 5".into()]),
    ];
    for step in &steps {
        models.run(&db, step).unwrap();
    }
    db.close().unwrap();
}

#[test]
#[ignore = "writes the fixture of a new format version; by hand"]
fn write_the_fixture() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    make(&models, &path);
    let db = Database::open(&path, options()).unwrap();
    let by_codes = QueryOptions::top(5).search(Search::Codes);
    let hits = db.query_with(&[1.0; DIM], &by_codes).unwrap();
    println!("{hits:?}");
    drop(db);
    // sled's own file is half a megabyte of zeros and can be restored: opening without it is guaranteed.
    std::fs::remove_dir_all(path.join("catalog")).unwrap();
    std::fs::remove_file(path.join("LOCK")).unwrap();
    let _ = std::fs::remove_file(path.join("prepare.lock"));
    copy_dir(&path, &fixture(1));
}

/// Makes the contents of the fixtures of version 2: vectors compared by cosine and stored as bytes, with norms, codes
/// and settings of queries; and texts with an index of words.
fn make_2(path: &Path, texts: &Path) {
    let new = CreateOptions::vectors(DIM, Metric::Cosine).store(Precision::I8);
    let db = Database::create(path, &new, options()).unwrap();
    let mut random = Random::new(2);
    let rows: Vec<Row> = (0..44)
        .map(|n| Row::vector(format!("key {n}"), random.vector(DIM)))
        .collect();
    db.insert(&rows[..40]).unwrap();
    let codes = TrainPq::default().subspaces(4).codewords(16).seed(2);
    let model = db.learn(&LearnOptions::default().pq(codes)).unwrap();
    db.rebuild(&RebuildOptions::default().model(model)).unwrap();
    db.serve(Serving::new(5, 20).unwrap()).unwrap();
    db.delete(&["key 3", "key 30"]).unwrap();
    db.insert(&rows[40..]).unwrap();
    db.close().unwrap();

    let new = CreateOptions::bundle(tiny_bundle());
    let db = Database::create(texts, &new, options()).unwrap();
    let animals = ["ant", "bee", "cat", "dog"];
    let text = |n: usize| format!("{} and {}s", animals[n % 4], animals[n / 4 % 4]);
    let rows: Vec<Row> = (0..20)
        .map(|n| Row::text(format!("text {n}"), text(n)))
        .collect();
    db.insert(&rows).unwrap();
    db.seal().unwrap();
    db.insert(&[Row::text("last", "one more ant")]).unwrap();
    db.close().unwrap();
}

#[test]
#[ignore = "writes the fixtures of format 2; by hand"]
fn write_the_fixtures_of_format_2() {
    let dir = scratch();
    let (vectors, texts) = (dir.path().join("vectors"), dir.path().join("texts"));
    make_2(&vectors, &texts);
    println!("{:?}", told(&answers_2(&vectors, &texts)));
    for (made, name) in [(vectors, "format-2"), (texts, "format-2-texts")] {
        std::fs::remove_dir_all(made.join("catalog")).unwrap();
        for file in ["LOCK", "prepare.lock", "RESERVE"] {
            let _ = std::fs::remove_file(made.join(file));
        }
        let place = fixture(2).with_file_name(name);
        let _ = std::fs::remove_dir_all(&place);
        copy_dir(&made, &place);
    }
}

/// What the fixture with columns was made of: columns of every type, one that was retyped and one that was dropped, in a segment
/// and in the log.
fn make_columns(path: &Path) {
    let new = CreateOptions::vectors(2, Metric::Ip).column("at", ColumnType::Timestamp);
    let db = Database::create(path, &new, options()).unwrap();
    let langs = ["de", "en", "größe"];
    let row = |n: i64| {
        let row = Row::vector(format!("key {n}"), [n as f32, 1.0])
            .set("year", 2000 + n)
            .set("gone", "x")
            .set("half", n as f64 / 2.0);
        match n % 3 {
            0 => row
                .set("lang", langs[n as usize / 3 % 3])
                .set("open", n % 2 == 0),
            1 => row.set("tags", vec!["a", "b", "c"][..n as usize % 4].to_vec()),
            _ => row.set("at", "2024-05-01T12:00:00Z"),
        }
    };
    db.insert(&(0..20).map(row).collect::<Vec<_>>()).unwrap();
    db.seal().unwrap();
    db.delete(&["key 3", "key 17"]).unwrap();
    db.retype_column("year", ColumnType::Float).unwrap();
    db.drop_column("gone").unwrap();
    let late = |n: i64| Row::vector(format!("key {n}"), [n as f32, 1.0]).set("year", 0.5);
    db.insert(&[late(30), late(2).set("new", true)]).unwrap();
    db.close().unwrap();
}

/// Every row of it, as text.
fn told_columns(path: &Path) -> String {
    let reader = Reader::open(path, options()).unwrap();
    let columns = reader.columns();
    let columns = columns.iter().map(|c| format!("{} {}", c.name, c.kind));
    let mut told = columns.collect::<Vec<_>>().join(", ");
    for filter in [
        "year >= 2010 AND open IS NOT TRUE",
        "lang > 'de' OR tags HAS 'a'",
        "at = '2024-05-01T14:00:00+02:00' AND NOT half < 4",
        "new OR key LIKE '%9'",
    ] {
        let filter = Filter::sql(filter).unwrap();
        told += &format!("\n{}:", reader.count_where(&filter).unwrap());
        for row in reader.rows().among(&filter).unwrap() {
            let row = row.unwrap();
            told += &format!(" {}", row.key);
            for (name, value) in row.columns {
                told += &format!(" {name}={}", value.to_json());
            }
        }
    }
    told
}

#[test]
#[ignore = "writes the fixture of columns; by hand"]
fn write_the_fixture_of_columns() {
    let dir = scratch();
    let path = dir.path().join("db");
    make_columns(&path);
    std::fs::remove_dir_all(path.join("catalog")).unwrap();
    for file in ["LOCK", "prepare.lock", "RESERVE"] {
        let _ = std::fs::remove_file(path.join(file));
    }
    let place = fixture(2).with_file_name("format-2-columns");
    let _ = std::fs::remove_dir_all(&place);
    copy_dir(&path, &place);
    std::fs::write(place.join("told.txt"), told_columns(&path)).unwrap();
}

#[test]
fn columns_of_format_2_are_read_for_ever() {
    let dir = scratch();
    let path = dir.path().join("db");
    let made = fixture(2).with_file_name("format-2-columns");
    copy_dir(&made, &path);
    for empty in ["staging", "orphans", "runs", "models"] {
        std::fs::create_dir_all(path.join(empty)).unwrap();
    }
    let expected = std::fs::read_to_string(made.join("told.txt")).unwrap();
    assert_eq!(told_columns(&path), expected);
    let db = Database::open(&path, options()).unwrap();
    db.compact().unwrap();
    assert!(db.verify(&Default::default()).unwrap().is_sound());
    assert_eq!(told_columns(&path), expected);
}

/// Returns answers of both databases that need no encoder.
fn answers_2(vectors: &Path, texts: &Path) -> [Vec<Hit>; 3] {
    let reader = Reader::open(vectors, options()).unwrap();
    let by_codes = QueryOptions::top(5).search(Search::Codes);
    let by_words = QueryOptions::top(5).search(Search::Words);
    [
        reader.query_with(&[1.0; DIM], &by_codes).unwrap(),
        reader.query(&[1.0; DIM], 5).unwrap(),
        (Reader::open(texts, options()).unwrap())
            .query_with("an ant, two dogs", &by_words)
            .unwrap(),
    ]
}

fn told(answers: &[Vec<Hit>; 3]) -> Vec<(String, u32)> {
    let hits = answers.iter().flatten();
    hits.map(|hit| (hit.key.clone(), hit.score.to_bits()))
        .collect()
}

#[test]
fn databases_of_format_2_always_give_the_same_bits() {
    let dir = scratch();
    let [vectors, texts] = ["format-2", "format-2-texts"].map(|name| {
        let path = dir.path().join(name);
        copy_dir(&fixture(2).with_file_name(name), &path);
        for empty in ["staging", "orphans", "runs"] {
            std::fs::create_dir_all(path.join(empty)).unwrap();
        }
        path
    });
    let expected: Vec<(String, u32)> = EXPECTED_2.map(|(key, score)| (key.into(), score)).into();
    assert_eq!(told(&answers_2(&vectors, &texts)), expected);
    for path in [&vectors, &texts] {
        let db = Database::open(path, options()).unwrap();
        assert_eq!(db.format(), 2);
        db.compact().unwrap();
        assert!(db.verify(&Default::default()).unwrap().is_sound());
    }
    assert_eq!(told(&answers_2(&vectors, &texts)), expected);
    let db = Database::open(&vectors, options()).unwrap();
    let (_, explained) = (db.snapshot())
        .query_explained(&[(&[1.0; DIM]).into()], &QueryOptions::top(5))
        .unwrap();
    assert_eq!(
        explained.candidates,
        Some(20),
        "the settings of queries are preserved"
    );
}

#[test]
fn a_database_of_format_1_is_read_written_and_rebuilt() {
    let dir = scratch();
    let path = dir.path().join("db");
    copy_dir(&fixture(1), &path);
    for empty in ["staging", "orphans"] {
        std::fs::create_dir_all(path.join(empty)).unwrap();
    }
    let expected = EXPECTED;
    let reader = Reader::open(&path, options()).unwrap();
    let by_codes = QueryOptions::top(5).search(Search::Codes);
    let hits = reader.query_with(&[1.0; DIM], &by_codes).unwrap();
    assert_eq!(keys(&hits), expected.map(|(key, _)| key));
    assert_eq!(
        hits.iter()
            .map(|hit| hit.score.to_bits())
            .collect::<Vec<_>>(),
        expected.map(|(_, score)| f32::to_bits(score)),
        "codes and scores are the same bits for ever"
    );
    assert_eq!(reader.snapshot().rows(), 41);
    let exact = QueryOptions::top(5).search(Search::Exact);
    let rescored = reader.query(&[1.0; DIM], 5).unwrap();
    assert_eq!(rescored, reader.query_with(&[1.0; DIM], &exact).unwrap());
    let db = Database::open(&path, options()).unwrap();
    assert_eq!(db.query_with(&[1.0; DIM], &by_codes).unwrap(), hits);
    assert_eq!(db.query(&[1.0; DIM], 5).unwrap(), rescored);
    assert!(db.get("key 3").unwrap().is_none() && db.get("key 5").unwrap().is_none());
    db.compact().unwrap();
    assert_eq!(db.query_with(&[1.0; DIM], &by_codes).unwrap(), hits);
    assert_eq!(db.query(&[1.0; DIM], 5).unwrap(), rescored);
    let other = mopqdb::models(&path)
        .unwrap()
        .into_iter()
        .find(|m| !m.active && !m.exact)
        .unwrap();
    db.rebuild(&mopqdb::RebuildOptions::default().model(Some(other.id)))
        .unwrap();
    assert_eq!(db.snapshot().rows(), 41);
}

#[test]
fn a_database_of_format_1_keeps_its_format_until_it_is_changed() {
    let dir = scratch();
    let path = dir.path().join("db");
    copy_dir(&fixture(1), &path);
    for empty in ["staging", "orphans"] {
        std::fs::create_dir_all(path.join(empty)).unwrap();
    }
    let manifest = |n: u32| std::fs::read(path.join(format!("MANIFEST-{n:010}")));
    let before = manifest(5).unwrap();
    assert_eq!(before[8..12], [1, 0, 0, 0]);
    let db = Database::open(&path, options()).unwrap();
    assert_eq!(db.format(), 1);
    db.query(&[1.0; DIM], 5).unwrap();
    db.close().unwrap();
    assert_eq!(manifest(5).unwrap(), before);
    assert!(manifest(6).is_err(), "opening and closing changes nothing");

    let db = Database::open(&path, options()).unwrap();
    let rows = db.snapshot().rows();
    db.insert(&[mopqdb::Row::vector("new", [0.5; DIM])])
        .unwrap();
    assert_eq!(db.format(), mopqdb::FORMAT);
    let after = manifest(6).unwrap();
    assert_eq!(after[8..12], [2, 0, 0, 0]);
    assert_eq!(db.snapshot().rows(), rows + 1);
    drop(db);
    let db = Database::open(&path, options()).unwrap();
    assert_eq!(db.snapshot().rows(), rows + 1);
    let reader = Reader::open(&path, options()).unwrap();
    let query = [1.0; DIM];
    assert_eq!(
        reader.query(&query, 5).unwrap(),
        db.query(&query, 5).unwrap()
    );
}

/// The five best rows of the fixture as the engine that wrote it found them: keys, and scores as bits, by codes,
/// rescored, and by words.
const EXPECTED_2: [(&str, u32); 15] = [
    ("key 41", 1058015784),
    ("key 28", 1055393396),
    ("key 9", 1055337154),
    ("key 32", 1054841892),
    ("key 13", 1054180481),
    ("key 41", 1057643775),
    ("key 28", 1056473915),
    ("key 13", 1054821831),
    ("key 9", 1054604899),
    ("key 12", 1052690919),
    ("text 3", 1069684170),
    ("text 12", 1069684170),
    ("text 19", 1069684170),
    ("text 15", 1067933488),
    ("text 7", 1064530734),
];

const EXPECTED: [(&str, f32); 5] = [
    ("key 20", 1.0945417),
    ("key 40", 0.91595155),
    ("key 0", 0.8674964),
    ("key 25", 0.7512145),
    ("key 41", 0.71310157),
];

#[test]
fn the_error_for_a_file_of_a_newer_version_names_the_version() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let template = dir.path().join("db");
    make(&models, &template);
    // Version 3 is written into the header of each kind of file, with a valid checksum.
    let mut kinds = 0;
    for (folder, wanted) in [("", "MANIFEST-"), ("logs", ".log")] {
        let copy = scratch();
        let path = copy.path().join("db");
        copy_dir(&template, &path);
        let mut names: Vec<_> = (std::fs::read_dir(path.join(folder)).unwrap())
            .map(|entry| entry.unwrap().path())
            .filter(|p| p.file_name().unwrap().to_string_lossy().contains(wanted))
            .collect();
        names.sort();
        let file = names.last().unwrap();
        let mut bytes = std::fs::read(file).unwrap();
        bytes[8] = 3;
        let seed = if folder == "logs" {
            u64::from_le_bytes(bytes[16..24].try_into().unwrap())
        } else {
            0
        };
        let sum = mopqdb_tests::header_sum(seed, &bytes[..56]);
        bytes[56..64].copy_from_slice(&sum.to_le_bytes());
        std::fs::write(file, bytes).unwrap();
        for error in [
            Reader::open(&path, options()).unwrap_err(),
            Database::open(&path, options()).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Incompatible { .. }), "{error}");
            assert!(error.to_string().contains("version 3"), "{error}");
            assert!(error.to_string().contains("newer mopqdb"), "{error}");
        }
        kinds += 1;
    }
    assert_eq!(kinds, 2);
}
