//! Error messages: each names its cause and what to do next, and each kind has its exit code.

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
        assert!(
            message.contains(words),
            "{words:?} is not in the message: {message}"
        );
    }
}

#[test]
fn a_usage_error_exits_with_2_and_shows_the_usage() {
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
        &run(dir.path(), &["train", "x.db", "--method", "mopq"]).failed(2),
        &["--method mopq", "--pairs", "--method opq"],
    );
    said(&run(dir.path(), &["train", "x.db"]).failed(1), &["x.db"]);
    said(
        &run(
            dir.path(),
            &["train", "x.db", "--method", "opq", "--lr", "1"],
        )
        .failed(2),
        &["--lr has no meaning for --method opq"],
    );
    said(
        &run(dir.path(), &["train", "x.db", "--method", "pq", "--fresh"]).failed(2),
        &["--fresh has no meaning for --method pq"],
    );
    said(
        &run(
            dir.path(),
            &["train", "x.db", "--method", "opq", "--skip-missing"],
        )
        .failed(2),
        &["--skip-missing has a meaning for --method opq only with --valid"],
    );
    said(
        &run(
            dir.path(),
            &["train", "x.db", "--method", "opq", "--query-log", "l.txt"],
        )
        .failed(2),
        &["--query-log has no meaning for --method opq"],
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
fn an_error_names_a_missing_file() {
    let dir = dir();
    said(
        &run(dir.path(), &["insert", "x.db", "no.jsonl"]).failed(1),
        &["no.jsonl", "No such file"],
    );
    assert!(!dir.path().join("x.db").exists(), "nothing was created");
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

/// Every command on an existing database, except `train` from pairs, which is the trainer's.
const ON_A_DATABASE: &[&[&str]] = &[
    &["query", "DB", "x"],
    &["get", "DB", "k"],
    &["keys", "DB"],
    &["delete", "DB", "k"],
    &["delete", "DB", "--prefix", "k"],
    &["train", "DB", "--method", "opq"],
    &["rebuild", "DB"],
    &["rebuild", "DB", "--model", "exact"],
    &["eval", "DB", "--pairs", "p.tsv", "--html", "page.html"],
    &["models", "DB"],
    &["stats", "DB"],
    &["prune", "DB"],
    &["prune", "DB", "--keep", "ab"],
    &["seal", "DB"],
    &["compact", "DB"],
    &["verify", "DB"],
    &["repair", "DB"],
    &["backup", "DB", "copy.db"],
    &["export", "DB", "out", "--format", "jsonl"],
    &["export", "DB", "out", "--format", "jsonl", "--salvage"],
    &["export", "DB", "out", "--format", "npy"],
    &["bench", "DB"],
];

/// Runs each of them, which must fail with 1 and leave nothing behind. Returns the messages.
fn on_a_database(dir: &Path, db: &str) -> Vec<String> {
    let before = names(dir);
    let message = |command: &&[&str]| {
        let given: Vec<&str> = (command.iter())
            .map(|&word| if word == "DB" { db } else { word })
            .collect();
        let message = run(dir, &given).failed(1);
        assert_eq!(names(dir), before, "{given:?} left something behind");
        message
    };
    ON_A_DATABASE.iter().map(message).collect()
}

fn names(dir: &Path) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn every_command_reports_a_missing_database() {
    let dir = dir();
    std::fs::write(dir.path().join("p.tsv"), "a\tb\n").unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    for db in ["no.db", "no/such.db", "file/x.db"] {
        for message in on_a_database(dir.path(), db) {
            said(
                &message,
                &[&format!("mopqdb: {db}: not found\n"), "`mopqdb create"],
            );
        }
    }
    database(dir.path());
    let arguments = [
        "train",
        "x.db",
        "--method",
        "pq",
        "--subspaces",
        "2",
        "--codewords",
        "16",
    ];
    let id = run(dir.path(), &arguments).ok();
    let bundle = format!("x.db/models/{}", id.trim());
    let message = run(dir.path(), &["models", "add", "no.db", &bundle]).failed(1);
    said(&message, &["no.db: not found\n"]);
}

#[test]
fn every_command_reports_a_directory_that_is_not_a_database() {
    let dir = dir();
    std::fs::write(dir.path().join("p.tsv"), "a\tb\n").unwrap();
    std::fs::write(dir.path().join("file.db"), "").unwrap();
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    std::fs::create_dir(dir.path().join("photos")).unwrap();
    std::fs::write(dir.path().join("photos/cat.jpg"), "meow").unwrap();
    for message in on_a_database(dir.path(), "file.db") {
        said(
            &message,
            &["file.db: a file; a mopqdb database is a directory"],
        );
    }
    for db in ["empty", "photos"] {
        for message in on_a_database(dir.path(), db) {
            let wanted = format!(
                "mopqdb: {db}: not a mopqdb database\n        `mopqdb create DB` creates one\n"
            );
            assert_eq!(message, wanted);
        }
    }
    assert_eq!(names(&dir.path().join("photos")), ["cat.jpg"]);
    assert_eq!(names(&dir.path().join("empty")), [""; 0]);
}

#[test]
fn rows_are_not_inserted_into_a_directory_with_other_files() {
    let dir = dir();
    std::fs::create_dir(dir.path().join("photos")).unwrap();
    std::fs::write(dir.path().join("photos/cat.jpg"), "meow").unwrap();
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
    assert_eq!(left.len(), 1, "another directory was changed");
}

#[test]
fn an_error_about_dimensions_names_both() {
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
fn the_error_for_a_newer_database_names_its_version() {
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
fn a_locked_database_exits_with_4_and_can_still_be_read() {
    let dir = dir();
    database(dir.path());
    let held = Database::open(dir.path().join("x.db"), Options::default()).unwrap();
    for command in [
        &["seal", "x.db"][..],
        &["delete", "x.db", "1"],
        &["delete", "x.db", "--prefix", "1"],
        &["insert", "x.db", "x.npy"],
        &["compact", "x.db"],
        &["prune", "x.db"],
        &["repair", "x.db"],
    ] {
        let message = run(dir.path(), command).failed(4);
        let holder = "x.db is locked for writing by program-";
        said(&message, &[holder, "(process ", "--wait", "query"]);
        // Terms that only developers of the engine know.
        assert!(!message.contains("Reader") && !message.contains("LOCK"));
    }
    run(dir.path(), &["get", "x.db", "1"]).ok();
    run(dir.path(), &["keys", "x.db"]).ok();
    run(
        dir.path(),
        &["query", "x.db", "--vectors", "x.npy", "-k", "1"],
    )
    .ok();
    held.close().unwrap();
    run(dir.path(), &["seal", "x.db"]).ok();
}

#[test]
fn corrupt_data_exits_with_3_and_names_file_and_remedy() {
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
fn a_missing_component_exits_with_5_and_says_how_to_get_it() {
    let dir = dir();
    database(dir.path());
    std::fs::write(dir.path().join("p.tsv"), "a\tb\n").unwrap();
    // A copy of the program with nothing next to it, nothing on PATH and nothing in its home directory.
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

    // Without flags the command works without the trainer, and says what is missing. Whatever only the trainer can do
    // fails nevertheless.
    let models = || alone(&["models", "x.db", "--json"]).json().len();
    for flags in [
        &["--method", "distill"][..],
        &["--query-log", "p.tsv"],
        &["--dim", "4"],
        &["--epochs", "3"],
    ] {
        let words = alone(&[&["train", "x.db"], flags].concat()).failed(5);
        said(&words, &["mopqdb-train", "make setup"]);
    }
    let before = models();
    let trained = alone(&["train", "x.db"]);
    said(
        &trained.err,
        &["mopqdb-train is not installed", "opq", "1.2 times"],
    );
    trained.ok();
    assert_eq!(models(), before + 1);

    // Eight codes need not divide the width of wide vectors: the first axes are quantized then.
    data(&dir.path().join("wide.npy"), 3, 300, 100);
    alone(&["insert", "wide.db", "wide.npy"]).ok();
    let trained = &alone(&["train", "wide.db", "--json"]).json()[0];
    assert_eq!(
        (&trained["method"], &trained["dim"]),
        (&"opq".into(), &96.into())
    );
    assert_eq!(trained["own_rows"]["queries"], 200);
    let listed = alone(&["models", "wide.db", "--json"]).json();
    assert_eq!(listed.last().unwrap()["shape"], serde_json::json!([8, 256]));
    alone(&["rebuild", "wide.db"]).ok();
    let found = alone(&[
        "query",
        "wide.db",
        "--vectors",
        "wide.npy",
        "-k",
        "1",
        "--json",
    ])
    .json();
    assert_eq!(found.len(), 300);
    assert_eq!(found[7]["hits"][0]["key"], "7");
}

/// With a codeword for each row, codes find all of the nearest rows; with two codewords hardly any.
#[test]
fn train_tells_how_many_of_the_nearest_rows_the_codes_find() {
    let dir = dir();
    data(&dir.path().join("x.npy"), 5, 250, 4);
    for metric in ["l2", "ip"] {
        let db = format!("{metric}.db");
        run(
            dir.path(),
            &["create", &db, "--dim", "4", "--metric", metric],
        )
        .ok();
        run(dir.path(), &["insert", &db, "x.npy"]).ok();
        let found = |codewords: &str| {
            let train = [
                "train",
                &db,
                "--method",
                "pq",
                "--subspaces",
                "1",
                "--codewords",
            ];
            let trained = run(dir.path(), &[&train[..], &[codewords, "--json"]].concat());
            let own = trained.json()[0]["own_rows"].clone();
            assert_eq!((&own["queries"], &own["rows"]), (&200.into(), &250.into()));
            own["recall"].as_f64().unwrap()
        };
        assert!(found("250") > 0.99, "{metric}: {}", found("250"));
        assert!(found("2") < 0.3, "{metric}: {}", found("2"));
    }
}

#[test]
fn an_l2_database_uses_opq_and_says_so() {
    let dir = dir();
    data(&dir.path().join("x.npy"), 1, 300, 6);
    let db = ["create", "x.db", "--dim", "6", "--metric", "l2"];
    run(dir.path(), &db).ok();
    run(dir.path(), &["insert", "x.db", "x.npy"]).ok();
    let trained = run(dir.path(), &["train", "x.db", "--json"]);
    said(&trained.err, &["l2", "opq"]);
    assert_eq!(trained.json()[0]["method"], "opq");
    said(
        &run(dir.path(), &["train", "x.db", "--dim", "4"]).failed(2),
        &["--dim has no meaning for --method opq"],
    );
}

/// A trainer that prints its arguments.
#[cfg(unix)]
#[test]
fn train_without_flags_uses_the_trainer_if_it_is_installed() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = dir();
    database(dir.path());
    let bin = dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::copy(crate::support::program(), bin.join("mopqdb")).unwrap();
    let trainer = bin.join("mopqdb-train");
    std::fs::write(&trainer, "#!/bin/sh\necho given \"$@\"\n").unwrap();
    std::fs::set_permissions(&trainer, std::fs::Permissions::from_mode(0o755)).unwrap();
    let given = |arguments: &[&str]| -> String {
        let mut command = std::process::Command::new(bin.join("mopqdb"));
        command.args(arguments).current_dir(dir.path());
        crate::support::Ran::from(command.env_remove("MOPQDB_THREADS").output().unwrap()).ok()
    };
    assert_eq!(given(&["train", "x.db"]), "given x.db\n");
    assert_eq!(
        given(&["train", "x.db", "--query-log", "l.txt"]),
        "given x.db --query-log l.txt\n"
    );
    assert_eq!(
        given(&["train", "x.db", "--only", "scorer", "--pairs", "p.tsv"]),
        "given x.db --pairs p.tsv --only scorer\n"
    );
    let only = ["train", "x.db", "--only", "scorer"];
    said(
        &run(dir.path(), &only).failed(2),
        &["--only scorer learns from pairs", "--pairs"],
    );
}

#[test]
fn a_message_is_one_line_without_control_characters() {
    let dir = dir();
    database(dir.path());
    for wrong in [
        &["get", "x.db", "a\u{1b}[31m\u{202e}b\nmopqdb: all is well"][..],
        &["stats", "a\u{1b}[31m\u{202e}b\nmopqdb: all is well"],
    ] {
        let message = run(dir.path(), wrong).failed(1);
        said(&message, &["a�[31m�b mopqdb: all is well"]);
    }
    for wrong in [
        &["stats", "x.db", "a\u{9b}31m\u{202e}b"][..],
        &["stats", "x.db", "--threads", "a\u{1b}[31m\u{202e}b"],
    ] {
        let message = run(dir.path(), wrong).failed(2);
        assert!(
            !message.contains(['\u{1b}', '\u{9b}', '\u{202e}']),
            "{message:?}"
        );
        said(&message, &["b", "--help"]);
    }
}

#[test]
fn a_missing_key_is_reported() {
    let dir = dir();
    database(dir.path());
    let ran = run(dir.path(), &["get", "x.db", "1", "nope", "--json"]);
    assert!(
        ran.out.starts_with("{\"key\":\"1\",\"vector\":["),
        "existing rows are printed"
    );
    said(&ran.failed(1), &["no row has the key nope"]);
    assert_eq!(
        run(dir.path(), &["delete", "x.db", "1", "nope"]).ok(),
        "deleted 1 row; 1 key not found\n"
    );
    said(
        &run(dir.path(), &["rebuild", "x.db", "--model", "abc"]).failed(1),
        &["abc", "mopqdb models"],
    );
}
