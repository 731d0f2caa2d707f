//! One case, every peer: sweep, choose, measure.

use super::case::{Case, K};
use super::exact;
use super::machine::Machine;
use super::outcome::{Compared, Measured, Missing, Swept};
use super::peers::{
    About, Built, GRAPHS, Grown, LEARNED, Programs, SCANS, SQLITE, Searched, Setting, Timed,
};
use super::sweep::{self, Tried};
use crate::report::markdown::median;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// How thoroughly.
#[derive(Debug, Clone)]
pub struct Effort {
    /// Seconds of each timing.
    pub seconds: f64,
    /// Repeats, whose median counts.
    pub repeats: usize,
    /// Bytes a row that are compared.
    pub bytes: Vec<usize>,
    /// Graphs and sqlite-vec up to so many rows.
    pub graph_rows: usize,
    /// Only these peers; all if empty.
    pub only: Vec<String>,
    /// Said on the page.
    pub quick: bool,
}

/// How one index is asked.
struct Asking {
    threads: usize,
    seconds: f64,
    repeats: usize,
    /// Seconds for the hits of all queries; if they are too few, of the first ones.
    limit: f64,
}

impl Effort {
    /// For choosing among settings.
    fn glance(&self) -> Asking {
        let seconds = self.seconds.min(0.3);
        Asking {
            threads: 1,
            seconds,
            repeats: 1,
            limit: 12.0 * seconds,
        }
    }

    /// For the table. Its recall is of all queries, asked by one thread, or those that eight minutes are enough for.
    fn whole(&self, threads: usize) -> Asking {
        Asking {
            threads,
            seconds: self.seconds,
            repeats: self.repeats,
            limit: if threads == 1 { 480.0 } else { 0.0 },
        }
    }
}

/// Measures all peers on a case; `save` is called after each. If only some are asked for, the others are as they were in
/// `before`, a run on the same machine.
pub fn run(
    case: &Case,
    programs: &Programs,
    effort: &Effort,
    before: Option<Compared>,
    mut save: impl FnMut(&Compared) -> Result<()>,
) -> Result<Compared> {
    let mut compared = Compared {
        case: case.name.clone(),
        what: case.what.clone(),
        rows: case.rows,
        dim: case.dim,
        queries: case.exact.len(),
        repeats: effort.repeats,
        seconds: effort.seconds,
        quick: effort.quick,
        machine: Machine::here(),
        peers: Vec::new(),
        missing: Vec::new(),
    };
    let small = case.rows <= effort.graph_rows;
    let graphs = GRAPHS.into_iter().chain([SQLITE]);
    let mut peers: Vec<&str> = SCANS.to_vec();
    if !case.models.is_empty() {
        peers.insert(0, LEARNED);
    }
    peers.extend(graphs.clone().filter(|_| small));
    let wanted = |peer: &str| {
        effort.only.is_empty()
            || effort
                .only
                .iter()
                .any(|only| peer.starts_with(only.as_str()))
    };
    if let Some(before) = before.filter(|before| before.alike(&compared)) {
        let kept = before.peers.into_iter();
        compared.peers.extend(kept.filter(|m| !wanted(&m.peer)));
        let kept = before.missing.into_iter();
        compared.missing.extend(kept.filter(|m| !wanted(&m.name)));
    }
    let mut abouts: Vec<(&str, About)> = Vec::new();
    for peer in peers.into_iter().filter(|peer| wanted(peer)) {
        match programs.peer(peer, &["about"]) {
            Ok(about) => abouts.push((peer, about)),
            Err(why) => compared.missing.push(missing(peer, &why)),
        }
    }
    let mut inherited = HashMap::new();
    for (peer, about) in &abouts {
        let heirs = abouts
            .iter()
            .filter(|(_, heir)| heir.built_by.as_deref() == Some(*peer));
        let heirs: Vec<&str> = heirs.map(|(heir, _)| *heir).collect();
        let mut seen = HashSet::new();
        for &bytes in &effort.bytes {
            let at = Attempt {
                case,
                programs,
                effort,
                peer,
                about,
                heirs: &heirs,
            };
            match at.measure(bytes, &mut seen, &mut inherited) {
                Ok(Some(measured)) => compared.peers.push(measured),
                Ok(None) => {}
                Err(why) => compared.missing.push(missing(peer, &why)),
            }
            save(&compared)?;
        }
    }
    if !small {
        for peer in graphs.filter(|peer| wanted(peer)) {
            let why = format!(
                "graphs and sqlite-vec are run to {} rows only",
                effort.graph_rows
            );
            compared.missing.push(Missing {
                name: peer.into(),
                why,
            });
        }
        save(&compared)?;
    }
    Ok(compared)
}

fn missing(name: &str, why: &anyhow::Error) -> Missing {
    eprintln!("  {name}: {why:#}");
    Missing {
        name: name.into(),
        why: format!("{why:#}"),
    }
}

/// Indexes that another peer has built already, by the folder that they were copied to.
type Inherited = HashMap<PathBuf, Built>;

/// One peer on one case.
struct Attempt<'a> {
    case: &'a Case,
    programs: &'a Programs,
    effort: &'a Effort,
    peer: &'a str,
    about: &'a About,
    /// Peers that search what this one builds.
    heirs: &'a [&'a str],
}

impl Attempt<'_> {
    /// None if it has nothing at this size that was not measured at another.
    fn measure(
        &self,
        bytes: usize,
        seen: &mut HashSet<String>,
        inherited: &mut Inherited,
    ) -> Result<Option<Measured>> {
        let case = self.case;
        let numbers = [case.rows, case.dim, bytes].map(|n| n.to_string());
        let mut settings: Vec<Setting> = if self.peer == LEARNED {
            let models = case.models.iter().filter(|(size, _)| *size == bytes);
            models
                .map(|(bytes, model)| Setting {
                    build: serde_json::json!({"bundle": model}),
                    bytes: *bytes,
                    search: vec![serde_json::json!({})],
                })
                .collect()
        } else {
            let numbers = numbers.each_ref().map(String::as_str);
            self.programs
                .peer(self.peer, &[&["settings"], &numbers[..]].concat())?
        };
        settings.retain(|setting| seen.insert(setting.build.to_string()));
        if settings.is_empty() {
            return Ok(None);
        }
        eprintln!("{}: {} at {bytes} bytes", case.name, self.about.name);
        let mut candidates: Vec<(usize, Value)> = Vec::new();
        let mut builds = Vec::new();
        for (n, setting) in settings.iter().enumerate() {
            let index = self.index(self.peer, bytes, n);
            let built = match inherited.remove(&index) {
                Some(built) => built,
                None => {
                    let _ = fs::remove_dir_all(&index);
                    self.call("build", &index, &setting.build, &[])?
                }
            };
            for heir in self.heirs {
                let copy = self.index(heir, bytes, n);
                copy_folder(&index, &copy)?;
                inherited.insert(copy, built.clone());
            }
            builds.push(built);
            let searches = setting.search.iter();
            candidates.extend(searches.map(|search| (n, merged(&setting.build, search))));
        }
        let tried = self.tried(bytes, &candidates)?;
        let chosen = sweep::best(&tried).unwrap_or(0);
        let (n, setting) = candidates.get(chosen).context("a setting")?;
        let index = self.index(self.peer, bytes, *n);
        let (found, one) = self.search(&index, setting, &self.effort.whole(1))?;
        let two = self.search(&index, setting, &self.effort.whole(2))?.1;
        let grown: Grown = self.call("insert", &index, setting, &[])?;
        for n in 0..settings.len() {
            let _ = fs::remove_dir_all(self.index(self.peer, bytes, n));
        }
        let share = median(&one.one.iter().map(|t| t.cpu / t.wall).collect::<Vec<f64>>());
        let rows = case.rows as f64;
        Ok(Some(Measured {
            peer: self.peer.into(),
            name: self.about.name.clone(),
            version: self.about.version.clone(),
            durable: self.about.durable.clone(),
            setting: short(setting),
            sweep: (candidates.iter().zip(&tried))
                .map(|((_, all), tried)| swept(all, tried))
                .collect(),
            bytes: settings[*n].bytes,
            recall_exact: found.exact,
            recall_true: found.right,
            one: rate(&one.one, |t| t.cpu),
            one_two: Some(rate(&two.one, |t| t.wall)),
            batch: rate(&one.batch, |t| t.cpu),
            batch_two: Some(rate(&two.batch, |t| t.wall)),
            share: share.unwrap_or(0.0),
            ram: one.ram / rows,
            disk: builds[*n].disk / rows,
            build: builds[*n].build.cpu,
            open: one.open,
            insert: (grown.insert.count > 0.0).then(|| grown.insert.count / grown.insert.wall),
        }))
    }

    /// A short look at each; none where there is nothing to choose.
    fn tried(&self, bytes: usize, candidates: &[(usize, Value)]) -> Result<Vec<Tried>> {
        let mut tried = Vec::new();
        for (n, all) in candidates.iter().filter(|_| candidates.len() > 1) {
            let index = self.index(self.peer, bytes, *n);
            let (found, searched) = self.search(&index, all, &self.effort.glance())?;
            let speed = rate(&searched.one, |t| t.cpu);
            let recall = found.exact;
            eprintln!("  {all}: recall {recall:.3}, {speed:.0} queries/s");
            tried.push(Tried { recall, speed });
        }
        Ok(tried)
    }

    fn index(&self, peer: &str, bytes: usize, n: usize) -> PathBuf {
        let indexes = self.case.dir.join("index");
        indexes.join(format!("{peer}-{bytes}-{n}"))
    }

    fn call<T: serde::de::DeserializeOwned>(
        &self,
        command: &str,
        index: &Path,
        setting: &Value,
        more: &[&str],
    ) -> Result<T> {
        let path = |path: &Path| path.to_str().map(str::to_owned).context("a path in UTF-8");
        let (case, index, setting) = (path(&self.case.dir)?, path(index)?, setting.to_string());
        let arguments = [&[command, &case, &index, &setting], more].concat();
        self.programs.peer(self.peer, &arguments)
    }

    fn search(&self, index: &Path, setting: &Value, asking: &Asking) -> Result<(Found, Searched)> {
        let hits = self.case.dir.join("hits.npy");
        let more = [
            asking.threads.to_string(),
            asking.seconds.to_string(),
            asking.repeats.to_string(),
            hits.to_str().context("a path in UTF-8")?.to_owned(),
            asking.limit.to_string(),
        ];
        let more = more.each_ref().map(String::as_str);
        let searched = self.call("search", index, setting, &more)?;
        Ok((Found::read(&hits, self.case)?, searched))
    }
}

/// Everything in a folder, to another that is emptied first.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).with_context(|| format!("{}: making it", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("{}: reading", from.display()))? {
        let entry = entry?;
        let copy = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &copy)?;
        } else {
            fs::copy(entry.path(), &copy)
                .with_context(|| format!("{}: copying", copy.display()))?;
        }
    }
    Ok(())
}

/// Recalls of the hits that a peer wrote.
struct Found {
    exact: f64,
    right: Option<f64>,
}

impl Found {
    fn read(path: &Path, case: &Case) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("{}: reading", path.display()))?;
        let (width, hits) = int64_npy(&bytes).with_context(|| path.display().to_string())?;
        let hits: Vec<Vec<i64>> = hits
            .chunks_exact(width)
            .zip(&case.own)
            .map(|(hits, own)| exact::without(hits, *own, K))
            .collect();
        let mean = |right: &[Vec<u32>]| {
            let sum: f64 = hits
                .iter()
                .zip(right)
                .map(|(hits, right)| exact::recall(hits, right))
                .sum();
            sum / hits.len().max(1) as f64
        };
        Ok(Self {
            exact: mean(&case.exact),
            right: case.right.as_deref().map(mean),
        })
    }
}

/// An array (rows, width) of int64 as numpy writes it, version 1: the width, and all values.
fn int64_npy(bytes: &[u8]) -> Result<(usize, Vec<i64>)> {
    let length = bytes.get(8..10).context("cut short")?;
    let start = 10 + usize::from(u16::from_le_bytes([length[0], length[1]]));
    let header = std::str::from_utf8(bytes.get(10..start).context("cut short")?)?;
    anyhow::ensure!(
        header.contains("'<i8'") && header.contains("'fortran_order': False"),
        "not rows of int64: {header}"
    );
    let shape = header.split_once("'shape': (").context("no shape")?.1;
    let width = shape
        .split([',', ')'])
        .nth(1)
        .context("no width")?
        .trim()
        .parse()?;
    let values = bytes[start..].as_chunks::<8>().0.iter();
    Ok((width, values.map(|b| i64::from_le_bytes(*b)).collect()))
}

/// The median of things a second.
fn rate(timed: &[Timed], by: impl Fn(&Timed) -> f64) -> f64 {
    let rates: Vec<f64> = timed.iter().map(|t| t.count / by(t).max(1e-9)).collect();
    median(&rates).unwrap_or(0.0)
}

fn merged(build: &Value, search: &Value) -> Value {
    let mut all = build.as_object().cloned().unwrap_or_default();
    all.extend(search.as_object().cloned().unwrap_or_default());
    Value::Object(all)
}

fn swept(setting: &Value, tried: &Tried) -> Swept {
    Swept {
        setting: short(setting),
        recall_exact: tried.recall,
        one: tried.speed,
    }
}

/// `{"a": 1, "b": "x"}` as `a 1, b x`; folders are left out.
fn short(setting: &Value) -> String {
    let parts = setting.as_object().into_iter().flatten();
    let parts: Vec<String> = parts
        .filter(|(name, _)| *name != "bundle")
        .map(|(name, value)| match value {
            Value::String(text) => format!("{name} {text}"),
            other => format!("{name} {other}"),
        })
        .collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_are_merged_and_said_shortly() {
        let all = merged(
            &json!({"leaves": 7, "bundle": "/x"}),
            &json!({"level": "NONE"}),
        );
        assert_eq!(short(&all), "leaves 7, level NONE");
    }

    #[test]
    fn hits_are_read_as_numpy_writes_them() {
        let header = "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3), }";
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.bytes());
        bytes.extend((0..6i64).flat_map(|n| (n - 1).to_le_bytes()));
        assert_eq!(int64_npy(&bytes).unwrap(), (3, vec![-1, 0, 1, 2, 3, 4]));
        assert!(int64_npy(&bytes[..30]).is_err());
        let float = String::from_utf8_lossy(&bytes).replace("<i8", "<f8");
        assert!(int64_npy(float.as_bytes()).is_err());
    }

    #[test]
    fn a_folder_is_copied_with_all_that_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("inner")).unwrap();
        fs::write(from.join("inner/file"), "new").unwrap();
        fs::create_dir_all(&to).unwrap();
        fs::write(to.join("old"), "of a run before").unwrap();
        copy_folder(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("inner/file")).unwrap(), "new");
        assert!(!to.join("old").exists());
    }

    #[test]
    fn rates_are_medians() {
        let timed = |count, cpu| Timed {
            count,
            cpu,
            wall: 1.0,
        };
        let all = [timed(10.0, 1.0), timed(30.0, 1.0), timed(20.0, 1.0)];
        assert_eq!(rate(&all, |t| t.cpu), 20.0);
    }
}
