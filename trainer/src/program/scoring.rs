//! How candidates are scored, and how many of them a query takes. Both are learned from the pairs of a run, and measured
//! on its validation queries by the search of the database itself.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use mopqdb::eval::{Ask, EvalOptions, Evaluator, FindOptions, Places, Questions, VectorQuestions};
use mopqdb::{
    Bundle, EncoderId, Model, Options, Reader, Search, Serving, Snapshot, TermStatistics, Value,
};
use serde_json::{Value as Json, json};

use super::report;
use crate::data::{Corpus, Pairs};
use crate::scorer::{
    Asked, Candidate, MapConfig, MapLessons, fewest_candidates, fit_map, fit_weight,
};

/// Candidates of each source from which the weight of words is chosen: those of a query for ten hits, by default.
const FOR_WEIGHT: usize = 400;
/// The most candidates of each source that a query for ten hits may need.
const MOST: usize = 1_000;
/// Hits of the queries with which candidates are measured.
const K: u32 = 10;
/// The fewest validation queries that show how many candidates are enough.
const LEAST_QUERIES: usize = 200;

/// A query map, if one was learned.
#[derive(Debug, Default)]
pub(super) struct Learned {
    /// The map, if it gains enough on validation queries.
    pub(super) map: Option<Vec<f32>>,
    /// What was measured.
    pub(super) report: Json,
    /// Where exact search without the map finds the right rows of the validation queries.
    pub(super) exact: Option<Places>,
}

/// Learns a query map. It is adopted only if it gains on validation queries.
pub(super) fn learn_map(
    corpus: &Corpus,
    queries: &[f32],
    pairs: &Pairs,
    validation: &VectorQuestions,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Learned> {
    // Only right answers to queries that it did not learn from show whether it helps.
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
        exact: Some(learned.exact),
    })
}

/// Validation queries as the database searches for them.
pub(super) struct Trial {
    snapshot: Arc<Snapshot>,
    questions: Questions,
    threads: usize,
}

/// How candidates are scored besides the query map, and what whole queries then find.
#[derive(Debug, Default)]
pub(super) struct Scored {
    /// The weight of words, if it was learned.
    pub(super) weight: Option<f32>,
    /// The term statistics for which the weight was chosen.
    pub(super) statistics: Option<TermStatistics>,
    /// How many candidates a query takes, if that was measured.
    pub(super) serving: Option<Serving>,
    /// Recall at 10 of each validation query, searched as queries will be; empty if nothing was measured.
    pub(super) recalls: Vec<f64>,
    /// The weight of words and what it finds.
    pub(super) words: Json,
    /// The numbers of candidates that were tried.
    pub(super) depths: Json,
}

impl Trial {
    /// Opens the database again, as its rows are now. `texts` are the queries, in a database of texts whose queries have
    /// texts.
    pub(super) fn new(
        db: &Path,
        (corpus, encoder): (&Corpus, EncoderId),
        texts: Option<&[String]>,
        validation: &VectorQuestions,
        threads: usize,
    ) -> Result<Self> {
        let snapshot = Reader::open(db, Options::default().threads(threads))?.snapshot();
        let vector = |n: usize| validation.vectors[n * corpus.hidden..][..corpus.hidden].to_vec();
        // Rows are found by their keys: the database may have other rows by now, and numbers them in another order.
        let key = |row: &u32| corpus.keys[*row as usize].clone();
        let asks: Vec<Ask> = (validation.answers.iter().enumerate())
            .map(|(n, answers)| Ask {
                query: match texts {
                    Some(texts) => Value::Text(texts[n].clone()),
                    None => Value::Vector(vector(n)),
                },
                right: answers.right.iter().map(key).collect(),
            })
            .collect();
        let find = FindOptions::default().by_key(true);
        let mut questions = Questions::find(&snapshot, &asks, &find)?;
        // Queries whose rows were deleted meanwhile are left out, and then the vectors would be of other queries.
        if questions.unanswerable == 0 {
            questions.encoded = Some((encoder, validation.vectors.clone()));
        }
        Ok(Self {
            snapshot,
            questions,
            threads,
        })
    }

    /// Chooses the weight of words, if `labelled`, and how many candidates a query takes, if the queries are real ones
    /// and enough of them.
    pub(super) fn choose(&self, draft: &Bundle, labelled: bool, are_real: bool) -> Result<Scored> {
        if self.questions.all.is_empty() {
            return Ok(Scored::default());
        }
        let model = Model::open(draft.clone(), self.threads)?;
        let options = EvalOptions::default();
        let evaluator = Evaluator::new(&self.snapshot, &model, &self.questions, options)?;
        let asked = self.candidates(&evaluator)?;
        let mut scored = Scored::default();
        if labelled && evaluator.has_words() {
            let within: Vec<Asked> = asked.iter().map(|one| one.within(FOR_WEIGHT)).collect();
            let chosen = fit_weight(&within);
            scored.weight = Some(chosen.weight);
            scored.statistics = self.snapshot.term_statistics()?;
            scored.words = json!({
                "weight": chosen.weight, "recall": chosen.recall, "reciprocal_rank": chosen.reciprocal_rank,
            });
        }
        let weight = scored.weight.unwrap_or(evaluator.weight_of_words());
        let takes_candidates = evaluator.rescores() || weight > 0.0;
        let mut candidates = FOR_WEIGHT;
        if takes_candidates && are_real && asked.len() >= LEAST_QUERIES {
            let (depths, chosen) = fewest_candidates(&asked, weight, MOST);
            candidates = depths[chosen].candidates;
            scored.serving = Some(Serving::new(K, candidates as u32)?);
            scored.depths = json!(depths);
        }
        scored.recalls = match takes_candidates {
            true => asked
                .iter()
                .map(|one| one.within(candidates).recall(weight))
                .collect(),
            false => evaluator.search(Search::Auto)?.recalls(K as usize),
        };
        Ok(scored)
    }

    fn candidates(&self, evaluator: &Evaluator<'_>) -> Result<Vec<Asked>> {
        let features = evaluator.features(MOST)?.into_iter();
        let asked = features.zip(&self.questions.all);
        let asked = asked.map(|(features, question)| Asked {
            candidates: (features.into_iter())
                .map(|feature| Candidate {
                    similarity: feature.similarity,
                    words: feature.words,
                    right: feature.right,
                    place: feature.place,
                })
                .collect(),
            right: question.right.len(),
        });
        Ok(asked.collect())
    }

    /// Returns what the active model finds by its codes, if it has some, and by whole queries: recall at 10 of each of the
    /// first queries.
    pub(super) fn before(&self) -> Result<(Option<Vec<f64>>, Vec<f64>)> {
        let questions = self.first();
        if questions.all.is_empty() {
            return Ok((None, Vec::new()));
        }
        let evaluator = self.under_the_active_model(&questions)?;
        let codes = match evaluator.has_codes() {
            true => Some(evaluator.search(Search::Codes)?.recalls(K as usize)),
            false => None,
        };
        Ok((codes, evaluator.search(Search::Auto)?.recalls(K as usize)))
    }

    /// Returns what exact search finds of the first queries: recall at 10 of each.
    pub(super) fn exact(&self) -> Result<Vec<f64>> {
        let questions = self.first();
        if questions.all.is_empty() {
            return Ok(Vec::new());
        }
        let evaluator = self.under_the_active_model(&questions)?;
        Ok(evaluator.search(Search::Exact)?.recalls(K as usize))
    }

    fn under_the_active_model(&self, questions: &Questions) -> Result<Evaluator<'_>> {
        let options = EvalOptions::default().cuts([K as usize]);
        let (snapshot, model) = (&self.snapshot, self.snapshot.model());
        Ok(Evaluator::new(snapshot, model, questions, options)?)
    }

    fn first(&self) -> Questions {
        let queries = self.questions.all.len().min(report::QUERIES);
        let mut questions = Questions::default();
        questions.all = self.questions.all[..queries].to_vec();
        let encoded = self.questions.encoded.as_ref();
        questions.encoded = encoded.map(|(encoder, vectors)| {
            let width = vectors.len() / self.questions.all.len().max(1);
            (*encoder, vectors[..queries * width].to_vec())
        });
        questions
    }
}
