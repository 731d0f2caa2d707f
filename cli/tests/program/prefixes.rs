//! `keys` and `delete --prefix`.

use crate::support::{Ran, program, run, run_with};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Rows `log/0` and so on, one in ten of them `kept/0` and so on.
fn database(dir: &Path, rows: usize) {
    let mut lines = String::new();
    for n in 0..rows {
        let name = if n % 10 == 0 { "kept" } else { "log" };
        writeln!(lines, "{{\"key\":\"{name}/{n}\",\"vector\":[{n},1]}}").unwrap();
    }
    std::fs::write(dir.join("x.jsonl"), lines).unwrap();
    run(dir, &["insert", "x.db", "x.jsonl", "--no-auto"]).ok();
}

fn delete(dir: &Path, arguments: &[&str]) -> Ran {
    run(dir, &[&["delete", "x.db"], arguments].concat())
}

#[test]
fn keys_are_listed_oldest_first_one_per_line() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir, 30);
    let all = run(dir, &["keys", "x.db"]).ok();
    let keys: Vec<&str> = all.lines().collect();
    assert_eq!(keys.len(), 30);
    assert_eq!(keys[9..12], ["log/9", "kept/10", "log/11"]);
    run(dir, &["seal", "x.db"]).ok();
    assert_eq!(run(dir, &["keys", "x.db"]).ok(), all);
    let kept = run(dir, &["keys", "x.db", "--prefix", "kept/"]).ok();
    assert_eq!(kept, "kept/0\nkept/10\nkept/20\n");
    let objects = run(dir, &["keys", "x.db", "--prefix", "kept/2", "--json"]).ok();
    assert_eq!(objects, "{\"key\":\"kept/20\"}\n");
    assert_eq!(run(dir, &["keys", "x.db", "--prefix", "none"]).ok(), "");
}

#[test]
fn deleting_a_prefix_reports_the_number_of_rows() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir, 20_000);
    assert_eq!(
        delete(dir, &["--prefix", "log/1"]).ok(),
        "deleted 10,000 rows\n"
    );
    assert_eq!(
        delete(dir, &["--prefix", "log/1"]).ok(),
        "deleted 0 rows: no key begins with log/1\n"
    );
    assert_eq!(
        delete(dir, &["--prefix", "log/2", "--json"]).ok(),
        "{\"deleted\":1000}\n"
    );
    assert_eq!(
        delete(dir, &["--prefix", "log/2", "--json"]).ok(),
        "{\"deleted\":0}\n"
    );
    let left = run(dir, &["stats", "x.db", "--json"]).json();
    assert_eq!(left[0]["rows"], 20_000 - 10_000 - 1_000);
    assert_eq!(run(dir, &["keys", "x.db", "--prefix", "log/1"]).ok(), "");
}

#[test]
fn an_empty_prefix_and_a_prefix_with_keys_are_usage_errors() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir, 10);
    let said = delete(dir, &["--prefix", ""]).failed(2);
    assert!(
        said.contains("every row") && said.contains("mopqdb keys"),
        "{said}"
    );
    let said = delete(dir, &["log/1", "--prefix", "log/"]).failed(2);
    assert!(said.contains("cannot be used with"), "{said}");
    let said = delete(dir, &[]).failed(2);
    assert!(said.contains("<KEY>"), "{said}");
    assert_eq!(run(dir, &["keys", "x.db"]).ok().lines().count(), 10);
}

#[test]
fn every_key_survives_a_pipe() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let odd = [
        "a",
        "a b\tc",
        "two\nlines",
        "\r",
        "C:\\new",
        "\"quoted\"",
        "\"half",
        "\u{1b}[31m\u{202e}",
        "-5",
    ];
    let rows: String = odd
        .iter()
        .map(|key| serde_json::json!({"key": key, "vector": [1, 2]}).to_string() + "\n")
        .collect();
    run_with(dir, &["insert", "x.db"], &rows).ok();
    let keys = run(dir, &["keys", "x.db"]).ok();
    assert_eq!(keys.lines().count(), odd.len(), "{keys:?}");
    let exact: Vec<serde_json::Value> = run(dir, &["keys", "x.db", "--json"]).json();
    for (key, object) in odd.iter().zip(exact) {
        assert_eq!(object["key"], *key);
    }
    let deleted = run_with(dir, &["delete", "x.db", "-"], &keys).ok();
    assert_eq!(deleted, format!("deleted {} rows\n", odd.len()));
}

#[test]
fn an_interrupted_delete_reports_its_count_and_can_be_repeated() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir, 200_000);
    run(dir, &["seal", "x.db"]).ok();
    let before = run(dir, &["keys", "x.db", "--prefix", "log/"]).ok();
    let child = Command::new(program())
        .args(["delete", "x.db", "--prefix", "log/"])
        .current_dir(dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // After the first batch is in the log, of which a sealed database has almost none.
    let logged = || {
        let logs = std::fs::read_dir(dir.join("x.db/logs")).unwrap().flatten();
        logs.filter_map(|log| log.metadata().ok())
            .map(|log| log.len())
            .sum::<u64>()
    };
    while logged() < 20_000 {}
    let pid = child.id().to_string();
    Command::new("kill").args(["-INT", &pid]).status().unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    let left = run(dir, &["keys", "x.db", "--prefix", "log/"]).ok();
    let said = ran.failed(1);
    let gone = before.lines().count() - left.lines().count();
    let counted: String = said
        .lines()
        .find(|line| line.contains("deleted"))
        .unwrap()
        .replace(',', "");
    assert!(
        counted.contains(&format!("deleted {gone} rows")),
        "{gone}: {said}"
    );
    assert!(before.ends_with(&left), "the oldest are deleted first");
    let rest = delete(dir, &["--prefix", "log/", "--json"])
        .json()
        .remove(0);
    assert_eq!(rest["deleted"], left.lines().count());
    assert_eq!(run(dir, &["keys", "x.db"]).ok().lines().count(), 20_000);
}

/// The list is printed while it is read: memory does not grow with the number of rows.
#[test]
fn the_memory_of_keys_does_not_grow_with_the_rows() {
    if !Path::new("/proc/self/status").exists() {
        eprintln!("SKIPPED: no /proc to read memory from");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    // 20 MB of keys.
    let lines: String = (0..200_000)
        .map(|n| format!("{{\"key\":\"{n:0100}\",\"vector\":[1]}}\n"))
        .collect();
    std::fs::write(dir.join("x.jsonl"), lines).unwrap();
    run(dir, &["insert", "x.db", "x.jsonl", "--no-auto"]).ok();
    run(dir, &["seal", "x.db"]).ok();
    let mut child = Command::new(program())
        .args(["keys", "x.db"])
        .current_dir(dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    for _ in 0..190_000 {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0);
    }
    // The program waits in the middle of its last lines until they are read.
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let anonymous = status
        .lines()
        .find(|line| line.starts_with("RssAnon"))
        .unwrap();
    let kb: u64 = anonymous
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    assert!(kb < 12_000, "{kb} kB of its own for 20 MB of keys");
    while out.read_line(&mut line).unwrap() > 0 {
        line.clear();
    }
    assert!(child.wait().unwrap().success());
}
