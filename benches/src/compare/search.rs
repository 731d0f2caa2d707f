//! One case, every peer: sweep, choose, measure.

use super::builds::{self, Entry, Site};
use super::case::{Case, K};
use super::cores;
use super::exact;
use super::machine::Machine;
use super::outcome::{Compared, Measured, Missing, Swept};
use super::peers::{
    About, Built, GRAPHS, Grown, LEARNED, Programs, SCANS, Searched, Setting, Timed,
};
use super::sweep::{self, Tried};
use super::when::{Run, When};
use crate::report::markdown::median;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// How thoroughly.
#[derive(Debug, Clone)]
pub struct Effort {
    /// Seconds of each timing.
    pub seconds: f64,
    /// Repeats, whose median counts.
    pub repeats: usize,
    /// Bytes a row that are compared.
    pub bytes: Vec<usize>,
    /// Graphs up to so many rows.
    pub graph_rows: usize,
    /// Only these peers; all if empty.
    pub only: Vec<String>,
    /// Said on the page.
    pub quick: bool,
    /// Of which this is a part.
    pub run: Run,
}

/// How one index is asked.
struct Asking {
    threads: usize,
    seconds: f64,
    repeats: usize,
    /// Queries of a batch; 0 if batches are not timed.
    batch: usize,
    /// Seconds for the hits of all queries; if they are too few, of the first ones.
    limit: f64,
}

impl Effort {
    /// For choosing among settings; slow ones too are asked dozens of queries.
    fn glance(&self) -> Asking {
        let seconds = self.seconds.min(0.3);
        Asking {
            threads: 1,
            seconds,
            repeats: 1,
            batch: 0,
            limit: 24.0 * seconds,
        }
    }

    /// For the table's figures of one thread; its hits only warm it up.
    fn one_thread(&self) -> Asking {
        Asking {
            threads: 1,
            seconds: self.seconds,
            repeats: self.repeats,
            batch: 64,
            limit: self.seconds,
        }
    }

    /// For those of two, and for recall: hits do not depend on threads, so both look for them. It is of all queries, or of
    /// those that a minute is enough for.
    fn two_threads(&self) -> Asking {
        Asking {
            threads: 2,
            limit: 60.0,
            ..self.one_thread()
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
    save: impl Fn(&Compared) -> Result<()>,
) -> Result<Compared> {
    let save = |compared: &mut Compared| {
        compared.when = Some(When::since(effort.run, case.began));
        save(compared)
    };
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
        when: None,
        peers: Vec::new(),
        missing: Vec::new(),
    };
    let small = case.rows <= effort.graph_rows;
    let mut peers: Vec<&str> = SCANS.to_vec();
    if !case.models.is_empty() {
        peers.insert(0, LEARNED);
    }
    peers.extend(GRAPHS.into_iter().filter(|_| small));
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
    let site = Site { case, programs };
    let mut entries = Vec::new();
    for (peer, about) in &abouts {
        match settings(site, peer, &effort.bytes) {
            Ok(sizes) => entries.extend(sizes.into_iter().map(|(bytes, settings)| Entry {
                peer,
                about,
                bytes,
                settings,
            })),
            Err(why) => compared.missing.push(missing(peer, &why)),
        }
    }
    eprintln!("{}: building", case.name);
    let builds = builds::all(site, &entries);
    for (entry, built) in entries.iter().zip(builds) {
        let at = Attempt {
            site,
            effort,
            entry,
        };
        match built.and_then(|built| at.measure(&built)) {
            Ok(measured) => compared.peers.push(measured),
            Err(why) => compared.missing.push(missing(entry.peer, &why)),
        }
        save(&mut compared)?;
    }
    if !small {
        for peer in GRAPHS.into_iter().filter(|peer| wanted(peer)) {
            let why = format!("graphs are run to {} rows only", effort.graph_rows);
            compared.missing.push(Missing {
                name: peer.into(),
                why,
            });
        }
        save(&mut compared)?;
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

/// What a peer has at each size, without what it has at a size before.
fn settings(site: Site<'_>, peer: &str, sizes: &[usize]) -> Result<Vec<(usize, Vec<Setting>)>> {
    let mut seen = HashSet::new();
    let mut all = Vec::new();
    for &bytes in sizes {
        let mut settings: Vec<Setting> = if peer == LEARNED {
            let models = site.case.models.iter().filter(|(size, _)| *size == bytes);
            models
                .map(|(bytes, model)| Setting {
                    build: serde_json::json!({"bundle": model}),
                    bytes: *bytes,
                    search: vec![serde_json::json!({})],
                })
                .collect()
        } else {
            let numbers = [site.case.rows, site.case.dim, bytes].map(|n| n.to_string());
            let numbers = numbers.each_ref().map(String::as_str);
            site.programs
                .peer(peer, &[&["settings"], &numbers[..]].concat())?
        };
        settings.retain(|setting| seen.insert(setting.build.to_string()));
        if !settings.is_empty() {
            all.push((bytes, settings));
        }
    }
    Ok(all)
}

/// One peer at one size on one case.
struct Attempt<'a> {
    site: Site<'a>,
    effort: &'a Effort,
    entry: &'a Entry<'a>,
}

impl Attempt<'_> {
    fn measure(&self, builds: &[Built]) -> Result<Measured> {
        let (case, entry) = (self.site.case, self.entry);
        eprintln!(
            "{}: {} at {} bytes",
            case.name, entry.about.name, entry.bytes
        );
        let mut candidates: Vec<(usize, Value)> = Vec::new();
        for (n, setting) in entry.settings.iter().enumerate() {
            let searches = setting.search.iter();
            candidates.extend(searches.map(|search| (n, merged(&setting.build, search))));
        }
        let tried = self.tried(&candidates)?;
        let chosen = sweep::best(&tried).unwrap_or(0);
        let (n, setting) = candidates.get(chosen).context("a setting")?;
        let index = self.site.index(entry, *n);
        let (_, one) = self.search(&index, setting, &self.effort.one_thread())?;
        let (found, two) = self.search(&index, setting, &self.effort.two_threads())?;
        let grown: Grown = self.site.call(entry.peer, "insert", &index, setting, &[])?;
        for n in 0..entry.settings.len() {
            let _ = fs::remove_dir_all(self.site.index(entry, n));
        }
        let share = median(&one.one.iter().map(|t| t.cpu / t.wall).collect::<Vec<f64>>());
        let rows = case.rows as f64;
        Ok(Measured {
            peer: entry.peer.into(),
            name: entry.about.name.clone(),
            run: self.effort.run,
            version: entry.about.version.clone(),
            durable: entry.about.durable.clone(),
            setting: short(setting),
            sweep: (candidates.iter().zip(&tried))
                .map(|((_, all), tried)| swept(all, tried))
                .collect(),
            bytes: entry.settings[*n].bytes,
            asked: found.asked,
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
        })
    }

    /// A short look at each, one on each core; none where there is nothing to choose.
    fn tried(&self, candidates: &[(usize, Value)]) -> Result<Vec<Tried>> {
        let jobs = if candidates.len() > 1 {
            candidates.len()
        } else {
            0
        };
        let tried = cores::each(jobs, |job| {
            let (n, all) = &candidates[job];
            let index = self.site.index(self.entry, *n);
            let (found, searched) = self.search(&index, all, &self.effort.glance())?;
            let speed = rate(&searched.one, |t| t.cpu);
            let recall = found.exact;
            eprintln!("  {all}: recall {recall:.3}, {speed:.0} queries/s");
            Ok(Tried { recall, speed })
        });
        tried.into_iter().collect()
    }

    fn search(&self, index: &Path, setting: &Value, asking: &Asking) -> Result<(Found, Searched)> {
        let case = self.site.case;
        let hits = tempfile::Builder::new()
            .suffix(".npy")
            .tempfile_in(&case.dir)?;
        let hits = hits.path();
        let more = [
            asking.threads.to_string(),
            asking.seconds.to_string(),
            asking.repeats.to_string(),
            asking.batch.to_string(),
            hits.to_str().context("a path in UTF-8")?.to_owned(),
            asking.limit.to_string(),
        ];
        let more = more.each_ref().map(String::as_str);
        builds::warm(index)?;
        let searched = self
            .site
            .call(self.entry.peer, "search", index, setting, &more)?;
        Ok((Found::read(hits, case)?, searched))
    }
}

/// Recalls of the hits that a peer wrote.
struct Found {
    /// Queries that it answered.
    asked: usize,
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
            asked: hits.len(),
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
