//! Queries with their right answers.

use crate::error::{Error, Result};
use crate::ids::EncoderId;
use crate::model::Model;
use crate::row::Value;
use crate::snapshot::Snapshot;
use crate::words::{Terms, Words};
use std::collections::{BTreeSet, HashMap, HashSet};

/// A query and its right answers, as the user gives them.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// The query: a text, or a vector as wide as the stored vectors.
    pub query: Value,
    /// Texts of the right rows, or their keys ([`FindOptions::by_key`]).
    pub right: BTreeSet<String>,
}

/// Options for finding right rows.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct FindOptions {
    /// Whether right answers are given by key instead of by text.
    pub by_key: bool,
    /// Whether a row that is the query itself (the same text or vector) is excluded from the ranking.
    pub exclude_self: bool,
    /// The group of each key. If given, every row in the group of a right row, or of the query's own row, is right too.
    pub groups: Option<HashMap<String, String>>,
}

impl FindOptions {
    setters!(
        by_key: bool,
        exclude_self: bool,
        ; into
        groups: Option<HashMap<String, String>>,
    );
}

/// A query and the rows that answer it, by their number in the snapshot's order.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The query: a text or a vector.
    pub query: Value,
    /// The rows that answer it; at least one.
    pub right: Vec<u32>,
    /// The rows excluded from the ranking: the query itself.
    pub excluded: Vec<u32>,
}

/// The rows that answer one query, by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answers {
    /// The rows that answer the query; at least one.
    pub right: Vec<u32>,
    /// The rows excluded from the ranking: the query itself. A right row is never excluded.
    pub excluded: Vec<u32>,
}

/// Queries as vectors with their answers, for rows that are in no database: see [`Keys`](super::Keys).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VectorQuestions {
    /// The queries (queries, dim), as wide as the rows; of length one if the metric is cosine.
    pub vectors: Vec<f32>,
    /// The answers to each query.
    pub answers: Vec<Answers>,
}

impl VectorQuestions {
    /// Creates questions from queries (n, dim) and the right rows of each. No row is excluded from the ranking.
    pub fn new(vectors: Vec<f32>, right: Vec<Vec<u32>>) -> Self {
        let answers = |right| Answers {
            right,
            excluded: Vec::new(),
        };
        Self {
            vectors,
            answers: right.into_iter().map(answers).collect(),
        }
    }

    /// Returns the number of queries.
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// Returns `true` if there are no queries.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}

/// The questions that can be answered from a snapshot.
#[derive(Debug, Clone, Default)]
pub struct Questions {
    /// The questions with at least one right row.
    pub all: Vec<Question>,
    /// Right answers that are not rows of the snapshot.
    pub missing_answers: BTreeSet<String>,
    /// The number of queries skipped because none of their answers is a row.
    pub unanswerable: u64,
    /// The queries as vectors (questions, dim) of an encoder, where the caller has them: under a model of that encoder
    /// they are not encoded again.
    pub encoded: Option<(EncoderId, Vec<f32>)>,
}

impl Questions {
    /// Looks up the right rows of each query.
    pub fn find(snapshot: &Snapshot, asks: &[Ask], options: &FindOptions) -> Result<Self> {
        let mut wanted: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut by_text: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut by_vector: HashMap<Vec<u32>, Vec<usize>> = HashMap::new();
        let model = snapshot.model();
        for (n, ask) in asks.iter().enumerate() {
            for right in &ask.right {
                wanted.entry(right).or_default().push(n);
            }
            match &ask.query {
                _ if !options.exclude_self => {}
                Value::Text(text) => by_text.entry(text).or_default().push(n),
                Value::Vector(vector) => {
                    let checked = model.check_vector(vector, || format!("query {n}"))?;
                    by_vector.entry(bits(&checked)).or_default().push(n);
                }
            }
        }

        let mut right = vec![BTreeSet::new(); asks.len()];
        let mut excluded = vec![BTreeSet::new(); asks.len()];
        let mut groups_of = vec![BTreeSet::new(); asks.len()];
        let mut found: HashSet<&str> = HashSet::new();
        let mut number = 0_u32;
        snapshot.for_each_row(|row| {
            let name = if options.by_key {
                Some(row.key)
            } else {
                row.text
            };
            let group = options
                .groups
                .as_ref()
                .and_then(|groups| groups.get(row.key));
            if let Some((name, questions)) = name.and_then(|name| wanted.get_key_value(name)) {
                found.insert(name);
                for &n in questions {
                    right[n].insert(number);
                    groups_of[n].extend(group);
                }
            }
            let own = [
                row.text.and_then(|text| by_text.get(text)),
                if by_vector.is_empty() {
                    None
                } else {
                    by_vector.get(&bits(row.vector))
                },
            ];
            for &n in own.into_iter().flatten().flatten() {
                excluded[n].insert(number);
                groups_of[n].extend(group);
            }
            number = number
                .checked_add(1)
                .ok_or_else(|| Error::invalid("more rows than can be evaluated at once"))?;
            Ok(())
        })?;
        if let Some(groups) = &options.groups {
            let mut asking: HashMap<&String, Vec<usize>> = HashMap::new();
            for (n, groups) in groups_of.iter().enumerate() {
                for group in groups {
                    asking.entry(group).or_default().push(n);
                }
            }
            let mut number = 0_u32;
            snapshot.for_each_row(|row| {
                let questions = groups.get(row.key).and_then(|group| asking.get(group));
                for &n in questions.into_iter().flatten() {
                    right[n].insert(number);
                }
                number += 1;
                Ok(())
            })?;
        }

        let missing = wanted.keys().filter(|right| !found.contains(*right));
        let mut questions = Self {
            missing_answers: missing.map(|right| (*right).to_owned()).collect(),
            ..Self::default()
        };
        for ((ask, right), excluded) in asks.iter().zip(right).zip(excluded) {
            let right: Vec<u32> = right.difference(&excluded).copied().collect();
            match right.is_empty() {
                true => questions.unanswerable += 1,
                false => questions.all.push(Question {
                    query: ask.query.clone(),
                    right,
                    excluded: excluded.into_iter().collect(),
                }),
            }
        }
        Ok(questions)
    }

    /// Returns the terms of each question; a vector has none. Returns nothing if rows have no words.
    pub(super) fn terms(&self, words: Option<&Words>) -> Vec<Terms> {
        let Some(words) = words else {
            return Vec::new();
        };
        let terms = self.all.iter().map(|question| match &question.query {
            Value::Text(text) => Terms::of(&words.tokenizer, text),
            Value::Vector(_) => Terms::none(),
        });
        terms.collect()
    }

    /// Returns the queries as vectors of a model, with their answers.
    pub(super) fn under(&self, model: &Model) -> Result<VectorQuestions> {
        let answers = |question: &Question| Answers {
            right: question.right.clone(),
            excluded: question.excluded.clone(),
        };
        Ok(VectorQuestions {
            vectors: self.vectors(model)?,
            answers: self.all.iter().map(answers).collect(),
        })
    }

    /// Returns the queries as vectors of the model: (questions, dim).
    fn vectors(&self, model: &Model) -> Result<Vec<f32>> {
        if let Some((encoder, vectors)) = &self.encoded
            && *encoder == model.encoder_id()
        {
            let wanted = self.all.len() * model.dim();
            return match vectors.len() == wanted {
                true => Ok(vectors.clone()),
                false => Err(Error::invalid(format!(
                    "{} queries of {} values have {wanted}, got {}",
                    self.all.len(),
                    model.dim(),
                    vectors.len()
                ))),
            };
        }
        let mut vectors = Vec::with_capacity(self.all.len() * model.dim());
        for some in self.all.chunks(256) {
            let texts: Vec<&str> = some
                .iter()
                .filter_map(|question| match &question.query {
                    Value::Text(text) => Some(text.as_str()),
                    Value::Vector(_) => None,
                })
                .collect();
            let encoded = if texts.is_empty() {
                Vec::new()
            } else {
                model.encode_queries(&texts)?
            };
            let mut encoded = encoded.chunks_exact(model.dim());
            for question in some {
                match &question.query {
                    Value::Text(_) => {
                        vectors.extend_from_slice(encoded.next().expect("a vector a text"))
                    }
                    Value::Vector(vector) => {
                        vectors.extend(model.check_vector(vector, || "a query".into())?)
                    }
                }
            }
        }
        Ok(vectors)
    }
}

fn bits(vector: &[f32]) -> Vec<u32> {
    vector.iter().map(|value| value.to_bits()).collect()
}
