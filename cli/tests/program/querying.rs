//! `query`: complete answers, in each output format.

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
fn a_pipe_gets_rank_score_key_text_separated_by_tabs() {
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
fn json_is_one_object_per_query() {
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
fn only_given_keys_are_searched_and_k_limits_the_hits() {
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
fn many_queries_give_the_answers_of_single_queries() {
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
fn a_reader_that_closes_the_pipe_causes_no_error() {
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
fn text_queries_without_an_encoder_are_an_error_with_a_reason() {
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
fn a_missing_query_is_a_usage_error() {
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
fn keys_from_reads_what_keys_prints() {
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

/// 3,000 rows with codes of two bytes, and 20 queries.
fn coded() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    data(&dir.join("x.npy"), 1, 3000, 8);
    data(&dir.join("q.npy"), 2, 20, 8);
    run(dir, &["insert", "x.db", "x.npy"]).ok();
    let small = ["--method", "pq", "--subspaces", "2", "--codewords", "16"];
    run(dir, &[&["train", "x.db"], &small[..]].concat()).ok();
    run(dir, &["rebuild", "x.db"]).ok();
    home
}

fn asked(dir: &std::path::Path, flags: &[&str]) -> Vec<serde_json::Value> {
    let query = ["query", "x.db", "--vectors", "q.npy", "--json"];
    run(dir, &[&query[..], flags].concat()).json()
}

#[test]
fn options_choose_the_search_mode_and_the_hits() {
    let home = coded();
    let dir = home.path();
    let hits = |flags: &[&str]| asked(dir, flags)[0]["hits"].as_array().unwrap().clone();
    let exact = hits(&["--search", "exact", "-k", "30"]);
    assert_eq!(hits(&["--candidates", "3000", "-k", "30"]), exact);
    assert_ne!(hits(&["--candidates", "30", "-k", "30"]), exact);
    assert_eq!(
        hits(&["-k", "30"]),
        hits(&["--search", "auto", "--candidates", "400", "-k", "30"])
    );
    assert!(exact.iter().all(|hit| hit["score"] == hit["similarity"]));
    let codes = hits(&["--search", "codes", "-k", "30"]);
    assert!(
        codes.iter().all(|hit| hit["similarity"].is_null()),
        "{codes:?}"
    );
    assert_eq!(
        hits(&["--search", "exact", "-k", "10", "--offset", "20"]),
        exact[20..]
    );
    let least = exact[9]["score"].to_string();
    for flag in ["--min-score", "--min-similarity"] {
        let cut = hits(&["--search", "exact", "-k", "30", flag, &least]);
        assert_eq!(cut, exact[..10], "{flag}");
    }
    assert_eq!(
        hits(&["--min-score", "-1", "-k", "30"]).len(),
        30,
        "a negative number"
    );
}

#[test]
fn explain_prints_stages_in_json_and_on_stderr() {
    let home = coded();
    let dir = home.path();
    let answer = &asked(dir, &["--explain", "--candidates", "500"])[0];
    assert_eq!(
        (&answer["search"], &answer["candidates"]),
        (&"auto".into(), &500.into())
    );
    let stages = answer["stages"].as_array().unwrap();
    let names: Vec<&str> = (stages.iter().map(|stage| stage["stage"].as_str().unwrap())).collect();
    assert_eq!(names, ["vectors", "filter", "candidates", "score", "hits"]);
    for stage in stages {
        let fields: Vec<&str> = (stage.as_object().unwrap().keys().map(String::as_str)).collect();
        assert_eq!(fields, ["bytes", "cells", "pages", "rows", "stage", "us"]);
    }
    // 20 queries with 500 candidates of 32 bytes each.
    assert_eq!(
        (&stages[3]["rows"], &stages[3]["bytes"]),
        (&10_000.into(), &320_000.into())
    );
    assert!(asked(dir, &[])[0].get("stages").is_none());
    let told = run(dir, &["query", "x.db", "--vectors", "q.npy", "--explain"]);
    for name in [
        "search by auto, 400 candidates, queries: 20",
        "vectors",
        "filter",
        "score",
    ] {
        assert!(told.err.contains(name), "{}", told.err);
    }
    assert_eq!(told.ok().lines().count(), 200);
}

#[test]
fn invalid_searches_are_refused_with_a_remedy() {
    let home = coded();
    let dir = home.path();
    let refused = |flags: &[&str], code: i32| {
        let query = ["query", "x.db", "--vectors", "q.npy"];
        run(dir, &[&query[..], flags].concat()).failed(code)
    };
    for (flags, code, said) in [
        (
            &["--search", "sideways"][..],
            2,
            "it is one of auto, codes, exact, words",
        ),
        (&["--search", "words"], 2, "this database contains vectors"),
        (
            &["--search", "exact", "--candidates", "50"],
            2,
            "--candidates is for --search auto",
        ),
        (
            &["--candidates", "9"],
            1,
            "9 candidates for 10 hits; ask for 10 to 1000000",
        ),
        (
            &["--candidates", "10", "--offset", "1"],
            1,
            "10 candidates for 11 hits; ask for 11 to 1000000",
        ),
        (
            &["-k", "10000", "--offset", "1"],
            1,
            "k is 10000 with an offset of 1; ask for 1 to 10000 hits",
        ),
        (&["--min-score", "nan"], 1, "a least score is not a number"),
        (
            &["--search", "codes", "--min-similarity", "0"],
            1,
            "have no similarity",
        ),
    ] {
        let found = refused(flags, code);
        assert!(found.contains(said), "{flags:?}: {found}");
    }
    run(dir, &["rebuild", "x.db", "--model", "exact"]).ok();
    let found = refused(&["--search", "codes"], 1);
    for advice in [
        "no codes",
        "`mopqdb train x.db --method opq`",
        "`mopqdb rebuild x.db`",
    ] {
        assert!(found.contains(advice), "{found}");
    }
    let bench = ["bench", "x.db", "--search", "codes"];
    assert!(run(dir, &bench).failed(1).contains("no codes"));
}

#[test]
fn tune_stores_the_number_of_candidates_for_queries() {
    let home = coded();
    let dir = home.path();
    let tune = [
        "tune",
        "x.db",
        "--queries",
        "q.npy",
        "--recall",
        "0.9",
        "--json",
    ];
    let told = &run(dir, &tune).json()[0];
    let tried = told["tried"].as_array().unwrap();
    let chosen = told["chosen"].as_u64().unwrap();
    assert_eq!(told["stored"], true);
    let of = |candidates: u64| {
        let is = |tried: &&serde_json::Value| tried["candidates"] == candidates;
        tried.iter().find(is).unwrap()["share"].as_f64().unwrap()
    };
    assert!(of(chosen) >= 0.9);
    let fewer = tried
        .iter()
        .take_while(|tried| tried["candidates"] != chosen);
    assert!(
        fewer
            .into_iter()
            .all(|tried| tried["share"].as_f64().unwrap() < 0.9)
    );
    let taken = |flags: &[&str]| {
        let answer = &asked(dir, &[&["--explain"], flags].concat())[0];
        answer["candidates"].as_u64().unwrap()
    };
    assert_eq!(taken(&[]), chosen);
    assert_eq!(
        taken(&["-k", "20"]),
        2 * chosen,
        "in proportion to the hits"
    );
    assert_eq!(taken(&["--candidates", "77"]), 77);
    // The other model has no setting. The first model has its setting again.
    let models = run(dir, &["models", "x.db", "--json"]).json();
    let active = models.iter().find(|model| model["active"] == true).unwrap();
    assert_eq!(
        (&active["serving"]["k"], &active["serving"]["candidates"]),
        (&10.into(), &chosen.into())
    );
    let active = active["id"].as_str().unwrap().to_owned();
    run(dir, &["rebuild", "x.db", "--model", "exact"]).ok();
    let refused = run(dir, &tune).failed(1);
    assert!(refused.contains("takes no candidates"), "{refused}");
    run(dir, &["rebuild", "x.db", "--model", &active]).ok();
    assert_eq!(taken(&[]), chosen);
    for wrong in ["0", "1.5", "nan"] {
        let recall = ["tune", "x.db", "--queries", "q.npy", "--recall", wrong];
        run(dir, &recall).failed(2);
    }
}
