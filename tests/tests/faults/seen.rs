//! Everything that the engine leaves on disk went through `Files`: the recording equals the directory.

use crate::scratch;
use crate::world::{DIM, METRIC, Models, Step, World, options, row, script};
use mopqdb::testing::disk::Files;
use mopqdb::testing::{backup_on, prune_on, register_model_on, repair_on};
use mopqdb::{BackupOptions, CreateOptions, Database, PruneOptions, RepairOptions, Watch};
use mopqdb_tests::recording::{CatalogState, Fate, Recording};
use mopqdb_tests::support::Random;
use mopqdb_tests::watched::Watched;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Returns every file below a directory, except sled's, which only sled writes, and the text in lock files, which is
/// for people.
fn contents(root: &Path, dir: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if name != "catalog" {
                contents(root, &path, found);
            }
        } else if !["LOCK", "prepare.lock"].contains(&name) {
            found.insert(
                path.strip_prefix(root).unwrap().into(),
                fs::read(&path).unwrap(),
            );
        }
    }
}

#[test]
fn every_byte_on_disk_went_through_files() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let home = dir.path().join("home");
    fs::create_dir(&home).unwrap();
    let recording = Arc::new(Recording::of(&home, &dir.path().join("catalogs")));
    let files: Arc<dyn Files> = Watched::disk(Arc::clone(&recording) as _);
    let path = home.join("db");
    let new = CreateOptions::vectors(DIM, METRIC);
    let db = Database::create_on(Arc::clone(&files), &path, &new, options()).unwrap();
    for bundle in &models.0 {
        register_model_on(&*files, &path, bundle).unwrap();
    }
    let mut world = World::default();
    for step in script(91, 60) {
        if !matches!(step, Step::Reopen) {
            models.run(&db, &step).unwrap();
            world = world.after(&step);
        }
    }
    // A quantizer is learned from the rows, as `insert` does it.
    let mut random = Random::new(92);
    let rows: Vec<_> = (0..2_000)
        .map(|n| row(&format!("more{n}"), &random.vector(DIM)))
        .collect();
    db.insert(&rows).unwrap();
    db.auto_quantize(1, &Watch::new()).unwrap();
    db.insert(&[row("last", &random.vector(DIM))]).unwrap();
    backup_on(
        &*files,
        &path,
        &home.join("copy"),
        &BackupOptions::default(),
    )
    .unwrap();
    db.close().unwrap();
    // A file is damaged, so that `repair` has something to write.
    let codes = fs::read_dir(path.join("segments"))
        .unwrap()
        .find_map(|entry| {
            let path = entry.unwrap().path();
            path.extension()
                .is_some_and(|e| e == "codes")
                .then_some(path)
        });
    let damaged = codes.expect("codes of the active model");
    files.remove(&damaged).unwrap();
    let repaired = repair_on(Arc::clone(&files), &path, &RepairOptions::default()).unwrap();
    assert!(!repaired.done.is_empty());
    prune_on(files, &path, &PruneOptions::default()).unwrap();

    let replayed = scratch();
    let end = recording.len();
    recording.replay(
        end,
        Fate::Kept,
        CatalogState::Absent,
        &mut || 0,
        replayed.path(),
    );
    let (mut there, mut recorded) = (BTreeMap::new(), BTreeMap::new());
    contents(&home, &home, &mut there);
    contents(replayed.path(), replayed.path(), &mut recorded);
    let names = |all: &BTreeMap<PathBuf, Vec<u8>>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&there), names(&recorded));
    for (path, bytes) in &there {
        assert!(
            *bytes == recorded[path],
            "{} has bytes that no recorded call wrote",
            path.display()
        );
    }
    let kinds = ["rows", "codes", "dels", "log", "safetensors", "json"];
    for kind in kinds {
        assert!(
            there
                .keys()
                .any(|path| path.extension().is_some_and(|e| e == kind)),
            "no {kind}"
        );
    }
}
