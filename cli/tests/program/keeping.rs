//! Maintenance: verify, repair, backup, prune, compact.

use crate::support::{data, program, run};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// 3,000 sealed vectors of 8, with two models, the second active.
fn database(dir: &Path) {
    data(&dir.join("x.npy"), 1, 3000, 8);
    run(dir, &["insert", "x.db", "x.npy"]).ok();
    run(dir, &["seal", "x.db"]).ok();
    for seed in ["1", "2"] {
        let arguments = [
            "train",
            "x.db",
            "--method",
            "pq",
            "--subspaces",
            "4",
            "--codewords",
            "16",
            "--seed",
            seed,
        ];
        let model = run(dir, &arguments).ok();
        run(dir, &["rebuild", "x.db", "--model", model.trim()]).ok();
    }
}

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.join("x.db/segments")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    std::fs::remove_file(path).unwrap();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn verify_checks_every_code_and_exits_with_3_on_damage() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir);
    assert!(
        run(dir, &["verify", "x.db"])
            .ok()
            .starts_with("sound: 3,000 rows")
    );
    let deep = run(dir, &["verify", "x.db", "--deep", "--json"])
        .json()
        .remove(0);
    assert!(deep["codes"].as_u64().unwrap() >= 3000, "{deep}");
    let said = run(dir, &["verify", "x.db", "--encode", "3"]).failed(2);
    assert!(said.contains("--deep"), "{said}");

    let codes = files(dir, "codes").remove(0);
    let middle = std::fs::metadata(&codes).unwrap().len() as usize / 2;
    flip(&codes, middle);
    let ran = run(dir, &["verify", "x.db", "--deep"]);
    assert!(
        ran.out
            .contains(codes.file_name().unwrap().to_str().unwrap()),
        "{}",
        ran.out
    );
    let said = ran.failed(3);
    assert!(
        said.contains("found") && said.contains("mopqdb repair"),
        "{said}"
    );
}

#[test]
fn a_database_that_cannot_be_opened_is_verified_and_repaired() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir);
    // Both witnesses of the newest version are removed.
    std::fs::remove_dir_all(dir.join("x.db/catalog")).unwrap();
    for entry in std::fs::read_dir(dir.join("x.db")).unwrap() {
        let path = entry.unwrap().path();
        if path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("MANIFEST-")
        {
            flip(&path, 70);
        }
    }
    run(dir, &["query", "x.db", "--vectors", "x.npy", "-k", "1"]).failed(3);
    run(dir, &["verify", "x.db"]).failed(3);
    let told = run(dir, &["repair", "x.db"]).ok();
    assert!(told.contains("3,000 rows now"), "{told}");
    run(dir, &["verify", "x.db", "--deep"]).ok();
    run(dir, &["get", "x.db", "0", "2999"]).ok();
}

#[test]
fn a_backup_of_a_live_database_is_complete_and_independent() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir);
    let mut writer = Command::new(program())
        .args(["insert", "x.db", "--ack"])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = writer.stdin.take().unwrap();
    writeln!(stdin, "{{\"key\":\"live\",\"vector\":[1,2,3,4,5,6,7,8]}}").unwrap();
    let mut acked = String::new();
    BufReader::new(writer.stdout.take().unwrap())
        .read_line(&mut acked)
        .unwrap();
    run(dir, &["backup", "x.db", "copy.db"]).ok();
    let again = run(dir, &["backup", "x.db", "copy.db"]).failed(1);
    assert!(again.contains("is already a database"), "{again}");
    drop(stdin);
    assert!(writer.wait().unwrap().success());

    run(dir, &["get", "copy.db", "live", "0"]).ok();
    run(dir, &["verify", "copy.db", "--deep"]).ok();
    let asked = |db: &str| run(dir, &["query", db, "--vectors", "x.npy", "-k", "3"]).ok();
    assert!(
        asked("copy.db") == asked("x.db"),
        "the copy gives different answers"
    );
    run(dir, &["delete", "copy.db", "live"]).ok();
    run(dir, &["get", "x.db", "live"]).ok();
}

#[test]
fn prune_removes_inactive_models_and_compact_dead_rows() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir);
    let before = run(dir, &["query", "x.db", "--vectors", "x.npy", "-k", "3"]).ok();
    let would = run(dir, &["prune", "x.db", "--dry-run"]).ok();
    assert!(would.contains("would drop 1 model"), "{would}");
    assert_eq!(run(dir, &["models", "x.db", "--json"]).json().len(), 3);
    let done = run(dir, &["prune", "x.db"]).ok();
    assert!(done.contains("dropped 1 model"), "{done}");
    let left = run(dir, &["models", "x.db", "--json"]).json();
    assert_eq!(left.len(), 2);
    assert_eq!(left[0]["method"], "exact", "it is always there");
    assert!(
        run(dir, &["query", "x.db", "--vectors", "x.npy", "-k", "3"]).ok() == before,
        "answers changed"
    );

    let size = || {
        files(dir, "rows")
            .iter()
            .map(|path| std::fs::metadata(path).unwrap().len())
            .sum::<u64>()
    };
    let full = size();
    let keys: Vec<String> = (0..2000).map(|n| n.to_string()).collect();
    let arguments: Vec<&str> = ["delete", "x.db"]
        .into_iter()
        .chain(keys.iter().map(String::as_str))
        .collect();
    assert_eq!(run(dir, &arguments).ok(), "deleted 2,000 rows\n");
    let told = run(dir, &["compact", "x.db", "--json"]).json().remove(0);
    assert!(size() < full / 2, "{told}");
    assert_eq!(
        run(dir, &["stats", "x.db", "--json"]).json()[0]["dead_rows"],
        0
    );
}
