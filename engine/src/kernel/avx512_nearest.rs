//! The choice of codewords with AVX-512: 32 registers hold the sums of six rows with two tiles of outputs, the best of each lane
//! of a row, and where it was.

use super::columns::{Columns, LANES};
use super::float::transpose;
use std::arch::x86_64::*;

/// Rows that share each load of the matrix, as two tiles share each load of a row's value: twelve products for eight
/// loads, which a CPU executes at the same rate; and more independent sums than the latency of an addition requires.
const ROWS: usize = 6;

/// As [`super::float::assign`].
///
/// # Safety
/// The caller has AVX-512, and is compiled for it.
#[inline(always)]
pub(super) unsafe fn assign(subspaces: &[Columns], x: &[f32], out: &mut [u8]) {
    let count = subspaces.len();
    let mut found = Vec::new();
    for (m, columns) in subspaces.iter().enumerate() {
        let dim = count * columns.inputs;
        let first = (m * columns.inputs).min(x.len());
        found.resize(x.len() / dim, (0, 0.0));
        // SAFETY: the caller's promise is ours.
        unsafe { each(columns, &x[first..], dim, &mut found) };
        for (codes, (code, _)) in out.chunks_exact_mut(count).zip(&found) {
            codes[m] = *code;
        }
    }
}

/// The best output for each row, `stride` apart, with its sum.
///
/// # Safety
/// As for [`assign`].
#[inline(always)]
pub(super) unsafe fn each(columns: &Columns, x: &[f32], stride: usize, out: &mut [(u8, f32)]) {
    let mut several = Vec::with_capacity(columns.inputs);
    let mut one = Vec::with_capacity(columns.inputs);
    let (groups, rest) = out.as_chunks_mut::<ROWS>();
    for (g, group) in groups.iter_mut().enumerate() {
        transpose::<ROWS>(
            &x[g * ROWS * stride..],
            stride,
            &mut several,
            columns.inputs,
        );
        // SAFETY: the caller's promise is ours.
        *group = unsafe { best(columns, &several) };
    }
    let first = groups.len() * ROWS;
    for (row, out) in (first..).zip(rest) {
        transpose::<1>(&x[row * stride..], stride, &mut one, columns.inputs);
        // SAFETY: the caller's promise is ours.
        [*out] = unsafe { best(columns, &one) };
    }
}

/// The output with the largest sum for N inputs, ties to the lowest, and that sum; no sum is NaN.
///
/// # Safety
/// As for [`assign`].
#[inline(always)]
unsafe fn best<const N: usize>(columns: &Columns, x: &[[f32; N]]) -> [(u8, f32); N] {
    // SAFETY: the caller has AVX-512; arrays are as long as what is read of them.
    unsafe {
        let mut best = [_mm512_set1_ps(f32::NEG_INFINITY); N];
        let mut tiles = [_mm512_setzero_si512(); N];
        let (offsets, inputs) = (&columns.offsets, columns.inputs);
        let mut tile = 0;
        while tile < offsets.len() {
            // The last tile of an odd number is paired with itself.
            let next = (tile + 1).min(offsets.len() - 1);
            // No closures: they would not be compiled for these features.
            let mut sums = [
                [_mm512_loadu_ps(offsets[tile].as_ptr()); N],
                [_mm512_loadu_ps(offsets[next].as_ptr()); N],
            ];
            let first = &columns.values[tile * inputs..][..inputs];
            let second = &columns.values[next * inputs..][..inputs];
            for ((x, first), second) in x.iter().zip(first).zip(second) {
                let first = _mm512_loadu_ps(first.as_ptr());
                let second = _mm512_loadu_ps(second.as_ptr());
                for r in 0..N {
                    let x = _mm512_set1_ps(x[r]);
                    sums[0][r] = _mm512_fmadd_ps(x, first, sums[0][r]);
                    sums[1][r] = _mm512_fmadd_ps(x, second, sums[1][r]);
                }
            }
            for (t, tile) in [tile, next].into_iter().enumerate() {
                let tile = _mm512_set1_epi32(tile as i32);
                for r in 0..N {
                    let larger = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(sums[t][r], best[r]);
                    // As the mask would choose, without waiting for it; of equals the second operand.
                    best[r] = _mm512_max_ps(sums[t][r], best[r]);
                    tiles[r] = _mm512_mask_mov_epi32(tiles[r], larger, tile);
                }
            }
            tile += 2;
        }
        let mut results = [(0, 0.0); N];
        let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        for r in 0..N {
            let largest = _mm512_reduce_max_ps(best[r]);
            let equal = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(best[r], _mm512_set1_ps(largest));
            // A lane has the first of its own best; of several lanes the first is taken.
            let output = _mm512_add_epi32(_mm512_slli_epi32::<{ LANES.ilog2() }>(tiles[r]), lanes);
            results[r] = (_mm512_mask_reduce_min_epu32(equal, output) as u8, largest);
        }
        results
    }
}
