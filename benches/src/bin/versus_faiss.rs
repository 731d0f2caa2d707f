//! Compares mopqdb with faiss-cpu: same codes, same run, one core, CPU time, faiss at its fastest SIMD level. Every
//! answer is first compared with a plain sum, and faiss's scores with ours. Writes a table, and its numbers as JSON.
//!
//! `make bench` passes the right arguments.

use anyhow::Result;
use clap::Parser;
use mopqdb::testing::kernel::Kernel;
use mopqdb_benches::versus::codes::Case;
use mopqdb_benches::versus::figures::Figures;
use mopqdb_benches::versus::{Bench, database, scan, thousands, train};
use std::fs;
use std::path::PathBuf;

/// Compares mopqdb with faiss-cpu on the same codes in the same run.
#[derive(Debug, Parser)]
struct Options {
    /// A Python interpreter with faiss-cpu.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// The folder for the table and its numbers.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// Rows per scan.
    #[arg(long, default_value_t = 1_000_000)]
    rows: usize,
    /// What to measure.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "scan,large,database,train"
    )]
    parts: Vec<Part>,
    /// Use few repeats and training rows, for a quick check.
    #[arg(long)]
    quick: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Scans of the requested number of rows, isotropic and clustered.
    Scan,
    /// A scan of ten times as many rows, and with two threads.
    Large,
    /// Queries through a whole database.
    Database,
    /// Training and encoding.
    Train,
}

fn main() -> Result<()> {
    let options = Options::parse();
    fs::create_dir_all(&options.out)?;
    let bench = Bench {
        python: options.python,
        out: options.out,
        quick: options.quick,
        kernel: Kernel::detect()?,
    };
    let mut figures = Figures::default();
    let asked = |part: Part| options.parts.contains(&part);
    if asked(Part::Scan) {
        for (data, bytes) in [
            ("isotropic", 8),
            ("clustered", 8),
            ("isotropic", 16),
            ("clustered", 16),
        ] {
            eprintln!("{data}, {bytes} bytes, {} rows", thousands(options.rows));
            scan::case(&bench, &Case::new(data, bytes, options.rows)?, &mut figures)?;
            figures.write(&bench)?;
        }
    }
    if asked(Part::Large) {
        eprintln!("clustered, 8 bytes, {} rows", thousands(10 * options.rows));
        let case = Case::new("clustered", 8, 10 * options.rows)?;
        scan::case(&bench, &case, &mut figures)?;
        scan::threads(&bench, &case, &mut figures);
        figures.write(&bench)?;
    }
    if asked(Part::Database) {
        eprintln!("a database of {} rows", thousands(options.rows));
        database::case(&bench, options.rows, &mut figures)?;
        figures.write(&bench)?;
    }
    if asked(Part::Train) {
        for subspaces in [8, 16] {
            eprintln!("training and encoding {subspaces}x256");
            train::case(&bench, subspaces, &mut figures)?;
            figures.write(&bench)?;
        }
    }
    println!("{}", figures.table(bench.kernel)?);
    Ok(())
}
