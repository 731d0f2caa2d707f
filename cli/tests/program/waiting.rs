//! `insert --wait`: another process writes, and ends within the limit or does not.

use crate::support::{data, program, run};
use mopqdb::{Database, Options};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn insert_waits_for_another_writer_up_to_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    data(&dir.join("x.npy"), 1, 20, 4);
    run(dir, &["insert", "x.db", "x.npy"]).ok();
    let held = Database::open(dir.join("x.db"), Options::default()).unwrap();

    let started = Instant::now();
    let said = run(dir, &["insert", "x.db", "x.npy", "--wait", "1"]).failed(4);
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert!(
        said.contains("x.db is locked for writing by program-"),
        "{said}"
    );
    assert!(
        said.contains("waiting up to 1 s") && said.contains("gave up after 1 s"),
        "{said}"
    );

    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| run(dir, &["insert", "x.db", "x.npy", "--wait", "60"]));
        std::thread::sleep(Duration::from_millis(400));
        assert!(!waiting.is_finished(), "it waits");
        held.close().unwrap();
        waiting.join().unwrap()
    });
    assert!(
        waiting.err.contains("waiting up to 60 s"),
        "{}",
        waiting.err
    );
    assert!(waiting.ok().contains("20 unchanged"));
    // No other process writes, so nothing is waited for or printed.
    let at_once = run(
        dir,
        &["insert", "x.db", "x.npy", "--wait", "18446744073709551615"],
    );
    assert_eq!(at_once.err, "");
    at_once.ok();
}

#[test]
fn ctrl_c_ends_waiting_for_a_writer_and_for_the_first_row() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    data(&dir.join("x.npy"), 1, 20, 4);
    run(dir, &["insert", "x.db", "x.npy"]).ok();
    let _held = Database::open(dir.join("x.db"), Options::default()).unwrap();
    for (arguments, said) in [
        (
            &["insert", "x.db", "x.npy", "--wait", "60"][..],
            "stopped while waiting",
        ),
        (&["insert", "x.db"], "stopped before the first row"),
    ] {
        let mut child = Command::new(program())
            .args(arguments)
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let _open = child.stdin.take();
        std::thread::sleep(Duration::from_millis(500));
        let pid = child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-INT", &pid])
                .status()
                .unwrap()
                .success()
        );
        let started = Instant::now();
        let output = child.wait_with_output().unwrap();
        assert!(started.elapsed() < Duration::from_secs(10));
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.contains(said), "{err}");
    }
}
