//! Scores of whole vectors: 16 interleaved sums a row and one fixed tree, four rows at a time.

use super::scalar;

const ROWS: usize = 4;

/// The plain twin over many rows.
pub(super) fn plain<const L2: bool>(query: &[f32], rows: &[f32], out: &mut [f32]) {
    for (row, out) in rows.chunks_exact(query.len()).zip(out) {
        *out = scalar::similarity::<L2>(query, row);
    }
}

#[inline(always)]
fn add<const L2: bool>(sums: &mut [f32], query: &[f32], row: &[f32]) {
    for ((sum, q), v) in sums.iter_mut().zip(query).zip(row) {
        *sum = if L2 {
            (q - v).mul_add(q - v, *sum)
        } else {
            q.mul_add(*v, *sum)
        };
    }
}

#[inline(always)]
fn rows_at_once<const N: usize, const L2: bool>(query: &[f32], rows: [&[f32]; N]) -> [f32; N] {
    let mut sums = [[0.0f32; 16]; N];
    let whole = query.len() / 16 * 16;
    let rows = rows.map(|row| &row[..query.len()]);
    for d in (0..whole).step_by(16) {
        for r in 0..N {
            let (q, v): (&[f32; 16], &[f32; 16]) = (
                query[d..d + 16].try_into().expect("16 long"),
                rows[r][d..d + 16].try_into().expect("16 long"),
            );
            add::<L2>(&mut sums[r], q, v);
        }
    }
    for r in 0..N {
        add::<L2>(&mut sums[r], &query[whole..], &rows[r][whole..]);
    }
    sums.map(scalar::tree::<L2>)
}

/// The score of each row (n, dim) for one query.
#[inline(always)]
pub(super) fn similarities<const L2: bool>(query: &[f32], rows: &[f32], out: &mut [f32]) {
    let dim = query.len();
    let mut groups = rows.chunks_exact(ROWS * dim);
    let mut outs = out.chunks_exact_mut(ROWS);
    for (group, out) in (&mut groups).zip(&mut outs) {
        let scores =
            rows_at_once::<ROWS, L2>(query, std::array::from_fn(|r| &group[r * dim..][..dim]));
        out.copy_from_slice(&scores);
    }
    for (row, out) in groups
        .remainder()
        .chunks_exact(dim)
        .zip(outs.into_remainder())
    {
        *out = rows_at_once::<1, L2>(query, [row])[0];
    }
}
