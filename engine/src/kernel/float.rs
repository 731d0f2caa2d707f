//! Sums of products in dimension order, lanes over outputs: projections, tables and the choice of codewords.
//!
//! Each loop is written once over arrays of [`LANES`] and compiled once for each instruction set; the compiler
//! may vectorise across lanes but never reorder a lane's own sum, so that all give the same bits as the
//! plain twins in [`super::scalar`].

use super::columns::{Columns, LANES};

type Lanes = [f32; LANES];

/// Rows that share each load of the matrix: twelve AVX2 registers of sums, two of the matrix, one of an input.
const ROWS: usize = 4;

/// `offset + sum` for N inputs, given as (inputs, N), and LANES outputs.
#[inline(always)]
fn sums<const N: usize>(offsets: &Lanes, columns: &[Lanes], x: &[[f32; N]]) -> [Lanes; N] {
    #[cfg(all(unoptimised, target_arch = "x86_64", not(miri)))]
    if let Some(four) = as_four(x)
        && super::fused::is_available()
    {
        // SAFETY: as just found.
        let four = unsafe { super::fused::sums(offsets, columns, four) };
        return std::array::from_fn(|r| four[r]);
    }
    let mut sums = [*offsets; N];
    for (x, column) in x.iter().zip(columns) {
        for r in 0..N {
            for l in 0..LANES {
                sums[r][l] = x[r].mul_add(column[l], sums[r][l]);
            }
        }
    }
    sums
}

/// The same inputs, if they come four at a time.
#[cfg(all(unoptimised, target_arch = "x86_64", not(miri)))]
fn as_four<const N: usize>(x: &[[f32; N]]) -> Option<&[[f32; 4]]> {
    (N == 4).then(|| bytemuck::cast_slice(x.as_flattened()))
}

/// N rows, `stride` apart, as (inputs, N).
#[inline(always)]
pub(super) fn transpose<const N: usize>(
    x: &[f32],
    stride: usize,
    out: &mut Vec<[f32; N]>,
    inputs: usize,
) {
    out.resize(inputs, [0.0; N]);
    for r in 0..N {
        for (out, x) in out.iter_mut().zip(&x[r * stride..]) {
            out[r] = *x;
        }
    }
}

#[inline(always)]
fn affine_rows<const N: usize>(columns: &Columns, x: &[[f32; N]], out: &mut [f32]) {
    let outputs = columns.outputs;
    for (tile, (offsets, values)) in columns.tiles().enumerate() {
        let first = tile * LANES;
        let width = LANES.min(outputs - first);
        for (r, sums) in sums(offsets, values, x).iter().enumerate() {
            out[r * outputs + first..][..width].copy_from_slice(&sums[..width]);
        }
    }
}

/// `y = offsets + x V` for each row of `x`: (n, inputs) to (n, outputs).
#[inline(always)]
pub(super) fn affine(columns: &Columns, x: &[f32], out: &mut [f32]) {
    let (inputs, outputs) = (columns.inputs, columns.outputs);
    let mut several = Vec::with_capacity(inputs);
    let mut one = Vec::with_capacity(inputs);
    let mut x = x.chunks_exact(ROWS * inputs);
    let mut out = out.chunks_exact_mut(ROWS * outputs);
    for (x, out) in (&mut x).zip(&mut out) {
        transpose::<ROWS>(x, inputs, &mut several, inputs);
        affine_rows(columns, &several, out);
    }
    for (x, out) in x
        .remainder()
        .chunks_exact(inputs)
        .zip(out.into_remainder().chunks_exact_mut(outputs))
    {
        transpose::<1>(x, inputs, &mut one, inputs);
        affine_rows(columns, &one, out);
    }
}

/// `-|x - V_o|^2` for one input and every output.
#[inline(always)]
pub(super) fn negative_distances(columns: &Columns, x: &[f32], out: &mut [f32]) {
    for ((_, values), out) in columns.tiles().zip(out.chunks_mut(LANES)) {
        let mut sums = [0.0; LANES];
        for (column, &value) in values.iter().zip(x) {
            for l in 0..LANES {
                let difference = value - column[l];
                sums[l] = difference.mul_add(difference, sums[l]);
            }
        }
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = 0.0 - sum;
        }
    }
}

/// The sums of N inputs, by tile.
type Kept<const N: usize> = [[Lanes; 16]; N];

/// The output with the largest sum for N inputs, ties to the lowest, and that sum; no sum is NaN. No closures: they
/// would be compiled without the CPU's features.
#[inline(always)]
fn argmax<const N: usize>(columns: &Columns, x: &[[f32; N]], kept: &mut Kept<N>) -> [(u8, f32); N] {
    // The sums are kept, their maximum taken, and then looked for: a lane needs no index of its own, and the
    // loop over tiles has all registers for its sums.
    for (tile, (offsets, values)) in columns.tiles().enumerate().take(16) {
        let sums = sums(offsets, values, x);
        for r in 0..N {
            kept[r][tile] = sums[r];
        }
    }
    let tiles = columns.offsets.len().min(16);
    let mut results = [(0, 0.0); N];
    for r in 0..N {
        let kept = &kept[r][..tiles];
        let mut best = [f32::NEG_INFINITY; LANES];
        for sums in kept {
            for l in 0..LANES {
                best[l] = if sums[l] > best[l] { sums[l] } else { best[l] };
            }
        }
        let max = largest(best);
        results[r] = (first_equal(kept, max), max);
    }
    results
}

#[inline(always)]
fn largest(mut lanes: Lanes) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for l in 0..width {
            lanes[l] = if lanes[l + width] > lanes[l] {
                lanes[l + width]
            } else {
                lanes[l]
            };
        }
        width /= 2;
    }
    lanes[0]
}

/// Where `value` first is. Without branches: where it is can't be predicted.
#[inline(always)]
fn first_equal(tiles: &[Lanes], value: f32) -> u8 {
    let mut least = [u32::MAX; LANES];
    for (tile, sums) in tiles.iter().enumerate() {
        for l in 0..LANES {
            let all_ones_if_different = u32::from(sums[l] != value).wrapping_neg();
            least[l] = least[l].min(all_ones_if_different | (tile * LANES + l) as u32);
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for l in 0..width {
            least[l] = least[l].min(least[l + width]);
        }
        width /= 2;
    }
    least[0] as u8
}

/// The best output for each of n rows, `stride` apart, with its sum. Requires: at most 256 outputs, sums that stay
/// finite.
#[inline(always)]
fn each(
    columns: &Columns,
    x: &[f32],
    stride: usize,
    n: usize,
    mut put: impl FnMut(usize, (u8, f32)),
) {
    let inputs = columns.inputs;
    let mut several = Vec::with_capacity(inputs);
    let mut one = Vec::with_capacity(inputs);
    let mut kept = [[[0.0; LANES]; 16]; ROWS];
    let mut kept_one = [[[0.0; LANES]; 16]; 1];
    let whole = n / ROWS * ROWS;
    for row in (0..whole).step_by(ROWS) {
        transpose::<ROWS>(&x[row * stride..], stride, &mut several, inputs);
        for (r, best) in argmax(columns, &several, &mut kept).into_iter().enumerate() {
            put(row + r, best);
        }
    }
    for row in whole..n {
        transpose::<1>(&x[row * stride..], stride, &mut one, inputs);
        put(row, argmax(columns, &one, &mut kept_one)[0]);
    }
}

/// Returns the largest magnitude of a value; not finite if one is not: as integers, those are the
/// largest.
#[inline(always)]
pub(super) fn largest_magnitude(x: &[f32]) -> f32 {
    let largest = x
        .iter()
        .fold(0, |largest: u32, x| largest.max(x.abs().to_bits()));
    f32::from_bits(largest)
}

/// The best output of each subspace for rows (n, subspaces x inputs), to codes (n, subspaces).
#[inline(always)]
pub(super) fn assign(subspaces: &[Columns], x: &[f32], out: &mut [u8]) {
    let count = subspaces.len();
    for (m, columns) in subspaces.iter().enumerate() {
        let dim = count * columns.inputs;
        each(
            columns,
            &x[(m * columns.inputs).min(x.len())..],
            dim,
            x.len() / dim,
            |row, (code, _)| {
                out[row * count + m] = code;
            },
        );
    }
}

/// The best output of one subspace for rows (n, inputs), with its sum.
#[inline(always)]
pub(super) fn nearest(columns: &Columns, x: &[f32], codes: &mut [u8], sums: &mut [f32]) {
    each(columns, x, columns.inputs, codes.len(), |row, best| {
        (codes[row], sums[row]) = best;
    });
}

/// Adds each row (n, inputs) to the sum of its code, (codes, inputs).
#[inline(always)]
pub(super) fn accumulate(x: &[f32], inputs: usize, codes: &[u8], sums: &mut [f64]) {
    for (row, &code) in x.chunks_exact(inputs).zip(codes) {
        for (sum, &x) in sums[usize::from(code) * inputs..][..inputs]
            .iter_mut()
            .zip(row)
        {
            *sum += f64::from(x);
        }
    }
}
