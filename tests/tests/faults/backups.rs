//! A backup that is killed, fails, loses power or fills the disk at any step leaves a complete copy, or something that
//! the next backup recognises and starts over. Until then no one can open it as a database.

use crate::creating::{Quiet, Stopping, kill_when_it_stops};
use crate::flips::{answers, files, sample};
use crate::world::{DIM, Models, World, options};
use crate::{Case, report, scratch, torture};
use mopqdb::testing::backup_on;
use mopqdb::{BackupOptions, CreateOptions, Database, Error, Reader, RepairOptions};
use mopqdb_tests::faulty::{Fault, Faulty};
use mopqdb_tests::mounted::Mounted;
use mopqdb_tests::recording::{CATALOG_STATES, CatalogState, FATES, Recording};
use mopqdb_tests::support::Random;
use mopqdb_tests::watched::Watched;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A database with two models, several segments, deletions, a tail and the record of a training run.
fn source(models: &Models, path: &Path) -> World {
    let world = sample(models, path);
    let run = path.join("runs/mopq-1");
    std::fs::create_dir_all(&run).unwrap();
    std::fs::write(run.join("result.json"), "{}").unwrap();
    std::fs::write(run.join("run.jsonl"), "{\"epoch\": 1}\n").unwrap();
    std::fs::write(run.join("LOCK"), "").unwrap();
    std::fs::create_dir_all(path.join("runs/embeddings")).unwrap();
    std::fs::write(path.join("runs/embeddings/cache"), "derived").unwrap();
    world
}

/// Returns what a copy must contain byte for byte: everything except manifests of old versions, locks and caches.
fn contents(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let newest = files(path)
        .into_iter()
        .map(|(file, bytes)| (file.strip_prefix(path).unwrap().to_path_buf(), bytes));
    let mut newest: BTreeMap<_, _> = newest.collect();
    let is_manifest = |file: &Path| file.to_string_lossy().starts_with("MANIFEST-");
    let manifest = newest.keys().rfind(|file| is_manifest(file)).cloned();
    newest.retain(|file, _| {
        !file.starts_with("runs/embeddings")
            && (!is_manifest(file) || Some(file) == manifest.as_ref())
    });
    newest
}

/// Checks that an unfinished copy is refused with a message, then copies until it is complete. Returns whether it was
/// unfinished.
fn expect_recovery(from: &Path, world: &World, models: &Models, copy: &Path) -> bool {
    let wanted = contents(from);
    let unfinished = copy.join("COPYING").exists() && Reader::open(copy, options()).is_err();
    if unfinished {
        let errors = [
            Reader::open(copy, options()).unwrap_err(),
            Database::open(copy, options()).unwrap_err(),
            mopqdb::repair(copy, &RepairOptions::default()).unwrap_err(),
        ];
        for error in errors {
            let said = error.to_string();
            assert!(
                said.contains("never finished") && said.contains("`backup`"),
                "{said}"
            );
        }
        // Does what `insert` would do with a directory in which a creation was stopped.
        assert!(!Database::is_vacant(copy).unwrap());
        let new = CreateOptions::vectors(DIM, mopqdb::Metric::Ip);
        let error = Database::create(copy, &new, options()).unwrap_err();
        assert!(error.to_string().contains("`backup`"), "{error}");
    }
    let whole = copy.is_dir() && Reader::open(copy, options()).is_ok();
    if !whole {
        mopqdb::backup(from, copy).unwrap();
        assert!(!copy.join("COPYING").exists());
    }
    let error = mopqdb::backup(from, copy).unwrap_err();
    assert!(
        error.to_string().contains("is already a database"),
        "{error}"
    );
    let mut copied = contents(copy);
    copied.remove(Path::new("COPYING"));
    assert_eq!(
        copied.keys().collect::<Vec<_>>(),
        wanted.keys().collect::<Vec<_>>()
    );
    assert!(copied == wanted, "the copy has other bytes");
    let db = Database::open(copy, options()).unwrap();
    assert_eq!(db.warnings(), [""; 0]);
    assert!(!copy.join("COPYING").exists());
    models.check(&db.snapshot(), std::slice::from_ref(world));
    unfinished
}

/// The child process. Under `cargo test` it does nothing.
#[test]
fn child() {
    let Ok(from) = std::env::var("MOPQDB_BACKUP_FROM") else {
        return;
    };
    let nth = std::env::var("MOPQDB_BACKUP_STOP").unwrap();
    let to = std::env::var("MOPQDB_BACKUP_TO").unwrap();
    let files = Watched::disk(Arc::new(Stopping::at(nth.parse().unwrap())));
    let options = BackupOptions::default();
    backup_on(&*files, Path::new(&from), Path::new(&to), &options).unwrap();
    println!("\n#COPIED");
}

fn kill_at(from: &Path, to: &Path, nth: usize) -> String {
    let set = [
        ("MOPQDB_BACKUP_FROM", from.as_os_str().to_owned()),
        ("MOPQDB_BACKUP_TO", to.as_os_str().to_owned()),
        ("MOPQDB_BACKUP_STOP", nth.to_string().into()),
    ];
    kill_when_it_stops("backups::child", set)
}

#[test]
fn a_backup_killed_at_any_call_to_the_disk_is_finished_by_the_next() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let from = dir.path().join("db");
    let world = source(&models, &from);
    let (mut kills, mut unfinished) = (0, 0);
    // The long run tries every call. The short one tries every fourth, and all near the end, where the manifest is
    // written.
    let mut nth = 1;
    loop {
        let copy = dir.path().join(format!("copy-{nth}"));
        let said = kill_at(&from, &copy, nth);
        if said == "#COPIED" {
            break;
        }
        let _case = Case(format!("killed at call {nth}: {said}"));
        unfinished += usize::from(expect_recovery(&from, &world, &models, &copy));
        kills += 1;
        std::fs::remove_dir_all(&copy).unwrap();
        nth += if torture() || said.contains("MANIFEST") || said.contains("COPYING") {
            1
        } else {
            4
        };
    }
    assert!(
        0 < unfinished && unfinished < kills,
        "{unfinished} of {kills}"
    );
    report(
        kills,
        "kills during backup, each followed by a complete copy",
    );
}

#[test]
fn a_backup_killed_twice_is_finished_by_the_third() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let from = dir.path().join("db");
    let world = source(&models, &from);
    let mut random = Random::new(971);
    let kills = if torture() { 300 } else { 12 };
    for n in 0..kills {
        let copy = dir.path().join(format!("copy-{n}"));
        let (first, second) = (6 + random.below(120), 1 + random.below(120));
        let said = [first, second].map(|nth| match Reader::open(&copy, options()) {
            Ok(_) => "it was finished".into(),
            Err(_) => kill_at(&from, &copy, nth),
        });
        let _case = Case(format!("killed at calls {first} and {second}: {said:?}"));
        expect_recovery(&from, &world, &models, &copy);
        std::fs::remove_dir_all(&copy).unwrap();
    }
    report(2 * kills, "kills, two for each backup");
}

#[test]
fn a_backup_can_be_repeated_after_any_failed_call() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let from = dir.path().join("db");
    let world = source(&models, &from);
    let before = files(&from);
    let mut tried = 0;
    for fault in [Fault::Broken, Fault::Full, Fault::Short] {
        for at in 1.. {
            if !torture() && at % 3 != 1 {
                continue;
            }
            let copy = dir.path().join(format!("copy-{fault:?}-{at}"));
            let _case = Case(format!("{fault:?} at call {at}"));
            let faulty = Faulty::new(fault, at, Arc::new(Quiet));
            let disk = Watched::disk(Arc::clone(&faulty) as _);
            let done = backup_on(&*disk, &from, &copy, &BackupOptions::default());
            if !faulty.hit() {
                done.unwrap();
                break;
            }
            if let Err(e) = &done {
                assert!(matches!(e, Error::Io { .. }), "{e}");
            }
            expect_recovery(&from, &world, &models, &copy);
            std::fs::remove_dir_all(&copy).unwrap();
            tried += 1;
        }
    }
    assert!(files(&from) == before, "the database itself changed");
    report(tried, "calls failed during backup");
}

#[test]
fn a_power_cut_during_backup_leaves_a_copy_or_allows_another() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let from = dir.path().join("db");
    let world = source(&models, &from);
    let copy = dir.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    let recording = Arc::new(Recording::of(&copy, &dir.path().join("catalogs")));
    let disk = Watched::disk(Arc::clone(&recording) as _);
    backup_on(&*disk, &from, &copy, &BackupOptions::default()).unwrap();
    let mut random = Random::new(981);
    let (mut tried, mut unfinished) = (0, 0);
    for point in recording.sync_points() {
        for fate in FATES {
            for catalog in CATALOG_STATES {
                if !torture() && random.below(24) > 0 {
                    continue;
                }
                let _case = Case(format!(
                    "cut at event {point} ({}), {fate:?}, catalog {catalog:?}",
                    recording.describe(point)
                ));
                let seed = random.bits();
                let cut = |catalog| {
                    let dest = scratch();
                    let mut random = Random::quiet(seed);
                    let mut next = || random.bits();
                    recording.replay(point, fate, catalog, &mut next, dest.path());
                    dest
                };
                let mut dest = cut(CatalogState::Absent);
                // sled starts once the marker is durable. In a complete copy another test covers its state.
                let whole = Reader::open(dest.path(), options()).is_ok();
                if dest.path().join("COPYING").exists() && !whole {
                    dest = cut(catalog);
                } else if whole {
                    dest = cut(CatalogState::Now);
                }
                unfinished += usize::from(expect_recovery(&from, &world, &models, dest.path()));
                tried += 1;
            }
        }
    }
    assert!(
        0 < unfinished && unfinished < tried,
        "{unfinished} of {tried}"
    );
    report(tried, "power cuts during backup");
}

#[test]
fn a_backup_to_a_full_disk_frees_its_space_and_succeeds_once_there_is_enough() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let from = dir.path().join("db");
    let world = source(&models, &from);
    let Some(mounted) = Mounted::new(&dir.path().join("mounted"), "size=700k") else {
        return;
    };
    let filler = mounted.0.join("filler");
    std::fs::write(&filler, vec![0; 640 << 10]).unwrap();
    let copy = mounted.0.join("copy");
    let error = mopqdb::backup(&from, &copy).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    let left: u64 = files(&copy)
        .iter()
        .map(|(_, bytes)| bytes.len() as u64)
        .sum();
    assert_eq!(left, 0, "{:?}", files(&copy));
    std::fs::remove_file(&filler).unwrap();
    assert!(mounted.remount("size=8m"));
    assert!(expect_recovery(&from, &world, &models, &copy));
}

#[test]
fn unrelated_files_in_an_unfinished_copy_stay() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let from = dir.path().join("db");
    source(&models, &from);
    for stranger in [
        "notes.txt",
        "models/mine",
        "segments/photo.jpg",
        "runs/mine",
        "runs/mopq-1/notes.txt",
        "CREATING",
    ] {
        let copy = dir.path().join("copy");
        let _case = Case(stranger.into());
        std::fs::create_dir_all(copy.join("runs/mopq-1")).unwrap();
        for folder in ["models", "segments"] {
            std::fs::create_dir_all(copy.join(folder)).unwrap();
        }
        std::fs::write(copy.join(stranger), "mine").unwrap();
        let refused = |why: &str| {
            let error = mopqdb::backup(&from, &copy).unwrap_err();
            assert!(matches!(error, Error::Invalid(_)), "{error}");
            assert!(error.to_string().contains(why), "{error}");
            assert_eq!(std::fs::read(copy.join(stranger)).unwrap(), b"mine");
            assert!(!copy.join("LOCK").exists(), "nothing was added either");
        };
        refused("is not empty");
        std::fs::write(copy.join("COPYING"), "").unwrap();
        refused(stranger);
        std::fs::write(copy.join("COPYING"), "a song").unwrap();
        refused("is not empty");
        std::fs::remove_dir_all(&copy).unwrap();
    }
    assert!(answers(&from).is_ok());
}
