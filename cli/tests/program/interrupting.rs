//! Ctrl-C: the current step is finished, what was acknowledged is kept, and the program ends by itself.

use crate::support::{program, run};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn ctrl_c_keeps_every_acknowledged_row() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(program())
        .args(["insert", "x.db", "--ack", "--no-auto"])
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // An endless stream of rows, until no one reads it.
    let feeding = std::thread::spawn(move || {
        for n in 0.. {
            let line = format!("{{\"key\":\"{n}\",\"vector\":[{n},1,2,3,4,5,6,7]}}\n");
            if stdin.write_all(line.as_bytes()).is_err() {
                return;
            }
        }
    });
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let fifth = lines.nth(4).unwrap().unwrap();
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    // The program may stop before it acknowledges anything more.
    let last = lines.map_while(Result::ok).last().unwrap_or(fifth);
    let last: serde_json::Value = serde_json::from_str(&last).unwrap();
    let acked = last["acked"].as_u64().unwrap();
    let started = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(started.elapsed() < Duration::from_secs(20));
    feeding.join().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("stopping after the current step") && said.contains("durably"),
        "{said}"
    );
    let rows = run(dir.path(), &["stats", "x.db", "--json"]).json()[0]["rows"]
        .as_u64()
        .unwrap();
    assert_eq!(
        rows, acked,
        "the rows are those that were acknowledged last"
    );
    assert!(
        said.contains(&format!("{} new", thousands(acked))),
        "{said}"
    );
}

fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[test]
fn a_second_ctrl_c_ends_it_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(program())
        .args(["insert", "x.db", "--ack"])
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{{\"key\":\"a\",\"vector\":[1,2]}}").unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    let pid = child.id().to_string();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        let _ = Command::new("kill").args(["-INT", &pid]).status();
        std::thread::sleep(Duration::from_millis(30));
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "the program does not end"
        );
    }
    run(dir.path(), &["get", "x.db", "a"]).ok();
}

#[test]
fn a_killed_creation_does_not_prevent_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let row = "{\"key\":\"a\",\"vector\":[1,2]}\n";
    std::fs::write(dir.path().join("row.jsonl"), row).unwrap();
    let mut killed = 0;
    for n in 0..24 {
        let name = format!("{n}.db");
        let mut child = Command::new(program())
            .args(["create", &name, "--dim", "2"])
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(500 * n));
        child.kill().unwrap();
        killed += usize::from(child.wait().unwrap().code().is_none());
        // Both ways to continue, whenever the kill happened.
        if n % 2 == 0 {
            let again = run(dir.path(), &["create", &name, "--dim", "2"]);
            if again.code != 0 {
                assert!(again.err.contains("is already a database"), "{}", again.err);
            }
        }
        run(dir.path(), &["insert", &name, "row.jsonl"]).ok();
        run(dir.path(), &["get", &name, "a"]).ok();
    }
    assert!(
        killed > 0,
        "every creation was over before it could be killed"
    );
}

/// Starts `mopqdb train` with a trainer next to it that stores its process id and then runs this script.
fn training(dir: &Path, script: &str) -> (Child, u32) {
    training_with(dir, script, &[])
}

fn training_with(dir: &Path, script: &str, flags: &[&str]) -> (Child, u32) {
    // Written by other processes: a file that this process has open for writing could not be run while another test
    // forks.
    let program = dir.join("mopqdb");
    let wrote = |command: &mut Command| assert!(command.status().unwrap().success());
    wrote(
        Command::new("cp")
            .arg(super::support::program())
            .arg(&program),
    );
    let trainer = format!("#!/bin/sh\necho $$ > pid.new\nmv pid.new pid\n{script}\n");
    wrote(
        Command::new("sh")
            .args([
                "-c",
                "printf %s \"$1\" > mopqdb-train; chmod +x mopqdb-train",
            ])
            .args(["sh", &trainer])
            .current_dir(dir),
    );
    let child = Command::new(program)
        .args(["train", "x.db", "--pairs", "pairs.tsv"])
        .args(flags)
        .env_remove("MOPQDB_THREADS")
        .current_dir(dir)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    wait("the trainer starts", || dir.join("pid").exists());
    let pid = std::fs::read_to_string(dir.join("pid")).unwrap();
    (child, pid.trim().parse().unwrap())
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(name: &str, pid: u32) -> bool {
    let kill = Command::new("kill")
        .args([name, &pid.to_string()])
        .stderr(Stdio::null())
        .status();
    kill.unwrap().success()
}

#[test]
fn a_signal_to_train_or_the_end_of_its_process_stops_the_trainer() {
    for name in ["-INT", "-TERM", "-KILL"] {
        let dir = tempfile::tempdir().unwrap();
        // It ends when its standard input is closed, like the trainer after its step.
        let obeys = "cat > /dev/null\ntouch stopped\nexit 1";
        let (mut child, _) = training(dir.path(), obeys);
        assert!(!dir.path().join("stopped").exists());
        assert!(signal(name, child.id()));
        wait("mopqdb ends", || child.try_wait().unwrap().is_some());
        let code = child.wait().unwrap().code();
        wait("the trainer stops", || dir.path().join("stopped").exists());
        if name != "-KILL" {
            assert_eq!(code, Some(1), "{name}");
        }
    }
}

#[test]
fn the_flags_of_train_reach_the_trainer() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--skip-missing", "--fresh", "--key-ids", "--", "--patience"];
    let script = "echo \"$@\" > flags.new\nmv flags.new flags";
    let (mut child, _) = training_with(dir.path(), script, &[&flags[..], &["5"]].concat());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let given = std::fs::read_to_string(dir.path().join("flags")).unwrap();
    assert_eq!(
        given,
        "x.db --pairs pairs.tsv --key-ids --skip-missing --fresh --patience 5\n"
    );
}

#[test]
fn a_second_signal_ends_a_trainer_that_does_not_stop() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, trainer) = training(dir.path(), "exec sleep 60");
    assert!(signal("-TERM", child.id()));
    std::thread::sleep(Duration::from_millis(200));
    assert!(
        child.try_wait().unwrap().is_none(),
        "it waits for its trainer"
    );
    assert!(signal("-TERM", child.id()));
    wait("mopqdb ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!signal("-0", trainer), "the trainer is gone");
}
