//! An untrusted database with links and pipes in it: their targets are neither read nor written.

use crate::flips::{answers, files, sample};
use crate::world::{Models, options};
use crate::{Case, report, scratch};
use mopqdb::{Database, Error, Reader, RebuildOptions, VerifyOptions};
use mopqdb_tests::recording::copy_dir;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

fn refused<T>(outcome: mopqdb::Result<T>) {
    match outcome {
        Err(e @ (Error::Incompatible { .. } | Error::Io { .. })) => {
            let said = e.to_string();
            assert!(said.contains("link"), "{said}");
        }
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("the link was followed"),
    }
}

/// Tries every way to open a database.
fn refused_by_all(path: &Path) {
    refused(Reader::open(path, options()));
    refused(Database::open(path, options()));
    refused(mopqdb::verify(path, &VerifyOptions::default()));
    refused(mopqdb::repair(path, &mopqdb::RepairOptions::default()));
    refused(mopqdb::backup(path, path.with_extension("copy")));
    refused(mopqdb::rebuild(path, &RebuildOptions::default()));
}

#[test]
fn a_lock_that_is_a_link_is_refused_and_its_target_is_not_changed() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    sample(&models, &path);
    let victim = dir.path().join("victim");
    fs::write(&victim, "not yours").unwrap();
    for lock in ["LOCK", "prepare.lock"] {
        let _ = fs::remove_file(path.join(lock));
        symlink(&victim, path.join(lock)).unwrap();
        let _case = Case(lock.into());
        refused_by_all(&path);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "not yours");
        fs::remove_file(path.join(lock)).unwrap();
    }
    answers(&path).unwrap();
}

#[test]
fn directories_that_are_links_are_refused() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    sample(&models, &path);
    let elsewhere = dir.path().join("elsewhere");
    for folder in [
        "segments", "logs", "models", "catalog", "staging", "orphans",
    ] {
        let (here, there) = (path.join(folder), elsewhere.join(folder));
        fs::create_dir_all(&here).unwrap();
        copy_dir(&here, &there);
        let before = files(&elsewhere);
        let aside = path.join("aside");
        fs::rename(&here, &aside).unwrap();
        symlink(&there, &here).unwrap();
        let _case = Case(folder.into());
        refused_by_all(&path);
        assert_eq!(files(&elsewhere), before);
        fs::remove_file(&here).unwrap();
        fs::rename(&aside, &here).unwrap();
    }
    answers(&path).unwrap();
}

/// The target has the right bytes, so it is the link that is refused.
#[test]
fn files_that_are_links_are_not_read() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    sample(&models, &path);
    let expected = answers(&path).unwrap();
    let there = dir.path().join("elsewhere");
    let (mut tried, mut unused) = (0, Vec::new());
    for (file, bytes) in files(&path) {
        let name = file.strip_prefix(&path).unwrap().display().to_string();
        let _case = Case(name.clone());
        fs::write(&there, &bytes).unwrap();
        fs::remove_file(&file).unwrap();
        symlink(&there, &file).unwrap();
        tried += 1;
        match answers(&path) {
            Err(e) => assert!(e.to_string().contains("links are not followed"), "{e}"),
            // Older manifests and another model are not read.
            Ok(answered) => {
                assert_eq!(answered, expected);
                unused.push(name);
            }
        }
        // Opening a pipe would block.
        fs::remove_file(&file).unwrap();
        let made = Command::new("mkfifo").arg(&file).status();
        if made.is_ok_and(|status| status.success()) {
            tried += 1;
            let _ = answers(&path);
            fs::remove_file(&file).unwrap();
        }
        fs::write(&file, bytes).unwrap();
    }
    report(
        tried,
        format_args!("files made links or pipes, none followed; not asked for: {unused:?}"),
    );
    assert!(unused.len() * 2 < tried);
    assert_eq!(answers(&path).unwrap(), expected);
}
