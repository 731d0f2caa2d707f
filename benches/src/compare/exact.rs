//! The exact top by brute force, and recalls against it and against the true keys.

use std::thread;

/// The `k` rows of the largest inner products for each query, best first, ties by row: (queries, k).
pub fn top(rows: &[f32], queries: &[f32], dim: usize, k: usize) -> Vec<u32> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let count = queries.len() / dim;
    let each = count.div_ceil(threads).max(1);
    let parts: Vec<Vec<u32>> = thread::scope(|scope| {
        let handles: Vec<_> = queries
            .chunks(each * dim)
            .map(|some| scope.spawn(move || part(rows, some, dim, k)))
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().expect("a brute-force thread"))
            .collect()
    });
    parts.concat()
}

/// Rows are taken by cache-sized blocks, all queries over each.
fn part(rows: &[f32], queries: &[f32], dim: usize, k: usize) -> Vec<u32> {
    const BLOCK: usize = 256;
    let count = queries.len() / dim;
    let mut tops: Vec<Vec<(f32, u32)>> = vec![Vec::with_capacity(2 * k + BLOCK); count];
    let mut least = vec![f32::NEG_INFINITY; count];
    for (block, some) in rows.chunks(BLOCK * dim).enumerate() {
        for ((query, top), least) in queries.chunks_exact(dim).zip(&mut tops).zip(&mut least) {
            for (n, row) in some.chunks_exact(dim).enumerate() {
                let score = dot(query, row);
                if score > *least {
                    top.push((score, (block * BLOCK + n) as u32));
                }
            }
            if top.len() >= 2 * k {
                shrink(top, k);
                *least = top[k - 1].0;
            }
        }
    }
    let mut out = Vec::with_capacity(count * k);
    for mut top in tops {
        shrink(&mut top, k);
        out.extend(top.iter().map(|(_, row)| *row));
        out.resize(out.len() + k - top.len(), u32::MAX);
    }
    out
}

fn shrink(top: &mut Vec<(f32, u32)>, k: usize) {
    top.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    top.truncate(k);
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

/// One query's hits with what is left out of them removed, at most `k`.
pub fn without(hits: &[i64], excluded: Option<u32>, k: usize) -> Vec<i64> {
    hits.iter()
        .copied()
        .filter(|&hit| hit >= 0 && Some(hit) != excluded.map(i64::from))
        .take(k)
        .collect()
}

/// |right among the hits| / |right|.
pub fn recall(hits: &[i64], right: &[u32]) -> f64 {
    let found = right
        .iter()
        .filter(|&&row| hits.contains(&i64::from(row)))
        .count();
    found as f64 / right.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Stream;

    #[test]
    fn the_blocked_top_is_that_of_a_plain_sort() {
        let (dim, k) = (20, 7);
        let rows = Stream::clustered(3, dim).take(1000);
        let queries = Stream::clustered(4, dim).take(9);
        let found = top(&rows, &queries, dim, k);
        for (query, found) in queries.chunks_exact(dim).zip(found.chunks_exact(k)) {
            let mut all: Vec<(f32, u32)> = rows
                .chunks_exact(dim)
                .zip(0..)
                .map(|(row, n)| (dot(query, row), n))
                .collect();
            all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            let expected: Vec<u32> = all[..k].iter().map(|x| x.1).collect();
            assert_eq!(found, expected);
        }
        assert_eq!(
            top(&rows[..40], &queries[..20], dim, 3)[2],
            u32::MAX,
            "two rows, three asked for"
        );
    }

    #[test]
    fn the_query_itself_is_left_out_and_recall_is_a_share_of_the_right_keys() {
        assert_eq!(without(&[5, 7, -1, 9, 11], Some(7), 2), [5, 9]);
        assert_eq!(without(&[5, 7], None, 10), [5, 7]);
        assert_eq!(recall(&[1, 2, 3], &[3, 4]), 0.5);
        assert_eq!(recall(&[], &[3]), 0.0);
    }
}
