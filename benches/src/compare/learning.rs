//! The page of evidence for learning: what `make table` found, beside what the paper published.

use super::paper::{self, Published};
use crate::report::markdown::{Table, recall};
use crate::report::markers;
use crate::report::plot::{Plot, Scale, Series};
use anyhow::{Context, Result};
use mopqdb::eval::bootstrap::ratio;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The systems as the table names its runs, and as people call them.
const SYSTEMS: [(&str, &str); 11] = [
    ("pq", "PQ"),
    ("opq", "OPQ"),
    ("dqn", "DQN"),
    ("dvsq", "DVSQ"),
    ("spq", "SPQ"),
    ("dpq", "DPQ"),
    ("mopq-b", "MoPQ-b"),
    ("mopq-ncs", "MoPQ, NCS"),
    ("mopq-dcs", "MoPQ-a (DCS)"),
    ("opq-one", "OPQ, one device"),
    ("mopq-b-one", "MoPQ-b, one device"),
];

/// What is read of a run's `result.json`.
#[derive(Debug, Clone, Deserialize)]
struct Run {
    config: Config,
    recall: [f64; 3],
    unquantized: [f64; 3],
    distortion: f64,
    relative_distortion: f64,
    /// Codewords in use, of a codebook on average.
    used: f64,
    cpu_seconds: f64,
    /// Of each test query at 10, 50, 100.
    queries: [Vec<f64>; 3],
}

#[derive(Debug, Clone, Deserialize)]
struct Config {
    subspaces: usize,
    codewords: usize,
    devices: String,
    batch: usize,
    seed: u64,
    learning_rate: f64,
    quantization_weight: Option<f64>,
}

/// The runs of a set by (system, size), one a seed.
type Runs = BTreeMap<(String, String), Vec<Run>>;

/// Rewrites `docs/evidence.md` and its plots from the folder that `make table` filled. Sets that are not there keep what they
/// have.
pub fn write(table: &Path, docs: &Path) -> Result<()> {
    let plots = docs.join("plots");
    fs::create_dir_all(&plots)?;
    let mut any = false;
    for set in ["quora", "wiki", "acl", "debian"] {
        let runs = read(&table.join(set))?;
        if runs.is_empty() {
            continue;
        }
        any = true;
        let text = page(set, &runs, &weights(&table.join(set))?);
        markers::rewrite_or_add(&docs.join("evidence.md"), "learning", set, &text)?;
        fs::write(
            plots.join(format!("learning-{set}.svg")),
            curves(set, &runs),
        )?;
    }
    for set in ["quora", "news", "wiki"] {
        fs::write(plots.join(format!("paper-{set}.svg")), paper_curves(set))?;
    }
    if !any {
        eprintln!(
            "learning: no results in {}; `make table` makes them",
            table.display()
        );
    }
    Ok(())
}

fn read(folder: &Path) -> Result<Runs> {
    let mut runs = Runs::new();
    let mut names: Vec<_> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .collect();
    names.sort_by_key(|entry| entry.file_name());
    for entry in names {
        let path = entry.path().join("result.json");
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(system) = system_of(&name).filter(|_| path.exists()) else {
            continue;
        };
        let run: Run = serde_json::from_slice(&fs::read(&path)?)
            .with_context(|| path.display().to_string())?;
        let size = format!("{}x{}", run.config.subspaces, run.config.codewords);
        let seeds = runs.entry((system, size)).or_default();
        // A run of the systems' table is one of the sizes' too.
        if seeds
            .iter()
            .all(|other| other.config.seed != run.config.seed)
        {
            seeds.push(run);
        }
    }
    Ok(runs)
}

/// `mopq-b-4x256-seed2` and `mopq-b-seed2` are runs of `mopq-b`; sweeps are of nobody.
fn system_of(run: &str) -> Option<String> {
    let (rest, seed) = run.rsplit_once("-seed")?;
    seed.parse::<u64>().ok()?;
    let system = match rest.rsplit_once('-') {
        Some((system, size)) if paper::bytes(size).is_some() => system,
        _ => rest,
    };
    let known = SYSTEMS.iter().any(|(name, _)| *name == system) || system.starts_with("select-");
    known.then(|| system.to_owned())
}

fn mean(runs: &[Run], of: impl Fn(&Run) -> f64) -> f64 {
    runs.iter().map(of).sum::<f64>() / runs.len().max(1) as f64
}

/// Recall of each query at 10, 50 or 100, the mean over seeds.
fn by_query(runs: &[Run], at: usize) -> Vec<f64> {
    let count = runs.first().map_or(0, |run| run.queries[at].len());
    (0..count)
        .map(|n| mean(runs, |run| run.queries[at][n]))
        .collect()
}

/// How many times the other's recall, with its interval.
fn times(runs: &[Run], other: Option<&Vec<Run>>, at: usize) -> String {
    let Some(other) = other else {
        return String::new();
    };
    let (ours, theirs) = (by_query(runs, at), by_query(other, at));
    if ours.len() != theirs.len() || ours.is_empty() {
        return String::new();
    }
    let value = ours.iter().sum::<f64>() / theirs.iter().sum::<f64>();
    let interval = ratio(&ours, &theirs, 1);
    format!("{value:.3} [{:.3}, {:.3}]", interval.low, interval.high)
}

fn page(set: &str, runs: &Runs, weights: &str) -> String {
    let (counterpart, kind) = paper::counterpart(set);
    let published = paper::recalls();
    let theirs = |system: &str, size: &str| -> Option<[Option<f64>; 3]> {
        let same = |p: &&Published| p.system == system && p.size == size && p.set == counterpart;
        published.iter().find(same).map(|p| p.recall)
    };
    let mut recalls = Table::new(&[
        "system",
        "bytes",
        "seeds",
        "R@10",
        "times OPQ's",
        "R@50",
        "times OPQ's",
        "R@100",
        "times OPQ's",
        "paper R@10",
        "R@50",
        "R@100",
    ]);
    let mut codes = Table::new(&[
        "system",
        "bytes",
        "un-quantized R@10",
        "distortion",
        "relative",
        "codewords used",
        "learning rate",
        "weight",
        "CPU-s",
    ]);
    let mut sizes: Vec<&String> = runs.keys().map(|(_, size)| size).collect();
    sizes.sort_by(|a, b| {
        paper::bytes(a)
            .partial_cmp(&paper::bytes(b))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    sizes.dedup();
    for size in sizes {
        let opq = runs.get(&("opq".to_owned(), size.clone()));
        for (system, name) in SYSTEMS {
            let Some(found) = runs.get(&(system.to_owned(), size.clone())) else {
                continue;
            };
            let bytes = paper::bytes(size).map_or_else(String::new, |b| b.to_string());
            let mut cells = vec![name.to_owned(), bytes.clone(), found.len().to_string()];
            for at in 0..3 {
                cells.push(recall(Some(mean(found, |run| run.recall[at]))));
                cells.push(match system {
                    "opq" => String::new(),
                    _ => times(found, opq, at),
                });
            }
            cells.extend(theirs(system, size).unwrap_or_default().map(recall));
            recalls.row(cells);
            let config = &found[0].config;
            codes.row(vec![
                name.to_owned(),
                bytes,
                recall(Some(mean(found, |run| run.unquantized[0]))),
                format!("{:.2}", mean(found, |run| run.distortion)),
                format!("{:.2}", mean(found, |run| run.relative_distortion)),
                format!("{:.0}", mean(found, |run| run.used)),
                config.learning_rate.to_string(),
                match config.quantization_weight {
                    None | Some(0.0) => String::new(),
                    Some(weight) => weight.to_string(),
                },
                format!("{:.0}", mean(found, |run| run.cpu_seconds)),
            ]);
        }
    }
    let mut text = format!(
        "### {set}\n\nBeside the paper's `{counterpart}`: {kind}.\n\n{recalls}\n\
         What the codes are like, and what was chosen by validation:\n\n{codes}\n"
    );
    text.push_str(&selections(set, runs));
    text.push_str(weights);
    let mut devices: Vec<String> = runs
        .values()
        .flatten()
        .map(|run| format!("{} x {}", run.config.devices, run.config.batch))
        .collect();
    devices.sort();
    devices.dedup();
    let queries = runs
        .values()
        .flatten()
        .map(|run| run.queries[0].len())
        .max()
        .unwrap_or(0);
    let _ = writeln!(
        text,
        "{queries} test queries; devices x batch: {}. Intervals: 95%, paired bootstrap over queries.\n\n\
         ![R@10 against bytes a key on {set}](plots/learning-{set}.svg)\n\n\
         ![The same as published, on {counterpart}](plots/paper-{counterpart}.svg)\n",
        devices.join(", ")
    );
    text
}

/// DQN by the weight of its distortion: is the least distorted the best?
fn weights(folder: &Path) -> Result<String> {
    let mut table = Table::new(&["w", "R@10", "R@50", "R@100", "distortion", "relative"]);
    for weight in ["1", "0.1", "0.01", "0.001", "0.0001"] {
        let path = folder.join(format!("dqn-weight{weight}/result.json"));
        let Ok(bytes) = fs::read(&path) else {
            continue;
        };
        let run: Run =
            serde_json::from_slice(&bytes).with_context(|| path.display().to_string())?;
        let mut cells = vec![weight.to_owned()];
        cells.extend(run.recall.map(|value| recall(Some(value))));
        cells.push(format!("{:.2}", run.distortion));
        cells.push(format!("{:.3}", run.relative_distortion));
        table.row(cells);
    }
    Ok(match table.is_empty() {
        true => String::new(),
        false => format!("DQN by the weight of its distortion, seed 1:\n\n{table}\n"),
    })
}

/// MoPQ-b by how a codeword is chosen, where that was run.
fn selections(set: &str, runs: &Runs) -> String {
    let published = paper::selections();
    let (counterpart, _) = paper::counterpart(set);
    let mut table = Table::new(&[
        "selection, MoPQ-b",
        "seeds",
        "R@10",
        "R@50",
        "R@100",
        "paper R@10",
    ]);
    for ((system, _), found) in runs {
        let Some(name) = system.strip_prefix("select-") else {
            continue;
        };
        let theirs = published
            .iter()
            .find(|p| p.size == name && p.set == counterpart);
        let mut cells = vec![name.to_owned(), found.len().to_string()];
        cells.extend([0, 1, 2].map(|at| recall(Some(mean(found, |run| run.recall[at])))));
        cells.push(recall(theirs.and_then(|p| p.recall[0])));
        table.row(cells);
    }
    if table.is_empty() {
        String::new()
    } else {
        format!("{table}\n")
    }
}

const CURVES: [&str; 4] = ["pq", "opq", "mopq-b", "mopq-dcs"];

fn series(name: &str, points: Vec<(f64, f64)>, strong: bool, dashed: bool) -> Series {
    Series {
        name: name.into(),
        points,
        line: true,
        strong,
        dashed,
    }
}

fn plot(title: &str, all: &[Series]) -> String {
    Plot {
        title,
        x: "bytes a key",
        y: "R@10",
        x_scale: Scale::Log,
        y_scale: Scale::Linear,
        series: all,
    }
    .svg()
}

fn curves(set: &str, runs: &Runs) -> String {
    let points = |system: &str, of: &dyn Fn(&Run) -> f64| -> Vec<(f64, f64)> {
        let own = runs.iter().filter(|((name, _), _)| name == system);
        let mut points: Vec<(f64, f64)> = own
            .filter_map(|((_, size), runs)| Some((paper::bytes(size)?, mean(runs, of))))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let mut all = Vec::new();
    for (system, name) in SYSTEMS.iter().filter(|(system, _)| CURVES.contains(system)) {
        let points = points(system, &|run| run.recall[0]);
        if !points.is_empty() {
            all.push(series(name, points, system.starts_with("mopq"), false));
        }
    }
    // The head that OPQ was fitted to, before any code: what there is to lose.
    let ceiling = points("opq", &|run| run.unquantized[0]);
    if !ceiling.is_empty() {
        all.push(series("un-quantized", ceiling, false, true));
    }
    plot(&format!("R@10 on {set}, measured"), &all)
}

fn paper_curves(set: &str) -> String {
    let published = paper::recalls();
    let mut all = Vec::new();
    for (system, name) in SYSTEMS.iter().filter(|(system, _)| CURVES.contains(system)) {
        let own = published
            .iter()
            .filter(|p| p.system == *system && p.set == set);
        let mut points: Vec<(f64, f64)> = own
            .filter_map(|p| Some((paper::bytes(&p.size)?, p.recall[0]?)))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        all.push(series(name, points, system.starts_with("mopq"), false));
    }
    plot(&format!("R@10 on {set}, as published"), &all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_run_is_known_by_its_folder() {
        assert_eq!(system_of("mopq-b-seed2").as_deref(), Some("mopq-b"));
        assert_eq!(system_of("mopq-b-4x256-seed2").as_deref(), Some("mopq-b"));
        assert_eq!(system_of("mopq-b-one-seed1").as_deref(), Some("mopq-b-one"));
        assert_eq!(system_of("select-l2-seed1").as_deref(), Some("select-l2"));
        assert_eq!(system_of("dqn-weight0.1"), None);
        assert_eq!(system_of("embeddings"), None);
    }

    #[test]
    fn the_page_has_our_recalls_beside_the_papers() {
        let dir = tempfile::tempdir().unwrap();
        let (table, docs) = (dir.path().join("table"), dir.path().join("docs"));
        fs::create_dir_all(&docs).unwrap();
        fs::write(
            docs.join("evidence.md"),
            "<!-- begin: learning-acl -->\nold\n<!-- end: learning-acl -->\n<!-- more: learning -->\n",
        )
        .unwrap();
        for (name, seed, gain) in [
            ("dqn-weight0.1", 1, 0.0),
            ("opq-seed1", 1, 0.0),
            ("mopq-dcs-seed1", 1, 0.125),
            ("mopq-dcs-seed2", 2, 0.125),
            ("mopq-dcs-8x256-seed2", 2, 0.125),
        ] {
            let queries: Vec<f64> = (0..400).map(|n| f64::from(n % 2) * 0.5 + gain).collect();
            let run = json!({
                "config": {
                    "subspaces": 8, "codewords": 256, "devices": "cpu:4", "batch": 128,
                    "seed": seed, "learning_rate": 0.002,
                },
                "recall": [0.25 + gain, 0.5, 0.6], "unquantized": [0.9, 0.95, 0.99],
                "distortion": 2.0, "relative_distortion": 0.4, "used": 255.0, "cpu_seconds": 3.0,
                "queries": [queries, [], []],
            });
            let folder = table.join("quora").join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("result.json"), run.to_string()).unwrap();
        }
        write(&table, &docs).unwrap();
        let page = fs::read_to_string(docs.join("evidence.md")).unwrap();
        assert!(page.contains("learning-acl -->\nold\n"), "not run: {page}");
        let expected = "| MoPQ-a (DCS) | 8 | 2 | .375 | 1.500 [1.4";
        assert!(page.contains(expected), "{page}");
        let expected = "| MoPQ-a (DCS) | 8 | .900 | 2.00 | 0.40 | 255 | 0.002 |  | 3 |";
        assert!(page.contains(expected), "{page}");
        let expected = "| 0.1 | .250 | .500 | .600 | 2.00 | 0.400 |";
        assert!(page.contains(expected), "{page}");
        assert!(
            docs.join("plots/learning-quora.svg").exists()
                && docs.join("plots/paper-quora.svg").exists()
        );
    }
}
