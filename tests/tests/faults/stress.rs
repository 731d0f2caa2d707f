//! A writer, a compactor, a rebuilder, eight readers and two reading processes at once.

use crate::processes::{ReaderProcess, first_values};
use crate::world::{DIM, Models, options};
use crate::{report, scratch, torture};
use mopqdb::{Database, Reader, RebuildOptions, Row};
use mopqdb_tests::support::Random;
use mopqdb_tests::watched::{Call, Watched, Watcher};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pairs of rows that are written together. The first value of each is the round in which it was written. A query must
/// find both halves of a pair from the same round, and nothing older than what was acknowledged before it began.
struct Acknowledged(Vec<AtomicU64>);

const PAIRS: usize = 24;

impl Acknowledged {
    fn nothing() -> Self {
        Self((0..PAIRS).map(|_| AtomicU64::new(0)).collect())
    }

    fn now(&self) -> Vec<u64> {
        self.0.iter().map(|a| a.load(Ordering::SeqCst)).collect()
    }

    /// Inserts pairs until the time is over. Returns their number.
    fn write(&self, db: &Database, seed: u64, time: Duration) -> u64 {
        let mut random = Random::new(seed);
        let started = Instant::now();
        let mut round = 0u64;
        while started.elapsed() < time {
            round += 1;
            let pair = random.below(PAIRS);
            let mut vector = random.vector(DIM);
            vector[0] = round as f32;
            let rows = ["l", "r"].map(|side| Row::vector(format!("{side}{pair}"), vector.clone()));
            db.insert(&rows).unwrap();
            self.0[pair].store(round, Ordering::SeqCst);
        }
        round
    }
}

/// Checks that both halves of each pair were found, and are no older than what was acknowledged before.
fn expect(found: &BTreeMap<String, u64>, before: &[u64]) {
    for (pair, &least) in before.iter().enumerate() {
        let halves = ["l", "r"].map(|side| found.get(&format!("{side}{pair}")).copied());
        assert_eq!(halves[0], halves[1], "pair {pair}");
        assert!(
            halves[0].unwrap_or(0) >= least,
            "pair {pair}: {halves:?}, {least} was acknowledged"
        );
    }
}

/// Stops the other threads on drop, even after a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn busy(path: &std::path::Path) -> Database {
    let options = options()
        .maintenance(Duration::from_millis(20))
        .auto_compact(true)
        .seal_in_background(true);
    Database::open(path, options).unwrap()
}

#[test]
fn queries_are_complete_and_current_while_others_write_compact_and_rebuild() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    models.create(&path);
    let db = busy(&path);
    let acknowledged = Acknowledged::nothing();
    let stop = AtomicBool::new(false);
    let time = Duration::from_secs(if torture() { 120 } else { 8 });
    let counts = [const { AtomicU64::new(0) }; 5];
    let [queries, asked, compactions, rebuilds, rounds] = &counts;
    std::thread::scope(|scope| {
        let (db, path, stop, acknowledged) = (&db, &path, &stop, &acknowledged);
        let running = || !stop.load(Ordering::SeqCst);
        for n in 0..8 {
            scope.spawn(move || {
                // Every other one works like another process.
                let other = (n % 2 == 1).then(|| Reader::open(path, options()).unwrap());
                let mut old = None;
                while running() {
                    let before = acknowledged.now();
                    let snapshot = match &other {
                        None => db.snapshot(),
                        Some(reader) => {
                            reader.refresh().unwrap();
                            reader.snapshot()
                        }
                    };
                    let found = first_values(&snapshot);
                    expect(&found, &before);
                    // A snapshot that is held stays unchanged, whatever is retired.
                    let (held, then) = old.get_or_insert((snapshot, found));
                    assert_eq!(first_values(held), *then);
                    if queries.fetch_add(1, Ordering::SeqCst) % 50 == 0 {
                        old = None;
                    }
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(move || {
                let mut process = ReaderProcess::start(path);
                while running() {
                    let before = acknowledged.now();
                    expect(&process.ask(), &before);
                    asked.fetch_add(1, Ordering::SeqCst);
                }
                process.end();
            });
        }
        scope.spawn(move || {
            while running() {
                db.compact().unwrap();
                compactions.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        let models = &models;
        scope.spawn(move || {
            for n in 0.. {
                if !running() {
                    break;
                }
                let wanted = RebuildOptions::default()
                    .model(Some(models.0[n % 2].model_id()))
                    .threads(1);
                // Rebuilds from within, and like another process, which leaves the commit to this one.
                if n % 2 == 0 {
                    db.rebuild(&wanted).unwrap();
                } else {
                    mopqdb::rebuild(path, &wanted).unwrap();
                }
                rebuilds.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let _stop = Stop(stop);
        rounds.store(acknowledged.write(db, 1001, time), Ordering::SeqCst);
    });
    let [queries, asked, compactions, rebuilds, rounds] = counts.map(AtomicU64::into_inner);
    report(
        (queries + asked) as usize,
        format_args!(
            "queries, {queries} of 8 threads and {asked} of 2 processes, during {rounds} writes, {compactions} compactions \
             and {rebuilds} rebuilds: no stale and no partial result"
        ),
    );
    assert!(rebuilds > 0 && compactions > 0 && queries > 100 && asked > 10);
}

#[test]
fn a_copy_taken_during_writes_has_everything_that_was_acknowledged_before() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    models.create(&path);
    let db = busy(&path);
    let acknowledged = Acknowledged::nothing();
    let stop = AtomicBool::new(false);
    let time = Duration::from_secs(if torture() { 30 } else { 4 });
    let mut copies = 0;
    let mut refused = 0;
    std::thread::scope(|scope| {
        let (db, stop, acknowledged) = (&db, &stop, &acknowledged);
        scope.spawn(move || {
            let _stop = Stop(stop);
            acknowledged.write(db, 1002, time);
        });
        scope.spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                db.compact().unwrap();
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        while !stop.load(Ordering::SeqCst) {
            let copy = dir.path().join(format!("copy-{copies}"));
            let before = acknowledged.now();
            match mopqdb::backup(&path, &copy) {
                Ok(_) => {
                    let reader = Reader::open(&copy, options()).unwrap();
                    expect(&first_values(&reader.snapshot()), &before);
                    copies += 1;
                }
                Err(e) if e.to_string().contains("try again") => refused += 1,
                Err(e) => panic!("{e}"),
            }
            let _ = std::fs::remove_dir_all(&copy);
        }
    });
    report(
        copies,
        format_args!(
            "copies during writes, all complete ({refused} refused: the writer was too fast)"
        ),
    );
    assert!(copies > 3);
}

/// Commits another version each time that the logs are about to be listed, up to this many times, so that the previous
/// version's logs are retired.
#[derive(Debug)]
struct Racing(Database, AtomicU64);

impl Watcher for Racing {
    fn before(&self, call: &Call<'_>) -> std::io::Result<usize> {
        let lists = matches!(call, Call::Look(path) if path.ends_with("logs"));
        if lists && self.1.load(Ordering::SeqCst) > 0 {
            self.1.fetch_sub(1, Ordering::SeqCst);
            let rows = self.0.snapshot().rows();
            self.0
                .insert(&[Row::vector(format!("k{rows}"), [0.5; DIM])])
                .unwrap();
            self.0.seal().unwrap();
        }
        Ok(call.bytes())
    }
}

#[test]
fn a_reader_that_cannot_keep_up_returns_an_error_and_no_partial_version() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    models.create(&path);
    let db = Database::open(&path, options()).unwrap();
    db.insert(&[Row::vector("first", [1.0; DIM])]).unwrap();
    let files = Watched::disk(std::sync::Arc::new(Racing(
        db.clone(),
        AtomicU64::new(1000),
    )));
    let error = Reader::open_on(files, &path, options()).unwrap_err();
    assert!(error.to_string().contains("try again"), "{error}");
    let reader = Reader::open(&path, options()).unwrap();
    assert_eq!(reader.snapshot().rows(), db.snapshot().rows());
}

#[test]
fn a_copy_starts_over_if_its_logs_are_retired_meanwhile() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    models.create(&path);
    let db = Database::open(&path, options()).unwrap();
    for races in 1..5 {
        // The row is only in the log, which is gone when the copy reaches it.
        let key = format!("race {races}");
        db.insert(&[Row::vector(key.clone(), [1.0; DIM])]).unwrap();
        let files = Watched::disk(std::sync::Arc::new(Racing(
            db.clone(),
            AtomicU64::new(races),
        )));
        let copy = dir.path().join(format!("copy-{races}"));
        mopqdb::testing::backup_on(&*files, &path, &copy, &Default::default()).unwrap();
        let reader = Reader::open(&copy, options()).unwrap();
        assert!(
            reader.snapshot().contains(&key).unwrap(),
            "{key} is not in the copy"
        );
        assert_eq!(reader.snapshot().rows(), db.snapshot().rows());
    }
}

#[test]
fn a_reader_whose_log_is_retired_before_it_refreshes_finds_the_new_rows() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    models.create(&path);
    let db = Database::open(&path, options()).unwrap();
    db.insert(&[Row::vector("first", [1.0; DIM])]).unwrap();
    let racing = std::sync::Arc::new(Racing(db.clone(), AtomicU64::new(0)));
    let reader = Reader::open_on(Watched::disk(racing.clone()), &path, options()).unwrap();
    // Its log is sealed and removed between reading the manifest and listing the logs.
    db.insert(&[Row::vector("late", [1.0; DIM])]).unwrap();
    racing.1.store(1, Ordering::SeqCst);
    assert!(reader.refresh().unwrap());
    assert!(reader.snapshot().contains("late").unwrap());
    assert_eq!(reader.snapshot().rows(), db.snapshot().rows());
    assert!(!reader.refresh().unwrap());
}

/// Removes codes with this name when they are opened, like those of a segment that was merged.
#[derive(Debug)]
struct Merging {
    codes: String,
    armed: AtomicBool,
    taken: AtomicU64,
}

impl Watcher for Merging {
    fn before(&self, call: &Call<'_>) -> std::io::Result<usize> {
        if let Call::Look(path) = call
            && path.ends_with(&self.codes)
            && path.exists()
            && self.armed.swap(false, Ordering::SeqCst)
        {
            std::fs::remove_file(path)?;
            self.taken.fetch_add(1, Ordering::SeqCst);
        }
        Ok(call.bytes())
    }
}

#[test]
fn a_rebuild_recomputes_codes_that_disappear_while_it_runs() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    models.create(&path);
    let merging = std::sync::Arc::new(Merging {
        codes: format!("0000000001.{}.codes", models.0[1].model_id().short()),
        armed: AtomicBool::new(false),
        taken: AtomicU64::new(0),
    });
    let db = Database::open_on(Watched::disk(merging.clone()), &path, options()).unwrap();
    db.insert(&[Row::vector("one", [1.0; DIM])]).unwrap();
    db.seal().unwrap();
    let to = |n: usize| {
        RebuildOptions::default()
            .model(Some(models.0[n].model_id()))
            .threads(1)
    };
    db.rebuild(&to(1)).unwrap();
    db.rebuild(&to(0)).unwrap();
    assert_eq!(db.rebuild(&to(1)).unwrap().reused, 1, "codes are kept");
    db.rebuild(&to(0)).unwrap();
    merging.armed.store(true, Ordering::SeqCst);
    let rebuilt = db.rebuild(&to(1)).unwrap();
    assert_eq!(merging.taken.load(Ordering::SeqCst), 1, "some were removed");
    assert_eq!((rebuilt.rows, rebuilt.reused), (1, 0));
    assert_eq!(db.query(&[1.0; DIM], 1).unwrap()[0].key, "one");
}
