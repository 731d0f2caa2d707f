//! What `distill` asks without labels: the queries of a log, and what an epoch is judged by.

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

/// Validation asks for the exact first so many.
const EXACT: usize = 10;
/// Most rows that are held out for made validation queries: one of so many.
const HELD_OUT: usize = 20;
/// From fewer logged queries none is set aside for validation.
const LEAST_LOG: usize = 200;

/// The distinct queries of a log, in the order in which they come first.
pub(super) enum Log {
    Texts(Vec<String>),
    /// (queries, hidden)
    Vectors(Vec<f32>),
}

impl Log {
    /// Reads one text per line; empty lines are passed over.
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

/// Refuses rows that teach nothing.
pub(super) fn check_rows(corpus: &Corpus) -> Result<()> {
    let first = corpus.vector(0);
    ensure!(
        corpus
            .vectors
            .chunks_exact(corpus.hidden)
            .any(|row| row != first),
        "all {} rows have the same vector: there is nothing to tell apart",
        corpus.rows()
    );
    Ok(())
}

/// The queries that `distill` learns from and is judged by, in addition to labels.
pub(super) struct Unlabelled {
    /// (query, row that is found first)
    pub(super) logged: Vec<(u32, u32)>,
    /// Rows that no training query is made of.
    pub(super) held_out: Vec<u32>,
    /// Queries of which the exact first rows are to be found; empty if there are validation pairs.
    pub(super) validation: VectorQuestions,
}

impl Unlabelled {
    /// `log` has vectors (queries, hidden) that follow `labelled` training queries.
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
        unlabelled
    }
}
