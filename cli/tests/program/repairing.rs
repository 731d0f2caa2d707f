//! Damaged databases of texts, as their users see them: verify, repair, export.

use crate::support::run;
use std::fs;
use std::path::{Path, PathBuf};

const ROWS: usize = 600;

fn text(n: usize) -> String {
    format!("text {n} about birds, the sea and winter number {}", n * 7)
}

/// A sealed database of texts whose only model except `exact` is active; `None`, with a message, without ONNX Runtime.
fn database(dir: &Path) -> Option<()> {
    let bundle = mopqdb::bundle::tiny_bundle();
    let create = ["create", "x.db", "--encoder", bundle.to_str().unwrap()];
    run(dir, &create).ok();
    let rows: String = (0..ROWS).map(|n| format!("k{n}\t{}\n", text(n))).collect();
    fs::write(dir.join("x.tsv"), rows).unwrap();
    let inserted = run(dir, &["insert", "x.db", "x.tsv"]);
    if inserted.code == 5 {
        let required = std::env::var_os("MOPQDB_REQUIRE_NATIVE").is_some();
        assert!(!required, "{}", inserted.err);
        eprintln!("SKIPPED: no ONNX Runtime; `make setup` fetches it");
        return None;
    }
    run(dir, &["seal", "x.db"]).ok();
    let train = ["train", "x.db", "--method", "pq", "--subspaces", "4"];
    run(dir, &[&train[..], &["--codewords", "16"]].concat()).ok();
    run(dir, &["rebuild", "x.db"]).ok();
    run(dir, &["prune", "x.db"]).ok();
    Some(())
}

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(dir.join("x.db/segments"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    found.sort();
    found
}

/// Changes a file that was written read-only.
fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

fn ask(dir: &Path) -> String {
    run(dir, &["query", "x.db", &text(77), "-k", "5"]).ok()
}

#[test]
fn removed_and_damaged_derived_files_are_computed_again() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let Some(()) = database(dir) else { return };
    let answer = ask(dir);

    // The codes of the only remaining model.
    fs::remove_file(files(dir, "codes").remove(0)).unwrap();
    run(dir, &["verify", "x.db"]).failed(3);
    let told = run(dir, &["repair", "x.db"]).ok();
    assert!(
        told.contains("600 rows now") && told.contains("codes"),
        "{told}"
    );
    assert_eq!(ask(dir), answer);
    assert_eq!(
        run(dir, &["repair", "x.db"]).ok(),
        "nothing was wrong\n600 rows now\n"
    );

    // The vectors.
    fs::remove_file(files(dir, "vecs").remove(0)).unwrap();
    let told = run(dir, &["repair", "x.db"]).ok();
    assert!(told.contains("600 texts were encoded again"), "{told}");
    run(dir, &["verify", "x.db", "--deep", "--encode", "20"]).ok();
    assert_eq!(files(dir, "rows").len(), 1);

    // One flipped bit in each kind of file.
    for extension in ["codes", "vecs", "rows"] {
        let path = files(dir, extension).remove(0);
        let whole = fs::read(&path).unwrap();
        change(&path, |bytes| bytes[200] ^= 8);
        let ran = run(dir, &["verify", "x.db"]);
        assert!(ran.out.contains("is damaged at byte"), "{}", ran.out);
        ran.failed(3);
        let told = run(dir, &["repair", "x.db"]).ok();
        assert!(told.contains("600 rows now"), "{extension}: {told}");
        assert!(!told.contains("nothing was wrong"), "{extension}: {told}");
        assert!(fs::read(files(dir, extension).remove(0)).unwrap() == whole);
        run(dir, &["verify", "x.db", "--deep"]).ok();
        assert_eq!(ask(dir), answer);
    }
}

#[test]
fn a_damaged_block_loses_only_its_rows_and_only_with_consent() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let Some(()) = database(dir) else { return };
    let path = files(dir, "rows").remove(0);
    // Texts come first in a rows file: the first compressed block.
    change(&path, |bytes| bytes[100..160].fill(0x55));

    let ran = run(dir, &["export", "x.db", "out", "--format", "jsonl"]);
    ran.failed(3);
    assert!(!dir.join("out").exists());
    let ran = run(
        dir,
        &["export", "x.db", "out", "--format", "jsonl", "--salvage"],
    );
    assert!(
        ran.out.contains("left out") && ran.out.contains("lost key: k0\n"),
        "{}",
        ran.out
    );
    ran.failed(3);
    let saved = fs::read_to_string(dir.join("out/rows.jsonl")).unwrap();
    let lost = ROWS - saved.lines().count();
    assert!(lost > 0 && lost < ROWS, "{lost} of {ROWS} rows are lost");

    // No one can be asked, so the loss is listed and the file stays as it is.
    let before = fs::read(&path).unwrap();
    let ran = run(dir, &["repair", "x.db"]);
    assert!(
        ran.out.contains("not repaired") && ran.out.contains("lost key: k0\n"),
        "{}",
        ran.out
    );
    let said = ran.failed(3);
    assert!(
        said.contains("--yes") && said.contains("--salvage"),
        "{said}"
    );
    assert!(fs::read(&path).unwrap() == before);

    let ran = run(dir, &["repair", "x.db", "--yes", "--json"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    let told: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(told["rows"].as_u64(), Some((ROWS - lost) as u64), "{told}");
    assert_eq!(told["lost_keys"].as_array().unwrap().len(), lost, "{told}");
    let kept = fs::read_dir(dir.join("x.db/orphans")).unwrap();
    let kept: Vec<_> = kept
        .map(|entry| fs::read(entry.unwrap().path()).unwrap())
        .collect();
    assert!(kept.contains(&before), "the damaged file is kept");

    run(dir, &["verify", "x.db", "--deep"]).ok();
    assert!(
        run(dir, &["repair", "x.db"])
            .ok()
            .starts_with("nothing was wrong")
    );
    run(dir, &["get", "x.db", "k599"]).ok();
    run(dir, &["get", "x.db", "k0"]).failed(1);
    // Lost rows can be inserted again, and only they are new.
    let again = run(dir, &["insert", "x.db", "x.tsv"]).ok();
    assert!(
        again.contains(&format!("({lost} new, 0 replaced")),
        "{again}"
    );
}

#[test]
fn without_models_the_texts_can_still_be_exported() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let Some(()) = database(dir) else { return };
    fs::rename(dir.join("x.db/models"), dir.join("models")).unwrap();
    let said = run(dir, &["query", "x.db", "birds"]).failed(3);
    assert!(said.contains("export") && said.contains("models"), "{said}");
    let ran = run(dir, &["repair", "x.db"]);
    assert!(ran.out.contains("no model is left"), "{}", ran.out);
    ran.failed(3);
    run(dir, &["export", "x.db", "out", "--format", "jsonl"]).ok();
    let saved = fs::read_to_string(dir.join("out/rows.jsonl")).unwrap();
    assert_eq!(saved.lines().count(), ROWS);
    // With the model put back, everything is as before.
    let _ = fs::remove_dir_all(dir.join("x.db/models"));
    fs::rename(dir.join("models"), dir.join("x.db/models")).unwrap();
    assert!(run(dir, &["repair", "x.db"]).ok().contains("600 rows now"));
    ask(dir);
}

#[test]
fn rebuild_does_not_use_a_damaged_file() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let Some(()) = database(dir) else { return };
    let answer = ask(dir);
    let first = run(dir, &["models", "x.db", "--json"]).json();
    let active = first.iter().find(|model| model["active"] == true).unwrap()["id"].clone();
    let codes = files(dir, "codes").remove(0);
    let train = ["train", "x.db", "--method", "opq", "--subspaces", "4"];
    run(dir, &[&train[..], &["--codewords", "16"]].concat()).ok();
    run(dir, &["rebuild", "x.db"]).ok();
    // The codes of the first model still exist, but are scrambled in the middle.
    change(&codes, |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle..middle + 8].fill(0x77);
    });
    run(
        dir,
        &["rebuild", "x.db", "--model", active.as_str().unwrap()],
    )
    .ok();
    assert_eq!(ask(dir), answer);
    run(dir, &["verify", "x.db", "--deep"]).ok();
}
