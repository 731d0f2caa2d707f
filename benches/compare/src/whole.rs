//! The end-to-end job, from texts to hits: the set is written to a file, and `peers/whole.py` measures mopqdb and two
//! databases with a Python encoder on it.

use crate::peers::{self, Programs};
use anyhow::{Context, Result};
use mopqdb_benches::machine::Machine;
use mopqdb_benches::set::Set;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Inserts `texts` texts of a set into each system and runs `queries` test queries.
pub fn measure(
    out: &Path,
    data: &Path,
    programs: &Programs,
    texts: usize,
    queries: usize,
) -> Result<Value> {
    eprintln!("end-to-end job: {texts} texts of {}", data.display());
    let set = Set::load(data)?;
    let test = set.questions(data, "test.tsv")?;
    let work = out.join("whole");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    let all = json!({
        "keys": set.keys, "queries": test.queries, "right": test.right, "own": test.own,
    });
    fs::write(work.join("set.json"), all.to_string())?;
    let mut script = programs.script("whole.py");
    script.arg(&work).arg(programs.mopqdb().get_program());
    script.arg(mopqdb::encoder::default_bundle()?);
    script.args([texts, queries].map(|n| n.to_string()));
    let measured: Value = peers::run(&mut script, "whole.py")?;
    fs::remove_dir_all(&work)?;
    let (machine, name) = (
        Machine::here(),
        data.file_name().unwrap_or_default().display(),
    );
    let what = format!("{texts} texts of {name}, {queries} queries; {machine}");
    Ok(json!({
        "case": "whole", "what": what, "machine": machine,
        "peers": measured["peers"], "missing": measured["missing"],
    }))
}
