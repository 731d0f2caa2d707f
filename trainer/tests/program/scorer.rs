//! What a run learns besides codes: how candidates are scored, and how many of them a query takes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use mopqdb::{CreateOptions, Database, Metric, ModelInfo, Options, Query, QueryOptions, Row};

use super::{DIM, Place, rebuilt, text, texts, trained, vectors};

/// Every file of every segment, with the time of its last change.
fn segment_files(db: &Path) -> BTreeMap<String, std::time::SystemTime> {
    let entries = fs::read_dir(db.join("segments")).unwrap();
    let files = entries.map(|entry| {
        let entry = entry.unwrap();
        let changed = entry.metadata().unwrap().modified().unwrap();
        (entry.file_name().into_string().unwrap(), changed)
    });
    files.collect()
}

/// The model that a run printed.
fn printed(place: &Place, output: &std::process::Output) -> ModelInfo {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut models = trained(&place.path("db"));
    models.retain(|model| done["model"] == model.id.to_string());
    models.pop().expect("the printed model is registered")
}

/// `--only` takes no flag about codes, so it gets none of those of [`Place::train`].
fn only_scorer(place: &Place, flags: &[&str]) -> std::process::Output {
    std::process::Command::new(env!("CARGO_BIN_EXE_mopqdb-train"))
        .arg(place.path("db"))
        .args(["--only", "scorer"])
        .args(flags)
        .current_dir(place.dir.path())
        .output()
        .unwrap()
}

/// The candidates of a query for k hits, as the database explains it.
fn candidates(db: &Database, k: usize) -> Option<usize> {
    let query = Query::Text("some words");
    let explained = db
        .snapshot()
        .query_explained(&[query], &QueryOptions::top(k));
    explained.unwrap().1.candidates
}

const VALID: [&str; 5] = ["--pairs", "pairs.tsv", "--valid", "pairs.tsv", "--json"];

#[test]
fn a_run_measures_how_many_candidates_queries_take() {
    let Some(place) = texts("a_run_measures_how_many_candidates_queries_take") else {
        return;
    };
    let model = printed(&place, &place.train(&VALID));
    let serving = model.serving.expect("200 validation queries are enough");
    assert_eq!(serving.k, 10);
    let tried = model.evaluation["scorer"]["candidates"].as_array().unwrap();
    let recall = |one: &serde_json::Value| one["recall"].as_f64().unwrap();
    let most = tried.iter().map(recall).fold(0.0, f64::max);
    let enough = tried.iter().find(|one| recall(one) >= 0.998 * most);
    assert_eq!(enough.unwrap()["candidates"], serving.candidates);

    let db = rebuilt(&place, &model);
    assert_eq!(candidates(&db, 10), Some(serving.candidates as usize));
    assert_eq!(candidates(&db, 20), Some(2 * serving.candidates as usize));
    db.close().unwrap();
    // Too few queries do not show it.
    let few: String = fs::read_to_string(place.path("pairs.tsv")).unwrap();
    let few: Vec<&str> = few.lines().take(199).collect();
    fs::write(place.path("few.tsv"), few.join("\n")).unwrap();
    let flags = ["--pairs", "pairs.tsv", "--valid", "few.tsv", "--json"];
    let model = printed(&place, &place.train(&flags));
    assert_eq!(model.serving, None);
    let db = rebuilt(&place, &model);
    assert_eq!(candidates(&db, 10), Some(400), "the default");
}

#[test]
fn only_the_scorer_is_learned_again_and_a_rebuild_writes_no_codes() {
    let Some(place) = texts("only_the_scorer_is_learned_again_and_a_rebuild_writes_no_codes")
    else {
        return;
    };
    let first = printed(&place, &place.train(&VALID));
    drop(rebuilt(&place, &first));
    let other: String = fs::read_to_string(place.path("pairs.tsv")).unwrap();
    let other: Vec<&str> = other.lines().skip(1).collect();
    fs::write(place.path("other.tsv"), other.join("\n")).unwrap();
    // Other term statistics make another scorer, whatever the weight.
    let db = Database::open(place.path("db"), Options::default()).unwrap();
    db.insert(&[Row::text("new", "a row of new words")])
        .unwrap();
    db.seal().unwrap();
    db.close().unwrap();

    let flags = ["--pairs", "other.tsv", "--valid", "pairs.tsv", "--json"];
    let second = printed(&place, &only_scorer(&place, &flags));
    assert_ne!(second.id, first.id);
    assert_eq!((&second.method, second.shape), (&first.method, first.shape));
    assert_eq!(second.training["config"], first.training["config"]);
    assert_eq!(second.training["scorer"]["pairs"], "other.tsv");
    let files = segment_files(&place.path("db"));
    let db = rebuilt(&place, &second);
    assert_eq!(
        segment_files(&place.path("db")),
        files,
        "no file was written"
    );
    let codes = |info: &ModelInfo| {
        let model = mopqdb::open_model(place.path("db"), info.id, 1).unwrap();
        model.codes_id().unwrap()
    };
    assert_eq!(codes(&first), codes(&second));
    assert!(second.serving.is_some());
    assert_eq!(db.query("some words", 3).unwrap().len(), 3);
}

#[test]
fn a_database_without_codes_gets_a_scorer_over_exact_search() {
    let Some(place) = texts("a_database_without_codes_gets_a_scorer_over_exact_search") else {
        return;
    };
    let model = printed(&place, &only_scorer(&place, &VALID));
    assert_eq!((model.method.as_str(), model.shape), ("scorer", None));
    let db = rebuilt(&place, &model);
    assert_eq!(db.model().codes_id(), None);
    assert!(db.model().scorer().unwrap().weight().is_some());
    let serving = model.serving.unwrap();
    assert_eq!(candidates(&db, 10), Some(serving.candidates as usize));
}

#[test]
fn the_scorer_alone_is_refused_where_there_is_none_to_learn() {
    let place = vectors();
    let words = |place: &Place, flags: &[&str]| {
        let output = only_scorer(place, flags);
        assert!(!output.status.success(), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty());
        assert!(trained(&place.path("db")).is_empty());
        assert!(!place.path("db/runs").exists(), "{flags:?}");
        text(&output.stderr)
    };
    let said = words(&place, &[]);
    assert!(said.contains("--only scorer learns from pairs"), "{said}");
    for flag in [
        &["--epochs", "3"][..],
        &["--method", "mopq"],
        &["--joint"],
        &["--query-log", "q.npy"],
        &["--run", "here"],
    ] {
        let said = words(&place, &[&super::INPUTS[..], flag].concat());
        let expected = format!("{} has no meaning with --only scorer", flag[0]);
        assert!(said.contains(&expected), "{said}");
    }
    fs::write(place.path("few.tsv"), "0\tkey-0\n1\tkey-1\n2\tkey-2\n").unwrap();
    let said = words(&place, &["--pairs", "few.tsv", "--queries", "q.npy"]);
    assert!(said.contains("3 training queries are too few"), "{said}");

    let l2 = Place {
        dir: tempfile::tempdir().unwrap(),
    };
    let new = CreateOptions::vectors(DIM, Metric::L2);
    let db = Database::create(l2.path("db"), &new, Options::default()).unwrap();
    db.insert(&[Row::vector("key-0", vec![1.0; DIM])]).unwrap();
    db.close().unwrap();
    let said = words(&l2, &super::INPUTS);
    assert!(said.contains("there is no scorer to learn"), "{said}");

    // Vectors have no words, and so few pairs make no map that gains: no model is registered.
    let output = only_scorer(&place, &super::INPUTS);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("neither a query map nor"), "{said}");
    assert!(trained(&place.path("db")).is_empty());
}
