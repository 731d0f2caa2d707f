//! The Nth call to the disk fails: EIO, a full disk, half a write, a failed sync.
//!
//! A script runs, hits the fault, continues, and reopens. An error other than `OutcomeUnknown` changed nothing; after
//! that error nothing is written until the database is reopened. At the end the power fails, and everything is lost
//! whose sync failed or never came. What was acknowledged must be there, so no failed sync was repeated and trusted.

use crate::world::{DIM, Known, Models, Step, World, open, options, script};
use crate::{Case, report, scratch, torture};
use mopqdb::{Database, Error};
use mopqdb_tests::faulty::{Fault, Faulty};
use mopqdb_tests::recording::{CatalogState, Fate, Recording, copy_dir};
use mopqdb_tests::support::Random;
use mopqdb_tests::watched::{Call, Watched, Watcher};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs a script with one fault. Returns whether the fault occurred, and the number of calls.
fn run(models: &Models, template: &Path, steps: &[Step], fault: Fault, at: usize) -> (bool, usize) {
    let dir = scratch();
    let path = dir.path().join("db");
    copy_dir(template, &path);
    let recording = Arc::new(Recording::of(&path, &dir.path().join("catalogs")));
    let faulty = Faulty::new(fault, at, Arc::clone(&recording) as _);
    let files = Watched::disk(Arc::clone(&faulty) as _);
    let mut known = Known::new(World::default());
    let mut db = None;
    // The possible states after each step.
    let mut history = vec![known.reopened()];
    for step in [&Step::Reopen].into_iter().chain(steps) {
        if let Step::Reopen = step {
            drop(db.take());
            let opened = open(&files, &path).or_else(|_| {
                // The fault occurred while opening and was reported. After freeing space, opening works.
                faulty.heal();
                open(&files, &path)
            });
            let opened = opened.unwrap();
            let worlds = known.reopened();
            known = Known::new(worlds[models.check(&opened.snapshot(), &worlds)].clone());
            db = Some(opened);
            recording.mark(history.len());
            history.push(known.reopened());
            continue;
        }
        let open = db.as_ref().unwrap();
        let outcome = models.run(open, step);
        if let Err(e) = &outcome {
            assert!(faulty.hit(), "an error before the fault: {e}");
        }
        known.step(step, outcome);
        // What may not be durable is never visible.
        models.recognise(&open.snapshot(), &known.worlds);
        recording.mark(history.len());
        history.push(known.reopened());
    }
    faulty.heal();
    drop(db);
    let worlds = known.reopened();
    // The power fails, then the database is opened.
    recording.copy_catalog();
    let after = dir.path().join("after");
    recording.replay(
        recording.len(),
        Fate::Dropped,
        CatalogState::Now,
        &mut || 0,
        &after,
    );
    let reopened = Database::open(&after, options()).unwrap();
    models.check(&reopened.snapshot(), &worlds);
    drop(reopened);
    // Or the power failed earlier, perhaps between the fault and its consequences.
    let mut random = Random::quiet(at as u64);
    let points = recording.sync_points();
    for n in 0..2 {
        let point = points[random.below(points.len())];
        let marked = recording.marked(point);
        let worlds = history[marked..(marked + 2).min(history.len())].concat();
        let cut = dir.path().join(format!("cut-{n}"));
        let fate = [Fate::Dropped, Fate::Any][n];
        recording.replay(point, fate, CatalogState::Now, &mut || random.bits(), &cut);
        let _case = Case(format!("and a power cut at event {point}, {fate:?}"));
        let reopened = Database::open(&cut, options()).unwrap();
        models.check(&reopened.snapshot(), &worlds);
    }
    // Or nothing more happens, and the database is opened.
    let reopened = Database::open(&path, options()).unwrap();
    models.check(&reopened.snapshot(), &worlds);
    reopened.compact().unwrap();
    models.check(&reopened.snapshot(), &worlds);
    (faulty.hit(), faulty.calls())
}

#[test]
fn any_failed_call_to_the_disk_gives_a_clean_error_and_loses_nothing_acknowledged() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let template = dir.path().join("template");
    models.create(&template);
    let mut steps = script(601, 30);
    // The script has every kind of operation, whatever the seed.
    steps.splice(
        12..12,
        [
            Step::Rebuild(0),
            Step::Compact,
            Step::Reopen,
            Step::Rebuild(1),
        ],
    );
    let (hit, calls) = run(&models, &template, &steps, Fault::Broken, 0);
    assert!(!hit);
    let mut random = Random::new(602);
    let mut tried = 0;
    for fault in [Fault::Broken, Fault::Full, Fault::Short] {
        let share = if torture() { calls } else { 40 };
        for n in 1..=share {
            // Every call, or one of each range of calls.
            let at = if torture() {
                n
            } else {
                (n - 1) * calls / share + 1 + random.below(calls / share)
            };
            let _case = Case(format!("{fault:?} at call {at} of {calls}"));
            let (hit, _) = run(&models, &template, &steps, fault, at);
            assert!(hit, "the fault occurred");
            tried += 1;
        }
    }
    report(
        tried,
        format_args!("calls to the disk failed, over {calls} calls, nothing acknowledged was lost"),
    );
}

/// Fails one call that the second witness of a version needs, once.
#[derive(Debug)]
struct NoManifest {
    step: &'static str,
    /// The manifest was renamed; the next sync is that of its directory.
    named: AtomicBool,
    armed: AtomicBool,
}

impl Watcher for NoManifest {
    fn before(&self, call: &Call<'_>) -> io::Result<usize> {
        let manifest = call.path().to_string_lossy().contains("MANIFEST-");
        let step = match call {
            Call::Create(..) if manifest => "create",
            Call::Write(..) if manifest => "write",
            Call::Sync(..) if manifest => "sync",
            Call::Rename(..) if manifest => "rename",
            Call::SyncDir(_) if self.named.swap(false, Ordering::SeqCst) => "sync its name",
            _ => "",
        };
        self.named.fetch_or(step == "rename", Ordering::SeqCst);
        if step == self.step && self.armed.swap(false, Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(call.bytes())
    }
}

/// One witness has the new version, and the other may have it. If the writer continued, it would write the same version
/// with different contents, and trust the sync of a name whose sync failed.
#[test]
fn a_manifest_that_can_not_be_written_stops_the_writer_until_it_is_opened_again() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let template = dir.path().join("template");
    models.create(&template);
    let mut random = Random::new(603);
    let mut insert = |from: usize| {
        let rows = (from..from + 6).map(|n| (format!("k{n}"), random.vector(DIM)));
        Step::Insert(rows.collect())
    };
    let first = [insert(0), Step::Seal, insert(4), Step::Seal, insert(20)];
    let others = [
        insert(30),
        Step::Delete(vec!["k1".into()]),
        Step::Seal,
        Step::Compact,
        Step::Rebuild(1),
    ];
    let mut tried = 0;
    for step in ["create", "write", "sync", "rename", "sync its name"] {
        for commits in [Step::Seal, Step::Compact, Step::Rebuild(0)] {
            let _case = Case(format!("{commits:?}, manifest: {step}"));
            let path = dir.path().join(format!("db-{tried}"));
            copy_dir(&template, &path);
            let watcher = Arc::new(NoManifest {
                step,
                named: AtomicBool::new(false),
                armed: AtomicBool::new(false),
            });
            let db = open(&Watched::disk(Arc::clone(&watcher) as _), &path).unwrap();
            let mut world = World::default();
            // Rows that a compaction or rebuild would seal first are sealed already, so the manifest is their own.
            let sealed = (!matches!(commits, Step::Seal)).then_some(&Step::Seal);
            for step in first.iter().chain(sealed) {
                models.run(&db, step).unwrap();
                world = world.after(step);
            }
            watcher.armed.store(true, Ordering::SeqCst);
            let error = models.run(&db, &commits).unwrap_err();
            assert!(!watcher.armed.load(Ordering::SeqCst), "the fault occurred");
            assert!(matches!(error, Error::OutcomeUnknown(_)), "{error}");
            for other in &others {
                match models.run(&db, other) {
                    Err(Error::OutcomeUnknown(_)) => {}
                    Ok(()) if matches!(other, Step::Seal) && sealed.is_some() => {}
                    // It was prepared from the version in one witness, so it does not follow from the version of this
                    // writer.
                    Err(Error::Model(_)) if matches!(other, Step::Rebuild(_)) => {}
                    outcome => panic!("{other:?}: {outcome:?}"),
                }
            }
            // Queries continue with the previous version.
            models.check(&db.snapshot(), std::slice::from_ref(&world));
            drop(db);
            let worlds = [world.clone(), world.after(&commits)];
            let db = Database::open(&path, options()).unwrap();
            let which = models.check(&db.snapshot(), &worlds);
            models.run(&db, &others[0]).unwrap();
            models.check(&db.snapshot(), &[worlds[which].after(&others[0])]);
            tried += 1;
        }
    }
    report(tried, "manifests failed, the writer stopped each time");
}
