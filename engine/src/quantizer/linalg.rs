//! The little linear algebra that OPQ needs: eigenvectors of a symmetric matrix, and the rotation nearest to a matrix.
//!
//! Written for plain slices and the kernels' matrix product: a generic library is a hundred times slower in the
//! unoptimised builds that people make while they develop, which looked as if `learn` did not end.

use super::kmeans::Machine;
use crate::kernel::Columns;

/// Rows of one piece of a product.
const PIECE: usize = 128;

/// The rotation `R` nearest to `matrix`: `U V^T` of `matrix = U S V^T`. Both are (dim, dim), row-major.
///
/// Where the matrix has no direction, `R` takes that of `before`.
///
/// Newton-Schulz iterations on the polar factor, which are products alone. The first steps follow the polynomial
/// `x (3.4445 - 4.7750 x^2 + 2.0315 x^4)`, which lifts small singular values by 3.4 a step and leaves all in
/// (0.6, 1.3); the rest `x (3 - x^2) / 2`, which brings them to 1.
pub(super) fn nearest_rotation(
    machine: &Machine,
    matrix: &[f64],
    before: &[f32],
    dim: usize,
) -> Vec<f32> {
    const LIFTING_STEPS: usize = 10;
    const SETTLING_STEPS: usize = 30;
    let norm = largest_singular_value(matrix, dim).max(f64::MIN_POSITIVE);
    let mut x: Vec<f32> = (matrix.iter().zip(before))
        .map(|(m, b)| (m / norm + 1e-6 * f64::from(*b)) as f32)
        .collect();
    for _ in 0..LIFTING_STEPS {
        let squares = product(machine, &transposed(&x, dim), &x, dim);
        let fourths = product(machine, &squares, &squares, dim);
        let steps: Vec<f32> = (squares.iter().zip(&fourths).enumerate())
            .map(|(at, (s, f))| 2.0315 * f - 4.7750 * s + 3.4445 * identity(at, dim))
            .collect();
        x = product(machine, &x, &steps, dim);
    }
    for _ in 0..SETTLING_STEPS {
        let squares = product(machine, &transposed(&x, dim), &x, dim);
        let apart = (squares.iter().enumerate())
            .map(|(at, s)| (s - identity(at, dim)).abs())
            .fold(0.0, f32::max);
        let steps: Vec<f32> = (squares.iter().enumerate())
            .map(|(at, s)| 1.5 * identity(at, dim) - 0.5 * s)
            .collect();
        x = product(machine, &x, &steps, dim);
        // The step just taken squares the distance.
        if apart < 1e-4 {
            break;
        }
    }
    x
}

fn identity(at: usize, dim: usize) -> f32 {
    f32::from(u8::from(at.is_multiple_of(dim + 1)))
}

fn transposed(matrix: &[f32], dim: usize) -> Vec<f32> {
    (0..dim * dim)
        .map(|at| matrix[at % dim * dim + at / dim])
        .collect()
}

/// `A B`
fn product(machine: &Machine, a: &[f32], b: &[f32], dim: usize) -> Vec<f32> {
    let columns = Columns::from_columns(dim, dim, b);
    machine
        .map(dim.div_ceil(PIECE), |piece| {
            let rows = &a[piece * PIECE * dim..];
            let rows = &rows[..rows.len().min(PIECE * dim)];
            let mut out = vec![0.0; rows.len()];
            machine.kernel.affine(&columns, rows, &mut out);
            out
        })
        .concat()
}

/// By power iteration, from below; a few percent are near enough for a start.
fn largest_singular_value(matrix: &[f64], dim: usize) -> f64 {
    let mut v = vec![1.0; dim];
    let mut norm: f64 = 0.0;
    for _ in 0..20 {
        let mut next = vec![0.0; dim];
        let mut squares = 0.0;
        for row in matrix.chunks_exact(dim) {
            let along = dot(row, &v);
            squares += along * along;
            add(&mut next, row, along);
        }
        let length = dot(&v, &v).sqrt();
        norm = norm.max(squares.sqrt() / length.max(f64::MIN_POSITIVE));
        let length = dot(&next, &next).sqrt().max(f64::MIN_POSITIVE);
        next.iter_mut().for_each(|x| *x /= length);
        v = next;
    }
    norm
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `sum += factor * x`
fn add(sum: &mut [f64], x: &[f64], factor: f64) {
    for (sum, x) in sum.iter_mut().zip(x) {
        *sum += factor * x;
    }
}

/// The eigenvalues of a symmetric matrix, and the eigenvectors, one after the other, in the same order.
///
/// Householder's reduction to a tridiagonal matrix, then QL steps with implicit shifts: `tred2` and `tql2` of EISPACK,
/// with the columns that they work on laid out one after the other.
pub(super) fn symmetric_eigen(matrix: &[f64], dim: usize) -> (Vec<f64>, Vec<f64>) {
    let mut columns = matrix.to_vec();
    let (mut diagonal, mut off) = tridiagonal(&mut columns, dim);
    implicit_ql(&mut columns, &mut diagonal, &mut off, dim);
    (diagonal, columns)
}

/// Leaves the transformation in `columns`. Returns the diagonal, and what is below it from index 1 on.
fn tridiagonal(columns: &mut [f64], n: usize) -> (Vec<f64>, Vec<f64>) {
    let mut d: Vec<f64> = (0..n).map(|j| columns[j * n + n - 1]).collect();
    let mut e = vec![0.0; n];
    for i in (1..n).rev() {
        let scale: f64 = d[..i].iter().map(|x| x.abs()).sum();
        let mut h = 0.0;
        if scale == 0.0 {
            e[i] = d[i - 1];
            for j in 0..i {
                d[j] = columns[j * n + i - 1];
                columns[j * n + i] = 0.0;
                columns[i * n + j] = 0.0;
            }
        } else {
            for x in &mut d[..i] {
                *x /= scale;
                h += *x * *x;
            }
            let f = d[i - 1];
            let g = -h.sqrt().copysign(f);
            e[i] = scale * g;
            h -= f * g;
            d[i - 1] = f - g;
            e[..i].fill(0.0);
            columns[i * n..i * n + i].copy_from_slice(&d[..i]);
            for j in 0..i {
                let f = d[j];
                let column = &columns[j * n + j + 1..j * n + i];
                let g = e[j] + columns[j * n + j] * f + dot(column, &d[j + 1..i]);
                add(&mut e[j + 1..i], column, f);
                e[j] = g;
            }
            for x in &mut e[..i] {
                *x /= h;
            }
            let half = dot(&e[..i], &d[..i]) / (h + h);
            let (e_i, d_i) = (&mut e[..i], &mut d[..i]);
            add(e_i, d_i, -half);
            for j in 0..i {
                let (f, g) = (d[j], e[j]);
                let column = &mut columns[j * n + j..j * n + i];
                add(column, &e[j..i], -f);
                add(column, &d[j..i], -g);
                d[j] = columns[j * n + i - 1];
                columns[j * n + i] = 0.0;
            }
        }
        d[i] = h;
    }
    for i in 0..n - 1 {
        columns[i * n + n - 1] = columns[i * n + i];
        columns[i * n + i] = 1.0;
        let h = d[i + 1];
        let (before, reflector) = columns.split_at_mut((i + 1) * n);
        let reflector = &mut reflector[..=i];
        if h != 0.0 {
            for column in before.chunks_exact_mut(n) {
                let g = dot(reflector, &column[..=i]) / h;
                add(&mut column[..=i], reflector, -g);
            }
        }
        reflector.fill(0.0);
    }
    for j in 0..n {
        d[j] = columns[j * n + n - 1];
        columns[j * n + n - 1] = 0.0;
    }
    columns[n * n - 1] = 1.0;
    (d, e)
}

fn implicit_ql(columns: &mut [f64], d: &mut [f64], e: &mut [f64], n: usize) {
    e.rotate_left(1);
    e[n - 1] = 0.0;
    let (mut shift, mut largest) = (0.0, 0.0f64);
    for l in 0..n {
        largest = largest.max(d[l].abs() + e[l].abs());
        let small = f64::EPSILON * largest;
        // The last of `e` is zero, so there is one.
        let m = (l..n).find(|&m| e[m].abs() <= small).unwrap_or(n - 1);
        while m > l && e[l].abs() > small {
            let g = d[l];
            let p = (d[l + 1] - g) / (2.0 * e[l]);
            let r = (p * p + 1.0).sqrt().copysign(p);
            d[l] = e[l] / (p + r);
            d[l + 1] = e[l] * (p + r);
            let dl1 = d[l + 1];
            let h = g - d[l];
            d[l + 2..].iter_mut().for_each(|x| *x -= h);
            shift += h;
            let mut p = d[m];
            let (mut c, mut c2, mut c3) = (1.0, 1.0, 1.0);
            let (mut s, mut s2) = (0.0, 0.0);
            let el1 = e[l + 1];
            for i in (l..m).rev() {
                (c3, c2, s2) = (c2, c, s);
                let g = c * e[i];
                let h = c * p;
                let r = (p * p + e[i] * e[i]).sqrt();
                e[i + 1] = s * r;
                s = e[i] / r;
                c = p / r;
                p = c * d[i] - s * g;
                d[i + 1] = h + s * (c * g + s * d[i]);
                let (left, right) = columns[i * n..(i + 2) * n].split_at_mut(n);
                for (a, b) in left.iter_mut().zip(right) {
                    let h = *b;
                    *b = s * *a + c * h;
                    *a = c * *a - s * h;
                }
            }
            p = -s * s2 * c3 * el1 * e[l] / dl1;
            e[l] = s * p;
            d[l] = c * p;
        }
        d[l] += shift;
        e[l] = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use crate::kernel::pool::Pool;
    use crate::kernel::random::Random;

    fn machine() -> Machine {
        Machine {
            kernel: Kernel::detect().unwrap(),
            pool: Pool::new(2).unwrap(),
        }
    }

    fn random(dim: usize, seed: u64) -> Vec<f64> {
        let mut random = Random::new(seed);
        (0..dim * dim).map(|_| random.unit() - 0.5).collect()
    }

    #[test]
    fn eigenvectors_give_the_matrix_back() {
        for dim in [1, 2, 3, 16, 65] {
            let x = random(dim, 3);
            // Symmetric, with one direction that has no variance.
            let matrix: Vec<f64> = (0..dim * dim)
                .map(|at| {
                    let (i, j) = (at / dim, at % dim);
                    (1..dim.max(2))
                        .map(|k| x[(k % dim) * dim + i] * x[(k % dim) * dim + j])
                        .sum()
                })
                .collect();
            let (values, vectors) = symmetric_eigen(&matrix, dim);
            for i in 0..dim {
                for j in 0..dim {
                    let again: f64 = (0..dim)
                        .map(|k| values[k] * vectors[k * dim + i] * vectors[k * dim + j])
                        .sum();
                    assert!(
                        (again - matrix[i * dim + j]).abs() < 1e-10,
                        "{dim}: {i} {j}"
                    );
                    let along = dot(&vectors[i * dim..][..dim], &vectors[j * dim..][..dim]);
                    assert!((along - f64::from(u8::from(i == j))).abs() < 1e-10);
                }
            }
        }
    }

    #[test]
    fn the_nearest_rotation_is_one_and_none_is_nearer() {
        for dim in [1, 2, 8, 65] {
            let mut matrix = random(dim, 5);
            // Badly conditioned: columns shrink to a ten-thousandth.
            for (at, x) in matrix.iter_mut().enumerate() {
                *x *= 1e-4f64.powf((at % dim) as f64 / dim as f64);
            }
            let start: Vec<f32> = (0..dim * dim).map(|at| identity(at, dim)).collect();
            let rotation = nearest_rotation(&machine(), &matrix, &start, dim);
            let squares = product(&machine(), &transposed(&rotation, dim), &rotation, dim);
            for (at, s) in squares.iter().enumerate() {
                assert!((s - identity(at, dim)).abs() < 1e-5, "{dim}: {s}");
            }
            // R^T M is symmetric and positive at the nearest rotation, and only there.
            let cell = |i: usize, j: usize| -> f64 {
                (0..dim)
                    .map(|k| f64::from(rotation[k * dim + i]) * matrix[k * dim + j])
                    .sum()
            };
            for i in 0..dim {
                assert!(cell(i, i) > -1e-6);
                for j in 0..i {
                    assert!((cell(i, j) - cell(j, i)).abs() < 1e-4, "{dim}: {i} {j}");
                }
            }
        }
    }

    #[test]
    fn a_matrix_without_a_direction_keeps_the_rotation_there() {
        let dim = 6;
        let mut start = vec![0.0; dim * dim];
        for i in 0..dim {
            start[i * dim + (i + 1) % dim] = 1.0;
        }
        let rotation = nearest_rotation(&machine(), &vec![0.0; dim * dim], &start, dim);
        for (a, b) in rotation.iter().zip(&start) {
            assert!((a - b).abs() < 1e-5);
        }
    }
}
