//! Optimised product quantization: a rotation learned together with the codewords.
//!
//! Alternates one step of k-means in each subspace with the best rotation for the current codes, which is the
//! orthogonal Procrustes solution `R = U V^T` of `X^T Y = U S V^T`, Y being the decoded rows. Each half can only
//! lower the error.

use super::codebook::Codebook;
use super::kmeans::{KMeans, Machine};
use super::linalg::{nearest_rotation, symmetric_eigen};
use super::pq::{Setup, TrainPq, Trained, in_cells, slices};
use super::quantizer::Quantizer;
use crate::error::{Error, Result};
use crate::kernel::Columns;
use crate::metric::Metric;

/// Steps of k-means before the rotation first moves, and after it has come to rest.
const SETTLING_STEPS: usize = 10;

/// Trains like [`train_pq`](super::train_pq), with a rotation before the split into subspaces. The rotation starts from
/// the principal axes, distributed so that the subspaces have equal products of variances.
pub fn train_opq(
    vectors: &[f32],
    dim: usize,
    metric: Metric,
    options: &TrainPq,
) -> Result<Trained> {
    if options.cells > 0 {
        return in_cells(vectors, dim, metric, options, train_opq);
    }
    let setup = Setup::new(vectors, dim, options)?;
    let (machine, rows) = (&setup.machine, &setup.rows);
    let n = rows.len() / dim;
    let mut rotation = balanced_axes(machine, rows, dim, options.subspaces);
    let mut rotated = rotate(machine, rows, dim, &rotation);
    let mut subspaces: Vec<KMeans> = (0..options.subspaces)
        .map(|m| {
            let slices = slices(&rotated, dim, m, setup.sub_dim);
            KMeans::seed(
                &slices,
                setup.sub_dim,
                options.codewords,
                options.seed ^ (m as u64 + 1),
            )
        })
        .collect();
    let steps = options.iterations + 2 * SETTLING_STEPS;
    let mut distortions = Vec::new();
    let mut step = |subspaces: &mut [KMeans], rotated: &[f32]| {
        options.begin_step(distortions.len(), steps)?;
        let mut total = 0.0;
        for (m, means) in subspaces.iter_mut().enumerate() {
            total += means
                .step(machine, &slices(rotated, dim, m, setup.sub_dim))
                .0;
        }
        distortions.push(total / n as f64);
        Ok::<_, Error>(())
    };
    for _ in 0..SETTLING_STEPS {
        step(&mut subspaces, &rotated)?;
    }
    for _ in 0..options.iterations {
        rotation = best_rotation(machine, rows, &rotation, &subspaces, (dim, setup.sub_dim));
        rotated = rotate(machine, rows, dim, &rotation);
        subspaces.iter_mut().for_each(KMeans::forget_rows);
        step(&mut subspaces, &rotated)?;
    }
    for _ in 0..SETTLING_STEPS {
        step(&mut subspaces, &rotated)?;
    }
    options.begin_step(steps, steps)?;
    let values = subspaces
        .into_iter()
        .flat_map(|means| means.centroids)
        .collect();
    let codebook = Codebook::new(setup.shape, setup.sub_dim, values)?;
    Ok(Trained {
        quantizer: Quantizer::builder(codebook, metric)
            .rotation(Some(rotation))
            .build()?
            .arranged()?,
        distortions,
        rows: n,
    })
}

/// Rows of one piece of work.
const PIECE: usize = 2048;

pub(super) fn pieces(rows: &[f32], dim: usize) -> usize {
    (rows.len() / dim).div_ceil(PIECE)
}

pub(super) fn piece(rows: &[f32], dim: usize, piece: usize) -> &[f32] {
    let rest = &rows[piece * PIECE * dim..];
    &rest[..rest.len().min(PIECE * dim)]
}

/// `X R`
fn rotate(machine: &Machine, rows: &[f32], dim: usize, rotation: &[f32]) -> Vec<f32> {
    let columns = Columns::from_columns(dim, dim, rotation);
    machine
        .map(pieces(rows, dim), |p| {
            let rows = piece(rows, dim, p);
            let mut out = vec![0.0; rows.len()];
            machine.kernel.affine(&columns, rows, &mut out);
            out
        })
        .concat()
}

/// The rotation that best carries the rows to what their codes stand for.
fn best_rotation(
    machine: &Machine,
    rows: &[f32],
    before: &[f32],
    subspaces: &[KMeans],
    (dim, sub_dim): (usize, usize),
) -> Vec<f32> {
    // X^T Y, a subspace at a time: the sum over its codewords c of (sum of the rows with code c) c^T. Adding up
    // rows by code costs n dim for each subspace; multiplying X^T by Y would cost n dim sub_dim.
    let blocks = machine.map(subspaces.len(), |m| {
        let means = &subspaces[m];
        let codewords = means.centroids.len() / sub_dim;
        let mut sums = vec![0.0f64; codewords * dim];
        for (row, &code) in rows.chunks_exact(dim).zip(&means.codes) {
            for (sum, x) in sums[usize::from(code) * dim..][..dim].iter_mut().zip(row) {
                *sum += f64::from(*x);
            }
        }
        let mut block = vec![0.0f64; dim * sub_dim];
        for (sum, centroid) in sums
            .chunks_exact(dim)
            .zip(means.centroids.chunks_exact(sub_dim))
        {
            for (row, s) in block.chunks_exact_mut(sub_dim).zip(sum) {
                for (cell, c) in row.iter_mut().zip(centroid) {
                    *cell += s * f64::from(*c);
                }
            }
        }
        block
    });
    let product: Vec<f64> = (0..dim * dim)
        .map(|at| blocks[at % dim / sub_dim][at / dim * sub_dim + at % dim % sub_dim])
        .collect();
    nearest_rotation(machine, &product, before, dim)
}

/// Principal axes, each given in order of variance to the subspace whose product of variances is smallest so far.
fn balanced_axes(machine: &Machine, rows: &[f32], dim: usize, subspaces: usize) -> Vec<f32> {
    let (variances, vectors) = symmetric_eigen(&covariance(machine, rows, dim, true), dim);
    let mut axes: Vec<usize> = (0..dim).collect();
    axes.sort_by(|&a, &b| variances[b].total_cmp(&variances[a]));
    let sub_dim = dim / subspaces;
    // Logarithms, shifted so that the least counted variance is 0 and axes without variance cost nothing.
    let floor = variances.iter().copied().fold(0.0, f64::max) * 1e-12 + f64::MIN_POSITIVE;
    let mut products = vec![0.0; subspaces];
    let mut places: Vec<Vec<usize>> = vec![Vec::new(); subspaces];
    for axis in axes {
        let m = (0..subspaces)
            .filter(|&m| places[m].len() < sub_dim)
            .min_by(|&a, &b| f64::total_cmp(&products[a], &products[b]))
            .expect("as many places as axes");
        products[m] += (variances[axis].max(floor) / floor).ln();
        places[m].push(axis);
    }
    let order = places.concat();
    (0..dim * dim)
        .map(|at| vectors[order[at % dim] * dim + at / dim] as f32)
        .collect()
}

/// The second moments of rows about their mean, or else about zero: (dim, dim).
pub(super) fn covariance(
    machine: &Machine,
    rows: &[f32],
    dim: usize,
    about_mean: bool,
) -> Vec<f64> {
    let n = (rows.len() / dim) as f64;
    let mut mean = vec![0.0f64; dim];
    for row in rows.chunks_exact(dim).filter(|_| about_mean) {
        for (m, x) in mean.iter_mut().zip(row) {
            *m += f64::from(*x) / n;
        }
    }
    let parts = machine.map(pieces(rows, dim), |p| {
        let mut rows = piece(rows, dim, p).to_vec();
        for row in rows.chunks_exact_mut(dim) {
            for (x, m) in row.iter_mut().zip(&mean) {
                *x -= *m as f32;
            }
        }
        // X^T X by the kernel for x V: rows are the inputs, and the transpose of X the vectors.
        let count = rows.len() / dim;
        let transposed: Vec<f32> = (0..count * dim)
            .map(|at| rows[at % count * dim + at / count])
            .collect();
        let mut out = vec![0.0; dim * dim];
        machine.kernel.affine(
            &Columns::from_columns(count, dim, &rows),
            &transposed,
            &mut out,
        );
        out
    });
    let mut covariance = vec![0.0; dim * dim];
    for part in parts {
        for (sum, x) in covariance.iter_mut().zip(part) {
            *sum += f64::from(x) / n;
        }
    }
    covariance
}
