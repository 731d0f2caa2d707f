//! The exact top by brute force, and recall.

use crate::builds::on_each_core;

/// The number of queries that share a pass over the rows, in cache-sized blocks of rows.
const TOGETHER: usize = 256;
const BLOCK: usize = 256;

/// Returns the `k` rows with the largest inner products for each query, best first, ties by row.
pub fn top(rows: &[f32], queries: &[f32], dim: usize, k: usize) -> Vec<Vec<i64>> {
    let parts: Vec<&[f32]> = queries.chunks(TOGETHER * dim).collect();
    on_each_core(parts.len(), |n| part(rows, parts[n], dim, k)).concat()
}

fn part(rows: &[f32], queries: &[f32], dim: usize, k: usize) -> Vec<Vec<i64>> {
    let best_first = |a: &(f32, i64), b: &(f32, i64)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
    let mut tops: Vec<Vec<(f32, i64)>> = vec![Vec::new(); queries.len() / dim];
    for (first, block) in (0..).step_by(BLOCK).zip(rows.chunks(BLOCK * dim)) {
        for (query, top) in queries.chunks_exact(dim).zip(&mut tops) {
            let scored = block.chunks_exact(dim).zip(first..);
            top.extend(scored.map(|(row, n)| (dot(query, row), n)));
            if top.len() > k {
                top.select_nth_unstable_by(k, best_first);
                top.truncate(k);
            }
        }
    }
    let sorted = tops.into_iter().map(|mut top| {
        top.sort_unstable_by(best_first);
        top.into_iter().map(|(_, row)| row).collect()
    });
    sorted.collect()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 16];
    let (a16, a_rest) = a.as_chunks::<16>();
    let (b16, b_rest) = b.as_chunks::<16>();
    for (a, b) in a16.iter().zip(b16) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

/// Returns the first `k` hits of one query without its own row. Negative rows mean that there is no hit.
pub fn without(hits: &[i64], own: Option<u32>, k: usize) -> Vec<u32> {
    let hits = hits.iter().filter_map(|&hit| u32::try_from(hit).ok());
    hits.filter(|&hit| Some(hit) != own).take(k).collect()
}

/// Returns |right among the hits| / |right|.
pub fn recall(hits: &[u32], right: &[u32]) -> f64 {
    let found = right.iter().filter(|row| hits.contains(row)).count();
    found as f64 / right.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use mopqdb_benches::data::Stream;

    #[test]
    fn the_blocked_top_equals_a_plain_sort() {
        let (dim, k) = (20, 7);
        let rows = Stream::clustered(3, dim).take(1000);
        let queries = Stream::clustered(4, dim).take(9);
        let found = top(&rows, &queries, dim, k);
        for (query, found) in queries.chunks_exact(dim).zip(&found) {
            let scores = rows.chunks_exact(dim).map(|row| dot(query, row));
            let mut all: Vec<(f32, i64)> = scores.zip(0..).collect();
            all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            assert!(found.iter().eq(all[..k].iter().map(|(_, row)| row)));
        }
    }

    #[test]
    fn the_query_itself_is_excluded_and_recall_is_a_share_of_the_right_keys() {
        assert_eq!(without(&[5, 7, -1, 9, 11], Some(7), 2), [5, 9]);
        assert_eq!(recall(&[1, 2, 3], &[3, 4]), 0.5);
        assert_eq!(recall(&[], &[3]), 0.0);
    }
}
