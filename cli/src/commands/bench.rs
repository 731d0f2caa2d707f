use super::query::{check_candidates, check_codes};
use crate::out::{Out, Table};
use crate::settings::Settings;
use anyhow::{Result, bail};
use clap::Args;
use mopqdb::{Machine, QueryOptions, Search};
use serde_json::json;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time queries on this database, against the memory bandwidth of this machine
///
/// Queries are stored vectors of evenly spaced rows, one at a time. Before timing, some answers are compared with those
/// of the scalar kernel on one thread. The bandwidth is measured in the same run, by reading as many bytes as a query
/// scans with as many threads.
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
  mopqdb bench my.db -k 100 --threads 1 --json
  MOPQDB_KERNEL=portable mopqdb bench my.db")]
pub struct Bench {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Hits per query
    #[arg(short, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=mopqdb::MAX_K as i64))]
    k: u32,
    /// Which scores find the rows: `codes`, `auto` or `exact`; default: codes, or exact where there are none
    #[arg(long, value_name = "HOW", value_parser = super::query::search)]
    search: Option<Search>,
    /// Candidates of `--search auto`
    #[arg(long, value_name = "C")]
    candidates: Option<usize>,
    /// Seconds of queries
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    seconds: f64,
}

/// Different queries, asked in turn.
const QUERIES: usize = 64;
/// Those whose answers are checked first.
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
        let queries = snapshot.sample_vectors(QUERIES)?;
        let search = self.search.unwrap_or(match snapshot.model().quantizer() {
            Some(_) => Search::Codes,
            None => Search::Exact,
        });
        check_candidates(search, self.candidates)?;
        check_codes(search, &snapshot, &self.db)?;
        let k = self.k as usize;
        let mut options = QueryOptions::top(k).search(search);
        options.candidates = self.candidates;
        // Also checks every checksum and brings the codes into memory: not timed.
        let plain = snapshot.on_plain_kernel()?;
        for (number, query) in queries.iter().enumerate().take(CHECKED) {
            if reader.query_with(query, &options)? != plain.query_with(query, &options)? {
                bail!(
                    "query {number} has another answer than on the plain kernel; please report this, with what `mopqdb stats {}` says",
                    self.db.display()
                );
            }
        }
        let explained = snapshot
            .query_explained(&[(&queries[0]).into()], &options)?
            .1;
        let bytes = |name: &str| -> f64 {
            let stages = explained.stages.iter().filter(|stage| stage.name == name);
            stages.map(|stage| stage.bytes as f64).sum()
        };
        let (scanned, scored) = (bytes("candidates"), bytes("score"));
        let mut times = Vec::new();
        let deadline = Instant::now() + Duration::from_secs_f64(self.seconds.clamp(0.05, 3600.0));
        while Instant::now() < deadline || times.len() < 10 {
            let query = &queries[times.len() % queries.len()];
            let started = Instant::now();
            black_box(reader.query_with(query, &options)?);
            times.push(started.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        let (p50, p99) = (at(0.5), at(0.99));
        let threads = settings.threads();
        let machine = Machine::detect()?;
        let bandwidth = machine.read_bandwidth(scanned as usize, threads);
        let rows_per_s = rows as f64 / p50;
        let gb_per_s = (scanned + scored) / p50 / 1e9;
        let scanned_per_row = scanned / rows as f64;
        let kernel = machine.kernel();
        let mut out = Out::new(settings);
        if out.is_json() {
            out.object(&json!({
                "rows_per_s": rows_per_s, "gb_per_s": gb_per_s, "bandwidth_share": gb_per_s / bandwidth,
                "bandwidth_gb_per_s": bandwidth, "p50_us": p50 * 1e6, "p99_us": p99 * 1e6, "queries": times.len(),
                "search": search.name(), "candidates": explained.candidates, "scanned_bytes_per_row": scanned_per_row,
                "vector_bytes_per_query": scored, "kernel": kernel, "threads": threads, "rows": rows, "k": k,
                "answers_checked": queries.len().min(CHECKED),
            }))?;
            return out.flush();
        }
        let mut table = Table::new(&["", ""]);
        let mut add = |name: &str, value: String| table.row(vec![name.into(), value]);
        add(
            "query, median and 99th percentile",
            format!("{:.0} us, {:.0} us", p50 * 1e6, p99 * 1e6),
        );
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
                queries.len().min(CHECKED),
                times.len()
            ),
        );
        out.table(&table)?;
        out.flush()
    }
}
