//! Publishing, and the retiring of files that are still being read, under a scheduler that chooses the order of
//! threads: shuttle runs all of them on one, and switches where they synchronise (on a lock) or access the disk.
//!
//! A schedule that fails is printed, and can be run again with `shuttle::replay`.

use mopqdb::testing::disk::Files;
use mopqdb::{
    BundleWriter, CreateOptions, Database, Metric, ModelId, Options, Reader, RebuildOptions, Row,
    Snapshot, Value,
};
use mopqdb_tests::recording::copy_dir;
use mopqdb_tests::watched::{Call, Watched, Watcher};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::{Config, Runner, thread};
use std::cell::Cell;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The synchronisation primitives of [`versions`] here.
mod sync {
    pub use shuttle::sync::{Arc, RwLock};
}
#[path = "../../engine/src/version/publish.rs"]
mod versions;

fn torture() -> bool {
    std::env::var_os("MOPQDB_TORTURE").is_some_and(|value| value != "0")
}

/// Runs random orders, then orders with few switches at unlikely places.
fn in_many_orders(runs: usize, what: &str, body: impl Fn() + Send + Sync + 'static) {
    let body = Arc::new(body);
    let seed = 0x5eed;
    println!("seed {seed}, {runs} orders of each kind");
    let schedulers: [Box<dyn Scheduler + Send>; 2] = [
        Box::new(RandomScheduler::new_from_seed(seed, runs)),
        Box::new(PctScheduler::new_from_seed(seed, 3, runs)),
    ];
    for scheduler in schedulers {
        let mut config = Config::new();
        config.stack_size = 4 << 20;
        config.max_steps = shuttle::MaxSteps::FailAfter(20_000_000);
        let body = Arc::clone(&body);
        Runner::new(scheduler, config).run(move || body());
    }
    println!("\nFAULTS {} orders of threads: {what}", 2 * runs);
}

/// A version that asks for the newest one when it is dropped: dropping it under the lock is a deadlock.
struct Version {
    number: u64,
    home: std::sync::Weak<versions::Versions<Version>>,
}

impl Drop for Version {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            assert!(
                home.current().number > self.number,
                "the newest version was dropped"
            );
        }
    }
}

#[test]
fn readers_get_the_last_published_version_or_a_newer_one() {
    let what = "no older version was seen";
    in_many_orders(if torture() { 20_000 } else { 1_000 }, what, || {
        let versions = Arc::new_cyclic(|home| {
            versions::Versions::new(Version {
                number: 0,
                home: home.clone(),
            })
        });
        let published = Arc::new(AtomicU64::new(0));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (versions, published) = (Arc::clone(&versions), Arc::clone(&published));
                thread::spawn(move || {
                    let mut last = 0;
                    for _ in 0..3 {
                        let least = published.load(Ordering::SeqCst);
                        let seen = versions.current();
                        assert!(seen.number >= least.max(last), "an older version");
                        last = seen.number;
                    }
                })
            })
            .collect();
        for number in 1..=3 {
            let home = Arc::downgrade(&versions);
            versions.publish(Version { number, home });
            published.store(number, Ordering::SeqCst);
        }
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

thread_local! {
    /// Whether this is the operating system's thread on which shuttle runs its threads.
    static SCHEDULED: Cell<bool> = const { Cell::new(false) };
}

fn give_way() {
    if SCHEDULED.get() {
        thread::yield_now();
    } else {
        std::thread::yield_now();
    }
}

/// Makes every call to the disk a point where another thread may run first.
#[derive(Debug)]
struct Switching(Arc<AtomicU64>);

impl Watcher for Switching {
    fn before(&self, call: &Call<'_>) -> io::Result<usize> {
        if SCHEDULED.get() {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        Ok(call.bytes())
    }
}

const DIM: usize = 4;
const PAIRS: usize = 3;

fn options() -> Options {
    Options::default()
        .threads(1)
        .seal_rows(1000)
        .seal_in_background(false)
        .auto_compact(false)
        .maintenance(Duration::from_secs(3600))
}

fn pair(pair: usize, round: u64) -> [Row; 2] {
    let vector = [round as f32, pair as f32, 0.5, 1.0];
    ["l", "r"].map(|side| Row::vector(format!("{side}{pair}"), vector))
}

/// A database with two segments, dead rows in one, rows in the log, and a model that waits for a rebuild.
fn template(dir: &Path) -> ModelId {
    use mopqdb::quantizer::{TrainPq, train_pq};
    let sample: Vec<f32> = (0..40)
        .flat_map(|n| [(n % 7) as f32, (n % 5) as f32, 0.5, 1.0])
        .collect();
    let small = TrainPq::default().subspaces(2).codewords(16);
    let quantizer = train_pq(&sample, DIM, Metric::Ip, &small).unwrap();
    let bundle = BundleWriter::new(dir.join("bundle"))
        .metric(Metric::Ip)
        .vectors(DIM)
        .method("pq")
        .quantizer(&quantizer.quantizer)
        .finish()
        .unwrap();
    let path = dir.join("template");
    let new = CreateOptions::vectors(DIM, Metric::Ip);
    let db = Database::create(&path, &new, options()).unwrap();
    mopqdb::register_model(&path, &bundle).unwrap();
    for round in 1..=2 {
        for n in 0..PAIRS {
            db.insert(&pair(n, round)).unwrap();
        }
        db.seal().unwrap();
    }
    db.insert(&pair(0, 3)).unwrap();
    db.close().unwrap();
    bundle.model_id()
}

/// Returns the round of each pair, equal in both halves, as queries find them.
fn rounds(snapshot: &Snapshot) -> [u64; PAIRS] {
    let hits = snapshot.query(&[1.0; DIM][..], 100).unwrap();
    let mut found = [[None; 2]; PAIRS];
    for hit in &hits {
        let row = snapshot
            .get(&hit.key)
            .unwrap()
            .expect("a row that was found exists");
        let Value::Vector(vector) = row.value else {
            panic!("a vector")
        };
        let side = usize::from(hit.key.starts_with('r'));
        let slot = &mut found[vector[1] as usize][side];
        assert_eq!(*slot, None, "{} twice", hit.key);
        *slot = Some(vector[0] as u64);
    }
    found.map(|halves| {
        assert_eq!(halves[0], halves[1], "half a batch");
        halves[0].expect("no pair was ever deleted")
    })
}

struct Shared {
    acknowledged: [AtomicU64; PAIRS],
    /// The number of threads that write.
    writing: AtomicU64,
}

impl Shared {
    fn least(&self) -> [u64; PAIRS] {
        [0, 1, 2].map(|n| self.acknowledged[n].load(Ordering::SeqCst))
    }

    /// Returns `true` while any thread writes. Yields, so that threads that only read do not keep others from running.
    fn goes_on(&self) -> bool {
        thread::yield_now();
        self.writing.load(Ordering::SeqCst) > 0
    }

    fn done(&self) {
        self.writing.fetch_sub(1, Ordering::SeqCst);
    }

    /// Checks that a snapshot holds at least what was acknowledged before it was taken.
    fn check(&self, take: impl FnOnce() -> Arc<Snapshot>) -> Arc<Snapshot> {
        let least = self.least();
        let snapshot = take();
        let found = rounds(&snapshot);
        assert!(
            found
                .iter()
                .zip(least)
                .all(|(found, least)| *found >= least),
            "{found:?}, {least:?} were acknowledged"
        );
        snapshot
    }
}

#[test]
fn readers_are_complete_and_current_in_every_order_of_insert_seal_compact_and_rebuild() {
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() {
        memory
    } else {
        Path::new("/tmp")
    };
    let dir = tempfile::tempdir_in(base).unwrap();
    let model = template(dir.path());
    mopqdb::testing::take_turns(give_way);
    let home = dir.path().to_owned();
    let what = "readers complete and current, old snapshots unchanged";
    in_many_orders(if torture() { 3_000 } else { 100 }, what, move || {
        SCHEDULED.set(true);
        run(&home, model);
        SCHEDULED.set(false);
    });
}

fn run(home: &Path, model: ModelId) {
    let path = home.join("db");
    let _ = std::fs::remove_dir_all(&path);
    copy_dir(&home.join("template"), &path);
    let calls = Arc::new(AtomicU64::new(0));
    let files: Arc<dyn Files> = Watched::disk(Arc::new(Switching(calls)));
    let db = Database::open_on(Arc::clone(&files), &path, options()).unwrap();
    let shared = Arc::new(Shared {
        acknowledged: [3, 2, 2].map(AtomicU64::new),
        writing: AtomicU64::new(3),
    });
    let held = db.snapshot();
    let before = rounds(&held);
    let mut threads = Vec::new();
    let mut spawn = |body: Box<dyn FnOnce() + Send>| threads.push(thread::spawn(body));
    {
        let (db, shared) = (db.clone(), Arc::clone(&shared));
        spawn(Box::new(move || {
            for (n, round) in [(0, 4), (1, 5), (0, 6)] {
                db.insert(&pair(n, round)).unwrap();
                shared.acknowledged[n].store(round, Ordering::SeqCst);
            }
            shared.done();
        }));
    }
    {
        let (db, shared) = (db.clone(), Arc::clone(&shared));
        spawn(Box::new(move || {
            db.seal().unwrap();
            db.compact().unwrap();
            shared.done();
        }));
    }
    {
        let (db, shared) = (db.clone(), Arc::clone(&shared));
        spawn(Box::new(move || {
            let wanted = RebuildOptions::default().model(Some(model)).threads(1);
            db.rebuild(&wanted).unwrap();
            shared.done();
        }));
    }
    {
        let (db, shared) = (db.clone(), Arc::clone(&shared));
        spawn(Box::new(move || {
            while shared.goes_on() {
                shared.check(|| db.snapshot());
            }
        }));
    }
    {
        // These work like other processes, which know only the files. One refreshes, the other opens again each time.
        let (shared, path) = (Arc::clone(&shared), path.clone());
        let open = move || Reader::open_on(files.clone(), &path, options()).unwrap();
        let anew = (Arc::clone(&shared), open.clone());
        spawn(Box::new(move || {
            while anew.0.goes_on() {
                anew.0.check(|| anew.1().snapshot());
            }
        }));
        spawn(Box::new(move || {
            let reader = open();
            let first = reader.snapshot();
            let then = rounds(&first);
            while shared.goes_on() {
                shared.check(|| {
                    reader.refresh().unwrap();
                    reader.snapshot()
                });
            }
            assert_eq!(rounds(&first), then, "a snapshot stays as it was");
        }));
    }
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(rounds(&held), before, "a snapshot stays as it was");
    drop(held);
    assert_eq!(rounds(&db.snapshot()), [6, 5, 2]);
    assert_eq!(db.model().id(), Some(model));
    db.close().unwrap();
    let reopened = Database::open(&path, options()).unwrap();
    assert_eq!(rounds(&reopened.snapshot()), [6, 5, 2]);
    assert!(reopened.warnings().is_empty(), "{:?}", reopened.warnings());
}
