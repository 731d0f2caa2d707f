//! How many of the nearest rows codes find, measured on the rows that they were learned from.

use crate::error::Result;
use crate::eval::{Answers, Keys, VectorQuestions};
use crate::kernel::{Columns, Kernel};
use crate::metric::Metric;
use crate::quantizer::{Quantizer, TrainPq, train_opq_on_axes};

/// Rows that are searched, and rows that are queries.
const ROWS: usize = 16_384;
const QUERIES: usize = 200;
/// Nearest rows to find for each query.
const NEAREST: usize = 10;
/// Rows and steps of a quantizer that is only compared with others.
const QUICK_ROWS: usize = 8_192;
const QUICK_STEPS: usize = 2;
/// Numbers of principal axes that are compared with the full width.
const AXES: [usize; 2] = [256, 128];
/// Fewer axes must find so much more than more axes.
const CLEAR: f64 = 0.01;

/// How many of the exact ten nearest rows codes find, by the codes alone.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct OwnRows {
    /// The mean share of the ten nearest rows that are among the ten best by their codes.
    pub recall: f64,
    /// Rows that were queries, each left out of its own answer.
    pub queries: usize,
    /// Rows that were searched: some of those that were learned from.
    pub rows: usize,
}

/// Some rows, and the nearest rows of some of them.
pub(super) struct OwnTrial {
    dim: usize,
    metric: Metric,
    /// (rows, dim)
    rows: Vec<f32>,
    questions: VectorQuestions,
    threads: usize,
}

impl OwnTrial {
    /// Takes rows evenly from a sample (n, dim), and finds their nearest rows.
    pub(super) fn new(sample: &[f32], dim: usize, metric: Metric, threads: usize) -> Result<Self> {
        let rows = evenly(sample, dim, ROWS);
        let n = rows.len() / dim;
        let queries: Vec<usize> = (0..QUERIES.min(n))
            .map(|i| i * n / QUERIES.min(n))
            .collect();
        let right = nearest(&rows, dim, metric, &queries)?;
        let mut questions = VectorQuestions::default();
        for (&query, right) in queries.iter().zip(right) {
            if right.is_empty() {
                continue;
            }
            let vector = &rows[query * dim..][..dim];
            questions.vectors.extend_from_slice(vector);
            questions.answers.push(Answers {
                right,
                excluded: vec![query as u32],
            });
        }
        Ok(Self {
            dim,
            metric,
            rows,
            questions,
            threads,
        })
    }

    pub(super) fn measure(&self, quantizer: &Quantizer) -> Result<OwnRows> {
        let keys = Keys::new(&self.rows, quantizer)?.threads(self.threads);
        let places = keys.rank(&self.questions, NEAREST)?.places;
        Ok(OwnRows {
            recall: places.recall(NEAREST),
            queries: self.questions.len(),
            rows: self.rows.len() / self.dim,
        })
    }

    /// Returns the number of principal axes whose codes find most; the full width, if the others are not clearly better
    /// and the subspaces divide it.
    pub(super) fn best_axes(&self, sample: &[f32], options: &TrainPq) -> Result<usize> {
        let (dim, subspaces) = (self.dim, options.subspaces.max(1));
        let widest = dim / subspaces * subspaces;
        let mut widths = vec![widest];
        let fewer = AXES.into_iter().filter(|&axes| axes < widest);
        widths.extend(fewer.filter(|axes| axes.is_multiple_of(subspaces)));
        if widths.len() == 1 {
            return Ok(widest);
        }
        let some = evenly(sample, dim, QUICK_ROWS);
        let quick = options.clone().iterations(QUICK_STEPS).cells(0);
        let mut best = (widest, 0.0);
        for (n, &axes) in widths.iter().enumerate() {
            let trained = train_opq_on_axes(&some, dim, axes, self.metric, &quick)?;
            let recall = self.measure(&trained.quantizer)?.recall;
            if n == 0 || recall > best.1 + CLEAR {
                best = (axes, recall);
            }
        }
        Ok(best.0)
    }
}

/// At most `most` rows, taken evenly.
fn evenly(rows: &[f32], dim: usize, most: usize) -> Vec<f32> {
    let n = rows.len() / dim;
    let taken = n.min(most);
    let row = |i: usize| &rows[i * n / taken * dim..][..dim];
    (0..taken).flat_map(row).copied().collect()
}

/// The exact nearest rows of some rows, each without itself.
fn nearest(rows: &[f32], dim: usize, metric: Metric, queries: &[usize]) -> Result<Vec<Vec<u32>>> {
    let kernel = Kernel::detect()?;
    let count = queries.len();
    if count == 0 {
        return Ok(Vec::new());
    }
    // (dim, queries)
    let columns: Vec<f32> = (0..dim * count)
        .map(|at| rows[queries[at % count] * dim + at / count])
        .collect();
    let columns = Columns::from_columns(dim, count, &columns);
    let mut scores = vec![0.0; rows.len() / dim * count];
    kernel.affine(&columns, rows, &mut scores);
    if metric == Metric::L2 {
        // -|q - v|² is 2 <q, v> - |v|² up to a number of the query.
        let all = rows.chunks_exact(dim).zip(scores.chunks_exact_mut(count));
        for (row, scores) in all {
            let square: f32 = row.iter().map(|x| x * x).sum();
            scores
                .iter_mut()
                .for_each(|score| *score = 2.0 * *score - square);
        }
    }
    let of = |(at, &query): (usize, &usize)| {
        let mut order: Vec<u32> = (0..(rows.len() / dim) as u32).collect();
        order.retain(|&row| row as usize != query);
        let score = |row: u32| scores[row as usize * count + at];
        let by_score = |a: &u32, b: &u32| score(*b).total_cmp(&score(*a)).then(a.cmp(b));
        if order.len() > NEAREST {
            order.select_nth_unstable_by(NEAREST, by_score);
            order.truncate(NEAREST);
        }
        order
    };
    Ok(queries.iter().enumerate().map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::random::Random;
    use crate::quantizer::train_pq;

    const DIM: usize = 4;

    fn rows(n: usize) -> Vec<f32> {
        let mut random = Random::new(8);
        (0..n * DIM).map(|_| random.unit() as f32 - 0.5).collect()
    }

    #[test]
    fn the_nearest_rows_are_those_of_sorting_all() {
        let rows = rows(60);
        let row = |n: usize| &rows[n * DIM..][..DIM];
        for metric in [Metric::Ip, Metric::L2] {
            let found = nearest(&rows, DIM, metric, &[3, 59]).unwrap();
            for (query, found) in [3, 59].into_iter().zip(found) {
                let score = |n: usize| -> f64 {
                    let pairs = row(query).iter().zip(row(n));
                    let (inner, apart) = pairs.fold((0.0, 0.0), |(inner, apart), (q, v)| {
                        let (q, v) = (f64::from(*q), f64::from(*v));
                        (inner + q * v, apart + (q - v) * (q - v))
                    });
                    if metric == Metric::L2 { -apart } else { inner }
                };
                let mut wanted: Vec<usize> = (0..60).filter(|n| *n != query).collect();
                wanted.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
                wanted.truncate(NEAREST);
                let mut found: Vec<usize> = found.iter().map(|n| *n as usize).collect();
                found.sort_unstable();
                wanted.sort_unstable();
                assert_eq!(found, wanted, "{metric:?}");
            }
        }
    }

    #[test]
    fn codes_without_error_find_every_row_and_coarse_ones_few() {
        let rows = rows(250);
        let trial = OwnTrial::new(&rows, DIM, Metric::L2, 1).unwrap();
        let recall = |codewords: usize| {
            let options = TrainPq::default().subspaces(1).codewords(codewords);
            let pq = train_pq(&rows, DIM, Metric::L2, &options.threads(1)).unwrap();
            trial.measure(&pq.quantizer).unwrap().recall
        };
        // As many codewords as rows: each row is its own codeword.
        assert!(recall(250) > 0.999, "{}", recall(250));
        assert!(recall(2) < 0.2, "{}", recall(2));
    }

    #[test]
    fn one_row_has_no_other_to_find() {
        let trial = OwnTrial::new(&[1.0; DIM], DIM, Metric::Ip, 1).unwrap();
        let options = TrainPq::default().subspaces(1).codewords(2).threads(1);
        let pq = train_pq(&[1.0; DIM], DIM, Metric::Ip, &options).unwrap();
        let measured = trial.measure(&pq.quantizer).unwrap();
        assert_eq!((measured.recall, measured.queries), (0.0, 0));
    }
}
