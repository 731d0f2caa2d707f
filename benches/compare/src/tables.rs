//! Prints the figures of a run as Markdown tables.

use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The columns of a search case, as `heading: name in the JSON`.
const SEARCH: &str = "index: name, bytes: bytes, exact recall@10: recall_exact, true recall@10: recall_true, one/s: one, \
                      one/s (2 threads): one_two, batched/s: batch, batched/s (2 threads): batch_two, RAM B/row: ram, \
                      disk B/row: disk, build CPU-s: build, open s: open, inserts/s: insert, durable: durable, queries: asked, \
                      setting: setting";
/// The columns of the end-to-end job.
const WHOLE: &str = "system: name, texts/s: insert_wall, texts/CPU-s: insert_cpu, query p50 ms: p50_ms, p99 ms: p99_ms, \
                     CPU ms/query: query_cpu_ms, disk B/text: disk, MB inserting: insert_memory, MB querying: query_memory, \
                     true recall@10: recall_true, version: version";

/// Prints the tables of all JSON files in a folder.
pub fn print(out: &Path) -> Result<()> {
    let entries = fs::read_dir(out).with_context(|| out.display().to_string())?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    let mut paths: Vec<PathBuf> = paths.collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "json"));
    paths.sort();
    for path in paths {
        let all = serde_json::from_slice(&fs::read(&path)?);
        let all = all.with_context(|| path.display().to_string())?;
        println!("{}", section(&all));
    }
    Ok(())
}

fn section(all: &Value) -> String {
    let list = |name: &str| all[name].as_array().map_or(&[][..], Vec::as_slice);
    let [case, what] = ["case", "what"].map(|name| cell(name, &all[name]));
    let columns = if case == "whole" { WHOLE } else { SEARCH }.split(", ");
    let columns = columns.filter_map(|column| column.split_once(": "));
    let (headings, names): (Vec<&str>, Vec<&str>) = columns.unzip();
    let rule = "---|".repeat(names.len());
    let mut text = format!(
        "### {case}\n\n{what}.\n\n| {} |\n|{rule}\n",
        headings.join(" | ")
    );
    for peer in list("peers") {
        let cells: Vec<String> = names.iter().map(|name| cell(name, &peer[name])).collect();
        text += &format!("| {} |\n", cells.join(" | "));
    }
    for missing in list("missing") {
        let [name, why] = ["name", "why"].map(|name| cell(name, &missing[name]));
        text += &format!("\nNot measured: {name}: {why}\n");
    }
    text
}

fn cell(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.replace('|', "\\|").replace('\n', " "),
        Value::Number(n) if n.is_u64() => n.to_string(),
        Value::Number(n) => match n.as_f64().unwrap_or(f64::NAN) {
            n if !name.starts_with("recall") => number(n),
            n if n >= 0.9995 => "1".into(),
            n => format!("{n:.3}").trim_start_matches('0').to_owned(),
        },
        _ => "-".into(),
    }
}

/// Formats three significant digits: 12,300, 123, 12.3, 1.23, 0.0123.
fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".into();
    }
    let unit = 10f64.powi(value.abs().log10().floor() as i32 - 2);
    let rounded = (value / unit).round() * unit;
    // Rounding may carry: 9.996 becomes 10.0.
    let digits = rounded.abs().log10().floor() as i32;
    if digits < 3 {
        return format!("{rounded:.*}", (2 - digits) as usize);
    }
    let digits = format!("{rounded:.0}");
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_have_three_significant_digits() {
        let values = [0.0, 0.012345, 9.996, 99.96, 999.6, 4_567_890.0];
        let expected = ["0", "0.0123", "10.0", "100", "1,000", "4,570,000"];
        assert_eq!(values.map(number), expected);
    }

    #[test]
    fn a_section_has_one_line_per_peer_and_lists_missing_ones() {
        let peer = json!({"name": "a|b", "bytes": 8, "recall_exact": 0.1234, "one": 1234.5});
        let gone = json!({"name": "x", "why": "no wheel"});
        let text = section(&json!({"case": "c", "what": "w", "peers": [peer], "missing": [gone]}));
        let row = "| a\\|b | 8 | .123 | - | 1,230 | - |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("Not measured: x: no wheel"), "{text}");
    }
}
