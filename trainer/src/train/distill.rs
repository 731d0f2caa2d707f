//! The queries of `distill`: which ones each step asks, and over which keys.

use std::collections::HashMap;

use anyhow::Result;
use mopqdb::Metric;

use super::replica::Rates;
use super::worker::{Lecture, Worker, ask};
use super::{Lessons, Trainer};
use crate::config::TrainConfig;
use crate::data::Corpus;
use crate::methods::distill::Recipe;
use crate::random::Random;

/// The data from which an epoch of `distill` draws its queries.
pub(super) struct Course {
    /// Rows that queries are made of, in ascending order.
    rows: Vec<u32>,
    /// Made queries per epoch.
    made: usize,
    /// The root of the mean squared length of a key, which is the length of made queries.
    length: f64,
    /// Whether the head has a bias. For ip it has none: queries may have any length, and with a bias the order of hits would
    /// depend on it.
    learns_bias: bool,
}

/// One query of an epoch.
#[derive(Debug, Clone, Copy)]
pub(super) enum Asked {
    Made(Recipe),
    Logged(u32, u32),
    Labelled(u32, u32),
}

impl Course {
    pub(super) fn new(config: &TrainConfig, lessons: &Lessons<'_>) -> Self {
        let (corpus, distill) = (lessons.corpus, config.distill());
        let mut held_out = vec![false; corpus.rows()];
        for &row in lessons.held_out {
            held_out[row as usize] = true;
        }
        let rows: Vec<u32> = (0..corpus.rows() as u32)
            .filter(|&row| !held_out[row as usize])
            .collect();
        Self {
            made: rows
                .len()
                .clamp(distill.least_queries, distill.most_queries),
            length: length(corpus),
            learns_bias: corpus.metric == Metric::Cosine,
            rows,
        }
    }

    /// Queries per epoch.
    pub(super) fn queries(&self, lessons: &Lessons<'_>) -> usize {
        self.made + lessons.logged.len() + lessons.pairs.len()
    }

    /// Returns the queries of an epoch in random order: all logged and labelled ones, and made ones, of which each asks for
    /// another key until all keys were asked for.
    pub(super) fn asked(
        &self,
        config: &TrainConfig,
        lessons: &Lessons<'_>,
        epoch: usize,
    ) -> Vec<Asked> {
        let (seed, epoch) = (config.seed, epoch as u64);
        let distill = config.distill();
        let cosines = (distill.least_cosine, distill.largest_cosine);
        let order = Random::new(seed, "keys", epoch).order(self.rows.len());
        let mut random = Random::new(seed, "made", epoch);
        let rows = lessons.corpus.rows();
        let keys = order.iter().cycle().take(self.made);
        let mut asked: Vec<Asked> = keys
            .map(|&n| self.rows[n as usize])
            .map(|key| Asked::Made(Recipe::draw(key, rows, cosines, &mut random)))
            .collect();
        let logged = lessons.logged.iter();
        asked.extend(logged.map(|&(query, row)| Asked::Logged(query, row)));
        let labelled = lessons.pairs.iter();
        asked.extend(labelled.map(|&(query, row)| Asked::Labelled(query, row)));
        Random::new(seed, "shuffle", epoch).shuffle(&mut asked);
        asked
    }

    fn lecture(&self, asked: &[Asked], twins: &[u32], rates: Rates) -> Lecture {
        let mut lecture = Lecture {
            made: Vec::new(),
            queries: Vec::new(),
            pool: Vec::new(),
            labels: Vec::new(),
            length: self.length,
            learns_bias: self.learns_bias,
            rates,
        };
        let mut places = HashMap::new();
        let mut labelled = Vec::new();
        for asked in asked {
            let (Asked::Made(Recipe { key: row, .. })
            | Asked::Logged(_, row)
            | Asked::Labelled(_, row)) = *asked;
            let row = twins[row as usize];
            let place = *places.entry(row).or_insert_with(|| {
                lecture.pool.push(i64::from(row));
                lecture.pool.len() as i64 - 1
            });
            match *asked {
                Asked::Made(recipe) => lecture.made.push(recipe),
                Asked::Logged(query, _) => lecture.queries.push(i64::from(query)),
                Asked::Labelled(query, _) => {
                    labelled.push((lecture.queries.len(), place));
                    lecture.queries.push(i64::from(query));
                }
            }
        }
        let made = lecture.made.len();
        let in_batch = |(query, place): (usize, i64)| ((made + query) as i64, place);
        lecture.labels = labelled.into_iter().map(in_batch).collect();
        lecture
    }
}

impl Trainer<'_> {
    /// Takes one step over some queries of an epoch. Returns its loss.
    pub(super) fn teach(&mut self, course: &Course, asked: &[Asked], rates: Rates) -> Result<f64> {
        let lecture = course.lecture(asked, &self.twins, rates);
        let job = move |worker: &mut Worker| worker.lecture(lecture);
        Ok(ask(&mut self.fleet, vec![job])?.remove(0))
    }
}

/// Returns the root of the mean squared length of a key; exactly 1 for cosine.
fn length(corpus: &Corpus) -> f64 {
    if corpus.metric == Metric::Cosine {
        return 1.0;
    }
    let squares: f64 = corpus.vectors.iter().map(|&x| f64::from(x).powi(2)).sum();
    (squares / corpus.rows() as f64).sqrt()
}
