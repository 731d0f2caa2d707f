//! A creation that is killed, fails or loses power at any step leaves a database, or something that the next creation
//! recognises and clears. Unrelated files stay.

use crate::world::{DIM, Models, options, row};
use crate::{Case, report, scratch, torture};
use mopqdb::{CreateOptions, Database, Error};
use mopqdb_tests::faulty::{Fault, Faulty};
use mopqdb_tests::recording::{CATALOG_STATES, CatalogState, FATES, Recording};
use mopqdb_tests::support::Random;
use mopqdb_tests::watched::{Call, Watched, Watcher};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Returns options with codebooks, so that a model is registered too.
fn new(models: &Path) -> CreateOptions {
    CreateOptions::bundle(Models::open(models).0[0].dir())
}

/// Does what `insert` does: creates the database, or opens it if it exists; then checks that it is empty and accepts
/// rows. Returns whether it had to be created.
fn expect_recovery(path: &Path, new: &CreateOptions) -> bool {
    let vacant = Database::is_vacant(path).unwrap();
    let db = match vacant {
        true => Database::create(path, new, options()),
        false => Database::open(path, options()),
    };
    let db = db.unwrap();
    assert_eq!(db.snapshot().rows(), 0);
    db.insert(&[row("a", &[1.0; DIM])]).unwrap();
    db.close().unwrap();
    assert!(!path.join("CREATING").exists());
    let error = Database::create(path, new, options()).unwrap_err();
    assert!(
        error.to_string().contains("is already a database"),
        "{error}"
    );
    let db = Database::open(path, options()).unwrap();
    assert_eq!(db.warnings(), [""; 0]);
    assert!(db.get("a").unwrap().is_some());
    vacant
}

/// Reports that the nth call was reached, and waits to be killed.
#[derive(Debug)]
pub struct Stopping(AtomicUsize);

impl Stopping {
    /// Stops at a call, counted from 1.
    pub fn at(nth: usize) -> Self {
        Self(AtomicUsize::new(nth))
    }
}

impl Watcher for Stopping {
    fn before(&self, call: &Call<'_>) -> io::Result<usize> {
        if self.0.fetch_sub(1, Ordering::SeqCst) == 1 {
            let mut out = io::stdout().lock();
            let _ = out.write_all(format!("\n#AT {call:?}\n").as_bytes());
            let _ = out.flush();
            loop {
                std::thread::sleep(Duration::from_secs(60));
            }
        }
        Ok(call.bytes())
    }
}

/// The child process. Under `cargo test` it does nothing.
#[test]
fn child() {
    let Ok(path) = std::env::var("MOPQDB_CREATE_DIR") else {
        return;
    };
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let files = Watched::disk(Arc::new(Stopping::at(number("MOPQDB_CREATE_STOP"))));
    let models = std::env::var("MOPQDB_CREATE_MODELS").unwrap();
    let db = Database::create_on(files, Path::new(&path), &new(Path::new(&models)), options());
    db.unwrap().close().unwrap();
    println!("\n#CREATED");
}

/// Kills a child at its nth call to the disk. Returns the last line that it printed.
fn kill_at(path: &Path, models: &Path, nth: usize) -> String {
    let set = [
        ("MOPQDB_CREATE_DIR", path.as_os_str().to_owned()),
        ("MOPQDB_CREATE_MODELS", models.as_os_str().to_owned()),
        ("MOPQDB_CREATE_STOP", nth.to_string().into()),
    ];
    kill_when_it_stops("creating::child", set)
}

/// Runs a test of this program as a child, with these variables, and kills it once it prints a line with `#`, which is
/// returned.
pub fn kill_when_it_stops<const N: usize>(test: &str, set: [(&str, OsString); N]) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .envs(set)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines
        .map_while(Result::ok)
        .find(|line| line.starts_with('#'))
        .expect("the child says where it is");
    child.kill().unwrap();
    child.wait().unwrap();
    said
}

#[test]
fn a_creation_killed_at_any_call_to_the_disk_is_finished_by_the_next() {
    let dir = scratch();
    let bundles = dir.path().join("bundles");
    std::fs::create_dir(&bundles).unwrap();
    Models::train(&bundles);
    let new = new(&bundles);
    let (mut kills, mut vacant) = (0, 0);
    for nth in 1.. {
        let path = dir.path().join(format!("db-{nth}"));
        let said = kill_at(&path, &bundles, nth);
        if said == "#CREATED" {
            break;
        }
        let _case = Case(format!("killed at call {nth}: {said}"));
        kills += 1;
        vacant += usize::from(expect_recovery(&path, &new));
    }
    assert!(0 < vacant && vacant < kills, "{vacant} of {kills}");
    report(kills, "kills during creation, each followed by a database");
}

/// The creation that clears an unfinished one may be killed too.
#[test]
fn a_creation_killed_twice_is_finished_by_the_third() {
    let dir = scratch();
    let bundles = dir.path().join("bundles");
    std::fs::create_dir(&bundles).unwrap();
    Models::train(&bundles);
    let mut random = Random::new(951);
    let kills = if torture() { 400 } else { 25 };
    for n in 0..kills {
        let path = dir.path().join(format!("db-{n}"));
        let (first, second) = (4 + random.below(30), 1 + random.below(40));
        let said = [first, second].map(|nth| {
            if !Database::is_vacant(&path).unwrap() {
                return "it was finished".into();
            }
            kill_at(&path, &bundles, nth)
        });
        let _case = Case(format!("killed at calls {first} and {second}: {said:?}"));
        expect_recovery(&path, &new(&bundles));
    }
    report(2 * kills, "kills, two for each creation");
}

#[test]
fn a_creation_can_be_repeated_after_any_failed_call() {
    let dir = scratch();
    let bundles = dir.path().join("bundles");
    std::fs::create_dir(&bundles).unwrap();
    Models::train(&bundles);
    let new = new(&bundles);
    let mut tried = 0;
    for fault in [Fault::Broken, Fault::Full, Fault::Short] {
        for at in 1.. {
            let path = dir.path().join(format!("db-{fault:?}-{at}"));
            let _case = Case(format!("{fault:?} at call {at}"));
            let faulty = Faulty::new(fault, at, Arc::new(Quiet));
            let files = Watched::disk(Arc::clone(&faulty) as _);
            let created = Database::create_on(Arc::clone(&files), &path, &new, options());
            if !faulty.hit() {
                created.unwrap();
                break;
            }
            if let Err(e) = &created {
                assert!(matches!(e, Error::Io { .. }), "{e}");
            }
            drop(created);
            faulty.heal();
            expect_recovery(&path, &new);
            tried += 1;
        }
    }
    report(tried, "calls failed during creation");
}

/// A watcher that does nothing.
#[derive(Debug)]
pub struct Quiet;

impl Watcher for Quiet {}

#[test]
fn a_power_cut_during_creation_leaves_a_database_or_allows_another() {
    let dir = scratch();
    // Without a model, since the recording does not support renamed directories.
    let new = CreateOptions::vectors(DIM, mopqdb::Metric::Ip);
    let path = dir.path().join("db");
    std::fs::create_dir(&path).unwrap();
    let recording = Arc::new(Recording::of(&path, &dir.path().join("catalogs")));
    let files = Watched::disk(Arc::clone(&recording) as _);
    let db = Database::create_on(files, &path, &new, options()).unwrap();
    drop(db);
    let mut random = Random::new(961);
    let (mut tried, mut vacant) = (0, 0);
    for point in recording.sync_points() {
        for fate in FATES {
            for catalog in CATALOG_STATES {
                if !torture() && random.below(4) > 0 {
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
                // sled starts once the marker is durable.
                if std::fs::read_dir(dest.path()).unwrap().next().is_some() {
                    dest = cut(catalog);
                }
                vacant += usize::from(expect_recovery(dest.path(), &new));
                tried += 1;
            }
        }
    }
    assert!(0 < vacant && vacant < tried, "{vacant} of {tried}");
    report(tried, "power cuts during creation");
}

#[test]
fn unrelated_files_are_never_removed() {
    let dir = scratch();
    let path = dir.path().join("db");
    let new = CreateOptions::vectors(DIM, mopqdb::Metric::Ip);
    let refused = |why: &str| {
        let error = Database::create(&path, &new, options()).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
        assert!(error.to_string().contains(why), "{error}");
        assert!(!Database::is_vacant(&path).unwrap());
    };
    for stranger in [
        "notes.txt",
        "models/mine",
        "segments/photo.jpg",
        "CREATING.bak",
    ] {
        let _case = Case(stranger.into());
        for folder in ["models", "segments"] {
            std::fs::create_dir_all(path.join(folder)).unwrap();
        }
        std::fs::write(path.join(stranger), "mine").unwrap();
        // Without the marker, with it, and with another file of that name.
        refused("is not empty");
        std::fs::write(path.join("CREATING"), "").unwrap();
        refused(stranger);
        std::fs::write(path.join("CREATING"), "a song").unwrap();
        refused("is not empty");
        assert_eq!(std::fs::read(path.join(stranger)).unwrap(), b"mine");
        assert_eq!(std::fs::read(path.join("CREATING")).unwrap(), b"a song");
        assert!(!path.join("LOCK").exists(), "nothing was added either");
        std::fs::remove_dir_all(&path).unwrap();
    }
    // A database that lost its manifest is not an unfinished one.
    let db = Database::create(&path, &new, options()).unwrap();
    db.insert(&[row("a", &[1.0; DIM])]).unwrap();
    drop(db);
    std::fs::remove_file(path.join("MANIFEST-0000000001")).unwrap();
    refused("is not empty");
    assert!(
        Database::open(&path, options())
            .unwrap()
            .get("a")
            .unwrap()
            .is_some()
    );
}

#[test]
fn opening_an_unfinished_database_says_that_it_is_unfinished() {
    let dir = scratch();
    let path = dir.path().join("db");
    std::fs::create_dir_all(path.join("segments")).unwrap();
    std::fs::write(path.join("CREATING"), "").unwrap();
    let errors = [
        Database::open(&path, options()).unwrap_err(),
        mopqdb::Reader::open(&path, options()).unwrap_err(),
        mopqdb::backup(&path, dir.path().join("copy")).unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains("never finished"), "{error}");
    }
}
