//! `insert`: every format, bad lines, keys, resuming, memory.

use crate::support::{data, numbers, program, run, run_with};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn rows(dir: &Path) -> u64 {
    run(dir, &["stats", "x.db", "--json"]).json()[0]["rows"]
        .as_u64()
        .unwrap()
}

#[test]
fn all_vector_formats_give_the_same_rows_and_inserting_again_changes_nothing() {
    let dir = dir();
    let dir = dir.path();
    for name in ["a.npy", "a.fvecs", "a.fbin"] {
        data(&dir.join(name), 7, 500, 6);
    }
    let first = run(dir, &["insert", "x.db", "a.npy"]);
    assert!(
        first
            .err
            .contains("x.db did not exist and was created: 6 dimensions, cosine"),
        "{}",
        first.err
    );
    assert_eq!(
        first.ok(),
        "inserted 500 rows (500 new, 0 replaced, 0 unchanged)\n"
    );
    for name in ["a.npy", "a.fvecs", "a.fbin"] {
        assert_eq!(
            run(dir, &["insert", "x.db", name]).ok(),
            "inserted 500 rows (0 new, 0 replaced, 500 unchanged)\n"
        );
    }
    assert_eq!(rows(dir), 500);
    run(dir, &["get", "x.db", "0", "499"]).ok();
}

#[test]
fn a_bad_line_stops_the_insert_and_reports_the_rows_that_were_kept() {
    let dir = dir();
    let dir = dir.path();
    let mut lines: Vec<String> = (0..10)
        .map(|n| format!("{{\"key\":\"k{n}\",\"vector\":[{n}, 1]}}"))
        .collect();
    lines[6] = "{\"key\":\"k6\",\"vector\":[6]}".into();
    lines[8] = "not json".into();
    std::fs::write(dir.join("a.jsonl"), lines.join("\n")).unwrap();
    let said = run(dir, &["insert", "x.db", "a.jsonl"]).failed(1);
    assert!(
        said.contains("inserted 6 rows (6 new, 0 replaced, 0 unchanged), durably"),
        "{said}"
    );
    assert!(
        said.contains("a.jsonl:7: the vector has 1 values, this database takes 2"),
        "{said}"
    );
    assert_eq!(rows(dir), 6);

    let skipping = run(dir, &["insert", "x.db", "a.jsonl", "--skip-bad"]);
    assert!(
        skipping.err.contains("skipped a.jsonl:7:") && skipping.err.contains("skipped a.jsonl:9:"),
        "{}",
        skipping.err
    );
    assert_eq!(
        skipping.ok(),
        "inserted 8 rows (2 new, 0 replaced, 6 unchanged); skipped 2 bad rows\n"
    );
    let told = &run(dir, &["insert", "x.db", "a.jsonl", "--skip-bad", "--json"]).json()[0];
    assert_eq!(
        (
            told["skipped"].as_u64(),
            told["unchanged"].as_u64(),
            told["total"].as_u64()
        ),
        (Some(2), Some(8), Some(8))
    );
}

#[test]
fn a_numbered_key_with_different_content_needs_replace() {
    let dir = dir();
    let dir = dir.path();
    data(&dir.join("a.npy"), 1, 10, 3);
    data(&dir.join("b.npy"), 2, 10, 3);
    run(dir, &["insert", "x.db", "a.npy"]).ok();
    let said = run(dir, &["insert", "x.db", "b.npy"]).failed(1);
    assert!(
        said.contains("b.npy: row 0: the key \"0\" exists with different content; give --replace"),
        "{said}"
    );
    assert_eq!(
        run(dir, &["insert", "x.db", "b.npy", "--replace"]).ok(),
        "inserted 10 rows (0 new, 10 replaced, 0 unchanged)\n"
    );
    // Each of several files has a name of its own.
    run(dir, &["insert", "x.db", "a.npy", "b.npy"]).ok();
    run(dir, &["get", "x.db", "a:0", "b:9"]).ok();
    assert_eq!(rows(dir), 30);
}

#[test]
fn keys_come_from_a_file_one_per_row() {
    let dir = dir();
    let dir = dir.path();
    data(&dir.join("a.npy"), 1, 3, 3);
    std::fs::write(dir.join("keys.txt"), "x\ny\nz\n").unwrap();
    run(dir, &["insert", "x.db", "a.npy", "--keys", "keys.txt"]).ok();
    run(dir, &["get", "x.db", "x", "z"]).ok();
    std::fs::write(dir.join("few.txt"), "x\ny\n").unwrap();
    let said = run(dir, &["insert", "x.db", "a.npy", "--keys", "few.txt"]).failed(1);
    assert!(
        said.contains("few.txt has 2 keys, but there is another row, a.npy: row 2"),
        "{said}"
    );
}

#[test]
fn each_durable_batch_is_acknowledged_without_waiting_for_a_slow_pipe() {
    let dir = dir();
    let mut child = Command::new(program())
        .args(["insert", "x.db", "--ack"])
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut acked = || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        serde_json::from_str::<serde_json::Value>(&line).unwrap()["acked"]
            .as_u64()
            .unwrap()
    };
    for n in 1..=3 {
        writeln!(stdin, "{{\"key\":\"{n}\",\"vector\":[{n},1]}}").unwrap();
        // The pipe stays open. The row is inserted nevertheless, and others can read it.
        assert_eq!(acked(), n);
        assert!(
            run(dir.path(), &["get", "x.db", &n.to_string()])
                .ok()
                .starts_with(&n.to_string())
        );
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn memory_stays_flat_while_a_large_stream_is_inserted() {
    let dir = dir();
    data(&dir.path().join("seed.npy"), 1, 1, 64);
    run(dir.path(), &["insert", "x.db", "seed.npy"]).ok();
    let peak = |rows: usize| {
        let mut child = Command::new(program())
            .args([
                "insert",
                "x.db",
                "-",
                "--format",
                "fbin",
                "--replace",
                "--no-auto",
                "--threads",
                "1",
            ])
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&(rows as u32).to_le_bytes()).unwrap();
        stdin.write_all(&64_u32.to_le_bytes()).unwrap();
        let block: Vec<u8> = numbers(3, 1000 * 64)
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let status = format!("/proc/{}/status", child.id());
        let mut peak = 0;
        for _ in 0..rows / 1000 {
            stdin.write_all(&block).unwrap();
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
        }
        drop(stdin);
        assert!(child.wait().unwrap().success());
        peak
    };
    if !Path::new("/proc/self/status").exists() {
        eprintln!("SKIPPED: no /proc to read memory from");
        return;
    }
    // First 77 MB and then 180 MB pass through. Memory holds one tail, whose size `seal_rows` and `seal_bytes` set.
    let (small, large) = (peak(300_000), peak(700_000));
    eprintln!("peak anonymous memory: {small} kB at 300,000 rows, {large} kB at 700,000");
    assert!(
        large < small * 3 / 2 + 100_000,
        "{small} kB, then {large} kB"
    );
}

#[test]
fn an_empty_input_creates_no_database() {
    let dir = dir();
    let said = run_with(dir.path(), &["insert", "x.db"], "").failed(1);
    assert!(
        said.contains("no rows to insert; no database was created"),
        "{said}"
    );
    assert!(!dir.path().join("x.db").exists());
    let said = run_with(dir.path(), &["insert", "x.db"], "oops\n").failed(1);
    assert!(
        said.contains("stdin:1:") && said.contains("no database was created"),
        "{said}"
    );
}

/// Returns the line of stderr about codes.
fn line_about_codes(err: &str) -> &str {
    let mut lines = err.lines().filter(|line| line.contains("codes"));
    let said = lines.next().unwrap_or_else(|| panic!("nothing: {err}"));
    assert_eq!(lines.next(), None, "{err}");
    said
}

fn methods(dir: &Path) -> Vec<(String, bool)> {
    let models = run(dir, &["models", "x.db", "--json"]).json();
    let told = models.iter().map(|model| {
        let method = model["method"].as_str().unwrap().to_owned();
        (method, model["active"].as_bool().unwrap())
    });
    told.collect()
}

#[test]
fn codes_with_high_recall_on_their_rows_are_learned_automatically() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    // Four values with a byte each lose almost nothing.
    let vectors = data(&dir.join("x.npy"), 5, 65_536, 4);
    let exact = ["--no-auto", "--json"];
    let quiet = run(dir, &[&["insert", "x.db", "x.npy"], &exact[..]].concat());
    assert!(!quiet.err.contains("codes"), "{}", quiet.err);
    let figures = quiet.json().remove(0);
    assert_eq!(figures["train_advised"], true);
    assert_eq!(figures["learned"], serde_json::Value::Null);
    assert_eq!(methods(dir), [("exact".into(), true)]);
    mopqdb_formats::vectors::VectorWriter::create(&dir.join("q.npy"), 4)
        .and_then(|mut writer| {
            writer.write(&vectors[..400])?;
            writer.finish()
        })
        .unwrap();
    let ask = || run(dir, &["query", "x.db", "--vectors", "q.npy", "--json"]).json();
    let before = ask();

    // The next insert learns codes, though it adds no new row.
    let learned = run(dir, &["insert", "x.db", "x.npy", "--json"]);
    let said = line_about_codes(&learned.err).to_owned();
    let figures = learned.json().remove(0);
    let recall = figures["learned"]["recall_of_exact"].as_f64().unwrap();
    assert!((0.99..=1.0).contains(&recall), "{figures}");
    let wanted = format!(
        "learned codes of 4 bytes per row (opq): queries find {recall:.3} of the exact nearest ten of 400 rows, at least 0.99, \
         so queries use them from now on; `mopqdb rebuild x.db --model exact` goes back"
    );
    assert_eq!(said, format!("mopqdb: {wanted}"));
    assert_eq!(figures["learned"]["switched"], true);
    assert_eq!(figures["train_advised"], false);
    assert_eq!(
        methods(dir),
        [("exact".into(), false), ("opq".into(), true)]
    );
    // Counting again gives the same share.
    let keys = |answers: &[serde_json::Value]| -> Vec<Vec<String>> {
        let keys = |answer: &serde_json::Value| {
            let hits = answer["hits"].as_array().unwrap().iter();
            hits.map(|hit| hit["key"].to_string()).collect()
        };
        answers.iter().map(keys).collect()
    };
    let kept = (keys(&before).into_iter().zip(keys(&ask())))
        .map(|(exact, ours)| exact.iter().filter(|key| ours.contains(key)).count());
    assert!(kept.sum::<usize>() >= 985, "of 1,000");

    // A user who switches back is not overruled.
    run(dir, &["rebuild", "x.db", "--model", "exact"]).ok();
    let again = run(dir, &["insert", "x.db", "x.npy"]);
    assert!(
        again.err.contains("65,536 rows are searched exactly"),
        "{}",
        again.err
    );
    assert_eq!(methods(dir)[0], ("exact".into(), true));
}

#[test]
fn codes_with_low_recall_are_not_used() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    // Noise in all directions: one bit for each of 64 values represents little of it.
    data(&dir.join("x.npy"), 5, 65_536, 64);
    let first = run(dir, &["insert", "x.db", "x.npy", "--json"]);
    let said = line_about_codes(&first.err);
    assert!(
        said.contains("less than 0.99, so rows are searched exactly as before"),
        "{said}"
    );
    let figures = first.json().remove(0);
    let recall = figures["learned"]["recall_of_exact"].as_f64().unwrap();
    assert!((0.3..0.98).contains(&recall), "{figures}");
    assert_eq!(figures["learned"]["switched"], false);
    assert_eq!(figures["train_advised"], true);
    assert_eq!(
        methods(dir),
        [("exact".into(), true), ("opq".into(), false)]
    );
    // The same rows are not tried twice; training is advised.
    let second = run(dir, &["insert", "x.db", "x.npy", "--json"]);
    assert!(second.err.contains("mopqdb train x.db"), "{}", second.err);
    assert_eq!(second.json()[0]["learned"], serde_json::Value::Null);
}

#[test]
fn few_rows_get_no_codes_and_no_advice() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    data(&dir.join("x.npy"), 5, 2000, 4);
    let small = run(dir, &["insert", "x.db", "x.npy", "--json"]);
    assert_eq!(small.err.matches("codes").count(), 0, "{}", small.err);
    assert_eq!(small.json()[0]["train_advised"], false);
    assert_eq!(methods(dir), [("exact".into(), true)]);
}

/// Runs `insert`, which must refuse a key, name both places and print what it kept.
fn refuses_a_second(dir: &Path, arguments: &[&str], places: [&str; 2], kept: u64) {
    let arguments = [&["insert", "x.db"], arguments].concat();
    let said = run(dir, &arguments).failed(1);
    for place in places {
        assert!(said.contains(place), "{place:?} is not named: {said}");
    }
    assert!(said.contains("occurred before in this run"), "{said}");
    let rows_kept = match kept {
        1 => "inserted 1 row (".to_owned(),
        n => format!("inserted {n} rows ("),
    };
    assert!(said.contains(&rows_kept), "{said}");
    assert_eq!(rows(dir), kept);
    std::fs::remove_dir_all(dir.join("x.db")).unwrap();
}

#[test]
fn a_key_twice_in_one_run_is_refused_with_both_places_in_every_format() {
    let dir = dir();
    let dir = dir.path();
    for sub in ["d1", "d2"] {
        std::fs::create_dir(dir.join(sub)).unwrap();
    }
    data(&dir.join("d1/x.npy"), 1, 3, 2);
    data(&dir.join("d2/x.npy"), 2, 3, 2);
    refuses_a_second(
        dir,
        &["d1/x.npy", "d2/x.npy"],
        ["d1/x.npy: row 0", "d2/x.npy: row 0"],
        3,
    );
    data(&dir.join("d2/x.fbin"), 2, 3, 2);
    refuses_a_second(
        dir,
        &["d1/x.npy", "d2/x.fbin"],
        ["d1/x.npy: row 0", "d2/x.fbin: row 0"],
        3,
    );
    std::fs::write(dir.join("keys.txt"), "a\nb\na\n").unwrap();
    refuses_a_second(
        dir,
        &["d1/x.npy", "--keys", "keys.txt"],
        ["at keys.txt:1", "keys.txt:3 (d1/x.npy: row 2)"],
        2,
    );
    let lines = "{\"key\":\"a\",\"vector\":[1,0]}\n\n{\"key\":\"b\",\"vector\":[1,1]}\n{\"key\":\"a\",\"vector\":[1,0]}\n";
    std::fs::write(dir.join("rows.jsonl"), lines).unwrap();
    refuses_a_second(dir, &["rows.jsonl"], ["at rows.jsonl:1", "rows.jsonl:4"], 2);
    std::fs::write(
        dir.join("more.jsonl"),
        "{\"key\":\"c\",\"vector\":[1,0]}\n{\"key\":\"b\",\"vector\":[1,1]}\n",
    )
    .unwrap();
    std::fs::write(dir.join("two.jsonl"), lines.rsplit_once("{").unwrap().0).unwrap();
    refuses_a_second(
        dir,
        &["two.jsonl", "more.jsonl"],
        ["at two.jsonl:3", "more.jsonl:2"],
        3,
    );
    // A given key may look like a number of another file.
    std::fs::write(
        dir.join("own.jsonl"),
        "{\"key\":\"x:1\",\"vector\":[1,1]}\n",
    )
    .unwrap();
    refuses_a_second(
        dir,
        &["own.jsonl", "d1/x.npy"],
        ["at own.jsonl:1", "d1/x.npy: row 1"],
        2,
    );
}

#[test]
fn a_second_row_of_a_key_is_found_across_batches_too() {
    let dir = dir();
    let dir = dir.path();
    let mut lines: Vec<String> = (0..900)
        .map(|n| format!("{{\"key\":\"k{n}\",\"vector\":[{n},1]}}"))
        .collect();
    lines.push(lines[5].clone());
    std::fs::write(dir.join("rows.jsonl"), lines.join("\n")).unwrap();
    refuses_a_second(
        dir,
        &["rows.jsonl"],
        ["at rows.jsonl:6", "rows.jsonl:901"],
        900,
    );
}

#[test]
fn skip_bad_keeps_the_first_row_of_a_key_and_replace_the_last() {
    let dir = dir();
    let dir = dir.path();
    std::fs::write(
        dir.join("rows.jsonl"),
        "{\"key\":\"a\",\"vector\":[1,0]}\n{\"key\":\"a\",\"vector\":[0,1]}\n",
    )
    .unwrap();
    let first = run(dir, &["insert", "x.db", "rows.jsonl", "--skip-bad"]);
    assert!(first.err.contains("skipped rows.jsonl:2:"), "{}", first.err);
    assert!(first.ok().ends_with("skipped 1 bad row\n"));
    assert_eq!(run(dir, &["get", "x.db", "a"]).ok(), "a\t[1, 0]\n");
    run(dir, &["insert", "x.db", "rows.jsonl", "--replace"]).ok();
    assert_eq!(run(dir, &["get", "x.db", "a"]).ok(), "a\t[0, 1]\n");
}

/// Returns the number of rows that are only in the log, which each process that opens the database must read.
fn in_the_log(dir: &Path, db: &str) -> u64 {
    run(dir, &["stats", db, "--json"]).json()[0]["tail_rows"]
        .as_u64()
        .unwrap()
}

#[test]
fn a_large_log_is_sealed_at_the_end_and_a_small_one_is_not() {
    let dir = dir();
    let dir = dir.path();
    // 9 MB of vectors; 70,000 small rows; a few rows.
    data(&dir.join("large.npy"), 1, 18_000, 128);
    data(&dir.join("many.npy"), 1, 70_000, 2);
    data(&dir.join("small.npy"), 1, 9000, 128);
    data(&dir.join("more.npy"), 2, 9000, 128);
    let insert = |db: &str, file: &str| {
        run(dir, &["insert", db, file, "--no-auto"]).ok();
        in_the_log(dir, db)
    };
    assert_eq!(insert("large.db", "large.npy"), 0);
    assert_eq!(insert("many.db", "many.npy"), 0);
    assert_eq!(insert("small.db", "small.npy"), 9000);
    run(dir, &["insert", "small.db", "more.npy", "small.npy"]).ok();
    assert_eq!(
        in_the_log(dir, "small.db"),
        0,
        "the size of the log decides"
    );
    assert_eq!(
        insert("small.db", "small.npy"),
        0,
        "nothing new, nothing to seal"
    );

    // The same with rows before a bad row.
    let mut lines: String = (0..70_000)
        .map(|n| format!("{{\"key\":\"{n}\",\"vector\":[{n},1]}}\n"))
        .collect();
    lines.push_str("[]\n");
    let said = run_with(dir, &["insert", "bad.db", "--ack"], lines).failed(1);
    assert!(said.contains("inserted 70,000 rows"), "{said}");
    assert_eq!(in_the_log(dir, "bad.db"), 0);
}
