//! Texts with the tiny encoder in the sources. Needs ONNX Runtime (`make setup`).

use crate::support::run;
use std::path::Path;

/// A database of texts; `None`, with a message, without ONNX Runtime.
pub(crate) fn database(dir: &Path) -> Option<()> {
    let bundle = mopqdb::bundle::tiny_bundle();
    run(
        dir,
        &["create", "x.db", "--encoder", bundle.to_str().unwrap()],
    )
    .ok();
    let rows =
        "a\tbirds fly south in winter\nb\tfish swim in the sea\nc\tbirds sing in the morning\n";
    std::fs::write(dir.join("x.tsv"), rows).unwrap();
    let inserted = run(dir, &["insert", "x.db", "x.tsv"]);
    if inserted.code == 5 {
        assert!(inserted.err.contains("setup"), "{}", inserted.err);
        assert!(
            std::env::var_os("MOPQDB_REQUIRE_NATIVE").is_none(),
            "{}",
            inserted.err
        );
        eprintln!("SKIPPED: no ONNX Runtime; `make setup` fetches it");
        return None;
    }
    assert_eq!(
        inserted.ok(),
        "inserted 3 rows (3 new, 0 replaced, 0 unchanged)\n"
    );
    Some(())
}

#[test]
fn texts_are_inserted_found_read_and_evaluated() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let Some(()) = database(dir) else { return };
    let hits = run(
        dir,
        &["query", "x.db", "birds fly south in winter", "--json"],
    )
    .json();
    assert_eq!(hits[0]["query"], "birds fly south in winter");
    assert_eq!(
        (
            hits[0]["hits"][0]["key"].as_str(),
            hits[0]["hits"][0]["text"].as_str()
        ),
        (Some("a"), Some("birds fly south in winter"))
    );
    assert_eq!(
        run(dir, &["get", "x.db", "b"]).ok(),
        "b\tfish swim in the sea\n"
    );
    std::fs::write(
        dir.join("q.txt"),
        "fish swim in the sea\n\nbirds sing in the morning\n",
    )
    .unwrap();
    let out = run(dir, &["query", "x.db", "--file", "q.txt", "-k", "1"]).ok();
    let keys: Vec<&str> = out
        .lines()
        .map(|line| line.split('\t').nth(2).unwrap())
        .collect();
    assert_eq!(keys, ["b", "c"]);
    // The encoder's time is not part of a query's.
    let bench = |search: &str| {
        let arguments = ["bench", "x.db", "--queries", "q.txt", "--seconds", "0.05"];
        let found = run(
            dir,
            &[&arguments[..], &["--search", search, "--json"]].concat(),
        )
        .json();
        ["p50_us", "encoding_p50_us"].map(|name| found[0][name].as_f64().unwrap())
    };
    let [query, encoding] = bench("auto");
    assert!(query > 0.0 && encoding > 0.0, "{query} {encoding}");
    assert_eq!(bench("words")[1], 0.0);
    let by_stdin = crate::support::run_with(
        dir,
        &["query", "x.db", "--stdin", "-k", "1"],
        "fish swim in the sea\nbirds sing in the morning\n",
    );
    assert_eq!(by_stdin.ok(), out);

    std::fs::write(dir.join("pairs.tsv"), "fish swim in the sea\tfish swim in the sea\nbirds fly south in winter\tbirds sing in the morning\n").unwrap();
    let eval = |more: &[&str]| {
        run(
            dir,
            &[
                &[
                    "eval",
                    "x.db",
                    "--pairs",
                    "pairs.tsv",
                    "-k",
                    "1,2",
                    "--json",
                ],
                more,
            ]
            .concat(),
        )
        .json()
        .remove(0)
    };
    let measured = eval(&[]);
    assert_eq!(measured["recall"]["1"].as_f64(), Some(0.5));
    let alone = eval(&["--exclude-self"]);
    assert_eq!(
        (alone["queries"].as_u64(), alone["unanswerable"].as_u64()),
        (Some(1), Some(1)),
        "{alone}"
    );
    assert_eq!(alone["recall"]["2"].as_f64(), Some(1.0));
}

#[test]
fn words_of_a_query_need_no_quotes() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let Some(()) = database(dir) else { return };
    let asked = |words: &[&str]| {
        let arguments = [&["query", "x.db", "--json"], words].concat();
        run(dir, &arguments).json().remove(0)
    };
    let quoted = asked(&["fish swim in the sea"]);
    assert_eq!(quoted["hits"][0]["key"], "b");
    assert_eq!(asked(&["fish", "swim", "in", "the", "sea"]), quoted);
    assert_eq!(asked(&["fish swim", "in", "the sea"]), quoted);
    let one = asked(&["fish", "swim", "-k", "1", "in", "the", "sea"]);
    assert_eq!(one["query"], "fish swim in the sea");
    assert_eq!(one["hits"].as_array().unwrap().len(), 1);
    assert_eq!(
        asked(&["below", "-5", "degrees", "42"])["query"],
        "below -5 degrees 42"
    );
    assert_eq!(
        asked(&["--", "-k", "of", "--json"])["query"],
        "-k of --json"
    );
}

#[test]
fn lines_of_text_are_numbered_and_the_same_file_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let Some(()) = database(dir) else { return };
    std::fs::write(dir.join("lines.txt"), "one line\nanother line\n").unwrap();
    run(dir, &["insert", "x.db", "lines.txt"]).ok();
    assert_eq!(run(dir, &["get", "x.db", "2"]).ok(), "2\tanother line\n");
    assert_eq!(
        run(dir, &["insert", "x.db", "lines.txt"]).ok(),
        "inserted 2 rows (0 new, 0 replaced, 2 unchanged)\n"
    );
    std::fs::write(dir.join("lines.txt"), "one line\na changed line\n").unwrap();
    let said = run(dir, &["insert", "x.db", "lines.txt"]).failed(1);
    assert!(
        said.contains("lines.txt:2: the key \"2\" exists with different content"),
        "{said}"
    );
    let said = run(dir, &["insert", "x.db", "lines.txt", "--format", "tsv"]).failed(1);
    assert!(said.contains("lines.txt:1: has no tab"), "{said}");
}

/// A program that was copied into a folder of another user, who has put an encoder where a checkout has its own.
#[test]
fn nothing_is_loaded_from_folders_above_the_program() {
    let home = tempfile::tempdir().unwrap();
    let bin = home.path().join("a/bin");
    std::fs::create_dir_all(&bin).unwrap();
    let program = bin.join("mopqdb");
    std::fs::copy(crate::support::program(), &program).unwrap();
    let tiny = mopqdb::Bundle::open(mopqdb::bundle::tiny_bundle()).unwrap();
    for above in [home.path(), &home.path().join("a")] {
        let planted = above.join(".native/bundles/default");
        std::fs::create_dir_all(&planted).unwrap();
        for file in std::fs::read_dir(tiny.dir()).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), planted.join(file.file_name())).unwrap();
        }
    }
    let create = |named: Option<&Path>| -> crate::support::Ran {
        let mut command = std::process::Command::new(&program);
        command
            .args(["create", "x.db"])
            .current_dir(home.path())
            .env("HOME", home.path().join("nobody"))
            .env_remove("XDG_DATA_HOME")
            .env_remove("MOPQDB_HOME");
        if let Some(named) = named {
            command.env("MOPQDB_HOME", named);
        }
        command.output().unwrap().into()
    };
    let id = tiny.model_id().to_string();
    let taken = home.path().join("x.db/models").join(&id);
    // The default encoder of this checkout, or none; never the planted one.
    let created = create(None);
    assert!(created.code == 0 || created.code == 5, "{}", created.err);
    assert!(!taken.exists());
    // A bundle that the user names is used.
    let _ = std::fs::remove_dir_all(home.path().join("x.db"));
    create(Some(&home.path().join(".native"))).ok();
    assert!(taken.exists());
}

#[test]
fn lines_of_files_with_the_same_name_are_not_lost_silently() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let Some(()) = database(dir) else { return };
    for (sub, text) in [("d1", "one\n\nthree\n"), ("d2", "\ntwo\nother\n")] {
        std::fs::create_dir(dir.join(sub)).unwrap();
        std::fs::write(dir.join(sub).join("x.txt"), text).unwrap();
    }
    let said = run(dir, &["insert", "x.db", "d1/x.txt", "d2/x.txt"]).failed(1);
    // Line 2 of the second file is new, because the first file has a blank line there.
    assert!(
        said.contains("inserted 3 rows (3 new")
            && said.contains(
                "d2/x.txt:3: the key \"x:3\" occurred before in this run, at d1/x.txt:3;"
            ),
        "{said}"
    );
    assert_eq!(run(dir, &["get", "x.db", "x:3"]).ok(), "x:3\tthree\n");
    std::fs::write(dir.join("y.tsv"), "k\tone\nl\ttwo\nk\tthree\n").unwrap();
    let said = run(dir, &["insert", "x.db", "y.tsv"]).failed(1);
    assert!(
        said.contains("y.tsv:3: the key \"k\" occurred before in this run, at y.tsv:1;"),
        "{said}"
    );
}

fn model(dir: &Path, arguments: &[&str]) -> String {
    run(dir, arguments).ok().trim().to_owned()
}

fn methods(dir: &Path, db: &str) -> Vec<(String, bool)> {
    let listed = run(dir, &["models", db, "--json"]).json();
    let told = listed.iter().map(|model| {
        let method = model["method"].as_str().unwrap().to_owned();
        (method, model["active"].as_bool().unwrap())
    });
    told.collect()
}

fn hits(dir: &Path, db: &str) -> serde_json::Value {
    hits_by(dir, db, "auto")
}

fn hits_by(dir: &Path, db: &str, search: &str) -> serde_json::Value {
    let query = ["query", db, "birds of winter", "--json", "--search", search];
    let mut hits = run(dir, &query).json()[0]["hits"].clone();
    // With codes, another source finds the same rows.
    for hit in hits.as_array_mut().unwrap() {
        hit.as_object_mut().unwrap().remove("found_by");
    }
    hits
}

#[test]
fn exact_gets_a_bundle_when_a_database_of_texts_switches_to_it() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let Some(()) = database(dir) else { return };
    let exact = hits(dir, "x.db");
    let tiny = mopqdb::Bundle::open(mopqdb::bundle::tiny_bundle()).unwrap();
    assert_eq!(methods(dir, "x.db"), [("exact".into(), true)]);
    let small = ["--method", "opq", "--subspaces", "1", "--codewords", "2"];
    let opq = model(dir, &[&["train", "x.db"], &small[..]].concat());
    run(dir, &["rebuild", "x.db"]).ok();
    assert_ne!(hits_by(dir, "x.db", "codes"), exact);
    assert_eq!(hits(dir, "x.db"), exact, "re-scored by the stored vectors");
    let back = &run(dir, &["rebuild", "x.db", "--model", "exact", "--json"]).json()[0];
    assert_eq!(
        (back["model"].as_str().unwrap(), back["encoded"].as_u64()),
        (tiny.model_id().to_string().as_str(), Some(0)),
        "the id is that of the encoder's own bundle"
    );
    assert_eq!(hits(dir, "x.db"), exact);

    // If a database began with the trained model, no bundle has the encoder alone.
    let bundle = dir.join("x.db/models").join(&opq);
    let create = ["create", "y.db", "--encoder", bundle.to_str().unwrap()];
    run(dir, &create).ok();
    run(dir, &["insert", "y.db", "x.tsv"]).ok();
    let both = |exact: bool| [("exact".into(), exact), ("opq".into(), !exact)];
    assert_eq!(methods(dir, "y.db"), both(false));
    let made = dir.join("y.db/models").join(tiny.model_id().to_string());
    std::fs::write(dir.join("pairs.tsv"), "birds of winter\ta\n").unwrap();
    let eval = [
        "eval",
        "y.db",
        "--pairs",
        "pairs.tsv",
        "--key-ids",
        "--json",
    ];
    let measured = run(dir, &[&eval[..], &["--model", "exact"]].concat()).json();
    assert_eq!(
        (
            measured[0]["method"].as_str(),
            measured[0]["model"].as_str()
        ),
        (Some("exact"), Some(tiny.model_id().to_string().as_str()))
    );
    assert!(!made.exists(), "reading writes nothing");
    run(dir, &["rebuild", "y.db", "--model", "exact"]).ok();
    assert!(made.is_dir());
    assert_eq!(hits(dir, "y.db"), exact);
    assert_eq!(methods(dir, "y.db"), both(true));
    run(dir, &["verify", "y.db", "--deep"]).ok();
    // `exact` is never the newest, and never pruned.
    let forth = &run(dir, &["rebuild", "y.db", "--json"]).json()[0];
    assert_eq!(forth["model"].as_str(), Some(opq.as_str()));
    run(dir, &["prune", "y.db"]).ok();
    assert_eq!(methods(dir, "y.db"), both(false));
    run(dir, &["rebuild", "y.db", "--model", "exact"]).ok();
    run(dir, &["prune", "y.db"]).ok();
    assert_eq!(methods(dir, "y.db"), [("exact".into(), true)]);
    assert_eq!(hits(dir, "y.db"), exact);
}

#[test]
fn a_bundle_with_another_encoder_is_added_and_switched_to_and_back() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let Some(()) = database(dir) else { return };
    let before = hits(dir, "x.db");
    let first = mopqdb::Bundle::open(mopqdb::bundle::tiny_bundle()).unwrap();
    let tiny = first.dir().to_str().unwrap();
    run(dir, &["bundle", "quantize", tiny, "int8"]).ok();
    let added = run(dir, &["models", "add", "x.db", "int8"]);
    assert!(
        added.err.contains("mopqdb rebuild x.db --model"),
        "{}",
        added.err
    );
    let id = added.ok().trim().to_owned();
    assert_eq!(
        run(dir, &["--json", "models", "add", "x.db", "int8"]).json()[0]["model"],
        id
    );
    assert_eq!(
        hits(dir, "x.db"),
        before,
        "adding does not switch the model"
    );
    assert_eq!(
        methods(dir, "x.db"),
        [("exact".into(), true), ("encoder".into(), false)]
    );
    let there = &run(dir, &["rebuild", "x.db", "--model", &id[..8], "--json"]).json()[0];
    assert_eq!(
        (there["model"].as_str(), there["encoded"].as_u64()),
        (Some(id.as_str()), Some(3))
    );
    assert_ne!(hits(dir, "x.db"), before);
    // `exact` now searches with this encoder, which is the newest: there is nothing to switch to.
    assert_eq!(
        methods(dir, "x.db"),
        [("encoder".into(), false), ("exact".into(), true)]
    );
    for arguments in [
        &["rebuild", "x.db", "--json"][..],
        &["rebuild", "x.db", "--model", "exact", "--json"],
    ] {
        assert_eq!(run(dir, arguments).json()[0]["model"], id);
    }
    run(
        dir,
        &["rebuild", "x.db", "--model", &first.model_id().short()],
    )
    .ok();
    assert_eq!(hits(dir, "x.db"), before);

    // A model that does not fit is refused with a remedy.
    run(dir, &["create", "v.db", "--encoder", "none", "--dim", "4"]).ok();
    let refused = run(dir, &["models", "add", "v.db", "int8"]).failed(1);
    assert!(refused.contains("create a database of texts"), "{refused}");
    let absent = run(dir, &["models", "add", "x.db", "nowhere"]).failed(1);
    assert!(absent.contains("nowhere is not a bundle"), "{absent}");
    let graph = std::fs::read_dir(dir.join("int8"))
        .unwrap()
        .map(|e| e.unwrap().path());
    let graph = graph
        .into_iter()
        .find(|path| path.extension().is_some_and(|e| e == "onnx"));
    let graph = graph.unwrap();
    let mut bytes = std::fs::read(&graph).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::remove_file(&graph).unwrap();
    std::fs::write(&graph, bytes).unwrap();
    run(dir, &["create", "z.db", "--encoder", tiny]).ok();
    run(dir, &["models", "add", "z.db", "int8"]).failed(3);
    assert_eq!(methods(dir, "z.db"), [("exact".into(), true)]);
}

#[test]
fn texts_are_read_from_renamed_fields_and_compressed_files() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let Some(()) = database(dir) else { return };
    let zst = |name: &str, text: &str| {
        let bytes = zstd::encode_all(text.as_bytes(), 1).unwrap();
        std::fs::write(dir.join(name), bytes).unwrap();
    };
    zst(
        "p.jsonl.zst",
        "{\"id\": 7, \"body\": \"whales sing\", \"text\": \"not this\"}\n",
    );
    let named = ["--key-field", "id", "--text-field", "body"];
    let arguments = [&["insert", "x.db", "p.jsonl.zst"], &named[..]].concat();
    let said = run(dir, &arguments).failed(1);
    assert!(
        said.contains("p.jsonl.zst:1: has the field \"text\", and no column can have this name"),
        "{said}"
    );
    run(dir, &[&arguments[..], &["--ignore-unknown"]].concat()).ok();
    assert_eq!(run(dir, &["get", "x.db", "7"]).ok(), "7\twhales sing\n");

    zst("t.tsv.zst", "k\tcrabs walk\n");
    zst("u.txt.zst", "crabs run\n");
    run(dir, &["insert", "x.db", "t.tsv.zst", "u.txt.zst"]).ok();
    assert_eq!(
        run(dir, &["get", "x.db", "k", "u:1"]).ok(),
        "k\tcrabs walk\nu:1\tcrabs run\n"
    );
}
