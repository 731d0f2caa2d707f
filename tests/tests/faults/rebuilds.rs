//! A rebuild interrupted at each of its steps, while rows arrive: either the old model or the new one answers, each
//! segment is scanned with its own codebook, and the next rebuild continues with the existing files.

use crate::world::{DIM, Models, Step, World, open, options};
use crate::{Case, report, scratch, torture};
use mopqdb::{Database, Reader};
use mopqdb_tests::recording::{CatalogState, FATES, Fate, Recording};
use mopqdb_tests::support::Random;
use mopqdb_tests::watched::{Call, Watched, Watcher};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Inserts a row each time that staged files are synced, so that there is always a tail when the model is switched.
#[derive(Debug)]
struct Arriving {
    recording: Arc<Recording>,
    db: Mutex<Option<Database>>,
    rows: AtomicUsize,
}

fn arrival(n: usize) -> Step {
    let mut random = Random::quiet(1100 + n as u64);
    Step::Insert(vec![(format!("arrived {n}"), random.vector(DIM))])
}

impl Watcher for Arriving {
    fn before(&self, call: &Call<'_>) -> io::Result<usize> {
        self.recording.before(call)
    }

    fn after(&self, call: &Call<'_>, done: bool) {
        self.recording.after(call, done);
        let staged = |path: &std::path::Path| path.parent().is_some_and(|p| p.ends_with("staging"));
        if let Call::SyncDir(path) = call
            && staged(path)
            // The lock is held: this call is the insert's own.
            && let Ok(db) = self.db.try_lock()
            && let Some(db) = &*db
        {
            let n = self.rows.fetch_add(1, Ordering::SeqCst);
            let Step::Insert(rows) = arrival(n) else {
                unreachable!()
            };
            let rows: Vec<_> = (rows.iter())
                .map(|(key, vector)| crate::world::row(key, vector))
                .collect();
            db.insert(&rows).unwrap();
            self.recording.mark(n + 1);
        }
    }
}

#[test]
fn a_rebuild_interrupted_at_any_step_leaves_one_of_the_two_models_and_can_be_repeated() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    models.create(&path);
    let recording = Arc::new(Recording::of(&path, &dir.path().join("catalogs")));
    let arriving = Arc::new(Arriving {
        recording: Arc::clone(&recording),
        db: Mutex::new(None),
        rows: AtomicUsize::new(0),
    });
    let files = Watched::disk(Arc::clone(&arriving) as _);
    let db = open(&files, &path).unwrap();
    let mut random = Random::new(1101);
    let rows = |random: &mut Random, from: usize| {
        let rows = (from..from + 9).map(|n| (format!("k{n}"), random.vector(DIM)));
        Step::Insert(rows.collect())
    };
    let mut world = World::default();
    for step in [
        rows(&mut random, 0),
        Step::Seal,
        rows(&mut random, 5),
        Step::Delete(vec!["k3".into(), "k12".into()]),
    ] {
        models.run(&db, &step).unwrap();
        world = world.after(&step);
    }
    let begun = recording.len();
    *arriving.db.lock().unwrap() = Some(db.clone());
    models.run(&db, &Step::Rebuild(0)).unwrap();
    drop(arriving.db.lock().unwrap().take());
    let arrived = arriving.rows.load(Ordering::SeqCst);
    assert!(arrived > 3, "rows arrived in every phase");
    // After n rows arrived, under the old model or the new one.
    let mut worlds: Vec<[World; 2]> = vec![[world.clone(), world.after(&Step::Rebuild(0))]];
    for n in 0..arrived {
        let last = &worlds[worlds.len() - 1];
        worlds.push([0, 1].map(|m| last[m].after(&arrival(n))));
    }
    models.check(&db.snapshot(), &[worlds[arrived][1].clone()]);
    drop(db);

    let points: Vec<usize> = (begun..=recording.len()).collect();
    let mut tried = 0;
    let mut switched = 0;
    for &point in &points {
        let fates = match point % 3 {
            _ if torture() => &FATES[..],
            0 => &[Fate::Kept, Fate::Any],
            _ => &[Fate::Kept],
        };
        for &fate in fates {
            let _case = Case(format!(
                "cut at event {point} ({}), unsynced writes {fate:?}",
                recording.describe(point)
            ));
            let dest = scratch();
            let mut random = Random::quiet(point as u64);
            recording.replay(
                point,
                fate,
                CatalogState::Now,
                &mut || random.bits(),
                dest.path(),
            );
            let marked = recording.marked(point);
            let allowed = worlds[marked..(marked + 2).min(worlds.len())].concat();
            let reader = Reader::open(dest.path(), options()).unwrap();
            models.check(&reader.snapshot(), &allowed);
            let db = Database::open(dest.path(), options()).unwrap();
            let mut world = allowed[models.check(&db.snapshot(), &allowed)].clone();
            switched += usize::from(world.model.is_some());
            // More rows are inserted, then the rebuild is requested again, and another after it.
            let steps = [
                Step::Insert(vec![
                    ("later".into(), vec![0.5; DIM]),
                    ("k1".into(), vec![0.25; DIM]),
                ]),
                Step::Seal,
                Step::Rebuild(0),
                Step::Insert(vec![("last".into(), vec![-0.5; DIM])]),
                Step::Rebuild(1),
                Step::Compact,
            ];
            for step in &steps {
                models.run(&db, step).unwrap();
                world = world.after(step);
            }
            models.check(&db.snapshot(), &[world]);
            tried += 1;
        }
    }
    report(
        tried,
        format_args!(
            "rebuilds interrupted at {} steps, {switched} after the switch; one model each time, all repeated",
            points.len()
        ),
    );
    assert!(switched > 0 && switched < tried);
}
