//! What goes wrong, and what is said: each message names the thing and what to do next, each kind has its exit code.

use crate::support::{data, run, run_with};
use mopqdb::{Database, Options};
use std::path::Path;

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A database of 200 vectors of 8.
fn database(dir: &Path) {
    data(&dir.join("x.npy"), 1, 200, 8);
    run(dir, &["insert", "x.db", "x.npy"]).ok();
}

fn said(message: &str, words: &[&str]) {
    for words in words {
        assert!(message.contains(words), "{words:?} is not said: {message}");
    }
}

#[test]
fn a_wrong_command_line_is_2_and_shows_the_right_one() {
    let dir = dir();
    said(
        &run(dir.path(), &["qurey"]).failed(2),
        &["unrecognized subcommand 'qurey'", "query"],
    );
    said(
        &run(dir.path(), &["query", "x.db", "--k", "3"]).failed(2),
        &["unexpected argument '--k'", "Usage"],
    );
    said(
        &run(dir.path(), &["query", "x.db", "a", "-k", "0"]).failed(2),
        &["1..=10000"],
    );
    let many = ["create", "y.db", "--dim", "4", "--threads", "100000"];
    said(&run(dir.path(), &many).failed(2), &["at most 1024"]);
    assert!(!dir.path().join("y.db").exists());
    said(
        &run(dir.path(), &["create", "x.db", "--encoder", "none"]).failed(2),
        &["--dim N", "--help"],
    );
    said(
        &run(
            dir.path(),
            &["create", "x.db", "--dim", "4", "--metric", "dot"],
        )
        .failed(2),
        &["use ip, cosine or l2"],
    );
    said(
        &run(dir.path(), &["insert", "x.db", "-", "-"]).failed(2),
        &["only once"],
    );
    said(
        &run(dir.path(), &["train", "x.db"]).failed(2),
        &["--pairs", "--method opq"],
    );
    said(
        &run(
            dir.path(),
            &["train", "x.db", "--method", "opq", "--lr", "1"],
        )
        .failed(2),
        &["--lr has no meaning for --method opq"],
    );
    said(
        &run(dir.path(), &["stats", "x.db", "--memory-limit", "lots"]).failed(2),
        &["512M"],
    );
    database(dir.path());
    said(
        &run(dir.path(), &["query", "x.db"]).failed(2),
        &["--vectors"],
    );
    said(
        &run(dir.path(), &["eval", "x.db", "--pairs", "p", "-k", "0"]).failed(2),
        &["1 to 10000"],
    );
    assert!(
        run(dir.path(), &["--version"])
            .ok()
            .starts_with("mopqdb 0.")
    );
    assert!(
        run(dir.path(), &["insert", "--help"])
            .ok()
            .contains("Examples:")
    );
}

#[test]
fn a_missing_file_is_named() {
    let dir = dir();
    said(
        &run(dir.path(), &["insert", "x.db", "no.jsonl"]).failed(1),
        &["no.jsonl", "No such file"],
    );
    assert!(!dir.path().join("x.db").exists(), "nothing was made");
    database(dir.path());
    said(
        &run(dir.path(), &["query", "x.db", "--vectors", "no.npy"]).failed(1),
        &["no.npy"],
    );
    said(
        &run(dir.path(), &["query", "x.db", "--file", "no.txt"]).failed(1),
        &["no.txt"],
    );
    said(
        &run(dir.path(), &["eval", "x.db", "--pairs", "no.tsv"]).failed(1),
        &["no.tsv"],
    );
    said(
        &run(dir.path(), &["insert", "x.db", "."]).failed(1),
        &["format"],
    );
}

#[test]
fn a_missing_database_and_a_directory_that_is_none_are_told_apart() {
    let dir = dir();
    for command in [
        &["query", "no.db", "x"][..],
        &["stats", "no.db"],
        &["get", "no.db", "k"],
        &["models", "no.db"],
        &["seal", "no.db"],
        &["compact", "no.db"],
        &["delete", "no.db", "k"],
        &["verify", "no.db"],
        &["prune", "no.db"],
        &["rebuild", "no.db"],
        &["backup", "no.db", "copy.db"],
        &["train", "no.db", "--method", "opq"],
    ] {
        said(
            &run(dir.path(), command).failed(1),
            &["no.db: not found\n", "`mopqdb create"],
        );
        assert!(!dir.path().join("no.db").exists(), "{command:?} made one");
    }
    std::fs::write(dir.path().join("file.db"), "").unwrap();
    said(
        &run(dir.path(), &["stats", "file.db"]).failed(1),
        &["file.db: a file; a mopqdb database is a directory"],
    );
    std::fs::create_dir(dir.path().join("photos")).unwrap();
    std::fs::write(dir.path().join("photos/cat.jpg"), "meow").unwrap();
    for command in [
        &["query", "photos", "x"][..],
        &["stats", "photos"],
        &["seal", "photos"],
        &["delete", "photos", "k"],
    ] {
        said(
            &run(dir.path(), command).failed(1),
            &["photos", "not a mopqdb database"],
        );
    }
    said(
        &run_with(
            dir.path(),
            &["insert", "photos"],
            "{\"key\":\"a\",\"vector\":[1]}\n",
        )
        .failed(1),
        &["photos", "not a mopqdb database"],
    );
    said(
        &run(dir.path(), &["create", "photos", "--dim", "4"]).failed(1),
        &["photos", "not empty"],
    );
    let left: Vec<_> = std::fs::read_dir(dir.path().join("photos"))
        .unwrap()
        .collect();
    assert_eq!(left.len(), 1, "a stranger's directory was changed");
}

#[test]
fn a_wrong_dimension_names_both() {
    let dir = dir();
    database(dir.path());
    data(&dir.path().join("wide.npy"), 2, 3, 9);
    said(
        &run(dir.path(), &["insert", "x.db", "wide.npy", "--replace"]).failed(1),
        &["wide.npy: row 0", "9 values", "takes 8"],
    );
    said(
        &run(dir.path(), &["query", "x.db", "--vectors", "wide.npy"]).failed(1),
        &["9 values", "8"],
    );
    said(
        &run(dir.path(), &["query", "x.db", "a text"]).failed(1),
        &["no encoder", "vectors of 8"],
    );
    said(
        &run_with(
            dir.path(),
            &["insert", "x.db"],
            "{\"key\":\"a\",\"text\":\"b\"}\n",
        )
        .failed(1),
        &["stdin:1", "no encoder"],
    );
}

#[test]
fn a_database_of_the_future_is_refused_by_version() {
    let dir = dir();
    database(dir.path());
    for entry in std::fs::read_dir(dir.path().join("x.db")).unwrap() {
        let path = entry.unwrap().path();
        if path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("MANIFEST-")
        {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[8] = 9;
            let sum = xxhash_rust::xxh3::xxh3_64(&bytes[..56]).to_le_bytes();
            bytes[56..64].copy_from_slice(&sum);
            let mut permissions = std::fs::metadata(&path).unwrap().permissions();
            #[expect(clippy::permissions_set_readonly_false, reason = "a test's own file")]
            permissions.set_readonly(false);
            std::fs::set_permissions(&path, permissions).unwrap();
            std::fs::write(&path, bytes).unwrap();
        }
    }
    for command in [&["stats", "x.db"][..], &["seal", "x.db"]] {
        said(
            &run(dir.path(), command).failed(1),
            &["version 9", "newer mopqdb"],
        );
    }
}

#[test]
fn a_locked_database_is_4_and_can_still_be_read() {
    let dir = dir();
    database(dir.path());
    let held = Database::open(dir.path().join("x.db"), Options::default()).unwrap();
    for command in [
        &["seal", "x.db"][..],
        &["delete", "x.db", "1"],
        &["insert", "x.db", "x.npy"],
        &["compact", "x.db"],
    ] {
        let message = run(dir.path(), command).failed(4);
        let holder = "x.db is locked for writing by program-";
        said(&message, &[holder, "(process ", "--wait", "query"]);
        // What only those know who wrote the engine.
        assert!(!message.contains("Reader") && !message.contains("LOCK"));
    }
    run(dir.path(), &["get", "x.db", "1"]).ok();
    run(
        dir.path(),
        &["query", "x.db", "--vectors", "x.npy", "-k", "1"],
    )
    .ok();
    held.close().unwrap();
    run(dir.path(), &["seal", "x.db"]).ok();
}

#[test]
fn corrupt_data_is_3_and_names_file_and_remedy() {
    let dir = dir();
    database(dir.path());
    run(dir.path(), &["seal", "x.db"]).ok();
    let segments = dir.path().join("x.db/segments");
    let rows = std::fs::read_dir(&segments)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().unwrap() == "rows")
        .unwrap();
    let mut bytes = std::fs::read(&rows).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::remove_file(&rows).unwrap();
    std::fs::write(&rows, bytes).unwrap();
    let ran = run(
        dir.path(),
        &["query", "x.db", "--vectors", "x.npy", "-k", "200"],
    );
    said(&ran.failed(3), &[".rows", "damaged", "`mopqdb repair"]);
}

#[test]
fn a_missing_part_is_5_with_the_way_to_get_it() {
    let dir = dir();
    database(dir.path());
    std::fs::write(dir.path().join("p.tsv"), "a\tb\n").unwrap();
    // A copy of the program with nothing beside it, nothing on PATH and nothing in its home.
    let lonely = dir.path().join("bin/mopqdb");
    std::fs::create_dir(dir.path().join("bin")).unwrap();
    std::fs::copy(crate::support::program(), &lonely).unwrap();
    let alone = |arguments: &[&str]| -> crate::support::Ran {
        let mut command = std::process::Command::new(&lonely);
        command
            .args(arguments)
            .current_dir(dir.path())
            .env_clear()
            .env("PATH", "")
            .env("MOPQDB_HOME", dir.path().join("nowhere"));
        command.output().unwrap().into()
    };
    said(
        &alone(&["train", "x.db", "--pairs", "p.tsv"]).failed(5),
        &["mopqdb-train", "make", "--method opq"],
    );
    said(
        &alone(&["create", "t.db"]).failed(5),
        &["default encoder", "mopqdb setup"],
    );
    assert!(!dir.path().join("t.db").exists());
}

#[test]
fn a_key_that_is_not_there_is_said() {
    let dir = dir();
    database(dir.path());
    let ran = run(dir.path(), &["get", "x.db", "1", "nope", "--json"]);
    assert!(
        ran.out.starts_with("{\"key\":\"1\",\"vector\":["),
        "what is there is printed"
    );
    said(&ran.failed(1), &["no row has the key nope"]);
    assert_eq!(
        run(dir.path(), &["delete", "x.db", "1", "nope"]).ok(),
        "deleted 1 row; 1 key not there\n"
    );
    said(
        &run(dir.path(), &["rebuild", "x.db", "--model", "abc"]).failed(1),
        &["abc", "mopqdb models"],
    );
}
