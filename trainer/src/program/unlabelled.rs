//! Queries without labels for `distill`: those of a log, and the validation queries.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use mopqdb::eval::VectorQuestions;
use mopqdb_formats::lines::Lines;

use crate::config::TrainConfig;
use crate::data::{Corpus, Vectors};
use crate::methods::distill::Recipe;
use crate::random::Random;

/// Validation counts how many of this many nearest rows are found.
const EXACT: usize = 10;
/// At most one row of this many is held out for made validation queries.
const HELD_OUT: usize = 20;
/// With fewer logged queries none are set aside for validation.
const LEAST_LOG: usize = 200;

/// The distinct queries of a log, in the order of their first occurrence.
pub(super) enum Log {
    Texts(Vec<String>),
    /// (queries, hidden)
    Vectors(Vec<f32>),
}

impl Log {
    /// Reads one text per line; empty lines are skipped.
    pub(super) fn texts(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| format!("{name}: reading the queries"))?;
        let mut lines = Lines::new(name.clone(), Box::new(BufReader::new(file)));
        let (mut texts, mut seen) = (Vec::new(), std::collections::HashSet::new());
        while let Some(line) = lines.read()? {
            let line = line?.trim();
            if !line.is_empty() && seen.insert(line.to_owned()) {
                texts.push(line.to_owned());
            }
        }
        ensure!(
            !texts.is_empty(),
            "{name}: no queries in it; one per line is expected"
        );
        Ok(Self::Texts(texts))
    }
}

/// Returns an error if all rows have the same vector.
pub(super) fn check_rows(corpus: &Corpus) -> Result<()> {
    let first = corpus.vector(0);
    ensure!(
        corpus
            .vectors
            .chunks_exact(corpus.hidden)
            .any(|row| row != first),
        "all {} rows have the same vector: there is nothing to learn from them",
        corpus.rows()
    );
    Ok(())
}

/// The unlabelled training and validation queries of `distill`.
pub(super) struct Unlabelled {
    /// (query, its nearest row)
    pub(super) logged: Vec<(u32, u32)>,
    /// Queries of the log that are set aside for validation, in ascending order.
    pub(super) spare: Vec<u32>,
    /// Rows of which no training query is made.
    pub(super) held_out: Vec<u32>,
    /// Queries with their exact nearest rows; empty if there are validation pairs.
    pub(super) validation: VectorQuestions,
}

impl Unlabelled {
    /// Divides a log, whose vectors (queries, hidden) follow those of `labelled` training queries, and makes validation queries
    /// if none are given.
    pub(super) fn new(
        config: &TrainConfig,
        corpus: &Corpus,
        log: &[f32],
        labelled: usize,
        has_validation_pairs: bool,
    ) -> Self {
        let keys = corpus.all();
        let queries = Vectors {
            values: log,
            hidden: corpus.hidden,
        };
        let mut unlabelled = Self {
            logged: Vec::new(),
            spare: Vec::new(),
            held_out: Vec::new(),
            validation: VectorQuestions::default(),
        };
        let mut spare = Vec::new();
        if !has_validation_pairs && queries.rows() >= LEAST_LOG {
            let most = config.validation_queries.min(queries.rows() / 10);
            spare = Random::new(config.seed, "validation", 0).order(queries.rows());
            spare.truncate(most);
            spare.sort_unstable();
        }
        let asked = keys.nearest(queries, 1);
        unlabelled.logged = (0u32..)
            .zip(asked)
            .filter(|(query, _)| spare.binary_search(query).is_err())
            .map(|(query, rows)| (labelled as u32 + query, rows[0]))
            .collect();
        let mut vectors = Vec::new();
        if !spare.is_empty() {
            for &query in &spare {
                vectors.extend_from_slice(&log[query as usize * corpus.hidden..][..corpus.hidden]);
            }
        } else if !has_validation_pairs {
            let mut random = Random::new(config.seed, "held out", 0);
            unlabelled.held_out = random.order(corpus.rows());
            let most = config.validation_queries.min(corpus.rows() / HELD_OUT);
            unlabelled.held_out.truncate(most);
            unlabelled.held_out.sort_unstable();
            let distill = config.distill();
            let cosines = (distill.least_cosine, distill.largest_cosine);
            for &row in &unlabelled.held_out {
                let recipe = Recipe::draw(row, corpus.rows(), cosines, &mut random);
                recipe.make(&corpus.vectors, corpus.hidden, 1.0, &mut vectors);
            }
        }
        let asked = Vectors {
            values: &vectors,
            hidden: corpus.hidden,
        };
        let right = keys.nearest(asked, EXACT);
        unlabelled.validation = VectorQuestions::new(vectors, right);
        unlabelled.spare = spare;
        unlabelled
    }
}
