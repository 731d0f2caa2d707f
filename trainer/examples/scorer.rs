//! Fits the query map of the scorer on a database of texts, and prints what it gains over exact search on test pairs.
//!
//! `cargo run --release -p mopqdb-trainer --example scorer -- DB --pairs TRAIN.tsv --valid VALID.tsv --test TEST.tsv`

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use clap::Parser;
use mopqdb::eval::{Places, VectorQuestions};
use mopqdb::{Options, Reader};
use mopqdb_trainer::data::{Columns, Corpus, KeyColumn, Pairs, QueryColumn, Vectors};
use mopqdb_trainer::program::Embeddings;
use mopqdb_trainer::scorer::{Gain, MapConfig, MapLessons, fit_map, mapped};
use mopqdb_trainer::train::cpu_seconds;

#[derive(Parser)]
struct Flags {
    /// A database of texts.
    db: PathBuf,
    /// Training pairs: query TAB key text.
    #[arg(long)]
    pairs: PathBuf,
    /// Pairs that choose lambda and decide whether the map is adopted; the first 2,000 queries of them.
    #[arg(long)]
    valid: PathBuf,
    /// Pairs that measure it.
    #[arg(long)]
    test: PathBuf,
    /// The seed for the order of the pairs.
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    let reader = Reader::open(&flags.db, Options::default())?;
    let (corpus, _) = Corpus::read(&reader.snapshot(), true)?;
    let model = reader.model();
    let cache = Embeddings::new(
        &flags.db.join("runs").join("embeddings"),
        model.encoder_id().to_string(),
    );
    let columns = Columns {
        query: QueryColumn::Text,
        key: KeyColumn::Text,
        skip_missing: false,
    };
    let read = |path: &Path, most: usize| -> Result<(Pairs, Vec<f32>)> {
        let pairs = Pairs::read(path, columns, &corpus)?.first(most);
        let texts: Vec<&str> = pairs.queries.iter().map(String::as_str).collect();
        let encode = |some: &[&str]| Ok(model.encode_queries(some)?);
        let vectors = cache.of("query", &texts, corpus.hidden, encode, |_| ())?;
        Ok((pairs, vectors))
    };
    let (train, queries) = read(&flags.pairs, usize::MAX)?;
    let (valid, valid_queries) = read(&flags.valid, 2_000)?;
    let (test, test_queries) = read(&flags.test, usize::MAX)?;

    let began = cpu_seconds();
    let config = MapConfig {
        seed: flags.seed,
        ..MapConfig::default()
    };
    let learned = fit_map(
        &MapLessons {
            keys: corpus.all(),
            twins: &corpus.twins(),
            queries: &queries,
            pairs: &train.pairs,
            validation: &VectorQuestions::new(valid_queries, valid.answers()),
        },
        &config,
        &AtomicBool::new(false),
    )?;
    println!(
        "{} pairs, {:.1} CPU-seconds",
        train.pairs.len(),
        cpu_seconds() - began
    );
    for tried in &learned.tried {
        println!(
            "lambda {}: validation R@10 {:.4}",
            tried.lambda, tried.recall
        );
    }
    let gain = learned.gain(flags.seed);
    println!(
        "validation: {}, {}",
        words(gain),
        if gain.is_adopted() {
            "adopted"
        } else {
            "not adopted"
        }
    );

    let questions = VectorQuestions::new(Vec::new(), test.answers());
    let places = |queries: &[f32]| -> Places {
        let queries = Vectors {
            values: queries,
            hidden: corpus.hidden,
        };
        corpus.all().places(queries, &questions.answers)
    };
    let exact = places(&test_queries);
    let with_map = places(&mapped(&test_queries, &learned.map, corpus.hidden));
    for n in [1, 10, 100] {
        println!(
            "test R@{n}: exact {:.4}, with the map {:.4}, {}",
            exact.recall(n),
            with_map.recall(n),
            words(Gain::of(
                &with_map.recalls(n),
                &exact.recalls(n),
                flags.seed
            ))
        );
    }
    Ok(())
}

fn words(gain: Gain) -> String {
    format!(
        "gain {:+.4} [{:+.4}, {:+.4}]",
        gain.mean, gain.low, gain.high
    )
}
