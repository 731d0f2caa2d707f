//! The scalar reference implementations, which every kernel must match bit for bit.

use super::block::{Bits, Entries, ROWS_PER_BLOCK};
use super::columns::Columns;

fn sum(columns: &Columns, x: &[f32], output: usize) -> f32 {
    x.iter()
        .enumerate()
        .fold(columns.offset(output), |sum, (d, value)| {
            value.mul_add(columns.value(d, output), sum)
        })
}

/// See [`super::float::affine`].
pub(super) fn affine(columns: &Columns, x: &[f32], out: &mut [f32]) {
    for (x, out) in x
        .chunks_exact(columns.inputs)
        .zip(out.chunks_exact_mut(columns.outputs))
    {
        for (o, out) in out.iter_mut().enumerate() {
            *out = sum(columns, x, o);
        }
    }
}

/// See [`super::float::negative_distances`].
pub(super) fn negative_distances(columns: &Columns, x: &[f32], out: &mut [f32]) {
    for (o, out) in out.iter_mut().enumerate() {
        *out = 0.0
            - x.iter().enumerate().fold(0.0, |sum: f32, (d, value)| {
                let difference = value - columns.value(d, o);
                difference.mul_add(difference, sum)
            });
    }
}

/// Returns the best output for one slice, or nothing if any sum is not finite.
pub(super) fn argmax(columns: &Columns, x: &[f32]) -> Option<u8> {
    let mut best = (0, f32::NEG_INFINITY);
    for o in 0..columns.outputs {
        let sum = sum(columns, x, o);
        if !sum.is_finite() {
            return None;
        }
        if sum > best.1 {
            best = (o, sum);
        }
    }
    Some(best.0 as u8)
}

/// Returns the inner product, or minus the squared distance, of two vectors: 16 interleaved sums, then a
/// fixed tree.
pub(super) fn similarity<const L2: bool>(query: &[f32], row: impl Iterator<Item = f32>) -> f32 {
    let mut sums = [0.0f32; 16];
    for (d, (&q, v)) in query.iter().zip(row).enumerate() {
        let sum = &mut sums[d % 16];
        *sum = if L2 {
            (q - v).mul_add(q - v, *sum)
        } else {
            q.mul_add(v, *sum)
        };
    }
    signed::<L2>(halves(sums))
}

/// Returns the inner product of two vectors of at most [`super::bytes::MAX_BYTES_DIM`] bytes.
#[inline(always)]
pub(super) fn dot(query: &[i8], row: &[i8]) -> i32 {
    let pairs = query.iter().zip(row);
    pairs.map(|(&q, &v)| i32::from(q) * i32::from(v)).sum()
}

/// Returns the score of an inner product of bytes. Never -0.
#[inline(always)]
pub(super) fn scaled(query: f32, row: f32, dot: i32) -> f32 {
    0.0 + (query * row) * dot as f32
}

/// Adds the sums by a fixed tree: halves are added until one sum remains.
#[inline(always)]
pub(super) fn halves(mut sums: [f32; 16]) -> f32 {
    let mut width = 8;
    while width > 0 {
        for l in 0..width {
            sums[l] += sums[l + width];
        }
        width /= 2;
    }
    sums[0]
}

/// Returns the score of a sum. Never -0.
#[inline(always)]
pub(super) fn signed<const L2: bool>(sum: f32) -> f32 {
    if L2 { 0.0 - sum } else { 0.0 + sum }
}

/// The f32 sums of a block's rows, in subspace order, beginning with 0.
pub(super) fn scores(table: Entries<'_>, block: &[u8], out: &mut [f32; ROWS_PER_BLOCK]) {
    for m in 0..table.subspaces() {
        let entries = table.subspace(m);
        match table.bits {
            Bits::Eight => {
                for (sum, code) in out.iter_mut().zip(&block[m * ROWS_PER_BLOCK..]) {
                    *sum += entries[usize::from(*code)];
                }
            }
            Bits::Four => {
                for (sum, byte) in out.iter_mut().zip(&block[m / 2 * ROWS_PER_BLOCK..]) {
                    *sum += entries[usize::from(byte >> (m % 2 * 4) & 15)];
                }
            }
        }
    }
}
