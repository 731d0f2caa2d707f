//! Ranking keys in memory, without a database.

use super::coded::Coded;
use super::held::Held;
use super::{CodePlaces, EvalOptions, Evaluation, Steps, VectorQuestions};
use crate::error::{Error, Result};
use crate::quantizer::Quantizer;
use crate::query::searched::Searched;
use crate::scan::Scanner;

/// Keys in memory under a quantizer, for a trainer whose database does not have that quantizer yet. The measured recall
/// equals that of a database with these keys.
#[derive(Debug, Clone, Copy)]
pub struct Keys<'a> {
    vectors: &'a [f32],
    quantizer: &'a Quantizer,
    threads: usize,
}

impl<'a> Keys<'a> {
    /// Takes keys of shape (rows, `quantizer.input_dim()`), of length one if the metric is cosine.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the values do not form whole rows, or if there are more rows than a `u32` counts.
    pub fn new(vectors: &'a [f32], quantizer: &'a Quantizer) -> Result<Self> {
        let width = quantizer.input_dim();
        if !vectors.len().is_multiple_of(width) {
            return Err(Error::invalid(format!(
                "keys of {} values in all, for a quantizer that takes {width} per key",
                vectors.len()
            )));
        }
        if u32::try_from(vectors.len() / width).is_err() {
            return Err(Error::invalid("more rows than can be evaluated at once"));
        }
        Ok(Self {
            vectors,
            quantizer,
            threads: 0,
        })
    }

    /// Sets the number of threads; 0, the default, means one per core.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Ranks all keys for each question: by their codes and, if the quantizer has a head, also by its unquantized
    /// projections. Answers name keys by their row number.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the questions do not fit the keys.
    pub fn evaluate(
        &self,
        questions: &VectorQuestions,
        options: &EvalOptions,
    ) -> Result<Evaluation> {
        self.coded(questions, options, |coded| coded.evaluate())
    }

    /// Ranks all keys by their codes alone, with exact places down to `depth`. The trainer judges each epoch by it. It
    /// is faster than [`evaluate`](Self::evaluate), which makes a second pass over the keys for the projections.
    pub fn rank(&self, questions: &VectorQuestions, depth: usize) -> Result<CodePlaces> {
        let options = EvalOptions::default().cuts([depth]);
        self.coded(questions, &options, |coded| coded.rank())
    }

    fn coded<T>(
        &self,
        questions: &VectorQuestions,
        options: &EvalOptions,
        work: impl FnOnce(Coded<'_>) -> Result<T>,
    ) -> Result<T> {
        let (width, queries) = (self.quantizer.input_dim(), questions.len());
        if questions.vectors.len() != queries * width {
            return Err(Error::invalid(format!(
                "{queries} queries of {width} dimensions need {} values, there are {}",
                queries * width,
                questions.vectors.len()
            )));
        }
        let rows = self.vectors.len() / width;
        let named = questions
            .answers
            .iter()
            .flat_map(|answers| answers.right.iter().chain(&answers.excluded));
        if let Some(row) = named.copied().find(|row| *row as usize >= rows) {
            return Err(Error::invalid(format!(
                "an answer is row {row}, and there are {rows} rows"
            )));
        }
        let scanner = &Scanner::new(self.threads)?;
        let steps = Steps::of(options, (2 * rows + 2 * queries) as u64);
        let keys = Held::values(self.vectors, width);
        let searched = Searched {
            parts: vec![keys.quantized(self.quantizer, scanner, &steps)?],
            quantizer: Some(self.quantizer),
            scorer: None,
            words: None,
            statistics: None,
            serving: None,
            metric: self.quantizer.metric(),
            dim: width,
            scanner,
        };
        work(Coded {
            searched: &searched,
            quantizer: self.quantizer,
            questions,
            options,
            steps: &steps,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::{Answers, Place, Places};
    use crate::kernel::random::Random;
    use crate::metric::Metric;
    use crate::quantizer::{CodeShape, Codebook, Head};

    const DIM: usize = 4;
    const ROWS: usize = 1500;
    const QUERIES: u32 = 40;

    /// Returns small whole numbers: their sums are exact in any order, and ties are frequent.
    fn small(random: &mut Random, count: usize) -> Vec<f32> {
        (0..count).map(|_| random.below(5) as f32 - 2.0).collect()
    }

    /// Returns a quantizer with three codewords in each of two subspaces, behind an identity head.
    fn quantizer(codewords: Vec<f32>) -> Quantizer {
        let codebook = Codebook::new(CodeShape::new(2, 3).unwrap(), 2, codewords).unwrap();
        let identity = (0..DIM * DIM).map(|n| f32::from(u8::from(n % (DIM + 1) == 0)));
        let head = Head::new(DIM, DIM, identity.collect(), None).unwrap();
        Quantizer::builder(codebook, Metric::Ip)
            .head(Some(head))
            .build()
            .unwrap()
    }

    /// Returns questions of which every second one excludes a row, sometimes one that is also a right row.
    fn questions(random: &mut Random) -> VectorQuestions {
        let right = (0..QUERIES).map(|query| vec![query, query + 100, query + 1200]);
        let vectors = small(random, QUERIES as usize * DIM);
        let mut questions = VectorQuestions::new(vectors, right.collect());
        for (query, answers) in (0..).zip(&mut questions.answers) {
            answers.excluded = match query % 4 {
                0 => vec![query + 300],
                2 => vec![query, query + 300],
                _ => Vec::new(),
            };
        }
        questions
    }

    /// Counts over all rows; `score` takes a query and a row.
    fn brute_force(questions: &VectorQuestions, score: impl Fn(usize, u32) -> f32) -> Places {
        let places = |(query, answers): (usize, &Answers)| {
            let place = |right: &u32| {
                let own = score(query, *right);
                let others = || {
                    (0..ROWS as u32)
                        .filter(|row| row == right || !answers.excluded.contains(row))
                        .map(|row| score(query, row))
                };
                Place {
                    greater: others().filter(|score| *score > own).count() as u64,
                    equal: others().filter(|score| *score == own).count() as u64,
                }
            };
            answers.right.iter().map(place).collect()
        };
        Places(questions.answers.iter().enumerate().map(places).collect())
    }

    fn assert_alike(found: &Places, wanted: &Places, depth: usize) {
        for k in 1..=depth {
            assert_eq!(found.recalls(k), wanted.recalls(k), "at {k}");
        }
    }

    #[test]
    fn places_are_those_of_brute_force_with_ties_exclusions_and_several_chunks() {
        let mut random = Random::new(3);
        let (keys, questions) = (small(&mut random, ROWS * DIM), questions(&mut random));
        let quantizer = quantizer(small(&mut random, 12));
        let keys_in_memory = Keys::new(&keys, &quantizer).unwrap().threads(2);
        // This limit makes chunks of 1,024 rows.
        let options = EvalOptions {
            cuts: vec![50],
            memory_limit: 1,
            ..EvalOptions::default()
        };
        let evaluation = keys_in_memory.evaluate(&questions, &options).unwrap();
        let ranked = keys_in_memory.rank(&questions, 10).unwrap();

        let mut codes = vec![0; ROWS * 2];
        quantizer.quantize(&keys, &mut codes).unwrap();
        let query = |query: usize| &questions.vectors[query * DIM..][..DIM];
        let coded = brute_force(&questions, |n, row| {
            let table = quantizer.table(query(n)).unwrap();
            table.score(&codes[row as usize * 2..][..2])
        });
        let whole = brute_force(&questions, |n, row| {
            let key = &keys[row as usize * DIM..][..DIM];
            key.iter().zip(query(n)).map(|(a, b)| a * b).sum()
        });
        assert_alike(&evaluation.places, &coded, 50);
        assert_alike(&evaluation.head.unwrap(), &whole, 50);
        assert_alike(&ranked.places, &coded, 10);
        let report = evaluation.codes;
        assert_eq!(report.used, ranked.used);
        assert!(report.distinct <= 9 && report.relative_distortion > 0.0);
    }

    #[test]
    fn keys_with_the_same_code_share_one_place() {
        let mut random = Random::new(4);
        let keys = small(&mut random, ROWS * DIM);
        let quantizer = quantizer(vec![1.0; 12]);
        let questions = VectorQuestions::new(vec![1.0; DIM], vec![vec![7]]);
        let keys = Keys::new(&keys, &quantizer).unwrap();
        let ranked = keys.rank(&questions, 10).unwrap();
        assert_eq!(ranked.places.recall(10), 10.0 / ROWS as f64);
        assert_eq!(ranked.used, [1, 1]);
    }

    #[test]
    fn questions_that_do_not_fit_the_keys_are_refused() {
        let quantizer = quantizer(vec![1.0; 12]);
        assert!(Keys::new(&[0.0; 5], &quantizer).is_err());
        let keys = Keys::new(&[0.0; 8], &quantizer).unwrap();
        let refusal = |vectors: Vec<f32>, right: u32| {
            let questions = VectorQuestions::new(vectors, vec![vec![right]]);
            keys.rank(&questions, 1).unwrap_err().to_string()
        };
        let error = refusal(vec![0.0; 3], 1);
        assert!(error.contains("need 4 values, there are 3"), "{error}");
        let error = refusal(vec![0.0; 4], 2);
        assert!(error.contains("row 2, and there are 2 rows"), "{error}");
    }

    #[test]
    fn codes_are_reported_without_questions() {
        let quantizer = quantizer(vec![0.0; 12]);
        let keys = Keys::new(&[1.0; 8], &quantizer).unwrap();
        let options = EvalOptions::default();
        let none = VectorQuestions::default();
        let evaluation = keys.evaluate(&none, &options).unwrap();
        assert_eq!(evaluation.codes.distortion, 4.0);
        assert_eq!(evaluation.places.recall(10), 0.0);
    }
}
