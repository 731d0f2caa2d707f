//! The exact scan over full-precision vectors.

use super::rows::dense;
use super::scanner::{Scanner, chunks};
use super::source::{Alive, VectorSource};
use super::topk::{Found, SharedThreshold, TopK, merge};
use crate::error::{Error, Result};
use crate::kernel::Queries;
use crate::metric::Metric;

/// Rows that a thread takes at a time; a multiple of 64, so that live words belong to one chunk.
const CHUNK_ROWS: usize = 1024;

/// CPU cycles that a number of a row takes, about, where it comes from memory.
const CYCLES: f64 = 0.3;

struct State {
    tops: Vec<TopK>,
    /// (queries, rows of a group)
    scores: Vec<f32>,
}

pub(super) fn scan(
    scanner: &Scanner,
    sources: &[&dyn VectorSource],
    queries: &[f32],
    metric: Metric,
    k: usize,
) -> Result<Vec<Vec<Found>>> {
    let dim = sources[0].dim();
    let count = queries.len() / dim;
    let queries = Queries::new(queries, dim);
    let chunks = chunks(sources.iter().map(|s| s.rows()), CHUNK_ROWS);
    let shared: Vec<_> = (0..count)
        .map(|_| SharedThreshold::new(f32::NEG_INFINITY))
        .collect();
    let rows: usize = chunks.iter().map(|chunk| chunk.range.len()).sum();
    let states = scanner.sweep(
        &chunks,
        scanner.threads_for((rows * dim * count) as f64 * CYCLES),
        || State {
            tops: (0..count).map(|_| TopK::new(k)).collect(),
            scores: vec![0.0; 64 * count],
        },
        |state, chunk| {
            let source = sources[chunk.source as usize];
            let vectors = source.rows_at(chunk.range.clone())?;
            if vectors.len() != chunk.range.len() * dim {
                return Err(Error::invalid(format!(
                    "source {} gave {} values for {} rows of {dim}",
                    chunk.source,
                    vectors.len(),
                    chunk.range.len()
                )));
            }
            for (top, shared) in state.tops.iter_mut().zip(&shared) {
                top.enter(chunk.source, shared.get());
            }
            let alive = Alive::new(source.live(), source.rows());
            // 64 rows at a time stay in cache while every query meets them.
            for start in chunk.range.clone().step_by(64) {
                let n = (chunk.range.end - start).min(64);
                let live = alive.of(start / 64);
                if live == 0 {
                    continue;
                }
                let first = start - chunk.range.start;
                let rows = dense(vectors.rows(first..first + n, dim));
                let scores = &mut state.scores[..n * count];
                (scanner.kernel).scores_of_rows(metric, &queries, rows, scores);
                for (scores, top) in scores.chunks_exact(n).zip(&mut state.tops) {
                    if all_below(scores, top.cutoff()) {
                        continue;
                    }
                    let mut live = live;
                    while live != 0 {
                        let row = live.trailing_zeros() as usize;
                        live &= live - 1;
                        let score = scores[row];
                        if !score.is_finite() {
                            return Err(Error::invalid(format!(
                                "row {} of source {} has no finite score: query or row is too large",
                                start + row,
                                chunk.source
                            )));
                        }
                        if score >= top.cutoff() {
                            top.push(score, (start + row) as u32);
                        }
                    }
                }
            }
            for (top, shared) in state.tops.iter().zip(&shared) {
                shared.raise(top.threshold());
            }
            Ok(())
        },
    )?;
    let mut by_query: Vec<Vec<TopK>> = (0..count).map(|_| Vec::new()).collect();
    for state in states {
        for (query, top) in by_query.iter_mut().zip(state.tops) {
            query.push(top);
        }
    }
    Ok(by_query.into_iter().map(|tops| merge(tops, k)).collect())
}

/// Whether no score reaches the cutoff, and all are finite. Without a branch a score, so that they are looked at together.
fn all_below(scores: &[f32], cutoff: f32) -> bool {
    let below = |score: &f32| (*score < cutoff) & (score.abs() < f32::INFINITY);
    scores.iter().fold(true, |all, score| all & below(score))
}

#[cfg(test)]
mod tests {
    use super::all_below;

    #[test]
    fn what_reaches_the_cutoff_or_is_not_finite_is_looked_at() {
        let mut scores = [1.0f32; 64];
        assert!(all_below(&scores, 2.0) && !all_below(&scores, 1.0));
        assert!(!all_below(&scores, f32::NEG_INFINITY));
        for odd in [2.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            scores[17] = odd;
            assert!(!all_below(&scores, 2.0), "{odd}");
        }
    }
}
