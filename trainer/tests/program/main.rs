//! Tests `mopqdb-train` on real databases: from vectors to a registered model, and a rebuild with it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use mopqdb::{CreateOptions, Database, Metric, Options, RebuildOptions, Row};
use mopqdb_formats::vectors::VectorWriter;
use mopqdb_tests::mounted::Mounted;
use mopqdb_tests::recording::copy_dir;
use mopqdb_trainer::random::Random;

mod scorer;

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

/// Returns the models of a database except `exact`, which every database has.
fn trained(db: &Path) -> Vec<mopqdb::ModelInfo> {
    let mut models = mopqdb::models(db).unwrap();
    models.retain(|model| model.method != "exact");
    models
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Creates keys in which eight dimensions carry the meaning of a query and eight are noise.
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

    let options = RebuildOptions::default().model(Some(model.id));
    mopqdb::rebuild(place.path("db"), &options).unwrap();
    let db = Database::open(place.path("db"), Options::default()).unwrap();
    assert_eq!(db.model().id(), Some(model.id));
    assert_eq!(db.query(&[0.1f32; DIM], 10).unwrap().len(), 10);

    // The same command again finds the model that it made.
    let again = place.train(&[&INPUTS[..], &["--json"]].concat());
    assert!(text(&again.stdout).contains(id), "{}", text(&again.stderr));
}

/// A run is identified by everything that determines its result, and counts as done only while its model exists.
#[test]
fn a_run_with_other_inputs_is_another_run() {
    let place = vectors();
    let train = |more: &[&str]| -> serde_json::Value {
        let output = place.train(&[&INPUTS[..], &["--json"], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let said_done = |more: &[&str]| {
        let output = place.train(&[&INPUTS[..], more].concat());
        text(&output.stderr).contains("done before")
    };
    let outside = place.path("bundle");
    let outside = ["--out", outside.to_str().unwrap()];
    let unregistered = train(&outside);
    assert!(!said_done(&[]), "the database does not have that model");
    let first = train(&[]);
    assert_eq!(first["model"], unregistered["model"]);
    assert!(said_done(&[]));

    // The same numbers of rows, but different vectors.
    let (dim, mut queries) = mopqdb_formats::vectors::read_all(&place.path("q.npy")).unwrap();
    queries.iter_mut().for_each(|x| *x *= 1.5);
    let mut writer = VectorWriter::create(&place.path("q.npy"), dim).unwrap();
    writer.write(&queries).unwrap();
    writer.finish().unwrap();
    let second = train(&[]);
    assert_ne!(second["model"], first["model"], "other queries");
    let db = Database::open(place.path("db"), Options::default()).unwrap();
    db.insert(&[Row::vector("key-0", vec![9.0; DIM])]).unwrap();
    db.close().unwrap();
    let third = train(&[]);
    assert_ne!(
        third["model"], second["model"],
        "a different vector of a key"
    );

    // A folder given by name holds one run at a time.
    let run = place.path("run");
    let run = ["--run", run.to_str().unwrap()];
    let named = |seed: &str| train(&[&run[..], &["--seed", seed]].concat());
    let (seven, eight) = (named("7"), named("8"));
    assert_ne!(seven["model"], eight["model"]);
    assert_eq!(named("7")["model"], seven["model"]);
}

#[test]
fn pairs_without_a_row_are_left_out_and_counted() {
    let place = vectors();
    let mut pairs = fs::read_to_string(place.path("pairs.tsv")).unwrap();
    pairs.push_str("1\tgone\n2\tgone too\n");
    fs::write(place.path("some.tsv"), pairs).unwrap();
    for valid in [&["--valid", "valid.tsv"][..], &[]] {
        let flags = [
            &["--pairs", "some.tsv", "--queries", "q.npy"][..],
            valid,
            &["--skip-missing"],
        ]
        .concat();
        let output = place.train(&flags);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(
            said.contains(
                "some.tsv:321: no row has the key \"gone\" (2 of 322 lines); such lines are left out\n"
            ),
            "{said}"
        );
        // The same pairs without those lines are the same run.
        if !valid.is_empty() {
            let again = place.train(&INPUTS);
            assert!(text(&again.stderr).contains("done before"));
            assert_eq!(again.stdout, output.stdout);
        }
    }
}

#[test]
fn bad_input_is_an_error_and_leaves_no_result() {
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
    assert!(
        empty.contains("empty.tsv: the file has no pairs"),
        "{empty}"
    );
    let no_tab = words(&with("a.tsv"), Some(("a.tsv", "0\tkey-0\n1 key-1\n")));
    assert!(no_tab.contains("a.tsv:2: has no tab"), "{no_tab}");
    let missing = words(&with("b.tsv"), Some(("b.tsv", "0\tkey-0\n1\tnobody\n")));
    assert_eq!(
        missing,
        "mopqdb-train: b.tsv:2: no row has the key \"nobody\" (1 of 2 lines); insert it first, or leave such lines out with --skip-missing\n"
    );
    let none = words(
        &[&with("n.tsv")[..], &["--skip-missing"]].concat(),
        Some(("n.tsv", "0\tnobody\n1\tnoone\n")),
    );
    assert_eq!(
        none,
        "mopqdb-train: n.tsv:1: no row has the key \"nobody\" (2 of 2 lines); insert it first\n"
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
    assert!(trained(&place.path("db")).is_empty());
    let left: Vec<_> =
        fs::read_dir(place.path("db").join("models")).map_or(Vec::new(), |dir| dir.collect());
    assert!(left.is_empty(), "{left:?}");
}

/// The database and its runs are on a file system with more and more space: there is no model until a whole one fits,
/// and then it is the same as with enough space from the start.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported_and_leaves_no_model() {
    let flags = [&INPUTS[..], &["--json"]].concat();
    let roomy = vectors();
    let expected = roomy.train(&flags);
    assert!(expected.status.success(), "{}", text(&expected.stderr));
    let expected: serde_json::Value = serde_json::from_slice(&expected.stdout).unwrap();

    let place = vectors();
    let db = place.path("db");
    fs::rename(&db, place.path("elsewhere")).unwrap();
    let Some(_mounted) = Mounted::new(&db, "size=2m") else {
        return;
    };
    copy_dir(&place.path("elsewhere"), &db);
    let filler = db.join("filler");
    let rooms = [0, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512];
    for (refused, room) in rooms.into_iter().enumerate() {
        // Fill the disk except for some KiB.
        let mut file = fs::File::create(&filler).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        let size = file.metadata().unwrap().len();
        file.set_len(size.saturating_sub(room * 1024)).unwrap();

        let output = place.train(&flags);
        let words = text(&output.stderr);
        if output.status.success() {
            let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(done["recall"], expected["recall"], "with {room} KiB");
            assert_eq!(trained(&db).len(), 1);
            assert!(refused >= 3, "only {refused} runs without space");
            eprintln!("{refused} runs without space, none left a model");
            return;
        }
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
        assert!(
            words.contains("No space left on device") && words.contains("db/"),
            "with {room} KiB: {words}"
        );
        assert!(trained(&db).is_empty(), "with {room} KiB");
        fs::remove_file(&filler).unwrap();
    }
    panic!("512 KiB were not enough");
}

/// A database of texts with the tiny encoder, which needs ONNX Runtime (`make setup`), and pairs for it.
fn texts(test: &str) -> Option<Place> {
    if let Err(error) = mopqdb::encoder::locate_onnxruntime() {
        assert!(
            std::env::var_os("MOPQDB_REQUIRE_NATIVE").is_none(),
            "{error}"
        );
        eprintln!("SKIPPED {test}: {error}");
        return None;
    }
    let place = Place {
        dir: tempfile::tempdir().unwrap(),
    };
    let new = CreateOptions::bundle(mopqdb::bundle::tiny_bundle());
    let db = Database::create(place.path("db"), &new, Options::default()).unwrap();
    let words: Vec<&str> = include_str!("../../../engine/assets/tiny-words.txt")
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
    Some(place)
}

/// Opens the database and rebuilds it under a model.
fn rebuilt(place: &Place, model: &mopqdb::ModelInfo) -> Database {
    let db = Database::open(place.path("db"), Options::default()).unwrap();
    let options = RebuildOptions::default().model(Some(model.id));
    db.rebuild(&options).unwrap();
    db
}

/// Rebuilds with the model that a run printed, and queries.
fn switch_to(place: &Place, output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let options =
        RebuildOptions::default().model(Some(done["model"].as_str().unwrap().parse().unwrap()));
    let db = Database::open(place.path("db"), Options::default()).unwrap();
    db.rebuild(&options).unwrap();
    assert_eq!(db.model().id(), options.model);
    assert_eq!(db.query("some words", 3).unwrap().len(), 3);
    done
}

#[test]
fn texts_are_encoded_once_for_training() {
    let Some(place) = texts("texts_are_encoded_once_for_training") else {
        return;
    };
    let output = place.train(&["--pairs", "pairs.tsv", "--devices", "cpu:2", "--json"]);
    switch_to(&place, &output);
    let kept = fs::read_dir(place.path("db/runs/embeddings"))
        .unwrap()
        .count();
    assert_eq!(kept, 2, "training and validation queries");
}

#[test]
fn a_rebuild_switches_to_a_trained_encoder() {
    let Some(place) = texts("a_rebuild_switches_to_a_trained_encoder") else {
        return;
    };
    let before = Database::open(place.path("db"), Options::default())
        .unwrap()
        .model()
        .encoder_id();
    bert_weights(&place);
    let joint = [
        "--joint",
        "--layers",
        "1",
        "--weights",
        "bert.safetensors",
        "--devices",
        "cpu:2",
    ];
    let output = place.train(&[&["--pairs", "pairs.tsv", "--json"], &joint[..]].concat());
    switch_to(&place, &output);
    let model = Database::open(place.path("db"), Options::default())
        .unwrap()
        .model();
    assert_ne!(model.encoder_id(), before);
    assert_eq!(model.dim(), 24, "the width of the new encoder");
}

/// Two random layers of BERT, 24 wide, with a word for every id of the tiny tokenizer, and `config.json`.
fn bert_weights(place: &Place) {
    let config = serde_json::json!({
        "num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 32
    });
    fs::write(place.path("config.json"), config.to_string()).unwrap();
    let mut shapes: Vec<(String, Vec<usize>)> = vec![
        ("embeddings.word_embeddings.weight".into(), vec![4_000, 24]),
        ("embeddings.position_embeddings.weight".into(), vec![64, 24]),
        (
            "embeddings.token_type_embeddings.weight".into(),
            vec![2, 24],
        ),
    ];
    let mut both = |name: String, out: usize, input: Option<usize>| {
        shapes.push((
            format!("{name}.weight"),
            [Some(out), input].into_iter().flatten().collect(),
        ));
        shapes.push((format!("{name}.bias"), vec![out]));
    };
    both("embeddings.LayerNorm".into(), 24, None);
    for layer in 0..2 {
        let at = |part: &str| format!("encoder.layer.{layer}.{part}");
        for part in ["self.query", "self.key", "self.value", "output.dense"] {
            both(at(&format!("attention.{part}")), 24, Some(24));
        }
        both(at("attention.output.LayerNorm"), 24, None);
        both(at("intermediate.dense"), 32, Some(24));
        both(at("output.dense"), 24, Some(32));
        both(at("output.LayerNorm"), 24, None);
    }
    let mut random = Random::new(13, "weights", 0);
    let blocks: Vec<(String, Vec<usize>, Vec<u8>)> = shapes
        .into_iter()
        .map(|(name, shape)| {
            let centre = if name.ends_with("LayerNorm.weight") {
                1.0
            } else {
                0.0
            };
            let values =
                (0..shape.iter().product()).map(|_| (centre + 0.3 * random.normal()) as f32);
            let bytes = values.flat_map(f32::to_le_bytes).collect();
            (name, shape, bytes)
        })
        .collect();
    let views = blocks.iter().map(|(name, shape, bytes)| {
        let view =
            safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes);
        (name.as_str(), view.unwrap())
    });
    fs::write(
        place.path("bert.safetensors"),
        safetensors::serialize(views, None).unwrap(),
    )
    .unwrap();
}

/// Ctrl-C (SIGINT) during a run: a clean end, no model. Until then no other run can use its folder. (A library test
/// checks that a resumed run gives the same result.)
#[cfg(unix)]
#[test]
fn ctrl_c_keeps_the_last_complete_epoch_and_leaves_no_model() {
    let place = vectors();
    let long = [
        &INPUTS[..],
        &[
            "--json",
            "--epochs",
            "40000",
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
    // The same run would write to the same files.
    let second = place.train(&[&INPUTS[..], &["--run", "here"]].concat());
    let said = text(&second.stderr);
    assert_eq!(second.status.code(), Some(4), "{said}");
    assert!(said.contains(&format!("process {}", child.id())), "{said}");
    let signalled = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(signalled.success());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(place.path("here/last.safetensors").exists());
    assert!(trained(&place.path("db")).is_empty());
}

/// `mopqdb train` holds the other end of the pipe. It closes it on a signal, and the system closes it if it is killed.
#[test]
fn the_end_of_the_parent_stops_the_run_after_a_step() {
    let place = vectors();
    let mut child = Command::new(env!("CARGO_BIN_EXE_mopqdb-train"))
        .arg(place.path("db"))
        .args(["--dim", "8", "--subspaces", "4", "--codewords", "16"])
        .args(["--batch", "40", "--warmup", "1"])
        .args(INPUTS)
        .args([
            "--epochs",
            "100000",
            "--patience",
            "100000",
            "--run",
            "here",
        ])
        .current_dir(place.dir.path())
        .env("MOPQDB_TRAIN_STOP_AT_EOF", "1")
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(&place.path("here/run.jsonl"));
    assert!(child.try_wait().unwrap().is_none());
    drop(child.stdin.take());
    let begin = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed().as_secs() > 60 {
            child.kill().unwrap();
            panic!("it continues without its parent");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("stopping after this step"), "{said}");
    assert!(said.contains("the same command continues"), "{said}");
    assert!(place.path("here/last.safetensors").exists());
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

fn written(place: &Place, name: &str, rows: &[Vec<f32>]) {
    let mut writer = VectorWriter::create(&place.path(name), rows[0].len()).unwrap();
    writer.write(&rows.concat()).unwrap();
    writer.finish().unwrap();
}

#[test]
fn without_pairs_it_learns_from_the_rows_alone() {
    let place = vectors();
    let output = place.train(&["--json"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("exact first ten rows of 20 queries"),
        "{said}"
    );
    let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(done["method"], "distill");
    assert_eq!(done["report"]["validation_queries"], 20);
    // By chance it would be 10 of 400.
    assert!(done["recall"]["10"].as_f64().unwrap() > 0.2, "{done}");
    let models = trained(&place.path("db"));
    assert_eq!(
        models[0].training["config"]["distill"]["largest_cosine"],
        0.9
    );
    assert!(models[0].training["pairs"].is_null());
    mopqdb::rebuild(place.path("db"), &RebuildOptions::default()).unwrap();
    let db = Database::open(place.path("db"), Options::default()).unwrap();
    assert_eq!(db.query(&[0.1f32; DIM], 10).unwrap().len(), 10);
    db.close().unwrap();
    assert!(text(&place.train(&[]).stderr).contains("done before"));

    // A log and labels make other runs of it; a tenth of the log is what is measured.
    let logged = place.train(&["--query-log", "q.npy", "--json"]);
    assert!(logged.status.success(), "{}", text(&logged.stderr));
    let logged: serde_json::Value = serde_json::from_slice(&logged.stdout).unwrap();
    assert_ne!(logged["model"], done["model"]);
    assert_eq!(logged["report"]["validation_queries"], 40);
    let labelled = place.train(&[&INPUTS[..], &["--method", "distill", "--json"]].concat());
    assert!(labelled.status.success(), "{}", text(&labelled.stderr));
    let labelled: serde_json::Value = serde_json::from_slice(&labelled.stdout).unwrap();
    assert_eq!(labelled["report"]["pairs"], 320);
    assert_eq!(labelled["report"]["validation_queries"], 80);
    let dir = place.path("db/runs");
    assert_eq!(fs::read_dir(dir).unwrap().count(), 3);
}

/// Vectors narrower than the default shape get the widest that fits; a shape that is asked for is not changed.
#[test]
fn the_shape_follows_the_width_of_the_vectors() {
    let place = vectors();
    let run = |flags: &[&str]| -> (bool, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_mopqdb-train"))
            .arg(place.path("db"))
            .args([
                "--codewords",
                "8",
                "--warmup",
                "1",
                "--epochs",
                "1",
                "--json",
            ])
            .args(flags)
            .output()
            .unwrap();
        (
            output.status.success(),
            text(&output.stdout) + &text(&output.stderr),
        )
    };
    let (done, words) = run(&[]);
    assert!(done, "{words}");
    let (done, words) = run(&["--subspaces", "5"]);
    assert!(done, "{words}");
    let mut shapes: Vec<_> = trained(&place.path("db"))
        .iter()
        .map(|model| (model.training["config"]["dim"].as_u64(), model.shape))
        .collect();
    shapes.sort();
    assert_eq!(shapes, [(Some(15), Some((5, 8))), (Some(16), Some((8, 8)))]);
    let (done, words) = run(&["--dim", "32"]);
    assert!(!done && words.contains("have 16"), "{words}");
}

#[test]
fn what_cannot_be_distilled_is_refused_in_words_and_leaves_nothing() {
    let words = |place: &Place, flags: &[&str]| {
        let output = place.train(flags);
        assert!(!output.status.success(), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty());
        assert!(trained(&place.path("db")).is_empty());
        assert!(!place.path("db/runs").exists(), "{flags:?}");
        text(&output.stderr)
    };
    let of_rows = |rows: &[Vec<f32>], metric| {
        let place = Place {
            dir: tempfile::tempdir().unwrap(),
        };
        let new = CreateOptions::vectors(DIM, metric);
        let db = Database::create(place.path("db"), &new, Options::default()).unwrap();
        let rows = rows.iter().enumerate();
        let rows: Vec<Row> = rows
            .map(|(n, row)| Row::vector(n.to_string(), row.clone()))
            .collect();
        if !rows.is_empty() {
            db.insert(&rows).unwrap();
        }
        db.close().unwrap();
        place
    };
    let row = |n: usize| -> Vec<f32> { (0..DIM).map(|x| ((n * 31 + x * 7) % 97) as f32).collect() };
    let none = of_rows(&[], Metric::Cosine);
    assert!(words(&none, &[]).contains("has no rows"));
    let one = of_rows(&[row(1)], Metric::Cosine);
    assert!(words(&one, &[]).contains("16 codewords are more than the 1 rows"));
    let few: Vec<_> = (0..15).map(row).collect();
    let few = of_rows(&few, Metric::Ip);
    assert!(words(&few, &[]).contains("choose --codewords 15 or fewer"));
    let equal = of_rows(&vec![row(3); 50], Metric::Cosine);
    assert!(words(&equal, &[]).contains("all 50 rows have the same vector"));
    let rows: Vec<_> = (0..40).map(row).collect();
    let l2 = of_rows(&rows, Metric::L2);
    assert!(words(&l2, &[]).contains("--method opq"));

    let place = vectors();
    fs::write(place.path("log.txt"), "a query\n").unwrap();
    fs::write(place.path("empty.txt"), "\n \n").unwrap();
    written(&place, "wide.npy", &[vec![1.0; DIM + 1]]);
    written(&place, "nan.npy", &[vec![0.5; DIM], vec![f32::NAN; DIM]]);
    for (log, said) in [
        ("log.txt", "the rows are vectors, so queries are too"),
        ("empty.txt", "the rows are vectors, so queries are too"),
        (
            "wide.npy",
            "wide.npy: row 0 has 17 values, this database takes 16",
        ),
        ("nan.npy", "nan.npy: row 1 has NaN at position 0"),
        ("absent.npy", "absent.npy"),
    ] {
        let found = words(&place, &["--query-log", log]);
        assert!(found.contains(said), "{log}: {found}");
    }
    for (flags, said) in [
        (&["--method", "mopq"][..], "mopq learns from pairs"),
        (&["--devices", "cpu:2"], "distill runs on one device"),
        (&["--queries", "q.npy"], "--queries is about pairs"),
        (&["--sampling", "dcs"], "--sampling has a meaning with"),
        (&["--select", "product"], "distill chooses codewords by l2"),
        (&["--joint"], "leave --joint out"),
    ] {
        let found = words(&place, flags);
        assert!(found.contains(said), "{flags:?}: {found}");
    }
    let labelled = [&INPUTS[..], &["--method", "mopq", "--query-log", "q.npy"]].concat();
    let found = words(&place, &labelled);
    assert!(
        found.contains("--query-log has a meaning with --method distill"),
        "{found}"
    );
}

#[test]
fn a_log_of_texts_is_encoded_once_and_need_share_no_word_with_the_rows() {
    let Some(place) = texts("a_log_of_texts_is_encoded_once_and_need_share_no_word_with_the_rows")
    else {
        return;
    };
    fs::write(place.path("empty.txt"), "\n \n").unwrap();
    let output = place.train(&["--query-log", "empty.txt"]);
    assert!(text(&output.stderr).contains("empty.txt: no queries in it"));
    let log: String = (0..300)
        .map(|n| format!("zzz {} qqq\n\n", n % 250))
        .collect();
    fs::write(place.path("log.txt"), log).unwrap();
    let output = place.train(&["--query-log", "log.txt", "--json"]);
    let done = switch_to(&place, &output);
    assert_eq!(done["report"]["validation_queries"], 25, "distinct queries");
    let kept = fs::read_dir(place.path("db/runs/embeddings")).unwrap();
    assert_eq!(kept.count(), 1);
}
