//! Retraining, the main use: a new model while other processes insert and query, the switch, and the way back.

use crate::support::{data, program, run};
use mopqdb::{Database, Options, Reader};
use serde_json::Value;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

fn train(dir: &Path, seed: &str) -> String {
    let arguments = [
        "train",
        "x.db",
        "--method",
        "opq",
        "--subspaces",
        "4",
        "--codewords",
        "16",
        "--seed",
        seed,
    ];
    run(dir, &arguments).ok().trim().to_owned()
}

fn answers(dir: &Path) -> Vec<Value> {
    run(dir, &["query", "x.db", "--vectors", "q.npy", "--json"]).json()
}

#[test]
fn a_model_is_trained_registered_switched_to_and_rolled_back() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    data(&dir.join("x.npy"), 1, 6000, 16);
    let queries = data(&dir.join("q.npy"), 1, 40, 16);
    assert_eq!(queries.len(), 640);
    let pairs: String = (0..40).map(|n| format!("{n}\t{n}\n")).collect();
    std::fs::write(dir.join("valid.tsv"), pairs).unwrap();
    run(dir, &["insert", "x.db", "x.npy"]).ok();
    run(dir, &["seal", "x.db"]).ok();
    let exact = answers(dir);

    let trained = run(
        dir,
        &[
            "train",
            "x.db",
            "--method",
            "opq",
            "--subspaces",
            "4",
            "--codewords",
            "16",
            "--valid",
            "valid.tsv",
            "--queries",
            "q.npy",
            "--json",
        ],
    )
    .json();
    let first = trained[0]["model"].as_str().unwrap().to_owned();
    assert!(
        trained[0]["recall"]["10"].as_f64().unwrap() > 0.5,
        "{trained:?}"
    );
    assert_eq!(answers(dir), exact, "the database still answers as before");
    let mut listed = run(dir, &["models", "x.db", "--json"]).json();
    assert_eq!(listed.remove(0)["method"], "exact");
    assert_eq!(
        (listed[0]["id"].as_str(), listed[0]["active"].as_bool()),
        (Some(first.as_str()), Some(false))
    );
    assert_eq!(listed[0]["evaluation"]["recall"], trained[0]["recall"]);
    assert_eq!(listed[0]["training"]["config"]["subspaces"], 4);

    let rebuilt = &run(dir, &["rebuild", "x.db", "--json"]).json()[0];
    assert_eq!(
        (
            rebuilt["model"].as_str(),
            rebuilt["rows"].as_u64(),
            rebuilt["encoded"].as_u64()
        ),
        (Some(first.as_str()), Some(6000), Some(0))
    );
    let under_first = answers(dir);
    assert_ne!(under_first, exact);

    let second = train(dir, "7");
    let rows_before = modified(dir, "rows");
    run(dir, &["rebuild", "x.db"]).ok();
    assert_eq!(modified(dir, "rows"), rows_before, "no row is rewritten");
    assert_ne!(answers(dir), under_first);
    let back = &run(dir, &["rebuild", "x.db", "--model", &first[..8], "--json"]).json()[0];
    assert_eq!(
        (back["model"].as_str(), back["reused"].as_u64()),
        (Some(first.as_str()), Some(6000))
    );
    assert_eq!(answers(dir), under_first, "the same as before the switch");
    let active: Vec<bool> = run(dir, &["models", "x.db", "--json"])
        .json()
        .iter()
        .map(|model| model["active"].as_bool().unwrap())
        .collect();
    assert_eq!(active.iter().filter(|active| **active).count(), 1);
    assert_ne!(first, second);
}

fn modified(dir: &Path, extension: &str) -> Vec<(String, std::time::SystemTime)> {
    let entries = std::fs::read_dir(dir.join("x.db/segments"))
        .unwrap()
        .map(|entry| entry.unwrap());
    let mut found: Vec<_> = entries
        .filter(|entry| {
            entry
                .path()
                .extension()
                .is_some_and(|found| found == extension)
        })
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                entry.metadata().unwrap().modified().unwrap(),
            )
        })
        .collect();
    found.sort();
    found
}

/// One process inserts, two query, and one rebuilds twice; each answer is entirely of one model.
#[test]
fn rebuilding_during_other_work_loses_no_insert_and_mixes_no_answer() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    data(&dir.join("x.npy"), 1, 20_000, 16);
    run(dir, &["insert", "x.db", "x.npy", "--no-auto"]).ok();
    let first = train(dir, "1");
    run(dir, &["rebuild", "x.db"]).ok();
    let second = train(dir, "2");

    // The answers of both models to a fixed query among fixed rows, which never change.
    let query = crate::support::numbers(9, 16);
    let fixed = |reader: &Reader| -> Vec<(String, u32)> {
        let hits = reader.query(&query, 50).unwrap();
        hits.into_iter()
            .filter(|hit| !hit.key.starts_with("new"))
            .map(|hit| (hit.key, hit.score.to_bits()))
            .collect()
    };
    let under_first = fixed(&Reader::open(dir.join("x.db"), Options::default()).unwrap());

    let mut writer = Command::new(program())
        .args(["insert", "x.db", "--ack", "--no-auto"])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut stdin = writer.stdin.take().unwrap();
    let mut acks = BufReader::new(writer.stdout.take().unwrap()).lines();
    let stop = AtomicBool::new(false);
    let mut seen = HashSet::new();
    let inserted = std::thread::scope(|scope| {
        let feeding = scope.spawn(|| {
            // Far from the query, so that the fixed rows stay the best, one batch at a time.
            let mut sent = 0_u64;
            while !stop.load(Ordering::SeqCst) {
                for _ in 0..20 {
                    let vector: Vec<f32> = query
                        .iter()
                        .map(|value| -value + (sent % 97) as f32 * 1e-3)
                        .collect();
                    writeln!(stdin, "{{\"key\":\"new{sent}\",\"vector\":{vector:?}}}").unwrap();
                    sent += 1;
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            drop(stdin);
            sent
        });
        acks.next().unwrap().unwrap();
        let rebuilding = scope.spawn(|| {
            for model in [&second, &first, &second] {
                run(dir, &["rebuild", "x.db", "--model", model, "--wait", "60"]).ok();
            }
            stop.store(true, Ordering::SeqCst);
        });
        let reader = Reader::open(dir.join("x.db"), Options::default()).unwrap();
        while !stop.load(Ordering::SeqCst) && !rebuilding.is_finished() {
            reader.refresh().unwrap();
            seen.insert(fixed(&reader));
        }
        rebuilding.join().unwrap();
        feeding.join().unwrap()
    });
    let acked = acks.map_while(Result::ok).last().map_or(0, |line| {
        serde_json::from_str::<Value>(&line).unwrap()["acked"]
            .as_u64()
            .unwrap()
    });
    assert!(writer.wait().unwrap().success());
    assert_eq!(acked, inserted);

    let database = Database::open(dir.join("x.db"), Options::default()).unwrap();
    assert_eq!(database.model().id().unwrap().to_string(), second);
    assert_eq!(database.snapshot().rows(), 20_000 + inserted);
    for n in 0..inserted {
        assert!(
            database.get(&format!("new{n}")).unwrap().is_some(),
            "new{n} was acknowledged but is missing"
        );
    }
    database.close().unwrap();
    let under_second = fixed(&Reader::open(dir.join("x.db"), Options::default()).unwrap());
    assert_ne!(under_first, under_second);
    for answer in &seen {
        assert!(
            *answer == under_first || *answer == under_second,
            "an answer of neither model"
        );
    }
    eprintln!(
        "{inserted} rows inserted meanwhile, {} different answers seen",
        seen.len()
    );
}

#[test]
fn drift_is_reported_only_for_shifted_rows() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    data(&dir.join("x.npy"), 1, 4000, 16);
    run(dir, &["create", "x.db", "--dim", "16", "--metric", "l2"]).ok();
    run(dir, &["insert", "x.db", "x.npy"]).ok();
    train(dir, "1");
    run(dir, &["rebuild", "x.db"]).ok();
    let write = |name: &str, seed: u64, shift: f32| {
        let values: Vec<f32> = crate::support::numbers(seed, 2000 * 16)
            .iter()
            .map(|value| value + shift)
            .collect();
        let mut writer =
            mopqdb_formats::vectors::VectorWriter::create(&dir.join(name), 16).unwrap();
        writer.write(&values).unwrap();
        writer.finish().unwrap();
    };
    write("same.npy", 2, 0.0);
    write("other.npy", 3, 2.0);
    let stats = || run(dir, &["stats", "x.db", "--json"]).json().remove(0);
    run(dir, &["insert", "x.db", "same.npy", "x.npy"]).ok();
    let calm = stats();
    assert_eq!(calm["retrain_advised"], false, "{calm}");
    assert!(
        calm["drift"]["new_rows"].as_u64().unwrap() >= 2000,
        "{calm}"
    );
    run(dir, &["insert", "x.db", "other.npy", "same.npy"]).ok();
    let moved = stats();
    assert_eq!(moved["retrain_advised"], true, "{moved}");
    let told = run(dir, &["stats", "x.db"]).ok();
    assert!(
        told.contains("advised:") && told.contains("mopqdb train"),
        "{told}"
    );
}

/// Rows are processed in pieces: the memory of a rebuild depends on its limit, not on the database.
#[test]
fn the_memory_of_a_rebuild_depends_on_its_limit() {
    if !Path::new("/proc/self/status").exists() {
        eprintln!("SKIPPED: no /proc to read memory from");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    // 102 MB of vectors.
    data(&dir.join("x.npy"), 1, 200_000, 128);
    run(dir, &["insert", "x.db", "x.npy", "--no-auto"]).ok();
    run(dir, &["seal", "x.db"]).ok();
    let mut models = ["1", "2"].map(|seed| {
        let arguments = [
            "train",
            "x.db",
            "--method",
            "pq",
            "--subspaces",
            "8",
            "--codewords",
            "16",
            "--epochs",
            "2",
            "--seed",
            seed,
        ];
        run(dir, &arguments).ok().trim().to_owned()
    });
    let mut peak = |limit: &str| {
        models.rotate_left(1);
        let mut child = Command::new(program())
            .args([
                "rebuild",
                "x.db",
                "--model",
                &models[0],
                "--memory-limit",
                limit,
                "--threads",
                "2",
            ])
            .current_dir(dir)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let status = format!("/proc/{}/status", child.id());
        let mut peak = 0;
        while child.try_wait().unwrap().is_none() {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let line = text
                .lines()
                .find(|line| line.starts_with("RssAnon"))
                .unwrap_or_default();
            peak = peak.max(
                line.split_whitespace()
                    .nth(1)
                    .and_then(|kb| kb.parse::<u64>().ok())
                    .unwrap_or(0),
            );
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert!(child.wait().unwrap().success());
        peak
    };
    let (small, large) = (peak("8M"), peak("256M"));
    eprintln!("peak anonymous memory: {small} kB at a limit of 8M, {large} kB at 256M");
    assert!(
        small < 50_000,
        "{small} kB at a limit of 8M, of 102 MB of vectors"
    );
    assert!(
        small <= large + 8_000,
        "{small} kB at 8M, {large} kB at 256M"
    );
}

/// `kill -9` at later and later moments, until a rebuild finishes.
#[test]
fn a_killed_rebuild_leaves_the_old_model_active_and_the_next_one_continues() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    data(&dir.join("q.npy"), 3, 20, 16);
    for part in 0..6 {
        let name = format!("part{part}.npy");
        data(&dir.join(&name), 10 + part, 20_000, 16);
        // The rows of a file are named after it, so that each file adds rows.
        let keys: String = (0..20_000).map(|n| format!("{part}/{n}\n")).collect();
        std::fs::write(dir.join("keys.txt"), keys).unwrap();
        let arguments = ["insert", "x.db", &name, "--keys", "keys.txt", "--no-auto"];
        run(dir, &arguments).ok();
        run(dir, &["seal", "x.db"]).ok();
    }
    let first = train(dir, "1");
    run(dir, &["rebuild", "x.db"]).ok();
    let second = train(dir, "2");
    let old = answers(dir);

    let (mut kills, mut done) = (0, false);
    let mut delay = std::time::Duration::ZERO;
    while !done {
        let mut child = Command::new(program())
            .args(["rebuild", "x.db", "--model", &second])
            .current_dir(dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(delay);
        done = child.try_wait().unwrap().is_some();
        if !done {
            child.kill().unwrap();
        }
        let status = child.wait().unwrap();
        kills += usize::from(!done);
        if done {
            assert!(status.success(), "it continues with what was prepared");
        } else if answers(dir) != old {
            // Killed between its commit and its end: the new model is completely there.
            break;
        }
        delay += std::time::Duration::from_millis(4);
        assert!(kills < 500, "the rebuild never ends");
    }
    println!("{kills} kills");
    assert!(kills > 2, "the kills came too late to mean anything");
    let listed = run(dir, &["models", "x.db", "--json"]).json();
    let active: Vec<_> = listed.iter().filter(|m| m["active"] == true).collect();
    assert_eq!(active.len(), 1);
    assert_eq!(active[0]["id"].as_str(), Some(second.as_str()));
    let new = answers(dir);
    assert_ne!(new, old);
    run(dir, &["verify", "x.db", "--deep"]).ok();
    run(dir, &["rebuild", "x.db", "--model", &first]).ok();
    assert_eq!(answers(dir), old, "rolled back exactly");
    run(dir, &["rebuild", "x.db", "--model", &second]).ok();
    assert_eq!(answers(dir), new);
}
