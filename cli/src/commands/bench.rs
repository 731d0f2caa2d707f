use super::query::{check_candidates, check_codes, check_probes};
use crate::out::{Out, Table};
use crate::rows::read_queries;
use crate::settings::Settings;
use anyhow::{Result, bail};
use clap::Args;
use mopqdb::{Machine, Probes, Query, QueryOptions, Search, Snapshot, Value};
use serde_json::json;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time queries on this database, against the memory bandwidth of this machine
///
/// Queries are asked one at a time. They are those of --queries, or else stored vectors of evenly spaced rows, which have
/// no words. The time that the encoder takes for a text is printed apart, and is not part of the other figures. Before
/// timing, some answers are compared with those of the scalar kernel on one thread. The bandwidth is measured in the same
/// run, by reading as many bytes as a query scans with as many threads.
///
/// Queries use codes if the database has any, as with `--search codes`. `--search auto` times what `mopqdb query` does:
/// candidates by codes, ordered by their stored vectors.
///
/// The kernel is the fastest of this CPU, or the one that the environment variable MOPQDB_KERNEL names: scalar,
/// portable, avx2 or avx512. All kernels give the same answers.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb bench my.db
  mopqdb bench my.db --search auto
  mopqdb bench my.db --search auto --queries log.txt
  mopqdb bench my.db -k 100 --threads 1 --json
  MOPQDB_KERNEL=portable mopqdb bench my.db")]
pub struct Bench {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Hits per query
    #[arg(short, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=mopqdb::MAX_K as i64))]
    k: u32,
    /// Search mode: `codes`, `auto` or `exact`; default: codes, or exact if there are none
    #[arg(long, value_name = "HOW", value_parser = super::query::search)]
    search: Option<Search>,
    /// Candidates of `--search auto`
    #[arg(long, value_name = "C")]
    candidates: Option<usize>,
    /// Ask these: one text per line, or vectors (.npy, .fvecs or .fbin)
    #[arg(long, value_name = "FILE")]
    queries: Option<PathBuf>,
    /// Cells that are looked at, or `all`, under a model with cells; default: as for queries
    #[arg(long, value_name = "P|all", value_parser = super::query::probes)]
    probes: Option<Probes>,
    /// Seconds of queries
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    seconds: f64,
}

/// The number of different queries, which are run in turn.
const QUERIES: usize = 64;
/// The number of queries whose answers are checked first.
const CHECKED: usize = 3;

impl Bench {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<()> {
        let reader = super::read(&self.db, settings)?;
        let snapshot = reader.snapshot();
        let rows = snapshot.rows();
        if rows == 0 {
            bail!(
                "{} has no rows to search; insert some first",
                self.db.display()
            );
        }
        let queries = self.queries(&snapshot)?;
        let asked: Vec<Query<'_>> = queries.iter().map(as_query).collect();
        let search = self.search.unwrap_or(match snapshot.model().quantizer() {
            Some(_) => Search::Codes,
            None => Search::Exact,
        });
        check_candidates(search, self.candidates)?;
        check_probes(search, self.probes)?;
        check_codes(search, &snapshot, &self.db)?;
        let k = self.k as usize;
        let mut options = QueryOptions::top(k).search(search);
        options.candidates = self.candidates;
        options.probes = self.probes;
        // Also checks every checksum and brings the codes into memory: not timed.
        let plain = snapshot.on_plain_kernel()?;
        for (number, &query) in asked.iter().enumerate().take(CHECKED) {
            if snapshot.query_with(query, &options)? != plain.query_with(query, &options)? {
                bail!(
                    "the answer to query {number} differs from that of the plain kernel; please report this with the output of `mopqdb stats {}`",
                    self.db.display()
                );
            }
        }
        let explained = snapshot.query_explained(&asked[..1], &options)?.1;
        let bytes = |name: &str| -> f64 {
            let stages = explained.stages.iter().filter(|stage| stage.name == name);
            stages.map(|stage| stage.bytes as f64).sum()
        };
        let (scanned, scored) = (bytes("candidates"), bytes("score"));
        let (mut times, mut encoding) = (Vec::new(), Vec::new());
        let mut by_stage: Vec<(&str, Vec<f64>)> = Vec::new();
        let deadline = Instant::now() + Duration::from_secs_f64(self.seconds.clamp(0.05, 3600.0));
        while Instant::now() < deadline || times.len() < 10 {
            let query = asked[times.len() % asked.len()];
            let started = Instant::now();
            let (hits, explained) = black_box(snapshot.query_explained(&[query], &options)?);
            let micros = started.elapsed().as_secs_f64() * 1e6;
            drop(hits);
            let encodes = matches!(query, Query::Text(_)) && search != Search::Words;
            let encoder = if encodes {
                explained.stages[0].micros
            } else {
                0.0
            };
            times.push(micros - encoder);
            encoding.push(encoder);
            by_stage.resize_with(explained.stages.len(), Default::default);
            for ((name, all), stage) in by_stage.iter_mut().zip(&explained.stages) {
                *name = stage.name;
                all.push(stage.micros);
            }
        }
        let by_stage: Vec<(&str, f64)> = (by_stage.into_iter())
            .map(|(name, mut all)| (name, percentiles(&mut all)[0]))
            .collect();
        let [p50, p99] = percentiles(&mut times);
        let [encoding, _] = percentiles(&mut encoding);
        let threads = settings.threads();
        let machine = Machine::detect()?;
        let bandwidth = machine.read_bandwidth(scanned as usize, threads);
        let rows_per_s = rows as f64 / p50 * 1e6;
        let gb_per_s = (scanned + scored) / p50 / 1e3;
        let scanned_per_row = scanned / rows as f64;
        let kernel = machine.kernel();
        let mut out = Out::new(settings);
        if out.is_json() {
            out.object(&json!({
                "rows_per_s": rows_per_s, "gb_per_s": gb_per_s, "bandwidth_share": gb_per_s / bandwidth,
                "bandwidth_gb_per_s": bandwidth, "p50_us": p50, "p99_us": p99,
                "encoding_p50_us": encoding,
                "stages": by_stage.iter().map(|(stage, us)| json!({"stage": stage, "us": us})).collect::<Vec<_>>(),
                "queries": times.len(),
                "search": search.name(), "candidates": explained.candidates, "scanned_bytes_per_row": scanned_per_row,
                "vector_bytes_per_query": scored, "kernel": kernel, "threads": threads, "rows": rows, "k": k,
                "answers_checked": asked.len().min(CHECKED),
            }))?;
            return out.flush();
        }
        let mut table = Table::new(&["", ""]);
        let mut add = |name: &str, value: String| table.row(vec![name.into(), value]);
        add(
            "query, median and 99th percentile",
            format!("{p50:.0} us, {p99:.0} us"),
        );
        let stages = by_stage
            .iter()
            .map(|(name, us)| format!("{name} {us:.0} us"));
        add("stages, medians", stages.collect::<Vec<_>>().join(", "));
        if encoding > 0.0 {
            add("encoder, median", format!("{encoding:.0} us"));
        }
        add(
            "rows per second",
            format!("{:.1} million", rows_per_s / 1e6),
        );
        add(
            "bytes scanned per row, bytes of vectors read per query",
            format!("{scanned_per_row:.1}, {scored:.0}"),
        );
        add(
            "read",
            format!(
                "{gb_per_s:.2} GB/s, {:.0}% of {bandwidth:.2} GB/s",
                100.0 * gb_per_s / bandwidth
            ),
        );
        add(
            "search, kernel, threads",
            format!("{search}, {kernel}, {threads}"),
        );
        add(
            "rows, k, queries checked and timed",
            format!(
                "{rows}, {k}, {} and {}",
                asked.len().min(CHECKED),
                times.len()
            ),
        );
        out.table(&table)?;
        out.flush()
    }

    /// Returns the queries to ask.
    fn queries(&self, snapshot: &Snapshot) -> Result<Vec<Value>> {
        let Some(path) = &self.queries else {
            let vectors = snapshot.sample_vectors(QUERIES)?;
            return Ok(vectors.into_iter().map(Value::Vector).collect());
        };
        let queries = read_queries(path)?;
        if queries.is_empty() {
            bail!("{} has no queries", path.display());
        }
        Ok(queries)
    }
}

fn as_query(value: &Value) -> Query<'_> {
    match value {
        Value::Text(text) => text.into(),
        Value::Vector(vector) => vector.into(),
    }
}

/// Returns the median and the 99th percentile.
fn percentiles(times: &mut [f64]) -> [f64; 2] {
    times.sort_by(f64::total_cmp);
    [0.5, 0.99].map(|share| times[((times.len() - 1) as f64 * share) as usize])
}
