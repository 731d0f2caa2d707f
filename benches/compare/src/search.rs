//! Runs one case on every peer: sweeps its settings, chooses one, and measures it.

use crate::builds::{self, Entry};
use crate::case::{Case, K};
use crate::peers::{Built, GRAPH_ROWS, GRAPHS, Grown, LEARNED, Programs, SCANS, Searched, Timed};
use crate::sweep::{self, Tried};
use crate::{exact, process};
use anyhow::{Context, Result};
use mopqdb_benches::machine::Machine;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Bytes per row of the codes that are compared.
const BYTES: usize = 8;
/// Seconds per timing.
const SECONDS: f64 = 0.3;

/// Returns the parameters of a search, as `peers/peer.py` reads them.
fn asking(threads: usize, repeats: usize, batch: usize, limit: f64) -> String {
    let all = json!({"threads": threads, "seconds": SECONDS, "repeats": repeats, "batch": batch, "limit": limit});
    all.to_string()
}

/// Measures the peers whose names begin with one of `only` on a case, or all peers if it is empty. Timings are medians
/// of `repeats`. Calls `save` after each peer.
pub fn run(
    case: &Case,
    programs: &Programs,
    repeats: usize,
    only: &[String],
    save: impl Fn(&Value) -> Result<()>,
) -> Result<()> {
    let (machine, queries) = (Machine::here(), case.exact.len());
    let (rows, dim) = (case.rows, case.dim);
    let what = format!("{rows} rows of {dim}, {queries} queries; {machine}");
    let (mut peers, mut missing) = (Vec::new(), Vec::new());
    let lost = |peer: &str, why: anyhow::Error| {
        eprintln!("  {peer}: {why:#}");
        json!({"name": peer, "why": format!("{why:#}")})
    };
    let learned = case.learned.iter().flat_map(|_| LEARNED.split(' '));
    let graphs = if rows <= GRAPH_ROWS { GRAPHS } else { "" };
    let others = SCANS.split(' ').chain(graphs.split_whitespace());
    let wanted = |peer: &&str| only.is_empty() || only.iter().any(|o| peer.starts_with(o.as_str()));
    let mut entries = Vec::new();
    for peer in learned.chain(others).filter(wanted) {
        match entry(case, programs, peer) {
            Ok(entry) if entry.settings.is_empty() => {}
            Ok(entry) => entries.push(entry),
            Err(why) => missing.push(lost(peer, why)),
        }
    }
    eprintln!("{}: building", case.name);
    for (entry, built) in entries.iter().zip(builds::all(&entries)) {
        match built.and_then(|built| measure(repeats, entry, &built)) {
            Ok(measured) => peers.push(measured),
            Err(why) => missing.push(lost(entry.peer, why)),
        }
        save(&json!({
            "case": case.name, "what": what, "machine": machine, "queries": queries,
            "repeats": repeats, "seconds": SECONDS, "peers": peers, "missing": missing,
        }))?;
    }
    Ok(())
}

fn entry<'a>(case: &'a Case, programs: &'a Programs, peer: &'a str) -> Result<Entry<'a>> {
    let is_learned = LEARNED.split(' ').any(|learned| learned == peer);
    let settings = if let Some(bundle) = case.learned.as_ref().filter(|_| is_learned) {
        let search = crate::peer::searches(peer);
        let only = json!([{"build": {"bundle": bundle}, "bytes": BYTES, "search": search}]);
        serde_json::from_value(only)?
    } else {
        let [rows, dim, bytes] = [case.rows, case.dim, BYTES].map(|n| n.to_string());
        programs.peer(peer, &["settings", &rows, &dim, &bytes])?
    };
    let about = programs.peer(peer, &["about"])?;
    Ok(Entry {
        case,
        programs,
        peer,
        about,
        settings,
    })
}

fn measure(repeats: usize, entry: &Entry<'_>, builds: &[Built]) -> Result<Value> {
    eprintln!("{}: {}", entry.case.name, entry.about.name);
    let mut candidates: Vec<(usize, Value)> = Vec::new();
    for (n, setting) in entry.settings.iter().enumerate() {
        let searches = setting.search.iter();
        candidates.extend(searches.map(|search| (n, merged(&setting.build, search))));
    }
    let tried = tried(entry, &candidates)?;
    let chosen = sweep::best(&tried).unwrap_or(0);
    let (n, setting) = candidates.get(chosen).context("a setting")?;
    let index = entry.index(*n);
    // The hits of one thread are only a warm-up. Recall does not depend on threads; it is measured on as many queries
    // as fit into a minute.
    let (_, one) = search(entry, &index, setting, asking(1, repeats, 64, SECONDS))?;
    let (found, two) = search(entry, &index, setting, asking(2, repeats, 64, 60.0))?;
    let grown: Grown = entry.call("insert", &index, setting, &[])?;
    for n in 0..entry.settings.len() {
        let _ = fs::remove_dir_all(entry.index(n));
    }
    let rows = entry.case.rows as f64;
    let swept = candidates.iter().zip(&tried).map(|((_, setting), tried)| {
        json!({"setting": short(setting), "recall_exact": tried.recall, "one": tried.speed})
    });
    Ok(json!({
        "peer": entry.peer,
        "name": entry.about.name,
        "version": entry.about.version,
        "durable": entry.about.durable,
        "setting": short(setting),
        "sweep": swept.collect::<Vec<_>>(),
        "bytes": entry.settings[*n].bytes,
        // The queries whose answers were compared: all of the case, or the first ones.
        "asked": found.asked,
        "recall_exact": found.exact,
        "recall_true": found.right,
        // Queries per second, in CPU time of one thread and in wall-clock time of two.
        "one": rate(&one.one, |t| t.cpu),
        "one_two": rate(&two.one, |t| t.wall),
        "batch": rate(&one.batch, |t| t.cpu),
        "batch_two": rate(&two.batch, |t| t.wall),
        "ram": one.ram / rows,
        "disk": builds[*n].disk / rows,
        "build": builds[*n].build.cpu,
        "open": one.open,
        "insert": (grown.insert.count > 0.0).then(|| rate(&[grown.insert], |t| t.wall)),
    }))
}

/// Measures each candidate briefly, one per core; returns nothing if there is no choice.
fn tried(entry: &Entry<'_>, candidates: &[(usize, Value)]) -> Result<Vec<Tried>> {
    let jobs = candidates.len();
    let tried = builds::on_each_core(if jobs > 1 { jobs } else { 0 }, |job| {
        let (n, setting) = &candidates[job];
        // Slow settings also get dozens of queries.
        let glance = asking(1, 1, 0, 24.0 * SECONDS);
        let (found, searched) = search(entry, &entry.index(*n), setting, glance)?;
        let (recall, speed) = (found.exact, rate(&searched.one, |t| t.cpu));
        eprintln!("  {setting}: recall {recall:.3}, {speed:.0} queries/s");
        Ok(Tried { recall, speed })
    });
    tried.into_iter().collect()
}

fn search(
    entry: &Entry<'_>,
    index: &Path,
    setting: &Value,
    asking: String,
) -> Result<(Found, Searched)> {
    let hits = tempfile::NamedTempFile::new_in(&entry.case.dir)?;
    let path = hits.path().to_str().context("the path must be UTF-8")?;
    process::warm(index)?;
    let searched = entry.call("search", index, setting, &[&asking, path])?;
    Ok((Found::of(&fs::read(hits.path())?, entry.case), searched))
}

/// Recalls of the hits that a peer wrote.
struct Found {
    asked: usize,
    exact: f64,
    right: Option<f64>,
}

impl Found {
    /// Reads `fetch` little-endian int64 values per query.
    fn of(bytes: &[u8], case: &Case) -> Self {
        let values = bytes.as_chunks::<8>().0.iter();
        let values: Vec<i64> = values.map(|b| i64::from_le_bytes(*b)).collect();
        let hits = values.chunks_exact(case.fetch()).zip(&case.own);
        let hits = hits.map(|(hits, own)| exact::without(hits, *own, K));
        let hits: Vec<Vec<u32>> = hits.collect();
        let mean = |right: &[Vec<u32>]| {
            let each = hits.iter().zip(right);
            let recalls = each.map(|(hits, right)| exact::recall(hits, right));
            recalls.sum::<f64>() / hits.len().max(1) as f64
        };
        Self {
            asked: hits.len(),
            exact: mean(&case.exact),
            right: case.right.as_deref().map(mean),
        }
    }
}

/// Returns the median rate per second.
fn rate(timed: &[Timed], by: impl Fn(&Timed) -> f64) -> f64 {
    let rates = timed.iter().map(|t| t.count / by(t).max(1e-9));
    sweep::median(rates.collect())
}

fn merged(build: &Value, search: &Value) -> Value {
    let mut all = build.as_object().cloned().unwrap_or_default();
    all.extend(search.as_object().cloned().unwrap_or_default());
    Value::Object(all)
}

/// Formats `{"a": 1, "b": "x"}` as `a 1, b x`, without the bundle's path.
fn short(setting: &Value) -> String {
    let parts = setting.as_object().into_iter().flatten();
    let said = parts.filter(|(name, _)| *name != "bundle");
    let said = said.map(|(name, value)| format!("{name} {value}").replace('"', ""));
    said.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_merged_and_shortened() {
        let build = json!({"leaves": 7, "bundle": "/x"});
        let all = merged(&build, &json!({"level": "NONE"}));
        assert_eq!(short(&all), "leaves 7, level NONE");
    }
}
