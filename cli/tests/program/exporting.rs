//! `export`: other programs read the files and get the same answers.

use crate::support::{data, run};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Finds a Python with these modules: `MOPQDB_PYTHON`, or python3. Prints a message if there is none.
pub(crate) fn python(modules: &str) -> Option<String> {
    let named = std::env::var("MOPQDB_PYTHON").unwrap_or_else(|_| "python3".into());
    let has = Command::new(&named)
        .args(["-c", &format!("import {modules}")])
        .output();
    match has {
        Ok(output) if output.status.success() => Some(named),
        _ => {
            eprintln!(
                "SKIPPED: {named} has no {modules} (pip install numpy faiss-cpu; MOPQDB_PYTHON names a Python that has them)"
            );
            None
        }
    }
}

fn database(dir: &Path, metric: &str, model: &[&str]) {
    data(&dir.join("x.npy"), 1, 5000, 24);
    data(&dir.join("q.npy"), 2, 1000, 24);
    run(dir, &["create", "x.db", "--dim", "24", "--metric", metric]).ok();
    run(dir, &["insert", "x.db", "x.npy"]).ok();
    if !model.is_empty() {
        run(dir, &[&["train", "x.db"], model].concat()).ok();
        run(dir, &["rebuild", "x.db"]).ok();
    }
}

#[test]
fn exported_jsonl_can_be_inserted_again() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir, "cosine", &[]);
    run(dir, &["delete", "x.db", "17"]).ok();
    assert_eq!(
        run(dir, &["export", "x.db", "out", "--format", "jsonl"]).ok(),
        "exported 4,999 rows to out\n"
    );
    assert_eq!(
        run(dir, &["insert", "x.db", "out/rows.jsonl"]).ok(),
        "inserted 4,999 rows (0 new, 0 replaced, 4,999 unchanged)\n"
    );
    run(dir, &["insert", "y.db", "out/rows.jsonl"]).ok();
    // Rows are exported with their length, rounded, so scores may differ in their last digits.
    let asked = |db: &str| {
        let hits = run(dir, &["query", db, "--vectors", "q.npy"]).ok();
        let field = |line: &str, n: usize| line.split('\t').nth(n).unwrap().to_owned();
        let hit = |line: &str| (field(line, 2), field(line, 1).parse::<f32>().unwrap());
        hits.lines().map(hit).collect::<Vec<_>>()
    };
    for (own, copied) in asked("x.db").iter().zip(asked("y.db")) {
        assert_eq!(own.0, copied.0, "the copy gives different answers");
        assert!((own.1 - copied.1).abs() < 1e-6, "{own:?} {copied:?}");
    }
    let said = run(dir, &["export", "x.db", "out", "--format", "npy"]).failed(1);
    assert!(said.contains("out") && said.contains("exists"), "{said}");
}

#[test]
fn faiss_loads_the_index_and_finds_the_same_rows() {
    let Some(python) = python("faiss, numpy") else {
        return;
    };
    for (metric, model) in [
        (
            "ip",
            &["--method", "opq", "--subspaces", "8", "--codewords", "256"][..],
        ),
        (
            "l2",
            &["--method", "pq", "--subspaces", "6", "--codewords", "16"],
        ),
        (
            "cosine",
            &["--method", "opq", "--subspaces", "3", "--codewords", "100"],
        ),
        ("cosine", &[]),
    ] {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path();
        database(dir, metric, model);
        run(dir, &["delete", "x.db", "5", "77"]).ok();
        run(dir, &["export", "x.db", "out", "--format", "faiss"]).ok();
        let script = "
import faiss, json, numpy
index = faiss.read_index('out/index.faiss')
keys = [line.rstrip('\\n') for line in open('out/keys.txt')]
scores, rows = index.search(numpy.load('q.npy'), 10)
for s, r in zip(scores, rows):
    print(json.dumps({'keys': [keys[i] for i in r], 'scores': [float(x) for x in s]}))
";
        let output = Command::new(&python)
            .args(["-c", script])
            .current_dir(dir)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let theirs = String::from_utf8(output.stdout).unwrap();
        let theirs: Vec<Value> = theirs
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        // Faiss also scores codes, if there are any.
        let search = if model.is_empty() { "exact" } else { "codes" };
        let codes = &[
            "query",
            "x.db",
            "--vectors",
            "q.npy",
            "--search",
            search,
            "--json",
        ];
        let ours = run(dir, codes).json();
        assert_eq!((ours.len(), theirs.len()), (1000, 1000));
        for (ours, theirs) in ours.iter().zip(&theirs) {
            same(ours, theirs, metric == "l2");
        }
        eprintln!("{metric} {model:?}: 1,000 queries agree with faiss");
    }
}

/// Checks that the keys are the same, in any order within groups whose scores differ by less than 1e-5 relative.
fn same(ours: &Value, theirs: &Value, distances: bool) {
    let hits = ours["hits"].as_array().unwrap();
    let score = |n: usize| hits[n]["score"].as_f64().unwrap();
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-5 * a.abs().max(b.abs()).max(1e-2);
    for n in 0..hits.len() {
        let sign = if distances { -1.0 } else { 1.0 };
        let their_score = sign * theirs["scores"][n].as_f64().unwrap();
        assert!(close(score(n), their_score), "{ours}\n{theirs}");
        let their_key = theirs["keys"][n].as_str().unwrap();
        let in_group = hits
            .iter()
            .enumerate()
            .any(|(at, hit)| hit["key"] == their_key && close(score(at), score(n)));
        // The last group may continue after the tenth hit.
        assert!(
            in_group || close(score(n), score(hits.len() - 1)),
            "{their_key}: {ours}\n{theirs}"
        );
    }
}

#[test]
fn numpy_reads_codes_and_codebooks_that_decode_to_the_scores() {
    let Some(python) = python("numpy") else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(
        dir,
        "ip",
        &["--method", "opq", "--subspaces", "8", "--codewords", "64"],
    );
    run(dir, &["export", "x.db", "out", "--format", "npy"]).ok();
    let script = "
import numpy as np
codes, books, R = (np.load(f'out/{n}.npy') for n in ('codes', 'codebooks', 'rotation'))
keys = [line.rstrip('\\n') for line in open('out/keys.txt')]
decoded = np.concatenate([books[m][codes[:, m]] for m in range(books.shape[0])], axis=1)
scores = (np.load('q.npy')[:20] @ R) @ decoded.T
for row in scores:
    print(keys[int(np.argmax(row))], float(row.max()))
";
    let output = Command::new(&python)
        .args(["-c", script])
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let theirs = String::from_utf8(output.stdout).unwrap();
    let ours = run(
        dir,
        &[
            "query",
            "x.db",
            "--vectors",
            "q.npy",
            "-k",
            "1",
            "--search",
            "codes",
            "--json",
        ],
    )
    .json();
    for (line, ours) in theirs.lines().zip(&ours) {
        let (key, score) = line.split_once(' ').unwrap();
        assert_eq!(ours["hits"][0]["key"], key);
        assert!(
            (ours["hits"][0]["score"].as_f64().unwrap() - score.parse::<f64>().unwrap()).abs()
                < 1e-4
        );
    }
}
