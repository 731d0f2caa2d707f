//! Sums of products in dimension order, lanes over outputs: projections, tables and the choice of codewords.
//!
//! Each loop is written once over arrays of [`LANES`] and compiled once for each instruction set; the compiler
//! may vectorise across lanes but never reorder a lane's own sum, so that all give the same bits as the
//! plain twins in [`super::scalar`].

use super::columns::{Columns, LANES};

type Lanes = [f32; LANES];

#[inline(always)]
fn lanes(values: &[f32], at: usize) -> &Lanes {
    values[at..at + LANES].try_into().expect("LANES long")
}

/// `offset + sum` for ROWS inputs and LANES outputs.
#[inline(always)]
fn sums<const ROWS: usize>(columns: &Columns, x: [&[f32]; ROWS], tile: usize) -> [Lanes; ROWS] {
    let stride = columns.stride();
    let mut sums = [*lanes(&columns.offsets, tile); ROWS];
    let x = x.map(|row| &row[..columns.inputs]);
    for (d, column) in columns.values.chunks_exact(stride).enumerate() {
        let column = lanes(column, tile);
        for r in 0..ROWS {
            let value = x[r][d];
            for l in 0..LANES {
                sums[r][l] = value.mul_add(column[l], sums[r][l]);
            }
        }
    }
    sums
}

#[inline(always)]
fn affine_rows<const ROWS: usize>(columns: &Columns, x: &[f32], out: &mut [f32]) {
    let rows: [&[f32]; ROWS] = std::array::from_fn(|r| &x[r * columns.inputs..][..columns.inputs]);
    for tile in (0..columns.stride()).step_by(LANES) {
        let sums = sums(columns, rows, tile);
        let width = LANES.min(columns.outputs - tile);
        for (r, sums) in sums.iter().enumerate() {
            out[r * columns.outputs + tile..][..width].copy_from_slice(&sums[..width]);
        }
    }
}

/// `y = offsets + x V` for each row of `x`: (n, inputs) to (n, outputs).
#[inline(always)]
pub(super) fn affine(columns: &Columns, x: &[f32], out: &mut [f32]) {
    let (inputs, outputs) = (columns.inputs, columns.outputs);
    let mut x = x.chunks_exact(4 * inputs);
    let mut out = out.chunks_exact_mut(4 * outputs);
    for (x, out) in (&mut x).zip(&mut out) {
        affine_rows::<4>(columns, x, out);
    }
    for (x, out) in x
        .remainder()
        .chunks_exact(inputs)
        .zip(out.into_remainder().chunks_exact_mut(outputs))
    {
        affine_rows::<1>(columns, x, out);
    }
}

/// `-|x - V_o|^2` for one input and every output.
#[inline(always)]
pub(super) fn negative_distances(columns: &Columns, x: &[f32], out: &mut [f32]) {
    let stride = columns.stride();
    for tile in (0..stride).step_by(LANES) {
        let mut sums = [0.0; LANES];
        for (column, &value) in columns.values.chunks_exact(stride).zip(x) {
            let column = lanes(column, tile);
            for l in 0..LANES {
                let difference = value - column[l];
                sums[l] = difference.mul_add(difference, sums[l]);
            }
        }
        let width = LANES.min(columns.outputs - tile);
        for (out, sum) in out[tile..][..width].iter_mut().zip(sums) {
            *out = 0.0 - sum;
        }
    }
}

/// The output with the largest sum for ROWS inputs, ties to the lowest; no sum is NaN.
#[inline(always)]
fn argmax<const ROWS: usize>(columns: &Columns, x: [&[f32]; ROWS]) -> [(u32, f32); ROWS] {
    let mut best = [[f32::NEG_INFINITY; LANES]; ROWS];
    let mut tiles = [[0u32; LANES]; ROWS];
    let whole = columns.outputs / LANES * LANES;
    for tile in (0..whole).step_by(LANES) {
        let sums = sums(columns, x, tile);
        for r in 0..ROWS {
            for l in 0..LANES {
                let better = sums[r][l] > best[r][l];
                best[r][l] = if better { sums[r][l] } else { best[r][l] };
                tiles[r][l] = if better { tile as u32 } else { tiles[r][l] };
            }
        }
    }
    if whole < columns.outputs {
        let sums = sums(columns, x, whole);
        for r in 0..ROWS {
            for l in 0..columns.outputs - whole {
                if sums[r][l] > best[r][l] {
                    (best[r][l], tiles[r][l]) = (sums[r][l], whole as u32);
                }
            }
        }
    }
    std::array::from_fn(|r| {
        let max = best[r]
            .iter()
            .fold(f32::NEG_INFINITY, |max, &b| if b > max { b } else { max });
        let mut first = u32::MAX;
        for l in 0..LANES {
            if best[r][l] == max {
                first = first.min(tiles[r][l] + l as u32);
            }
        }
        (first, max)
    })
}

/// The best output of each subspace for rows (n, subspaces x inputs), to codes (n, subspaces). The sums stay
/// finite: [`Columns::stays_finite`] was asked.
#[inline(always)]
pub(super) fn assign(subspaces: &[Columns], x: &[f32], out: &mut [u8]) {
    const ROWS: usize = 4;
    let count = subspaces.len();
    let Some(inputs) = subspaces.first().map(|c| c.inputs) else {
        return;
    };
    let dim = count * inputs;
    let n = x.len() / dim;
    for (m, columns) in subspaces.iter().enumerate() {
        let slice = |row: usize| &x[row * dim + m * inputs..][..inputs];
        let mut row = 0;
        while row + ROWS <= n {
            let best = argmax::<ROWS>(columns, std::array::from_fn(|r| slice(row + r)));
            for (r, (codeword, _)) in best.iter().enumerate() {
                out[(row + r) * count + m] = *codeword as u8;
            }
            row += ROWS;
        }
        for row in row..n {
            out[row * count + m] = argmax::<1>(columns, [slice(row)])[0].0 as u8;
        }
    }
}

/// The best output of one subspace for rows (n, inputs), with its sum. The sums stay finite.
#[inline(always)]
pub(super) fn nearest(columns: &Columns, x: &[f32], codes: &mut [u8], sums: &mut [f32]) {
    const ROWS: usize = 4;
    let inputs = columns.inputs;
    let n = x.len() / inputs;
    let slice = |row: usize| &x[row * inputs..][..inputs];
    let mut row = 0;
    while row + ROWS <= n {
        let best = argmax::<ROWS>(columns, std::array::from_fn(|r| slice(row + r)));
        for (r, (codeword, sum)) in best.iter().enumerate() {
            (codes[row + r], sums[row + r]) = (*codeword as u8, *sum);
        }
        row += ROWS;
    }
    for row in row..n {
        let (codeword, sum) = argmax::<1>(columns, [slice(row)])[0];
        (codes[row], sums[row]) = (codeword as u8, sum);
    }
}
