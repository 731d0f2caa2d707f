//! OPQ of the first principal axes: a projection to fewer dimensions, folded together with OPQ's rotation.

use super::head::Head;
use super::linalg::symmetric_eigen;
use super::opq::{covariance, piece, pieces, train_opq};
use super::pq::{Setup, TrainPq, Trained};
use super::quantizer::Quantizer;
use crate::error::{Error, Result};
use crate::kernel::Columns;
use crate::metric::Metric;

/// Trains like [`train_opq`], on the first `axes` principal axes of the rows, to which the quantizer projects first.
/// The number of axes need not divide the rows' dimensions, but the subspaces must divide it. With as many axes as
/// dimensions this equals [`train_opq`].
///
/// For l2 these are the axes about the mean, for the other metrics about zero, because inner products depend on it.
pub fn train_opq_on_axes(
    vectors: &[f32],
    dim: usize,
    axes: usize,
    metric: Metric,
    options: &TrainPq,
) -> Result<Trained> {
    if axes == dim {
        return train_opq(vectors, dim, metric, options);
    }
    if axes == 0 || axes > dim {
        return Err(Error::invalid(format!(
            "rows of {dim} dimensions have no {axes} principal axes"
        )));
    }
    // One subspace divides any number of dimensions; that of the options is checked against the axes.
    let mut whole = options.clone().subspaces(1);
    if options.cells > 0 {
        // All rows train the cells.
        whole.sample = usize::MAX;
    }
    let setup = Setup::new(vectors, dim, &whole)?;
    let (machine, rows) = (&setup.machine, &setup.rows);
    let moments = covariance(machine, rows, dim, metric == Metric::L2);
    let (variances, directions) = symmetric_eigen(&moments, dim);
    let mut order: Vec<usize> = (0..dim).collect();
    order.sort_by(|&a, &b| variances[b].total_cmp(&variances[a]));
    let axis = |at: usize| &directions[order[at] * dim..][..dim];
    // (dim, axes)
    let projection: Vec<f32> = (0..dim * axes)
        .map(|at| axis(at % axes)[at / axes] as f32)
        .collect();
    let columns = Columns::from_columns(dim, axes, &projection);
    let projected = machine.map(pieces(rows, dim), |p| {
        let rows = piece(rows, dim, p);
        let mut out = vec![0.0; rows.len() / dim * axes];
        machine.kernel.affine(&columns, rows, &mut out);
        out
    });
    let projected = projected.concat();
    let n = projected.len() / axes;
    let sample = options.sample.min(n);
    let trained = train_opq(&projected, axes, metric, &options.clone().sample(sample))?;
    let rotation = trained.quantizer.rotation().expect("OPQ has a rotation");
    // W = R^T P, so that x W^T = (x P^T) R.
    let mut weight = vec![0.0f64; axes * dim];
    for (i, row) in rotation.chunks_exact(axes).enumerate() {
        for (r, out) in row.iter().zip(weight.chunks_exact_mut(dim)) {
            for (sum, x) in out.iter_mut().zip(axis(i)) {
                *sum += f64::from(*r) * x;
            }
        }
    }
    let weight = weight.into_iter().map(|w| w as f32).collect();
    let codebook = trained.quantizer.codebook().clone();
    Ok(Trained {
        quantizer: Quantizer::builder(codebook, metric)
            .head(Some(Head::new(axes, dim, weight, None)?))
            .cells(trained.quantizer.cells().cloned())
            .build()?
            .arranged()?,
        distortions: trained.distortions,
        rows: trained.rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::random::Random;

    const DIM: usize = 13;

    /// Rows with six strong axes, turned so that no dimension is one of them, and a little noise in all.
    fn rows(n: usize) -> Vec<f32> {
        let mut random = Random::new(5);
        let mut normal = move || ((0..12).map(|_| random.unit()).sum::<f64>() - 6.0) as f32;
        let turn: Vec<f32> = (0..6 * DIM).map(|_| normal()).collect();
        let mut rows = Vec::with_capacity(n * DIM);
        for _ in 0..n {
            let strong: Vec<f32> = (0..6).map(|_| normal()).collect();
            for d in 0..DIM {
                let value: f32 = (0..6).map(|a| strong[a] * turn[a * DIM + d]).sum();
                rows.push(value + 0.01 * normal());
            }
        }
        rows
    }

    #[test]
    fn few_axes_keep_the_inner_products_of_rows_that_lie_along_them() {
        let rows = rows(800);
        let options = TrainPq::default().subspaces(3).codewords(64).iterations(5);
        for metric in [Metric::Ip, Metric::L2] {
            let trained = train_opq_on_axes(&rows, DIM, 6, metric, &options).unwrap();
            let quantizer = &trained.quantizer;
            assert_eq!((quantizer.input_dim(), quantizer.dim()), (DIM, 6));
            assert!(quantizer.rotation().is_none(), "it is folded in");
            let mut projected = vec![0.0; 800 * 6];
            quantizer.project(&rows, &mut projected).unwrap();
            let dot = |a: &[f32], b: &[f32]| -> f32 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
            for (x, z) in rows.chunks_exact(DIM).zip(projected.chunks_exact(6)) {
                let (before, after) = (dot(x, &rows[..DIM]), dot(z, &projected[..6]));
                assert!(
                    (before - after).abs() < 0.02 * dot(x, x).max(10.0),
                    "{before} {after}"
                );
            }
            // The codewords are of the projected rows.
            let mut codes = vec![0; 800 * 3];
            quantizer.quantize(&rows, &mut codes).unwrap();
            let mut decoded = vec![0.0; 800 * 6];
            quantizer.decode(&codes, &mut decoded);
            let error: f32 = (decoded.iter().zip(&projected))
                .map(|(a, b)| (a - b) * (a - b))
                .sum::<f32>()
                / 800.0;
            let last = *trained.distortions.last().unwrap() as f32;
            assert!((error - last).abs() < 0.1 * last, "{error} {last}");
        }
    }

    #[test]
    fn cells_are_of_the_axes_too() {
        let rows = rows(800);
        let options = TrainPq::default().subspaces(3).codewords(16).iterations(3);
        let options = options.cells(12);
        let trained = train_opq_on_axes(&rows, DIM, 6, Metric::Ip, &options).unwrap();
        let quantizer = trained.quantizer;
        let cells = quantizer.cells().unwrap();
        assert_eq!((cells.len(), cells.dim()), (12, 6));
        let mut projected = vec![0.0; 800 * 6];
        quantizer.project(&rows, &mut projected).unwrap();
        let codes = quantizer.row_codes(&rows).unwrap();
        let mut decoded = vec![0.0; 800 * 6];
        quantizer.decode_rows(&codes, &mut decoded);
        let error = |to: &[f32]| -> f32 {
            let pairs = projected.iter().zip(to);
            pairs.map(|(a, b)| (a - b) * (a - b)).sum()
        };
        let of_cells: Vec<f32> = (codes.cells.iter())
            .flat_map(|&cell| cells.centroid(cell).to_vec())
            .collect();
        let (all, left, coded) = (
            error(&vec![0.0; 800 * 6]),
            error(&of_cells),
            error(&decoded),
        );
        assert!(
            left < 0.9 * all && coded < 0.6 * left,
            "{all} {left} {coded}"
        );
    }

    #[test]
    fn all_axes_are_opq_and_other_numbers_must_fit() {
        let rows = rows(300);
        let options = TrainPq::default().subspaces(13).codewords(16).iterations(2);
        let all = train_opq_on_axes(&rows, DIM, DIM, Metric::Ip, &options).unwrap();
        let opq = train_opq(&rows, DIM, Metric::Ip, &options).unwrap();
        assert_eq!(all.quantizer.codebook(), opq.quantizer.codebook());
        let words = |axes| {
            let refused = train_opq_on_axes(&rows, DIM, axes, Metric::Ip, &options);
            refused.unwrap_err().to_string()
        };
        assert!(words(0).contains("no 0 principal axes"));
        assert!(words(14).contains("no 14 principal axes"));
        assert!(words(6).contains("13 subspaces"));
    }
}
