//! Directories that can't be written, and full disks.

use crate::world::{DIM, Known, Models, Step, World, options, row};
use crate::{scratch, torture};
use mopqdb::{Database, Error, Reader};
use mopqdb_tests::mounted::Mounted;
use mopqdb_tests::recording::copy_dir;
use mopqdb_tests::support::Random;
use std::path::Path;

fn filled(models: &Models, path: &Path) -> World {
    models.create(path);
    let db = Database::open(path, options()).unwrap();
    let mut random = Random::new(901);
    let mut world = World::default();
    for n in 0..3 {
        let rows = (0..8).map(|m| (format!("k{n}-{m}"), random.vector(DIM)));
        let step = Step::Insert(rows.collect());
        models.run(&db, &step).unwrap();
        world = world.after(&step);
    }
    db.close().unwrap();
    world
}

fn expect_reading_only(models: &Models, path: &Path, world: &World) {
    let reader = Reader::open(path, options()).unwrap();
    models.check(&reader.snapshot(), std::slice::from_ref(world));
    assert!(!reader.refresh().unwrap());
    reader.stats().unwrap();
    let error = Database::open(path, options()).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert!(error.to_string().contains("LOCK"), "{error}");
}

#[test]
fn a_read_only_directory_can_be_read_and_is_not_written() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    let world = filled(&models, &path);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let all = ["", "LOCK", "logs", "segments", "models", "catalog"];
        for name in all {
            mode(&path.join(name), if name == "LOCK" { 0o444 } else { 0o555 });
        }
        if std::fs::write(path.join("probe"), "").is_ok() {
            // Root can write anywhere, but not on a read-only file system.
            std::fs::remove_file(path.join("probe")).unwrap();
            let Some(mounted) = Mounted::new(&dir.path().join("mounted"), "size=16m") else {
                return;
            };
            let inside = mounted.0.join("db");
            copy_dir(&path, &inside);
            assert!(mounted.remount("ro"));
            expect_reading_only(&models, &inside, &world);
        } else {
            expect_reading_only(&models, &path, &world);
        }
        for name in all {
            mode(&path.join(name), 0o755);
        }
    }
}

#[test]
fn a_full_disk_gives_errors_with_a_remedy_and_keeps_accepted_rows() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let Some(mounted) = Mounted::new(&dir.path().join("mounted"), "size=2500k") else {
        return;
    };
    let path = mounted.0.join("db");
    models.create(&path);
    let mut random = Random::new(902);
    let rounds = if torture() { 20 } else { 4 };
    let mut world = World::default();
    for round in 0..rounds {
        let db =
            Database::open(&path, options().seal_rows(1000).seal_in_background(false)).unwrap();
        let mut errors = Vec::new();
        let mut known = Known::new(world);
        for n in 0..4000 {
            let step = match n % 40 {
                38 => Step::Seal,
                39 if round % 2 == 0 => Step::Rebuild(n / 40 % 2),
                39 => Step::Compact,
                _ => Step::Insert(
                    (0..30)
                        .map(|m| (format!("{round}/{n}/{m}"), random.vector(DIM)))
                        .collect(),
                ),
            };
            let outcome = models.run(&db, &step);
            if let Err(e) = &outcome {
                errors.push(e.to_string());
            }
            known.step(&step, outcome);
            if errors.len() > 5 {
                break;
            }
        }
        assert!(!errors.is_empty(), "the disk of 2.5 MB did not fill up");
        println!(
            "round {round}: {} rows, then {:?}",
            known.worlds[0].oracle.rows.len(),
            errors[0]
        );
        // A full database can still be read.
        let worlds = known.reopened();
        models.recognise(&Reader::open(&path, options()).unwrap().snapshot(), &worlds);
        drop(db);
        // After freeing space it opens, and rows can be deleted.
        assert!(mounted.remount("size=12m"));
        let db = Database::open(&path, options()).unwrap();
        world = worlds[models.recognise(&db.snapshot(), &worlds)].clone();
        let step = Step::Delete(world.oracle.rows.keys().cloned().collect());
        models.run(&db, &step).unwrap();
        world = world.after(&step);
        db.compact().unwrap();
        db.insert(&[row("x", &[1.0; DIM])]).unwrap();
        db.delete(&["x"]).unwrap();
        db.close().unwrap();
        assert!(mounted.remount("size=2500k"));
    }
}
