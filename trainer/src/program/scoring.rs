//! The scorer of a run: a query map and a weight of words, learned from the pairs that the codes were learned from.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use mopqdb::eval::{EvalOptions, Evaluator, Question, Questions, VectorQuestions};
use mopqdb::{Bundle, Model, Options, Reader, Scorer, TermStatistics, Value};
use serde_json::{Value as Json, json};

use crate::data::{Corpus, Pairs};
use crate::scorer::{Asked, Candidate, MapConfig, MapLessons, fit_map, fit_weight};

/// Candidates of each source, from which the weight of words is chosen: those of a query for ten hits.
const CANDIDATES: usize = 400;

/// What a run has learned of scoring.
#[derive(Debug, Default)]
pub(super) struct Learned {
    /// The query map, if it gains enough on validation.
    pub(super) map: Option<Vec<f32>>,
    /// What was measured, for the report.
    pub(super) report: Json,
}

/// Learns the query map, and adopts it only if it gains on validation queries.
pub(super) fn learn_map(
    corpus: &Corpus,
    queries: &[f32],
    pairs: &Pairs,
    validation: &VectorQuestions,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Learned> {
    // Without right answers to other queries nothing tells whether it helps.
    if pairs.pairs.len() < 2 || validation.is_empty() {
        return Ok(Learned::default());
    }
    let config = MapConfig {
        seed,
        ..MapConfig::default()
    };
    let lessons = MapLessons {
        keys: corpus.all(),
        twins: &corpus.twins(),
        queries,
        pairs: &pairs.pairs,
        validation,
    };
    let learned = fit_map(&lessons, &config, stop)?;
    let gain = learned.gain(seed);
    let report = json!({
        "adopted": gain.is_adopted(),
        "gain": gain.mean, "gain_low": gain.low, "gain_high": gain.high,
        "lambda": learned.lambda, "tried": learned.tried,
        "exact_recall": learned.exact.recall(10),
    });
    Ok(Learned {
        map: gain.is_adopted().then_some(learned.map),
        report,
    })
}

/// The weight of words, and the statistics that it holds for.
pub(super) struct Words {
    pub(super) weight: f32,
    pub(super) statistics: TermStatistics,
    pub(super) report: Json,
}

/// Chooses the weight of words by the validation queries, over the candidates that queries would have with this bundle's
/// codes and map. `None` where texts are not searched by their words, or nothing tells right from wrong.
pub(super) fn learn_weight(
    db: &Path,
    bundle: &Bundle,
    valid: &Pairs,
    threads: usize,
) -> Result<Option<Words>> {
    let reader = Reader::open(db, Options::default().threads(threads))?;
    let snapshot = reader.snapshot();
    let Some(statistics) = snapshot.term_statistics()? else {
        return Ok(None);
    };
    let mut questions = Questions::default();
    for (query, right) in valid.queries.iter().zip(valid.answers()) {
        questions.all.push(Question {
            query: Value::Text(query.clone()),
            right,
            excluded: Vec::new(),
        });
    }
    if questions.all.is_empty() {
        return Ok(None);
    }
    let model = Model::open(bundle.clone(), threads)?;
    let evaluator = Evaluator::new(&snapshot, &model, &questions, EvalOptions::default())?;
    if !evaluator.has_words() {
        return Ok(None);
    }
    let features = evaluator.features(CANDIDATES)?;
    let asked: Vec<Asked> = (features.into_iter().zip(&questions.all))
        .map(|(features, question)| Asked {
            candidates: (features.into_iter())
                .map(|feature| Candidate {
                    similarity: feature.similarity,
                    words: feature.words,
                    right: feature.right,
                })
                .collect(),
            right: question.right.len(),
        })
        .collect();
    let chosen = fit_weight(&asked);
    let report = json!({
        "weight": chosen.weight, "recall": chosen.recall, "reciprocal_rank": chosen.reciprocal_rank,
    });
    Ok(Some(Words {
        weight: chosen.weight,
        statistics,
        report,
    }))
}

/// The scorer, if there is anything to score by.
pub(super) fn scorer(
    hidden: usize,
    map: Option<Vec<f32>>,
    weight: Option<f32>,
) -> Result<Option<Scorer>> {
    if map.is_none() && weight.is_none() {
        return Ok(None);
    }
    Ok(Some(Scorer::new(hidden, map, weight)?))
}
