//! `mopqdb-train` on real databases: vectors in, a registered model out; then the database is rebuilt with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use mopqdb::vectors::VectorWriter;
use mopqdb::{CreateOptions, Database, Metric, Options, RebuildOptions, Row};
use mopqdb_trainer::random::Random;

const DIM: usize = 16;
const ROWS: usize = 400;

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn train(&self, flags: &[&str]) -> Output {
        let small = [
            "--dim",
            "8",
            "--subspaces",
            "4",
            "--codewords",
            "16",
            "--batch",
            "40",
            "--warmup",
            "2",
            "--epochs",
            "3",
            "--lr",
            "0.005",
        ];
        Command::new(env!("CARGO_BIN_EXE_mopqdb-train"))
            .arg(self.path("db"))
            .args(small)
            .args(flags)
            .current_dir(self.dir.path())
            .output()
            .unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Keys in which eight directions tell what a query means and eight are noise.
fn vectors() -> Place {
    let place = Place {
        dir: tempfile::tempdir().unwrap(),
    };
    let db = Database::create(
        place.path("db"),
        &CreateOptions::vectors(DIM, Metric::Ip),
        Options::default(),
    )
    .unwrap();
    let mut random = Random::new(11, "world", 0);
    let mut rows = Vec::new();
    let mut queries = VectorWriter::create(&place.path("q.npy"), DIM).unwrap();
    let (mut pairs, mut valid) = (String::new(), String::new());
    for row in 0..ROWS {
        let topic: Vec<f64> = (0..8).map(|_| random.normal()).collect();
        let mut noisy = || -> Vec<f32> {
            (0..DIM)
                .map(|x| (topic.get(x).unwrap_or(&0.0) * 0.5 + 0.3 * random.normal()) as f32)
                .collect()
        };
        rows.push(Row::vector(format!("key-{row}"), noisy()));
        queries.write(&noisy()).unwrap();
        let line = format!("{row}\tkey-{row}\n");
        if row % 5 == 0 {
            valid.push_str(&line)
        } else {
            pairs.push_str(&line)
        }
    }
    queries.finish().unwrap();
    db.insert(&rows).unwrap();
    db.close().unwrap();
    fs::write(place.path("pairs.tsv"), pairs).unwrap();
    fs::write(place.path("valid.tsv"), valid).unwrap();
    place
}

const INPUTS: [&str; 6] = [
    "--pairs",
    "pairs.tsv",
    "--queries",
    "q.npy",
    "--valid",
    "valid.tsv",
];

#[test]
fn a_model_is_trained_registered_and_switched_to() {
    let place = vectors();
    let output = place.train(&[&INPUTS[..], &["--json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let id = done["model"].as_str().unwrap();
    assert!(done["recall"]["10"].as_f64().unwrap() > 0.1, "{done}");
    let models = mopqdb::models(place.path("db")).unwrap();
    let model = models
        .iter()
        .find(|model| model.id.to_string() == id)
        .unwrap();
    assert!(!model.active);
    assert_eq!(
        (model.method.as_str(), model.shape),
        ("mopq", Some((4, 16)))
    );
    assert_eq!(model.training["config"]["seed"], 42);

    let run = PathBuf::from(done["run"].as_str().unwrap());
    assert_eq!(
        fs::read_to_string(run.join("run.jsonl"))
            .unwrap()
            .lines()
            .count(),
        5
    );
    assert!(run.join("run.svg").exists() && !run.join("last.safetensors").exists());

    let options = RebuildOptions {
        model: Some(model.id),
        ..RebuildOptions::default()
    };
    mopqdb::rebuild(place.path("db"), &options).unwrap();
    let db = Database::open(place.path("db"), Options::default()).unwrap();
    assert_eq!(db.model().id(), Some(model.id));
    assert_eq!(db.query(&[0.1f32; DIM], 10).unwrap().len(), 10);

    // The same command again finds what it made.
    let again = place.train(&[&INPUTS[..], &["--json"]].concat());
    assert!(text(&again.stdout).contains(id), "{}", text(&again.stderr));
}

#[test]
fn bad_input_is_named_and_leaves_nothing_that_looks_whole() {
    let place = vectors();
    let words = |flags: &[&str], file: Option<(&str, &str)>| {
        if let Some((name, content)) = file {
            fs::write(place.path(name), content).unwrap();
        }
        let output = place.train(flags);
        assert!(!output.status.success());
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
        text(&output.stderr)
    };
    let with = |pairs| ["--pairs", pairs, "--queries", "q.npy"];
    let empty = words(&with("empty.tsv"), Some(("empty.tsv", "")));
    assert!(empty.contains("empty.tsv: no pairs"), "{empty}");
    let no_tab = words(&with("a.tsv"), Some(("a.tsv", "0\tkey-0\n1 key-1\n")));
    assert!(no_tab.contains("a.tsv:2: no TAB"), "{no_tab}");
    let missing = words(&with("b.tsv"), Some(("b.tsv", "0\tkey-0\n1\tnobody\n")));
    assert!(
        missing.contains("b.tsv:2") && missing.contains("nobody"),
        "{missing}"
    );
    let beyond = words(&with("c.tsv"), Some(("c.tsv", "400\tkey-0\n")));
    assert!(beyond.contains("c.tsv:1: row 400"), "{beyond}");
    let one = words(&with("d.tsv"), Some(("d.tsv", "0\tkey-0\n")));
    assert!(one.contains("d.tsv: 1 pairs"), "{one}");
    let texts = words(&["--pairs", "pairs.tsv"], None);
    assert!(texts.contains("--queries"), "{texts}");
    let wide = words(&[&INPUTS[..], &["--subspaces", "3"]].concat(), None);
    assert!(wide.contains("dim 8 is not divisible by 3"), "{wide}");
    let absent = words(&["--pairs", "nowhere.tsv", "--queries", "q.npy"], None);
    assert!(absent.contains("nowhere.tsv"), "{absent}");
    assert!(mopqdb::models(place.path("db")).unwrap().is_empty());
    let left: Vec<_> =
        fs::read_dir(place.path("db").join("models")).map_or(Vec::new(), |dir| dir.collect());
    assert!(left.is_empty(), "{left:?}");
}

/// Texts through the tiny encoder, which needs ONNX Runtime (`make setup`).
#[test]
fn texts_are_encoded_once_and_learned_from() {
    if let Err(error) = mopqdb::encoder::locate_onnxruntime() {
        assert!(
            std::env::var_os("MOPQDB_REQUIRE_NATIVE").is_none(),
            "{error}"
        );
        eprintln!("SKIPPED texts_are_encoded_once_and_learned_from: {error}");
        return;
    }
    let place = Place {
        dir: tempfile::tempdir().unwrap(),
    };
    let new = CreateOptions::bundle(mopqdb::bundle::tiny_bundle());
    let db = Database::create(place.path("db"), &new, Options::default()).unwrap();
    let words: Vec<&str> = include_str!("../../engine/assets/tiny-words.txt")
        .split_whitespace()
        .collect();
    let mut random = Random::new(12, "texts", 0);
    let (mut rows, mut pairs) = (Vec::new(), String::new());
    for row in 0..200 {
        let chosen: Vec<&str> = (0..5).map(|_| words[random.below(words.len())]).collect();
        let key = format!("{} {row}", chosen.join(" "));
        pairs.push_str(&format!("{} {}\t{key}\n", chosen[1], chosen[3]));
        rows.push(Row::text(format!("key-{row}"), key));
    }
    db.insert(&rows).unwrap();
    db.close().unwrap();
    fs::write(place.path("pairs.tsv"), pairs).unwrap();
    let output = place.train(&["--pairs", "pairs.tsv", "--devices", "cpu:2", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let kept = fs::read_dir(place.path("db/runs/embeddings"))
        .unwrap()
        .count();
    assert_eq!(kept, 2, "training and validation queries");
    let id = done["model"].as_str().unwrap().parse().unwrap();
    let db = Database::open(place.path("db"), Options::default()).unwrap();
    let options = RebuildOptions {
        model: Some(id),
        ..RebuildOptions::default()
    };
    db.rebuild(&options).unwrap();
    assert_eq!(db.query("some words", 3).unwrap().len(), 3);
}

/// Ctrl-C (SIGINT) in the middle: a clean end, no model, and the same command goes on to the same end.
#[cfg(unix)]
#[test]
fn an_interrupted_run_goes_on() {
    let place = vectors();
    let long = [
        &INPUTS[..],
        &[
            "--json",
            "--epochs",
            "400",
            "--patience",
            "0",
            "--run",
            "here",
        ],
    ]
    .concat();
    let mut child = Command::new(env!("CARGO_BIN_EXE_mopqdb-train"))
        .arg(place.path("db"))
        .args([
            "--dim",
            "8",
            "--subspaces",
            "4",
            "--codewords",
            "16",
            "--batch",
            "40",
            "--warmup",
            "1",
        ])
        .args(&long)
        .current_dir(place.dir.path())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(&place.path("here/run.jsonl"));
    let signalled = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(signalled.success());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(place.path("here/last.safetensors").exists());
    assert!(mopqdb::models(place.path("db")).unwrap().is_empty());
}

fn wait_for(path: &Path) {
    let begin = std::time::Instant::now();
    while !path.exists() {
        assert!(
            begin.elapsed().as_secs() < 120,
            "{} did not appear",
            path.display()
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
