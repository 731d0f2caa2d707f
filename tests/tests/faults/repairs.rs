//! Random damage to random databases, then `repair`: every readable row is there, no file with rows is deleted, and a
//! second repair has nothing to do.

use crate::world::{Models, Step, World, held_with, options, script};
use crate::{Case, report, scratch, torture};
use mopqdb::Value;
use mopqdb::testing::disk::Disk;
use mopqdb::testing::segment::{FileName, RowsFile};
use mopqdb::{ColumnValue, Database, RepairOptions, Row, VerifyOptions, read_rows, repair, verify};
use mopqdb_tests::support::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn deep() -> VerifyOptions {
    VerifyOptions::default().deep(true)
}

/// A kind of damage.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Harm {
    Remove(PathBuf),
    Cut(PathBuf, usize),
    Flip(PathBuf, usize),
    Scramble(PathBuf, usize, usize),
    Extend(PathBuf),
    Swap(PathBuf, PathBuf),
    /// Replaces a file by a directory.
    Replace(PathBuf),
}

impl Harm {
    fn files(&self) -> Vec<&Path> {
        match self {
            Self::Swap(a, b) => vec![a, b],
            Self::Remove(a)
            | Self::Cut(a, _)
            | Self::Flip(a, _)
            | Self::Scramble(a, ..)
            | Self::Extend(a)
            | Self::Replace(a) => vec![a],
        }
    }

    fn of(random: &mut Random, files: &[PathBuf]) -> Option<Self> {
        let path = files[random.below(files.len())].clone();
        let len = fs::metadata(&path).ok()?.len() as usize;
        if len == 0 {
            return None;
        }
        Some(match random.below(10) {
            0 => Self::Remove(path),
            1 => Self::Cut(path, random.below(len)),
            2..5 => Self::Flip(path, random.below(len * 8)),
            5..7 => {
                let start = random.below(len);
                Self::Scramble(path, start, (1 + random.below(600)).min(len - start))
            }
            7 => Self::Extend(path),
            8 => {
                let same: Vec<_> = (files.iter())
                    .filter(|other| other.extension() == path.extension() && **other != path)
                    .collect();
                if same.is_empty() || path.extension().is_none() {
                    return None;
                }
                let other = same[random.below(same.len())].clone();
                Self::Swap(path, other)
            }
            _ => Self::Replace(path),
        })
    }

    fn apply(&self, random: &mut Random) {
        let change = |path: &Path, change: &mut dyn FnMut(&mut Vec<u8>)| {
            let mut bytes = fs::read(path).unwrap();
            change(&mut bytes);
            fs::remove_file(path).unwrap();
            fs::write(path, bytes).unwrap();
        };
        match self {
            Self::Remove(path) => fs::remove_file(path).unwrap(),
            Self::Cut(path, len) => change(path, &mut |bytes| bytes.truncate(*len)),
            Self::Flip(path, bit) => change(path, &mut |bytes| bytes[bit / 8] ^= 1 << (bit % 8)),
            Self::Scramble(path, at, len) => change(path, &mut |bytes| {
                bytes[*at..at + len]
                    .iter_mut()
                    .for_each(|byte| *byte = random.bits() as u8);
            }),
            Self::Extend(path) => change(path, &mut |bytes| bytes.resize(bytes.len() + 777, 0)),
            Self::Swap(a, b) => {
                let aside = a.with_extension("aside");
                fs::rename(a, &aside).unwrap();
                fs::rename(b, a).unwrap();
                fs::rename(&aside, b).unwrap();
            }
            Self::Replace(path) => {
                fs::remove_file(path).unwrap();
                fs::create_dir(path).unwrap();
            }
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Returns the files that may be damaged: all except locks, sled's files, and the numbers of models.
fn files(db: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for dir in ["segments", "logs", ""] {
        for entry in fs::read_dir(db.join(dir)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_file() && (!dir.is_empty() || name.starts_with("MANIFEST")) {
                found.push(path);
            }
        }
    }
    for entry in fs::read_dir(db.join("models")).into_iter().flatten() {
        // A flipped digit in a bundle's manifest may look like a newer version, which is refused.
        let tensors = entry.unwrap().path().join("tensors.safetensors");
        found.extend(Some(tensors).filter(|path| path.is_file()));
    }
    found.sort();
    found
}

/// Returns the rows that a reader could return from the damaged rows files: from `Seq` to key and vector.
fn readable(db: &Path) -> BTreeMap<u64, (String, Vec<f32>)> {
    let mut rows = BTreeMap::new();
    for path in files(db) {
        // Under any name.
        let Ok(bytes) = fs::read(&path) else { continue };
        let twin = db.with_extension("twin");
        fs::write(&twin, bytes).unwrap();
        if let Ok(file) = RowsFile::open(&Disk::default(), &twin) {
            for row in 0..file.row_count() {
                if let Ok(Some(row)) = file.cursor_at(row..row + 1).next()
                    && let Value::Vector(vector) = row.value.given()
                {
                    rows.insert(row.seq.0, (row.key.to_owned(), vector));
                }
            }
        }
        fs::remove_file(&twin).unwrap();
    }
    rows
}

/// Returns the contents of all files with rows, wherever they are.
fn rows_files(db: &Path) -> BTreeSet<Vec<u8>> {
    let mut found = BTreeSet::new();
    for dir in ["segments", "orphans"] {
        for entry in fs::read_dir(db.join(dir)).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_file() && name.contains(".rows") {
                found.insert(fs::read(path).unwrap());
            }
        }
    }
    found
}

fn rows_of(db: &Database) -> BTreeMap<String, Vec<f32>> {
    rows_and_lost(db, &|_| false)
}

/// The rows of a database, of which some may miss values of columns. No row has another value.
fn rows_and_lost(db: &Database, may_miss: &dyn Fn(&str) -> bool) -> BTreeMap<String, Vec<f32>> {
    let check = |expected: &Row, found: &BTreeMap<String, ColumnValue>| {
        let key = &expected.key;
        for (name, value) in found {
            assert_eq!(expected.columns.get(name), Some(value), "{name} of {key}");
        }
        let whole = found.len() == expected.columns.len();
        assert!(whole || may_miss(key), "{key} has {found:?}");
    };
    let (rows, count) = held_with(&db.snapshot(), check).unwrap();
    assert_eq!(rows.len(), count, "no key twice");
    rows
}

/// Returns a database after a random script, closed, with its expected contents.
fn sample(models: &Models, path: &Path, seed: u64) -> World {
    models.create(path);
    let mut world = World::default();
    let mut db = Database::open(path, options()).unwrap();
    for step in script(seed, 30) {
        if let Step::Reopen = step {
            db.close().unwrap();
            db = Database::open(path, options()).unwrap();
        } else {
            models.run(&db, &step).unwrap();
        }
        world = world.after(&step);
    }
    db.close().unwrap();
    world
}

#[test]
fn repair_keeps_every_readable_row_after_any_damage() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let databases = if torture() { 100 } else { 16 };
    let harms_each = if torture() { 100 } else { 40 };
    let mut tried = 0;
    for seed in 0..databases {
        let path = dir.path().join("db");
        let world = sample(&models, &path, 500 + seed);
        let whole = readable(&path);
        for harm in 0..harms_each {
            let mut random = Random::quiet(9000 + seed * 1000 + harm);
            let broken = dir.path().join("broken");
            copy(&path, &broken);
            let mut harms = Vec::new();
            for _ in 0..1 + random.below(3) {
                let all = files(&broken);
                if let Some(harm) = Harm::of(&mut random, &all) {
                    harm.apply(&mut random);
                    harms.push(harm);
                }
            }
            let forgetful = random.below(4) == 0;
            if forgetful {
                fs::remove_dir_all(broken.join("catalog")).unwrap();
            }
            let _case = Case(format!(
                "database {seed}, harm {harm}, without catalog {forgetful}: {harms:?}"
            ));
            check(&broken, &world, &whole, &harms);
            fs::remove_dir_all(&broken).unwrap();
            tried += 1;
        }
        fs::remove_dir_all(&path).unwrap();
    }
    report(tried, "damaged databases repaired");
}

fn check(broken: &Path, world: &World, whole: &BTreeMap<u64, (String, Vec<f32>)>, harms: &[Harm]) {
    let before = rows_files(broken);
    let readable = readable(broken);
    let kept = |what: &str| {
        let after = rows_files(broken);
        assert!(before.is_subset(&after), "a file with rows is gone {what}");
    };
    // First without accepting loss, then with it.
    let first = repair(broken, &RepairOptions::default()).unwrap();
    kept("after a repair that loses nothing");
    let accept = RepairOptions::default().accept_loss(true);
    let mut repaired = first.clone();
    if !first.is_whole() {
        assert!(first.rows.is_none() && first.lost.is_empty(), "{first:?}");
        repaired = repair(broken, &accept).unwrap();
        assert!(!repaired.lost.is_empty(), "{first:?} {repaired:?}");
    }
    assert!(repaired.pending.is_empty(), "{repaired:?}");
    kept("after a repair");
    let db = Database::open(broken, options()).unwrap();
    kept("after opening a repaired database");
    let names = |file: &Path| file.file_name().unwrap().to_str().unwrap().to_owned();
    let harmed: Vec<String> = (harms.iter())
        .flat_map(|harm| harm.files().into_iter().map(names).collect::<Vec<_>>())
        .collect();
    // Values are missing only if their keys are told, or if it is lost that there were any.
    let told: BTreeSet<&String> = repaired.lost_keys.iter().collect();
    let forgotten = harmed.iter().any(|name| name.ends_with(".cols"))
        && harmed.iter().any(|name| name.starts_with("MANI"));
    let may_miss = |key: &str| told.contains(&key.to_owned()) || forgotten;
    let rows = rows_and_lost(&db, &may_miss);
    assert_eq!(repaired.rows, Some(rows.len() as u64));
    db.query(&[0.5; crate::world::DIM], 1000).unwrap();
    db.close().unwrap();
    let found = verify(broken, &deep()).unwrap();
    assert!(found.is_sound(), "{:?} after {repaired:?}", found.problems);

    let expected = world.rows();
    // Every live row that a reader could return is there.
    for (seq, (key, vector)) in &readable {
        if whole.get(seq) == Some(&(key.clone(), vector.clone()))
            && expected.get(key.as_str()) == Some(&vector.as_slice())
        {
            assert_eq!(rows.get(key), Some(vector), "{key} of {seq}: {repaired:?}");
        }
    }
    // One flipped bit loses nothing, wherever it is, as long as one witness holds the version.
    let catalog = broken.join("orphans/catalog").exists();
    if harms.iter().all(|harm| matches!(harm, Harm::Flip(..))) && distinct(harms) && !catalog {
        assert!(repaired.lost.is_empty(), "{repaired:?}");
        let rows: Vec<_> = rows
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_slice()))
            .collect();
        assert_eq!(rows, expected.clone().into_iter().collect::<Vec<_>>());
    }
    // Nothing is invented: deleted and older rows come back only if what says so is lost.
    let witness_lost = harmed
        .iter()
        .any(|name| name.ends_with(".dels") || name.ends_with(".log") || name.starts_with("MANI"));
    for (key, vector) in &rows {
        if !witness_lost {
            assert_eq!(
                expected.get(key.as_str()),
                Some(&vector.as_slice()),
                "{key}"
            );
        }
    }
    let again = repair(broken, &accept).unwrap();
    assert!(
        again.done.is_empty() && again.is_whole() && again.rows == repaired.rows,
        "a second repair did something: {again:?} after {repaired:?}"
    );
}

/// Returns `true` if no file was damaged twice.
fn distinct(harms: &[Harm]) -> bool {
    let files: BTreeSet<_> = harms.iter().flat_map(Harm::files).collect();
    files.len() == harms.len()
}

#[test]
fn rows_that_were_moved_aside_are_restored() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let mut restored = 0;
    for seed in 0..12 {
        let path = dir.path().join("db");
        let world = sample(&models, &path, 700 + seed);
        let _case = Case(format!("database {seed}"));
        let segments = path.join("segments");
        let rows = files(&path)
            .into_iter()
            .filter_map(|path| FileName::of(&path))
            .find_map(|name| match name {
                FileName::Rows(id) => Some(id),
                _ => None,
            });
        let Some(id) = rows else {
            fs::remove_dir_all(&path).unwrap();
            continue;
        };
        // Someone moves the rows file away, repairs without it, and finds it again.
        let file = FileName::Rows(id).within(&segments);
        let aside = dir.path().join("aside");
        fs::rename(&file, &aside).unwrap();
        let accept = RepairOptions::default().accept_loss(true);
        let repaired = repair(&path, &accept).unwrap();
        assert!(repaired.rows < Some(world.rows().len() as u64) || repaired.is_whole());
        fs::rename(&aside, &file).unwrap();
        // It is not part of the version: a plain repair and an open keep it and report it.
        let kept = repair(&path, &accept).unwrap();
        assert!(
            kept.done.iter().any(|line| line.contains("`restore`")),
            "{kept:?}"
        );
        let back = repair(&path, &accept.clone().restore(true)).unwrap();
        let db = Database::open(&path, options()).unwrap();
        let rows = rows_of(&db);
        for (key, vector) in world.rows() {
            assert_eq!(
                rows.get(key).map(Vec::as_slice),
                Some(vector),
                "{key}: {back:?}"
            );
        }
        db.close().unwrap();
        assert!(verify(&path, &deep()).unwrap().is_sound());
        assert!(
            repair(&path, &accept.restore(true))
                .unwrap()
                .done
                .is_empty()
        );
        restored += 1;
        fs::remove_dir_all(&path).unwrap();
    }
    assert!(restored > 5);
}

#[test]
fn rows_can_be_read_without_model_and_codes() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    let world = sample(&models, &path, 811);
    fs::remove_dir_all(path.join("models")).unwrap();
    for file in files(&path) {
        if file.extension().is_some_and(|e| e == "codes") {
            fs::remove_file(file).unwrap();
        }
    }
    let mut rows = BTreeMap::new();
    let read = read_rows(&path, false, |row| {
        let Value::Vector(vector) = row.value.given() else {
            panic!("a text")
        };
        rows.insert(row.key.to_owned(), vector);
        Ok(())
    })
    .unwrap();
    assert_eq!(read.rows as usize, rows.len());
    let rows: Vec<_> = rows
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_slice()))
        .collect();
    assert_eq!(rows, world.rows().into_iter().collect::<Vec<_>>());
}
