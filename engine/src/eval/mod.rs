//! Evaluation: the recall of a model over all live rows of a snapshot.
//!
//! [`Questions::find`] looks up the right rows of each query. An [`Evaluator`] ranks the rows for every query, under
//! any model of the database and in any search mode, with the same stages that serve queries; so evaluation measures
//! what queries return. The codes of an inactive model are held in memory, as are the vectors of another encoder, up to
//! [`EvalOptions::memory_limit`]. A trainer measures its progress with [`Keys`], which are ranked in the same way
//! without a database.
//!
//! Recall@k is the mean over queries of |right rows among the first k| / |right rows|. Rows with equal codes have equal
//! scores, and are common: a right row among ties counts with the probability that it is within the first k if ties are
//! broken at random (see [`Place`]), never by its position. [`bootstrap`] gives intervals, paired over queries.

mod agreement;
pub mod bootstrap;
mod coded;
mod codes;
mod held;
mod keys;
mod numbers;
mod place;
mod questions;
mod rank;
mod ranks;
mod tune;

pub use codes::CodeReport;
pub use keys::Keys;
pub use place::{Place, Places};
pub use questions::{Answers, Ask, FindOptions, Question, Questions, VectorQuestions};
pub use ranks::Ranks;
pub use tune::{Tried, Tuned, tune};

use crate::error::{Error, Result};
use crate::metric::Metric;
use crate::model::Model;
use crate::query::filter::Masks;
use crate::query::plan::Plan;
use crate::query::searched::Searched;
use crate::query::vectors::AskedRef;
use crate::row::{Probes, Search};
use crate::scan::Found;
use crate::snapshot::Snapshot;
use crate::view::searchable::Searchable;
use crate::watch::Watch;
use crate::words::Terms;
use coded::Coded;
use held::Held;
use numbers::Numbers;
use rank::{ByCodes, ByVectors, Pool, Ranking};
use std::cell::Cell;

/// Options of an evaluation.
#[derive(Clone)]
#[non_exhaustive]
pub struct EvalOptions {
    /// The values of k for which recall is measured. Places beyond the largest are not distinguished.
    pub cuts: Vec<usize>,
    /// How many candidates [`Search::Auto`] takes by codes. By default, as many as a query for k hits takes.
    pub candidates: Option<usize>,
    /// Cells that queries of [`Search::Auto`] look at, under a model with cells; `None` means the default of queries.
    /// [`Search::Codes`] ranks the rows of all cells.
    pub probes: Option<Probes>,
    /// The number of questions, from the first on, whose ten best hits are kept.
    pub samples: usize,
    /// Memory limit in bytes for rows in progress and for the vectors of another encoder.
    pub memory_limit: usize,
    /// Receives progress and can stop the evaluation. A step is one row prepared or one query ranked.
    pub watch: Watch,
}

impl Default for EvalOptions {
    fn default() -> Self {
        Self {
            cuts: vec![10, 50, 100],
            candidates: None,
            probes: None,
            samples: 0,
            memory_limit: 512 << 20,
            watch: Watch::new(),
        }
    }
}

impl EvalOptions {
    setters!(
        samples: usize,
        memory_limit: usize,
        watch: Watch,
        ; into
        cuts: Vec<usize>,
        candidates: Option<usize>,
        probes: Option<Probes>,
    );

    /// Returns the deepest place that is distinguished.
    fn depth(&self) -> usize {
        self.cuts.iter().copied().max().unwrap_or(1)
    }

    /// Returns the number of rows in a chunk, if each row takes `row_bytes`.
    fn chunk(&self, row_bytes: usize) -> usize {
        (self.memory_limit / row_bytes).clamp(1 << 10, 1 << 20) & !63
    }
}

impl std::fmt::Debug for EvalOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EvalOptions")
            .field("cuts", &self.cuts)
            .finish_non_exhaustive()
    }
}

/// Hits kept per sample.
const SAMPLE_HITS: usize = 10;

/// Rows found for some questions, best first: score, and number of the row in the snapshot's order.
type Samples = Vec<Vec<(f32, u32)>>;

/// The result of ranking by the codes of a model.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// The places of the right rows among the codes.
    pub places: Places,
    /// Their places among the unquantized embeddings of the model's own head, if it has one.
    pub head: Option<Places>,
    /// Distortion and codeword use of the codes.
    pub codes: CodeReport,
}

/// The result of [`Keys::rank`]: the places of the right keys among the codes, and the codewords in use.
#[derive(Debug, Clone)]
pub struct CodePlaces {
    /// The places of the right keys.
    pub places: Places,
    /// The number of codewords that some key uses, per subspace.
    pub used: Vec<usize>,
}

/// The features by which a candidate of a question is scored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Feature {
    /// The metric's value for the mapped query and the stored vector.
    pub similarity: f32,
    /// The BM25 score of its words; 0 if it shares none with the query.
    pub words: f32,
    /// Whether the candidate is a right row of the question.
    pub right: bool,
    /// Its place among the candidates of its source, from 0; the better one, if both sources found it. Candidates that
    /// tie have places in any order.
    pub place: u32,
}

/// The rows of a snapshot as a model searches them, and the questions as the model encodes them. The model need not be
/// active. If its encoder differs, the texts are encoded again.
pub struct Evaluator<'a> {
    searched: Searched<'a, Held<'a>>,
    questions: VectorQuestions,
    /// The terms of each question; empty if rows have no words.
    terms: Vec<Terms>,
    options: EvalOptions,
}

impl<'a> Evaluator<'a> {
    /// Prepares rows and questions. This takes long for a model that is not active.
    pub fn new(
        snapshot: &'a Snapshot,
        model: &'a Model,
        questions: &Questions,
        options: EvalOptions,
    ) -> Result<Self> {
        let steps = Steps::of(&options, held::work(snapshot, model));
        Ok(Self {
            searched: held::under(snapshot, model, options.memory_limit, &steps)?,
            questions: questions.under(model)?,
            terms: questions.terms(snapshot.model().words().map(|words| &**words)),
            options,
        })
    }

    /// Returns `true` if the model has codes to search by.
    pub fn has_codes(&self) -> bool {
        self.searched.quantizer.is_some()
    }

    /// Returns `true` if every row has words to search by.
    pub fn has_words(&self) -> bool {
        self.searched.has_words()
    }

    /// Returns the largest number of rows that a question excludes.
    fn most_excluded(&self) -> usize {
        let excluded = self
            .questions
            .answers
            .iter()
            .map(|answers| answers.excluded.len());
        excluded.max().unwrap_or(0)
    }

    /// Returns the questions in groups, as a plan needs them, with their answers.
    fn asked(&self, plan: Plan) -> impl Iterator<Item = (AskedRef<'_>, &[Answers])> {
        let (dim, all) = (self.searched.dim, self.questions.len());
        let asked = move |first: usize| {
            let some = first..(first + ranks::TOGETHER).min(all);
            let asked = AskedRef {
                vectors: &self.questions.vectors[some.start * dim..some.end * dim],
                terms: match self.terms.is_empty() || !plan.needs_words() {
                    true => &[],
                    false => &self.terms[some.clone()],
                },
            };
            (asked, &self.questions.answers[some])
        };
        (0..all).step_by(ranks::TOGETHER).map(asked)
    }

    /// Returns `true` if [`Search::Auto`] differs from [`Search::Exact`], that is, if it takes candidates and scores
    /// them.
    pub fn rescores(&self) -> bool {
        let words = self.searched.has_words() && self.searched.weight_of_words() > 0.0;
        self.has_codes() || self.searched.has_map() || words
    }

    /// Returns the weight of words in the score: the model's own, or the default of its metric.
    pub fn weight_of_words(&self) -> f32 {
        self.searched.weight_of_words()
    }

    /// Ranks the rows for each question in one search mode.
    pub fn search(&self, search: Search) -> Result<Ranks> {
        let passes = ranks::passes(self, search)?;
        let steps = self.steps(passes.len() as u64);
        let numbers = Numbers::of(&self.searched.parts, 0);
        match search {
            Search::Codes if !self.has_codes() => {
                Err(Error::invalid("the model has no codes to search by"))
            }
            Search::Codes => {
                let pool = ByCodes {
                    searched: &self.searched,
                    numbers: &numbers,
                    queries: &self.questions.vectors,
                };
                self.in_full(search, &pool, &steps)
            }
            Search::Words => ranks::by_words(self, &numbers, &steps),
            Search::Auto if self.rescores() => ranks::rescored(self, &passes, &numbers, &steps),
            Search::Auto | Search::Exact => {
                let pool = ByVectors {
                    searched: &self.searched,
                    numbers: &numbers,
                    queries: &self.questions.vectors,
                };
                self.in_full(search, &pool, &steps)
            }
        }
    }

    /// Returns, for each question, up to `candidates` candidates of each source with their features. Training learns
    /// the weight of words from them.
    pub fn features(&self, candidates: usize) -> Result<Vec<Vec<Feature>>> {
        let steps = self.steps(1);
        let searched = &self.searched;
        let plan = Plan::of_features(searched, candidates);
        let numbers = Numbers::of(&searched.parts, 0);
        let mut all = Vec::with_capacity(self.questions.len());
        for (asked, answers) in self.asked(plan) {
            let found = plan.candidates(searched, asked, &Masks::none())?;
            let ranked = plan.rank(searched, asked, &found)?;
            for ((answers, found), (ranked, _)) in answers.iter().zip(&found).zip(ranked) {
                let places = found.places();
                let features = ranked.iter().filter_map(|row| {
                    let found = Found {
                        score: row.score,
                        source: row.place.part as u32,
                        row: row.place.row.0,
                    };
                    let number = numbers.number(&found);
                    let is_wanted = !answers.excluded.contains(&number);
                    is_wanted.then(|| Feature {
                        similarity: row.score,
                        words: row.words.unwrap_or(0.0),
                        right: answers.right.contains(&number),
                        place: places[&(found.source, found.row)],
                    })
                });
                all.push(features.collect());
            }
            steps.add(answers.len() as u64)?;
        }
        Ok(all)
    }

    /// Returns, for each question, the share of exact search's k best rows that [`Search::Auto`] finds among its k
    /// best. The right rows of the questions do not matter. Rows that a question excludes are excluded from both.
    pub fn agreement(&self, k: usize) -> Result<Vec<f64>> {
        agreement::shares(self, k, &self.steps(2))
    }

    /// Ranks every row, so that ties are counted.
    fn in_full(&self, search: Search, pool: &impl Pool, steps: &Steps) -> Result<Ranks> {
        let answers = &self.questions.answers;
        let (depth, samples) = (self.options.depth(), self.options.samples);
        let (places, samples) = Ranking::of(pool, answers, depth, samples, steps)?;
        Ok(Ranks::of_one(search, places, samples))
    }

    /// Returns the report on the codes, and the places of right rows among the unquantized embeddings of the model's
    /// head, if it has one. Returns `None` if the model has no codes.
    pub fn codes(&self) -> Result<Option<(CodeReport, Option<Places>)>> {
        let Some(quantizer) = self.searched.quantizer else {
            return Ok(None);
        };
        let rows: usize = self.searched.parts.iter().map(|part| part.len()).sum();
        let coded = Coded {
            searched: &self.searched,
            quantizer,
            questions: &self.questions,
            options: &self.options,
            steps: &Steps::of(&self.options, rows as u64),
        };
        coded.report().map(Some)
    }

    /// Returns the steps of ranking all questions this many times.
    fn steps(&self, passes: u64) -> Steps {
        Steps::of(&self.options, self.questions.len() as u64 * passes)
    }
}

impl std::fmt::Debug for Evaluator<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Evaluator")
            .field("questions", &self.questions.len())
            .finish_non_exhaustive()
    }
}

/// Reports the progress of an evaluation: each row prepared and each query ranked is a step.
struct Steps {
    watch: Watch,
    done: Cell<u64>,
    total: u64,
}

impl Steps {
    fn of(options: &EvalOptions, total: u64) -> Self {
        Self {
            watch: options.watch.clone(),
            done: Cell::new(0),
            total,
        }
    }

    /// Counts steps. Returns an error if the user wants to stop.
    fn add(&self, steps: u64) -> Result<()> {
        self.done.set((self.done.get() + steps).min(self.total));
        self.watch.report(self.done.get(), self.total);
        match self.watch.is_stopped() {
            true => Err(stopped()),
            false => Ok(()),
        }
    }
}

/// Returns the metric to rank by: keys and queries of a cosine database have length one, so the inner product suffices.
fn inner(metric: Metric) -> Metric {
    match metric {
        Metric::L2 => Metric::L2,
        Metric::Ip | Metric::Cosine => Metric::Ip,
    }
}

/// Returns the error of a stopped evaluation.
fn stopped() -> Error {
    Error::Cancelled("not all rows were ranked; nothing was changed")
}

#[cfg(test)]
mod tests;
