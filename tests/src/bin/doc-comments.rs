//! Writes the pairs of [`mopqdb_tests::doc_comments`] as files: `rows.jsonl`, `train.tsv`, `valid.tsv`, `test.tsv`.

use anyhow::{Context, Result};
use mopqdb_tests::doc_comments::{Split, collect};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let lock = PathBuf::from(
        arguments
            .next()
            .context("usage: doc-comments Cargo.lock OUT [MOST]")?,
    );
    let out = PathBuf::from(
        arguments
            .next()
            .context("usage: doc-comments Cargo.lock OUT [MOST]")?,
    );
    let most = arguments
        .next()
        .map_or(Ok(12_000), |n| n.parse())
        .context("MOST must be a number")?;
    let (found, crates) = collect(&lock, most)?;
    fs::create_dir_all(&out)?;
    let mut rows = String::new();
    let mut total = 0;
    for (split, name) in [
        (Split::Train, "train"),
        (Split::Valid, "valid"),
        (Split::Test, "test"),
    ] {
        let mut lines = String::new();
        for pair in found.get(&split).into_iter().flatten() {
            writeln!(lines, "{}\t{}", pair.query, pair.key)?;
            writeln!(
                rows,
                "{}",
                serde_json::json!({ "key": pair.key, "text": pair.rest })
            )?;
            total += 1;
        }
        fs::write(out.join(format!("{name}.tsv")), lines)?;
    }
    fs::write(out.join("rows.jsonl"), rows)?;
    println!("{total} doc comments from {crates} crates");
    if total < 10_000 {
        println!("(published figures used at least 9,000: the registry has few sources)");
    }
    Ok(())
}
