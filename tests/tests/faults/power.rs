//! A power cut at every sync: each unsynced write is kept, dropped, torn or garbage, and sled is in any state.
//!
//! A script runs on a recorded disk. For a moment of it, the directory is written as a power cut could leave it, and
//! opened by a reader, then by a writer. It must hold every batch that was acknowledged before that moment, perhaps the
//! one in progress, and nothing else; answers must be those of a plain scan under the model that it names. Recovery is
//! recorded too, and interrupted in turn.

use crate::world::{Models, Step, World, open, options, script};
use crate::{Case, report, scratch, torture};
use mopqdb::testing::disk::{Disk, Files};
use mopqdb::{Database, Reader};
use mopqdb_tests::recording::{CATALOG_STATES, CatalogState, FATES, Fate, Recording, copy_dir};
use mopqdb_tests::support::Random;
use mopqdb_tests::watched::Watched;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A recorded run: at mark m the database holds one of `worlds[m]`.
struct Run {
    recording: Arc<Recording>,
    worlds: Vec<Vec<World>>,
}

fn record(models: &Models, dir: &Path, seed: u64, steps: usize) -> Run {
    let path = dir.join("db");
    models.create(&path);
    let recording = Arc::new(Recording::of(&path, &dir.join("catalogs")));
    let files = Watched::disk(Arc::clone(&recording) as _);
    let script = script(seed, steps);
    let mut world = World::default();
    let mut worlds = Vec::new();
    let mut db = Some(open(&files, &path).unwrap());
    for (at, step) in script.iter().enumerate() {
        let next = world.after(step);
        worlds.push(vec![world, next.clone()]);
        if let Step::Reopen = step {
            drop(db.take());
            db = Some(open(&files, &path).unwrap());
        } else {
            models.run(db.as_ref().unwrap(), step).unwrap();
        }
        recording.mark(at + 1);
        world = next;
    }
    models.check(
        &db.as_ref().unwrap().snapshot(),
        std::slice::from_ref(&world),
    );
    worlds.push(vec![world]);
    drop(db);
    Run { recording, worlds }
}

/// Opens what a cut left, which must be one of the worlds. Then checks that it can be written and that this lasts.
fn expect(models: &Models, path: &Path, worlds: &[World]) {
    let read = Reader::open(path, options()).unwrap();
    models.check(&read.snapshot(), worlds);
    let db = Database::open(path, options()).unwrap();
    let which = models.check(&db.snapshot(), worlds);
    let step = Step::Insert(vec![
        ("after".into(), vec![0.25; 8]),
        ("k1".into(), vec![0.5; 8]),
    ]);
    models.run(&db, &step).unwrap();
    let world = worlds[which].after(&step);
    drop(db);
    let db = Database::open(path, options()).unwrap();
    models.check(&db.snapshot(), std::slice::from_ref(&world));
    db.compact().unwrap();
    models.check(&db.snapshot(), &[world]);
}

fn cut(
    run: &Run,
    point: usize,
    fate: Fate,
    catalog: CatalogState,
    seed: u64,
    dest: &Path,
) -> (Case, Vec<World>) {
    let case = Case(format!(
        "seed {seed}: cut at event {point} of {} ({}), unsynced writes {fate:?}, catalog {catalog:?}",
        run.recording.len(),
        run.recording.describe(point)
    ));
    let mut random = Random::quiet(seed);
    run.recording
        .replay(point, fate, catalog, &mut || random.bits(), dest);
    (case, run.worlds[run.recording.marked(point)].clone())
}

#[test]
fn a_power_cut_at_any_sync_leaves_every_acknowledged_batch_and_no_partial_one() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let run = record(&models, dir.path(), 501, 50);
    let points = run.recording.sync_points();
    let mut cases: Vec<(usize, Fate, CatalogState)> = Vec::new();
    for &point in &points {
        for fate in FATES {
            cases.extend(CATALOG_STATES.map(|catalog| (point, fate, catalog)));
        }
    }
    let all = cases.len();
    let mut random = Random::new(502);
    let tried = if torture() { all } else { 350 };
    for n in 0..tried {
        let at = if torture() { n } else { random.below(all) };
        let (point, fate, catalog) = cases[at];
        let dest = scratch();
        let (_case, worlds) = cut(&run, point, fate, catalog, at as u64, dest.path());
        expect(&models, dest.path(), &worlds);
    }
    report(
        tried,
        format_args!(
            "power cuts of {all} possible, at {} sync points of {} events, all survived",
            points.len(),
            run.recording.len()
        ),
    );
}

/// The power may fail again during recovery.
#[test]
fn a_power_cut_during_recovery_loses_nothing() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let run = record(&models, dir.path(), 511, 40);
    let points = run.recording.sync_points();
    let mut random = Random::new(512);
    let (outer, inner) = if torture() {
        (points.len(), 40)
    } else {
        (25, 10)
    };
    let mut tried = 0;
    for n in 0..outer {
        let point = if torture() {
            points[n]
        } else {
            points[random.below(points.len())]
        };
        let fate = FATES[random.below(FATES.len())];
        let catalog = CATALOG_STATES[random.below(CATALOG_STATES.len())];
        let first = scratch();
        let path = first.path().join("db");
        let (_case, worlds) = cut(&run, point, fate, catalog, n as u64, &path);
        let again = recover(&models, &path, &first.path().join("catalogs"), worlds);
        let points = again.recording.sync_points();
        for _ in 0..inner {
            let point = points[random.below(points.len())];
            let fate = FATES[random.below(FATES.len())];
            let catalog = CATALOG_STATES[random.below(CATALOG_STATES.len())];
            let dest = scratch();
            let (_case, worlds) = cut(&again, point, fate, catalog, random.bits(), dest.path());
            expect(&models, dest.path(), &worlds);
            tried += 1;
        }
    }
    report(tried, "power cuts during recovery, all survived");
}

/// Records a recovery, and one more batch.
fn recover(models: &Models, path: &Path, catalogs: &Path, worlds: Vec<World>) -> Run {
    if !path.join("catalog").is_dir() {
        std::fs::create_dir(path.join("catalog")).unwrap();
    }
    let recording = Arc::new(Recording::of(path, catalogs));
    let files = Watched::disk(Arc::clone(&recording) as _);
    let db = open(&files, path).unwrap();
    let step = Step::Insert(vec![("second".into(), vec![0.75; 8])]);
    let world = worlds[models.check(&db.snapshot(), &worlds)].clone();
    let after = world.after(&step);
    recording.mark(1);
    models.run(&db, &step).unwrap();
    recording.mark(2);
    drop(db);
    let worlds = vec![worlds, vec![world, after.clone()], vec![after]];
    Run { recording, worlds }
}

/// A reader that opens while a writer recovers must see a consistent state too.
#[test]
fn a_reader_during_recovery_sees_each_row_once() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    models.create(&path);
    let db = Database::open(&path, options()).unwrap();
    let steps = [
        Step::Insert(vec![("a".into(), vec![0.1; 8]), ("b".into(), vec![0.2; 8])]),
        Step::Insert(vec![("a".into(), vec![0.3; 8])]),
        Step::Delete(vec!["b".into()]),
    ];
    let mut world = World::default();
    for step in &steps {
        models.run(&db, step).unwrap();
        world = world.after(step);
    }
    // A killed process leaves what is on disk now.
    let killed = dir.path().join("killed");
    copy_dir(&path, &killed);
    drop(db);
    let recording = Arc::new(Recording::of(&killed, &dir.path().join("catalogs")));
    let files = Watched::disk(Arc::clone(&recording) as _);
    let open = Reader::open(&killed, options()).unwrap();
    drop(Database::open_on(files, &killed, options()).unwrap());
    for point in 0..=recording.len() {
        let dest: PathBuf = dir.path().join(format!("at-{point}"));
        recording.replay(point, Fate::Kept, CatalogState::Now, &mut || 0, &dest);
        let _case = Case(format!("event {point}: {}", recording.describe(point)));
        let reader = Reader::open(&dest, options()).unwrap();
        models.check(&reader.snapshot(), std::slice::from_ref(&world));
    }
    open.refresh().unwrap();
    models.check(&open.snapshot(), std::slice::from_ref(&world));
    let disk: Arc<dyn Files> = Arc::new(Disk::default());
    drop(crate::world::open(&disk, &killed).unwrap());
}
