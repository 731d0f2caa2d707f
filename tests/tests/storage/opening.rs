//! Opening a database after a crash, on a bad disk, or after mistakes of a user.

use mopqdb::{Database, Error, Metric, Options, Reader};
use mopqdb_tests::support::{keys, put, small, vectors};
use std::fs;
use std::path::{Path, PathBuf};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A database with a sealed segment, deletions in it, and rows in the log.
fn sample(dir: &Path) -> PathBuf {
    let path = dir.join("db");
    let db = vectors(&path, 1, Metric::Ip);
    db.insert(&[put("a", &[1.0]), put("b", &[2.0]), put("c", &[3.0])])
        .unwrap();
    db.seal().unwrap();
    db.delete(&["b"]).unwrap();
    db.seal().unwrap();
    db.insert(&[put("d", &[4.0])]).unwrap();
    path
}

fn all(db: &Database) -> Vec<String> {
    db.query(&[1.0], 99)
        .unwrap()
        .into_iter()
        .map(|hit| hit.key)
        .collect()
}

fn newest_manifest(path: &Path) -> PathBuf {
    let names = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    names
        .filter(|p| {
            p.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("MANIFEST-")
        })
        .max()
        .unwrap()
}

#[test]
fn a_database_that_was_not_closed_opens_with_everything_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = vectors(&path, 1, Metric::Ip);
    db.insert(&[put("a", &[1.0]), put("b", &[2.0])]).unwrap();
    db.seal().unwrap();
    db.insert(&[put("c", &[3.0]), put("a", &[9.0])]).unwrap();
    db.delete(&["b"]).unwrap();
    // A killed process leaves what is on disk now.
    let killed = dir.path().join("killed");
    copy(&path, &killed);
    drop(db);
    for round in 0..3 {
        let db = Database::open(&killed, small()).unwrap();
        assert!(
            db.warnings().is_empty(),
            "round {round}: {:?}",
            db.warnings()
        );
        assert_eq!(all(&db), ["a", "c"], "round {round}");
    }
}

#[test]
fn a_torn_tail_is_moved_aside_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = vectors(&path, 1, Metric::Ip);
    db.insert(&[put("a", &[1.0])]).unwrap();
    let killed = dir.path().join("killed");
    copy(&path, &killed);
    drop(db);
    let log = fs::read_dir(killed.join("logs"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut bytes = fs::read(&log).unwrap();
    bytes.extend([7; 100]);
    fs::write(&log, bytes).unwrap();
    assert_eq!(
        keys(
            &Reader::open(&killed, small())
                .unwrap()
                .query(&[1.0], 9)
                .unwrap()
        ),
        ["a"]
    );
    let db = Database::open(&killed, small()).unwrap();
    assert!(
        db.warnings()[0].contains("100 bytes"),
        "{:?}",
        db.warnings()
    );
    assert_eq!(all(&db), ["a"]);
    drop(db);
    assert!(fs::read_dir(killed.join("orphans")).unwrap().count() == 1);
    assert!(
        Database::open(&killed, small())
            .unwrap()
            .warnings()
            .is_empty(),
        "reported once"
    );
}

#[test]
fn a_missing_damaged_or_outdated_catalog_is_restored_from_the_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample(dir.path());
    let older = dir.path().join("older");
    copy(&path, &older);
    let db = Database::open(&path, small()).unwrap();
    db.delete(&["c"]).unwrap();
    db.seal().unwrap();
    drop(db);
    for what in ["gone", "garbage", "behind"] {
        let broken = dir.path().join(what);
        copy(&path, &broken);
        let catalog = broken.join("catalog");
        match what {
            "gone" => fs::remove_dir_all(&catalog).unwrap(),
            "behind" => {
                fs::remove_dir_all(&catalog).unwrap();
                copy(&older.join("catalog"), &catalog);
            }
            _ => {
                for entry in fs::read_dir(&catalog).unwrap() {
                    let file = entry.unwrap().path();
                    if file.is_file() {
                        fs::write(&file, vec![0xa5; 4096]).unwrap();
                    }
                }
            }
        }
        let db = Database::open(&broken, small()).unwrap();
        assert!(
            db.warnings().iter().any(|w| w.contains("catalog")),
            "{what}: {:?}",
            db.warnings()
        );
        assert_eq!(all(&db), ["d", "a"], "{what}");
        drop(db);
        let again = Database::open(&broken, small()).unwrap();
        assert!(
            again.warnings().is_empty(),
            "{what}: {:?}",
            again.warnings()
        );
    }
}

#[test]
fn a_missing_or_damaged_manifest_is_restored_from_the_catalog() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample(dir.path());
    for what in ["gone", "all gone", "flipped", "empty"] {
        let broken = dir.path().join(what);
        copy(&path, &broken);
        let manifest = newest_manifest(&broken);
        match what {
            "gone" => fs::remove_file(&manifest).unwrap(),
            "empty" => fs::write(&manifest, "").unwrap(),
            "flipped" => {
                let mut bytes = fs::read(&manifest).unwrap();
                *bytes.last_mut().unwrap() ^= 4;
                fs::write(&manifest, bytes).unwrap();
            }
            _ => {
                for entry in fs::read_dir(&broken).unwrap() {
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
            }
        }
        let db = Database::open(&broken, small()).unwrap();
        assert!(
            db.warnings().iter().any(|w| w.contains("manifest")),
            "{what}: {:?}",
            db.warnings()
        );
        assert_eq!(all(&db), ["d", "c", "a"], "{what}");
    }
}

#[test]
fn a_lost_version_is_never_replaced_by_an_older_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample(dir.path());
    fs::remove_dir_all(path.join("catalog")).unwrap();
    let manifest = newest_manifest(&path);
    let bytes = fs::read(&manifest).unwrap();
    fs::write(&manifest, &bytes[..bytes.len() - 1]).unwrap();
    let error = Database::open(&path, small()).unwrap_err();
    assert!(
        matches!(error, Error::Corrupt(_)) && error.to_string().contains("repair"),
        "{error}"
    );
    let error = Reader::open(&path, small()).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
}

#[test]
fn damage_to_any_file_of_a_segment_is_an_error_and_never_a_wrong_answer() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample(dir.path());
    for entry in fs::read_dir(path.join("segments")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let broken = dir.path().join(&name);
        copy(&path, &broken);
        let file = broken.join("segments").join(&name);
        let bytes = fs::read(&file).unwrap();
        for damage in ["flip", "cut", "longer"] {
            let mut bytes = bytes.clone();
            match damage {
                "flip" => {
                    let middle = bytes.len() / 3;
                    bytes[middle] ^= 1;
                }
                "cut" => bytes.truncate(bytes.len() - 1),
                _ => bytes.push(0),
            }
            fs::remove_file(&file).unwrap();
            fs::write(&file, &bytes).unwrap();
            let outcome = Reader::open(&broken, small()).and_then(|reader| {
                let hits = reader.query(&[1.0], 99)?;
                for hit in &hits {
                    reader.get(&hit.key)?;
                }
                reader.get("b")?;
                Ok(keys(&hits) == ["d", "c", "a"])
            });
            match outcome {
                Err(Error::Corrupt(c)) => assert!(c.file.ends_with(&name), "{damage} {name}: {c}"),
                // `verify` finds the bytes that this test does not read.
                Ok(right) => assert!(
                    right && damage == "flip",
                    "{damage} of {name} was not detected"
                ),
                Err(other) => panic!("{damage} {name}: {other}"),
            }
        }
    }
}

#[test]
fn a_directory_that_is_not_a_database_is_refused_with_a_message() {
    let dir = tempfile::tempdir().unwrap();
    for error in [
        Database::open(dir.path(), small()).unwrap_err(),
        Reader::open(dir.path(), small()).unwrap_err(),
    ] {
        assert!(
            error.to_string().contains("not a mopqdb database"),
            "{error}"
        );
    }
    assert!(Reader::open(dir.path().join("nowhere"), Options::default()).is_err());
    assert!(Database::open(dir.path().join("nowhere"), Options::default()).is_err());
    assert!(
        !dir.path().join("nowhere").exists(),
        "opening creates nothing"
    );
}
