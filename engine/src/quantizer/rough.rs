//! Rough scores of cells, from bytes: they tell which cells can't be among the best, so that few are scored in full.
//!
//! # The bound
//! Let c be a centroid and s b its rounding to bytes, q the query and t a its rounding. Then
//! ```text
//! <q, c> = t s <a, b> + <q - t a, c> + <t a, c - s b>,
//! ```
//! so that the rough score t s <a, b> differs from it by at most `|q - t a| |c| + |t a| |c - s b|`, by Cauchy and Schwarz. Both
//! scores are rounded in f32; for that there is a term of 2^-21 per dimension of the largest product of lengths that occurs,
//! which is several times what is needed. For l2 the score is `2 <q, c> - |c|^2` and a term that all cells share.
//!
//! If the n-th largest rough score is r, n scores are at least r less the bound, and so are the n largest: their rough scores are
//! at least r less twice the bound.

use super::selection::dot;
use crate::kernel::{Kernel, MAX_BYTES_DIM, Places, Queries, Rows, quantize_i8_into};
use crate::metric::Metric;

/// Scores of a sample, which tells a score that somewhat more cells reach than are wanted.
const SAMPLE: usize = 256;

/// Centroids as bytes.
#[derive(Debug, Clone)]
pub(super) struct Rough {
    dim: usize,
    /// (cells, dim)
    values: Vec<i8>,
    scales: Vec<f32>,
    /// `|c|^2`
    squares: Vec<f32>,
    /// The largest `|c|`, and the largest `|c - s b|`.
    largest: f64,
    error: f64,
}

impl Rough {
    /// Takes centroids (cells, dim); `None` if they are too few, too wide or too large for this to be of use.
    pub(super) fn new(dim: usize, centroids: &[f32]) -> Option<Self> {
        let cells = centroids.len() / dim;
        if cells < 4 * SAMPLE || dim > MAX_BYTES_DIM || centroids.iter().any(|x| x.abs() > 1e12) {
            return None;
        }
        let mut rough = Self {
            dim,
            values: vec![0; centroids.len()],
            scales: Vec::with_capacity(cells),
            squares: Vec::with_capacity(cells),
            largest: 0.0,
            error: 0.0,
        };
        for (centroid, bytes) in centroids
            .chunks_exact(dim)
            .zip(rough.values.chunks_exact_mut(dim))
        {
            let scale = quantize_i8_into(centroid, bytes);
            rough.error = rough.error.max(distance(centroid, bytes, scale));
            rough.largest = rough.largest.max(length(centroid));
            rough.scales.push(scale);
            rough.squares.push(dot(centroid, centroid));
        }
        Some(rough)
    }

    /// Returns cells among which are the `count` best for a query; `None` if it is not worth while, or the query too large.
    pub(super) fn candidates(
        &self,
        kernel: Kernel,
        metric: Metric,
        query: &[f32],
        count: usize,
    ) -> Option<Vec<u32>> {
        if count == 0 || count > self.scales.len() / 4 || query.iter().any(|x| x.abs() >= 1e12) {
            return None;
        }
        let mut scores = vec![0.0; self.scales.len()];
        let rows = Rows::I8 {
            values: Places::Dense(&self.values),
            scales: &self.scales,
        };
        kernel.scores_of_rows(
            Metric::Ip,
            &Queries::new(query, self.dim),
            rows,
            &mut scores,
        );
        if metric == Metric::L2 {
            for (score, square) in scores.iter_mut().zip(&self.squares) {
                *score = 2.0 * *score - square;
            }
        }
        let apart = 2.0 * self.bound(metric, query);
        let mut sample: Vec<f32> = (scores.iter())
            .step_by(scores.len() / SAMPLE)
            .copied()
            .collect();
        let expected = (count * sample.len()) as f32 / scores.len() as f32;
        let rank = (expected + 3.0 * expected.sqrt() + 3.0) as usize;
        let order = |a: &f32, b: &f32| b.total_cmp(a);
        let mut least = match rank < sample.len() {
            true => *sample.select_nth_unstable_by(rank, order).1,
            false => f32::NEG_INFINITY,
        };
        let reached = |least: f32| scores.iter().filter(move |score| **score >= least).copied();
        let mut best: Vec<f32> = reached(least).collect();
        if best.len() < count {
            best = scores.clone();
        }
        let nth = *best.select_nth_unstable_by(count - 1, order).1;
        // In f64, and then down: never above the true difference.
        least = ((f64::from(nth) - apart) as f32).next_down();
        let cells = scores.iter().zip(0..);
        let near = cells.filter(|(score, _)| **score >= least);
        Some(near.map(|(_, cell)| cell).collect())
    }

    /// How far a rough score may be from the score.
    fn bound(&self, metric: Metric, query: &[f32]) -> f64 {
        let mut bytes = vec![0; query.len()];
        let scale = quantize_i8_into(query, &mut bytes);
        let (own, error) = (length(query), distance(query, &bytes, scale));
        let rounding = (self.dim + 8) as f64 * (-21f64).exp2();
        let product = error * self.largest + (own + error) * self.error;
        match metric {
            Metric::Ip | Metric::Cosine => product + rounding * (own + error) * self.largest,
            Metric::L2 => 2.0 * product + rounding * (own + error + self.largest).powi(2),
        }
    }
}

fn length(values: &[f32]) -> f64 {
    let squares = values.iter().map(|&x| f64::from(x) * f64::from(x));
    // A little more than the sum, which is rounded.
    squares.sum::<f64>().sqrt() * (1.0 + 1e-9)
}

/// `|x - s b|`
fn distance(values: &[f32], bytes: &[i8], scale: f32) -> f64 {
    let pairs = values.iter().zip(bytes);
    let squares = pairs.map(|(&x, &b)| (f64::from(x) - f64::from(scale) * f64::from(b)).powi(2));
    squares.sum::<f64>().sqrt() * (1.0 + 1e-9)
}
