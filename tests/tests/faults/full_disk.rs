//! A full disk can be recovered from: the database opens, rows can be deleted, and the freed space can be written
//! again.

use crate::world::{DIM, Known, Models, Step, World, open, options, row, script};
use crate::{Case, report, scratch, torture};
use mopqdb::testing::disk::Files;
use mopqdb::{Database, Error, PruneOptions, Reader, Row, VerifyOptions, prune, verify};
use mopqdb_tests::mounted::Mounted;
use mopqdb_tests::quota::Quota;
use mopqdb_tests::recording::copy_dir;
use mopqdb_tests::support::Random;
use mopqdb_tests::watched::{Call, Watched, Watcher};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The space that a database needs, beyond its initial size, to accept a few rows.
const SLACK: u64 = 64 << 10;

/// Returns rows with new keys.
fn rows(random: &mut Random, name: &str, n: usize) -> Vec<(String, Vec<f32>)> {
    (0..n)
        .map(|at| (format!("{name}/{at}"), random.vector(DIM)))
        .collect()
}

fn insert(db: &Database, rows: &[(String, Vec<f32>)]) -> mopqdb::Result<()> {
    let rows: Vec<Row> = rows.iter().map(|(key, v)| row(key, v)).collect();
    db.insert(&rows).map(drop)
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull)
}

/// Frees space in a full database by deleting almost everything. All of this must succeed without more space.
///
/// A delete writes its keys to the log, and a compaction frees their space, so deleting many rows takes several rounds.
fn leave(models: &Models, files: &Arc<dyn Files>, path: &Path, worlds: &[World]) -> World {
    let db = open(files, path).expect("a database on a full disk can be opened");
    let mut world = worlds[models.check(&db.snapshot(), worlds)].clone();
    let gone: Vec<String> = world.oracle.rows.keys().skip(3).cloned().collect();
    for (at, gone) in gone.chunks(4000).enumerate() {
        if at > 0 {
            db.compact().expect("deleted rows can be dropped");
        }
        let step = Step::Delete(gone.to_vec());
        models.run(&db, &step).expect("rows can be deleted");
        world = world.after(&step);
    }
    models.check(&db.snapshot(), std::slice::from_ref(&world));
    drop(db);
    let options = PruneOptions::default().orphans(true);
    prune(path, &options).expect("what is not used can be dropped");
    let db = open(files, path).expect("a pruned database can be opened");
    models.check(&db.snapshot(), std::slice::from_ref(&world));
    let done = db.compact().expect("deleted rows can be dropped");
    assert!(!done.out_of_room, "there is space for the remaining rows");
    let step = Step::Insert(vec![("after".into(), vec![0.5; DIM])]);
    models.run(&db, &step).expect("there is space again");
    let world = world.after(&step);
    models.check(&db.snapshot(), std::slice::from_ref(&world));
    db.close().unwrap();
    world
}

/// Runs a script on a disk of a given size, then frees space in the state that it reached. Returns the calls that took
/// space.
fn run(models: &Models, template: &Path, steps: &[Step], limit: u64) -> Vec<(u64, usize)> {
    let dir = scratch();
    let path = dir.path().join("db");
    copy_dir(template, &path);
    let quota = Arc::new(Quota::new(&path));
    let files = Watched::disk(Arc::clone(&quota) as _);
    quota.limit(limit);
    let mut known = Known::new(World::default());
    let mut db = Some(open(&files, &path).unwrap());
    for step in steps {
        if let Step::Reopen = step {
            drop(db.take());
            let opened = open(&files, &path).expect("a database on a full disk can be opened");
            let worlds = known.reopened();
            known = Known::new(worlds[models.check(&opened.snapshot(), &worlds)].clone());
            db = Some(opened);
            continue;
        }
        let db = db.as_ref().unwrap();
        let outcome = models.run(db, step);
        if let Err(e) = &outcome {
            let said = e.to_string();
            assert!(limit < u64::MAX, "an error with space left: {said}");
            assert!(
                is_full(e) || matches!(e, Error::OutcomeUnknown(_) | Error::Model(_)),
                "{said}"
            );
            assert!(said.matches("outcome unknown").count() <= 1, "{said}");
        }
        known.step(step, outcome);
        models.recognise(&db.snapshot(), &known.worlds);
    }
    drop(db);
    let seen = quota.seen();
    let used = || quota.used() - std::fs::metadata(path.join("RESERVE")).map_or(0, |m| m.len());
    let before = used();
    let world = leave(models, &files, &path, &known.reopened());
    assert!(used() < before, "{before} bytes, then {}", used());
    assert!(path.join("RESERVE").exists(), "there is a reserve again");
    let found = verify(&path, &VerifyOptions::default()).unwrap();
    assert!(found.problems.is_empty(), "{:?}", found.problems);
    let reader = Reader::open(&path, options()).unwrap();
    models.check(&reader.snapshot(), &[world]);
    seen
}

#[test]
fn rows_can_be_deleted_and_their_space_reused_wherever_the_disk_fills_up() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let template = dir.path().join("template");
    models.create(&template);
    let mut random = Random::new(1001);
    // Each large insert also seals, and small steps come in between.
    let mut steps = Vec::new();
    for (at, small) in script(1002, 40).chunks(5).enumerate() {
        steps.push(Step::Insert(rows(&mut random, &format!("{at}"), 400)));
        steps.extend_from_slice(small);
        if at % 3 == 1 {
            steps.push(Step::Rebuild(at % 2));
            steps.push(Step::Reopen);
        }
    }
    let base = Quota::new(&template).used();
    assert!(template.join("RESERVE").is_file());
    let calls = run(&models, &template, &steps, u64::MAX);
    // The disk fills up before each call that takes space, and in the middle of it.
    let mut limits: Vec<u64> = calls
        .iter()
        .flat_map(|&(used, bytes)| [used, used + bytes as u64 / 2])
        .filter(|&limit| limit > base + SLACK)
        .collect();
    limits.sort_unstable();
    limits.dedup();
    assert!(limits.len() > 200, "{} limits", limits.len());
    let tried = if torture() { limits.len() } else { 60 };
    for n in 0..tried {
        let (start, end) = (n * limits.len() / tried, (n + 1) * limits.len() / tried);
        let limit = limits[start + random.below(end - start)];
        let _case = Case(format!(
            "a disk of {limit} bytes, {base} of them used at first"
        ));
        run(&models, &template, &steps, limit);
    }
    report(tried, "disks filled up, then freed by deleting rows");
}

/// Creates a database with this many rows in a log, which a crash left with half a record at its end.
fn torn(models: &Models, dir: &Path, n: usize) -> World {
    let first = dir.join("first");
    models.create(&first);
    let mut random = Random::new(1003);
    let step = Step::Insert(rows(&mut random, "k", n));
    let options = options().seal_rows(1 << 20);
    let db = Database::open(&first, options).unwrap();
    models.run(&db, &step).unwrap();
    let more = Step::Insert(rows(&mut random, "torn", 400));
    models.run(&db, &more).unwrap();
    copy_dir(&first, &dir.join("db"));
    let mut logs = std::fs::read_dir(dir.join("db/logs")).unwrap();
    let log = logs.next().unwrap().unwrap().path();
    let bytes = std::fs::read(&log).unwrap();
    std::fs::write(&log, &bytes[..bytes.len() - 2000]).unwrap();
    World::default().after(&step)
}

#[test]
fn without_space_for_recovery_logs_are_read_in_place_and_rows_can_only_be_deleted() {
    // First more than fits into the reserve, then less, then without a reserve.
    for (n, reserve) in [(30_000, true), (200, true), (200, false)] {
        let _case = Case(format!("{n} rows, reserve: {reserve}"));
        let dir = scratch();
        let models = Models::train(dir.path());
        let world = torn(&models, dir.path(), n);
        let path = dir.path().join("db");
        if !reserve {
            std::fs::remove_file(path.join("RESERVE")).unwrap();
        }
        let quota = Arc::new(Quota::new(&path));
        let full = quota.used();
        quota.limit(full);
        let files = Watched::disk(Arc::clone(&quota) as _);
        for _ in 0..2 {
            let db = open(&files, &path).unwrap();
            let said = db.warnings().concat();
            assert!(said.contains("the disk is full"), "{said}");
            models.recognise(&db.snapshot(), std::slice::from_ref(&world));
        }
        let reader = Reader::open(&path, options()).unwrap();
        models.recognise(&reader.snapshot(), std::slice::from_ref(&world));
        let backup = dir.path().join("copy");
        mopqdb::backup(&path, &backup).unwrap();
        let copied = Database::open(&backup, options()).unwrap();
        models.recognise(&copied.snapshot(), std::slice::from_ref(&world));

        let db = open(&files, &path).unwrap();
        let more = rows(&mut Random::quiet(1004), "more", 1);
        if n < 1000 && reserve {
            // The logs can be sealed if the reserve is removed. That frees the logs.
            insert(&db, &more).unwrap();
            let world = world.after(&Step::Insert(more));
            models.recognise(&db.snapshot(), std::slice::from_ref(&world));
            drop(db);
            leave(&models, &files, &path, &[world]);
            continue;
        }
        let error = insert(&db, &more).unwrap_err();
        let said = error.to_string();
        assert!(is_full(&error), "{said}");
        for word in ["no rows are inserted", "deleting rows", "pruning"] {
            assert!(said.contains(word), "{said}");
        }
        models.recognise(&db.snapshot(), std::slice::from_ref(&world));
        assert!(db.compact().unwrap().out_of_room, "nothing can be sealed");
        if !reserve {
            // With no space at all an error is returned and nothing is in doubt. A little space is enough.
            let error = db.delete(&["k/0"]).unwrap_err();
            assert!(is_full(&error), "{error}");
            quota.limit(full + SLACK);
            assert_eq!(db.delete(&["k/0"]).unwrap(), 1);
            drop(db);
            // Now the reserve must fit too.
            quota.limit(full + SLACK + (2 << 20));
        } else {
            assert_eq!(db.delete(&["k/0"]).unwrap(), 1);
            drop(db);
        }
        let world = world.after(&Step::Delete(vec!["k/0".into()]));
        leave(&models, &files, &path, &[world]);
    }
}

/// Fails the sync of one log, once.
#[derive(Debug)]
struct NoSync(AtomicBool);

impl Watcher for NoSync {
    fn before(&self, call: &Call<'_>) -> io::Result<usize> {
        let log = call.path().extension().is_some_and(|ext| ext == "log");
        if matches!(call, Call::Sync(..)) && log && self.0.swap(false, Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(call.bytes())
    }
}

#[test]
fn an_unknown_outcome_is_reported_once() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    models.create(&path);
    let watcher = Arc::new(NoSync(AtomicBool::new(false)));
    let db = open(&Watched::disk(Arc::clone(&watcher) as _), &path).unwrap();
    db.insert(&[row("a", &[1.0; DIM])]).unwrap();
    watcher.0.store(true, Ordering::SeqCst);
    let errors = [
        db.insert(&[row("b", &[1.0; DIM])]).unwrap_err(),
        db.insert(&[row("c", &[1.0; DIM])]).unwrap_err(),
        db.delete(&["a"]).unwrap_err(),
        db.seal().unwrap_err(),
    ];
    for error in errors {
        let said = error.to_string();
        assert!(matches!(error, Error::OutcomeUnknown(_)), "{said}");
        for words in ["outcome unknown", "reopen the database"] {
            assert_eq!(said.matches(words).count(), 1, "{said}");
        }
    }
}

/// The same on a real file system, whose space sled takes too.
#[test]
fn a_full_file_system_can_be_freed_without_more_space() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let Some(mounted) = Mounted::new(&dir.path().join("mounted"), "size=6m") else {
        return;
    };
    let path = mounted.0.join("db");
    models.create(&path);
    let files: Arc<dyn Files> = Arc::new(mopqdb::testing::disk::Disk::default());
    let mut world = World::default();
    let mut random = Random::new(1005);
    for round in 0..if torture() { 20 } else { 4 } {
        let _case = Case(format!("round {round}"));
        let mut known = Known::new(world);
        let options = options().seal_rows(2000);
        let db = Database::open(&path, options).unwrap();
        let mut errors = Vec::new();
        for n in 0.. {
            // Small batches reach the end between records, large ones tear the log.
            let len = [30, 700, 8000][round % 3];
            let step = match n % 40 {
                39 => Step::Seal,
                _ => Step::Insert(rows(&mut random, &format!("{round}/{n}"), len)),
            };
            let outcome = models.run(&db, &step);
            if let Err(e) = &outcome {
                errors.push(e.to_string());
            }
            known.step(&step, outcome);
            if errors.len() > 3 {
                break;
            }
        }
        println!("round {round}: {}", errors[0]);
        drop(db);
        // Another program takes the remaining space.
        let _ = std::fs::write(mounted.0.join("another"), vec![1; 8 << 20]);
        world = leave(&models, &files, &path, &known.reopened());
        std::fs::remove_file(mounted.0.join("another")).unwrap();
    }
}

/// A file system may have space for bytes but none for names.
#[test]
fn prune_needs_no_space_for_its_lock() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let Some(mounted) = Mounted::new(&dir.path().join("mounted"), "size=16m,nr_inodes=200") else {
        return;
    };
    let path = mounted.0.join("db");
    models.create(&path);
    let taken = (0..).find(|n| std::fs::write(mounted.0.join(format!("{n}")), "").is_err());
    assert!(taken.unwrap() > 0 && !path.join("prepare.lock").exists());
    let pruned = prune(&path, &PruneOptions::default()).unwrap();
    assert_eq!(pruned.models.len(), 2);
    assert!(path.join("prepare.lock").exists());
    let db = Database::open(&path, options()).unwrap();
    db.insert(&[row("a", &[1.0; DIM])]).unwrap();
}
