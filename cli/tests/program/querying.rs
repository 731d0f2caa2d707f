//! `query`: whole answers, in each shape.

use crate::support::{data, program, run, run_with};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

const ROWS: &str = "{\"key\":\"east\",\"vector\":[1,0]}\n{\"key\":\"north\",\"vector\":[0,1]}\n{\"key\":\"north/east\",\"vector\":[1,1]}\n{\"key\":\"tab\\there\",\"vector\":[-1,0]}\n";

fn database() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    run_with(dir.path(), &["insert", "x.db"], ROWS).ok();
    let mut query = 1_u32.to_le_bytes().to_vec();
    query.extend(2_u32.to_le_bytes());
    query.extend(2.0_f32.to_le_bytes().iter().chain(&0.0_f32.to_le_bytes()));
    std::fs::write(dir.path().join("q.fbin"), query).unwrap();
    dir
}

#[test]
fn a_pipe_gets_rank_score_key_text_by_tabs() {
    let dir = database();
    let out = run(
        dir.path(),
        &["query", "x.db", "--vectors", "q.fbin", "-k", "4"],
    )
    .ok();
    assert_eq!(
        out,
        "1\t1\teast\t\n2\t0.70710677\tnorth/east\t\n3\t0\tnorth\t\n4\t-1\ttab\\there\t\n"
    );
}

#[test]
fn json_is_an_object_a_query() {
    let dir = database();
    let answers = run(
        dir.path(),
        &["query", "x.db", "--vectors", "q.fbin", "-k", "1", "--json"],
    )
    .json();
    assert_eq!(
        answers,
        [
            serde_json::json!({"query": 0, "hits": [{"key": "east", "score": 1.0, "similarity": 1.0}]})
        ]
    );
}

#[test]
fn only_the_keys_asked_for_are_searched_and_as_many_as_asked_for_are_found() {
    let dir = database();
    let keys = |arguments: &[&str]| -> Vec<String> {
        let all = [&["query", "x.db", "--vectors", "q.fbin"], arguments].concat();
        run(dir.path(), &all)
            .ok()
            .lines()
            .map(|line| line.split('\t').nth(2).unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        keys(&["--prefix", "north", "-k", "2"]),
        ["north/east", "north"]
    );
    std::fs::write(dir.path().join("keys.txt"), "north\nnot there\n").unwrap();
    assert_eq!(keys(&["--keys-from", "keys.txt"]), ["north"]);
    assert_eq!(keys(&["--prefix", "nothing"]), [""; 0]);
}

#[test]
fn many_queries_give_the_answers_of_each_alone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    data(&dir.join("x.npy"), 1, 3000, 12);
    data(&dir.join("q.npy"), 2, 150, 12);
    run(dir, &["insert", "x.db", "x.npy"]).ok();
    let together = run(dir, &["query", "x.db", "--vectors", "q.npy", "--json"]).json();
    assert_eq!(together.len(), 150);
    let values = mopqdb_formats::vectors::read_all(&dir.join("q.npy"))
        .unwrap()
        .1;
    for n in [0, 63, 64, 149] {
        let mut writer =
            mopqdb_formats::vectors::VectorWriter::create(&dir.join("one.npy"), 12).unwrap();
        writer.write(&values[n * 12..][..12]).unwrap();
        writer.finish().unwrap();
        let alone = run(dir, &["query", "x.db", "--vectors", "one.npy", "--json"]).json();
        assert_eq!(alone[0]["hits"], together[n]["hits"], "query {n}");
        assert_eq!(together[n]["query"], n);
    }
}

#[test]
fn enough_is_enough_for_a_reader_that_goes_away() {
    let dir = tempfile::tempdir().unwrap();
    data(&dir.path().join("x.npy"), 1, 20_000, 4);
    run(dir.path(), &["insert", "x.db", "x.npy"]).ok();
    let mut child = Command::new(program())
        .args(["query", "x.db", "--vectors", "x.npy", "-k", "100"])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert!(first.starts_with("1\t"));
    // The pipe is closed now: no panic, no error.
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap().as_str()
        ),
        (Some(0), "")
    );
}

#[test]
fn queries_by_stdin_are_refused_in_words_where_there_is_no_encoder() {
    let dir = database();
    let mut child = Command::new(program())
        .args(["query", "x.db", "--stdin"])
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.as_mut().unwrap(), "hello").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("no encoder")
    );
}

#[test]
fn nothing_to_search_for_is_wrong_usage() {
    let dir = database();
    for nothing in [
        &["query", "x.db"][..],
        &["query", "x.db", ""],
        &["query", "x.db", " ", ""],
    ] {
        let said = run(dir.path(), nothing).failed(2);
        assert!(said.contains("nothing to search for"), "{said}");
    }
    let said = run(
        dir.path(),
        &["query", "x.db", "two", "words", "--file", "q.txt"],
    )
    .failed(2);
    assert!(said.contains("cannot be used with"), "{said}");
    let said = run(dir.path(), &["query", "x.db", "below", "-x"]).failed(2);
    assert!(said.contains("'-- -x'"), "{said}");
}

#[test]
fn only_keys_are_read_as_keys_prints_them() {
    let dir = tempfile::tempdir().unwrap();
    let rows = r#"{"key":"two\nlines","vector":[1,0]}
{"key":"C:\\new","vector":[0,1]}
{"key":"other","vector":[1,1]}
"#;
    run_with(dir.path(), &["insert", "x.db"], rows).ok();
    data(&dir.path().join("q.npy"), 1, 1, 2);
    let listed = run(dir.path(), &["keys", "x.db"]).ok();
    assert_eq!(listed, "\"two\\nlines\"\nC:\\new\nother\n");
    let two: Vec<&str> = listed.lines().take(2).collect();
    std::fs::write(dir.path().join("keys.txt"), two.join("\n")).unwrap();
    let query = [
        "query",
        "x.db",
        "--vectors",
        "q.npy",
        "--keys-from",
        "keys.txt",
        "--json",
    ];
    let hits = run(dir.path(), &query).json().remove(0);
    let mut found: Vec<&str> = (hits["hits"].as_array().unwrap().iter())
        .map(|hit| hit["key"].as_str().unwrap())
        .collect();
    found.sort_unstable();
    assert_eq!(found, ["C:\\new", "two\nlines"]);
}
