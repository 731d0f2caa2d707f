//! The whole job: texts in, hits out. Every system is a program that is spoken to as `mopqdb` is: `insert` reads a file,
//! `query` a line at a time.

use super::case::K;
use super::exact;
use super::machine::Machine;
use super::outcome::{Missing, Whole, WholeJob};
use super::peers::{self, Programs};
use super::set::Set;
use super::when::{self, Run, When};
use crate::report::markdown::median;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The systems, ours first.
const SYSTEMS: [&str; 3] = ["mopqdb", "lancedb_texts", "chroma_texts"];

/// How much.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Texts inserted.
    pub texts: usize,
    /// Queries asked.
    pub queries: usize,
}

#[derive(Deserialize)]
struct About {
    name: String,
    version: String,
    note: String,
}

/// Runs all systems over the first texts of a set.
pub fn measure(
    out: &Path,
    name: &str,
    set: &Set,
    programs: &Programs,
    size: Size,
    run: Run,
) -> Result<WholeJob> {
    let began = when::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let work = out.join("whole");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work)?;
    let (asked, rows) = chosen(set, size);
    ensure!(
        !asked.is_empty(),
        "no test query has its keys in {} texts",
        size.texts
    );
    let mut lines = String::new();
    for &row in &rows {
        let text = set.keys[row as usize].replace(['\t', '\n'], " ");
        writeln!(lines, "{row}\t{text}")?;
    }
    let file = work.join("texts.tsv");
    fs::write(&file, lines)?;
    let mut job = WholeJob {
        texts: rows.len(),
        queries: asked.len(),
        threads,
        set: name.into(),
        machine: Machine::here(),
        when: None,
        systems: Vec::new(),
        missing: Vec::new(),
    };
    for system in SYSTEMS {
        eprintln!("whole job: {system}, {} texts", rows.len());
        let system = System {
            name: system,
            programs,
            bundle: mopqdb::encoder::default_bundle()?,
            db: work.join(system),
            threads,
        };
        match system.measure(&file, rows.len(), set, &asked) {
            Ok(whole) => job.systems.push(whole),
            Err(why) => {
                eprintln!("  {}: {why:#}", system.name);
                job.missing.push(Missing {
                    name: system.name.into(),
                    why: format!("{why:#}"),
                });
            }
        }
    }
    job.when = Some(When::since(run, began));
    Ok(job)
}

/// The first test queries, and the rows that are inserted: all that are right for them, in at most half the room, then the
/// first others.
fn chosen(set: &Set, size: Size) -> (Vec<usize>, Vec<u32>) {
    let (mut asked, mut rows) = (Vec::new(), BTreeSet::new());
    for (n, right) in set.test.right.iter().enumerate() {
        if asked.len() == size.queries || rows.len() + right.len() > size.texts / 2 {
            break;
        }
        if !set.test.queries[n].trim().is_empty() {
            asked.push(n);
            rows.extend(right);
        }
    }
    for row in 0..set.keys.len() as u32 {
        if rows.len() >= size.texts {
            break;
        }
        rows.insert(row);
    }
    (asked, rows.into_iter().collect())
}

struct System<'a> {
    name: &'a str,
    programs: &'a Programs,
    bundle: PathBuf,
    db: PathBuf,
    threads: usize,
}

impl System<'_> {
    fn about(&self) -> Result<About> {
        if self.name == "mopqdb" {
            return Ok(About {
                name: "mopqdb".into(),
                version: format!("mopqdb {}", env!("CARGO_PKG_VERSION")),
                note: "the program as released; OPQ codes of 8 bytes from 65,536 texts on, below whole vectors".into(),
            });
        }
        let bundle = self.bundle.to_str().context("a path in UTF-8")?;
        peers::run(
            self.programs
                .script("texts.py")
                .args([self.name, "about", bundle]),
            self.name,
        )
    }

    fn command(&self, what: &str) -> Command {
        let threads = self.threads.to_string();
        if self.name == "mopqdb" {
            let mut command = Command::new(self.programs.ours.join("mopqdb"));
            command.args([what, "--threads", &threads]).arg(&self.db);
            return command;
        }
        let mut command = self.programs.script("texts.py");
        command
            .args([self.name, what])
            .arg(&self.db)
            .arg(&self.bundle)
            .arg(&threads);
        for name in ["OMP_NUM_THREADS", "RAYON_NUM_THREADS", "LANCE_CPU_THREADS"] {
            command.env(name, &threads);
        }
        command
    }

    fn measure(&self, file: &Path, texts: usize, set: &Set, asked: &[usize]) -> Result<Whole> {
        let about = self.about()?;
        let began = Instant::now();
        let mut command = self.command("insert");
        let child = command
            .arg(file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let insert = Watched::to_the_end(child)?;
        let wall = began.elapsed().as_secs_f64();
        let disk = bytes_of(&self.db)?;

        let mut command = self.command("query");
        if self.name == "mopqdb" {
            command.args(["--stdin", "--json", "-k", "11"]);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut stdin = child.stdin.take().context("its input")?;
        let mut stdout = BufReader::new(child.stdout.take().context("its output")?);
        let mut ask = |query: &str| -> Result<(f64, Vec<i64>)> {
            let began = Instant::now();
            writeln!(stdin, "{query}")?;
            stdin.flush()?;
            let mut line = String::new();
            // Libraries print greetings: an answer is an object.
            while !line.starts_with('{') {
                line.clear();
                ensure!(
                    stdout.read_line(&mut line)? > 0,
                    "it ended before it answered"
                );
            }
            let answer: Value = serde_json::from_str(&line)?;
            let hits = answer["hits"].as_array().context("hits")?;
            let key = |hit: &Value| Some(hit["key"].as_str()?.parse().unwrap_or(-1));
            Ok((
                began.elapsed().as_secs_f64(),
                hits.iter().filter_map(key).collect(),
            ))
        };
        // The model is loaded and warm before the clock starts.
        for &n in asked.iter().take(5) {
            ask(&set.test.queries[n])?;
        }
        let before = Watched::of(child.id())?;
        let (mut times, mut recalls) = (Vec::new(), 0.0);
        for &n in asked {
            let (time, hits) = ask(&set.test.queries[n])?;
            times.push(time);
            recalls += exact::recall(
                &exact::without(&hits, set.test.own[n], K),
                &set.test.right[n],
            );
        }
        let after = Watched::of(child.id())?;
        drop(stdin);
        child.wait()?;
        let count = asked.len() as f64;
        Ok(Whole {
            name: about.name,
            version: about.version,
            note: about.note,
            insert_wall: texts as f64 / wall,
            insert_cpu: texts as f64 / insert.cpu.max(1e-9),
            p50_ms: 1e3 * median(&times).unwrap_or(0.0),
            p99_ms: 1e3 * percentile(&times, 0.99),
            query_cpu_ms: 1e3 * (after.cpu - before.cpu) / count,
            disk: disk as f64 / texts as f64,
            insert_memory: insert.memory,
            query_memory: after.memory,
            recall_true: recalls / count,
        })
    }
}

/// What a process has taken so far.
#[derive(Debug, Clone, Copy, Default)]
struct Watched {
    /// CPU seconds.
    cpu: f64,
    /// Most resident bytes.
    memory: f64,
}

impl Watched {
    fn of(pid: u32) -> Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        Self::parse(&stat, &status).context("/proc as Linux writes it")
    }

    /// None for a process that has ended.
    fn parse(stat: &str, status: &str) -> Option<Self> {
        // The name, in parentheses, may hold anything.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks: f64 = fields[11..=12]
            .iter()
            .filter_map(|t| t.parse::<f64>().ok())
            .sum();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kb: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        // USER_HZ is 100 wherever Linux runs.
        Some(Self {
            cpu: ticks / 100.0,
            memory: kb * 1024.0,
        })
    }

    /// Watches a process until it ends, which it must do well.
    fn to_the_end(mut child: Child) -> Result<Self> {
        let mut last = Self::default();
        loop {
            if let Ok(now) = Self::of(child.id()) {
                last = now;
            }
            if let Some(status) = child.try_wait()? {
                ensure!(status.success(), "it failed: {status}");
                return Ok(last);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn bytes_of(dir: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let about = entry.metadata()?;
        sum += if about.is_dir() {
            bytes_of(&entry.path())?
        } else {
            about.len()
        };
    }
    Ok(sum)
}

fn percentile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let at = ((values.len() as f64 * share).ceil() as usize).clamp(1, values.len().max(1));
    values.get(at - 1).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_from_proc_whatever_its_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 9 0 0 0 250 50 0 0 20 0 3 0";
        let status = "Name:\ta) b\nVmHWM:\t   2048 kB\nVmRSS:\t 1 kB\n";
        let watched = Watched::parse(stat, status).unwrap();
        assert_eq!((watched.cpu, watched.memory), (3.0, 2048.0 * 1024.0));
        assert!(Watched::parse(stat, "Name:\tzombie\n").is_none());
        assert!(Watched::of(std::process::id()).unwrap().memory > 1e6);
    }

    #[test]
    fn the_right_keys_of_what_is_asked_are_inserted() {
        let set = Set {
            keys: (0..10).map(|n| n.to_string()).collect(),
            train: Default::default(),
            valid: Default::default(),
            all_keys: 10,
            all_pairs: 0,
            test: super::super::set::Questions {
                queries: ["a", "", "b", "c"].map(String::from).to_vec(),
                right: vec![vec![9], vec![8], vec![5, 6], vec![7]],
                own: vec![None; 4],
            },
        };
        let size = Size {
            texts: 6,
            queries: 9,
        };
        let (asked, rows) = chosen(&set, size);
        assert_eq!(asked, [0, 2]);
        assert_eq!(rows, [0, 1, 2, 5, 6, 9]);
    }

    #[test]
    fn the_slowest_hundredth_is_found() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(percentile(&values, 0.99), 198.0);
        assert_eq!(percentile(&[5.0], 0.99), 5.0);
        assert_eq!(percentile(&[], 0.99), 0.0);
    }
}
