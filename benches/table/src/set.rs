//! A set of pairs, encoded.

use std::path::Path;

use anyhow::{Context, Result};
use mopqdb::eval::VectorQuestions;
use mopqdb::{Bundle, Metric};
use mopqdb_benches::set;
use mopqdb_trainer::data::{Columns, Corpus, KeyColumn, Pairs, QueryColumn};
use mopqdb_trainer::program::Embeddings;

/// The number of validation queries by which epochs, rates and weights are chosen.
const VALIDATION: usize = 2_000;

pub(crate) struct Set {
    pub(crate) corpus: Corpus,
    /// The vectors of the training queries.
    pub(crate) queries: Vec<f32>,
    pub(crate) pairs: Vec<(u32, u32)>,
    pub(crate) validation: VectorQuestions,
    pub(crate) test: VectorQuestions,
}

impl Set {
    pub(crate) fn load(dir: &Path, cache: &Path) -> Result<Self> {
        let texts = set::Set::load(dir)?;
        let bundle = Bundle::open(mopqdb::encoder::default_bundle()?)?;
        let embeddings = Embeddings::new(cache, bundle.encoder_id().to_string());
        let hidden = bundle.input_dim();
        let encode = |side: &str, texts: &[&str]| {
            let mut seen = 0;
            let mut encoder = None;
            let by_side = |some: &[&str]| {
                // Loaded only if there is something to encode.
                if encoder.is_none() {
                    encoder = bundle.encoder()?;
                }
                let encoder = encoder
                    .as_ref()
                    .context("the default bundle has no encoder")?;
                if side == "query" {
                    return Ok(encoder.encode_queries(some)?);
                }
                let mut vectors = encoder.encode_keys(some)?;
                mopqdb::encoder::round_to_f16(&mut vectors); // as a database stores them
                Ok(vectors)
            };
            embeddings.of(side, texts, hidden, by_side, |done| {
                seen += done;
                if done < texts.len() && seen % 16_384 < done {
                    eprintln!("  encoded {seen} of {} texts ({side})", texts.len());
                }
            })
        };
        let keys: Vec<&str> = texts.keys.iter().map(String::as_str).collect();
        let vectors = encode("key", &keys)?;
        let names = (0..keys.len()).map(|row| row.to_string()).collect();
        let corpus = Corpus::new(
            names,
            Some(texts.keys.clone()),
            vectors,
            hidden,
            Metric::Cosine,
        )?;
        let columns = Columns {
            query: QueryColumn::Text,
            key: KeyColumn::Text,
            skip_missing: false,
        };
        let train = Pairs::read(&dir.join("train.tsv"), columns, &corpus)?;
        let vectors_of = |queries: &[String]| {
            let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
            encode("query", &queries)
        };
        let questions = |name: &str, most: usize| -> Result<VectorQuestions> {
            let mut found = texts.questions(dir, name)?;
            found.truncate(most);
            let mut questions = VectorQuestions::new(vectors_of(&found.queries)?, found.right);
            for (answers, own) in questions.answers.iter_mut().zip(found.own) {
                answers.excluded.extend(own);
            }
            Ok(questions)
        };
        Ok(Self {
            queries: vectors_of(&train.queries)?,
            validation: questions("valid.tsv", VALIDATION)?,
            test: questions("test.tsv", usize::MAX)?,
            pairs: train.pairs,
            corpus,
        })
    }
}
