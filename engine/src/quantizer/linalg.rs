//! The linear algebra that OPQ needs: eigenvectors of a symmetric matrix, and the rotation nearest to a matrix.
//!
//! Written for plain slices and the kernels' matrix product: a generic library is a hundred times slower in
//! unoptimised builds, in which `learn` seemed to hang.

use super::kmeans::Machine;
use crate::kernel::Columns;

/// Rows of one piece of a product.
const PIECE: usize = 128;

/// Steps for one eigenvalue, as in EISPACK.
const QL_STEPS: usize = 30;

/// The rotation `R` nearest to `matrix`: `U V^T` of `matrix = U S V^T`. Both are (dim, dim), row-major.
///
/// Where the matrix has no direction, `R` takes that of `before`. It is `before` itself for a matrix that is not finite, and
/// for one that the iterations cannot turn into a rotation.
///
/// Newton-Schulz iterations on the polar factor, which are products alone. The first steps follow the polynomial `x
/// (3.4445 - 4.7750 x^2 + 2.0315 x^4)`, which lifts small singular values by 3.4 per step and leaves all in (0.6, 1.3);
/// the rest `x (3 - x^2) / 2`, which brings them to 1.
pub(super) fn nearest_rotation(
    machine: &Machine,
    matrix: &[f64],
    before: &[f32],
    dim: usize,
) -> Vec<f32> {
    const LIFTING_STEPS: usize = 10;
    const SETTLING_STEPS: usize = 30;
    // A second is needed only where `before` cancels nearly all of a direction that the matrix lacks.
    const ROUNDS: usize = 3;
    let norm = norm_bound(machine, matrix, dim);
    if !norm.is_finite() {
        return before.to_vec();
    }
    // Of a matrix of zeros, `before` is all that remains.
    let norm = norm.max(f64::MIN_POSITIVE);
    let mut x: Vec<f32> = (matrix.iter().zip(before))
        .map(|(m, b)| (m / norm + 1e-6 * f64::from(*b)) as f32)
        .collect();
    for _ in 0..ROUNDS {
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
                return x;
            }
        }
    }
    before.to_vec()
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

/// At least the largest singular value of the matrix, and at most `dim^(1/32)` times it: 1.2 times for 384.
///
/// `(sum of s^32)^(1/32)` over the singular values `s`, which is the Frobenius norm of `(A^T A)^8` to the 16th root. The
/// lifting polynomial diverges from 1.27 on, so a bound from below, as power iteration gives, is not safe.
fn norm_bound(machine: &Machine, matrix: &[f64], dim: usize) -> f64 {
    let frobenius = scaled_norm(matrix.iter().copied());
    if frobenius == 0.0 || !frobenius.is_finite() {
        return frobenius;
    }
    let x: Vec<f32> = matrix.iter().map(|m| (m / frobenius) as f32).collect();
    let mut power = product(machine, &transposed(&x, dim), &x, dim);
    for _ in 0..3 {
        power = product(machine, &power, &power, dim);
    }
    frobenius * scaled_norm(power.iter().map(|x| f64::from(*x))).powf(1.0 / 16.0)
}

/// The root of the sum of squares, where the squares alone could leave `f64`.
fn scaled_norm(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let most = largest(values.clone());
    if most == 0.0 || !most.is_finite() {
        return most;
    }
    let squares: f64 = values.map(|x| (x / most) * (x / most)).sum();
    most * squares.sqrt()
}

/// The largest of the absolute values; infinity if one is not a number.
fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |most, x| match x.is_nan() {
        true => f64::INFINITY,
        false => most.max(x.abs()),
    })
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

/// Returns the eigenvalues of a symmetric matrix, and the eigenvectors, one after the other, in the same order.
///
/// Householder's reduction to a tridiagonal matrix, then QL steps with implicit shifts: `tred2` and `tql2` of EISPACK,
/// with the columns that they work on laid out one after the other. A matrix of zeros, or one that is not finite, gives
/// the unit vectors, with eigenvalues of zero.
pub(super) fn symmetric_eigen(matrix: &[f64], dim: usize) -> (Vec<f64>, Vec<f64>) {
    // Scaled to 1, so that no square leaves f64.
    let most = largest(matrix.iter().copied());
    if most == 0.0 || !most.is_finite() {
        let unit = (0..dim * dim).map(|at| f64::from(identity(at, dim)));
        return (vec![0.0; dim], unit.collect());
    }
    let mut columns: Vec<f64> = matrix.iter().map(|x| x / most).collect();
    let (mut diagonal, mut off) = tridiagonal(&mut columns, dim);
    implicit_ql(&mut columns, &mut diagonal, &mut off, dim);
    diagonal.iter_mut().for_each(|value| *value *= most);
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

/// Turns the tridiagonal matrix of `d` and `e` into a diagonal one, and `columns` with it.
///
/// An eigenvalue takes two or three steps. One that has not settled after [`QL_STEPS`] counts as found: all steps are
/// rotations, so the columns stay orthonormal, and what is left off the diagonal is the error of that eigenvalue.
fn implicit_ql(columns: &mut [f64], d: &mut [f64], e: &mut [f64], n: usize) {
    e.rotate_left(1);
    e[n - 1] = 0.0;
    let (mut shift, mut largest) = (0.0, 0.0f64);
    for l in 0..n {
        largest = largest.max(d[l].abs() + e[l].abs());
        let small = f64::EPSILON * largest;
        // The last of `e` is zero, so there is one.
        let m = (l..n).find(|&m| e[m].abs() <= small).unwrap_or(n - 1);
        for _ in 0..QL_STEPS {
            if m == l || e[l].abs() <= small {
                break;
            }
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
                let r = p.hypot(e[i]);
                e[i + 1] = s * r;
                // Nothing to rotate: both are zero.
                (s, c) = if r == 0.0 {
                    (0.0, 1.0)
                } else {
                    (e[i] / r, p / r)
                };
                p = c * d[i] - s * g;
                d[i + 1] = h + s * (c * g + s * d[i]);
                let (left, right) = columns[i * n..(i + 2) * n].split_at_mut(n);
                for (a, b) in left.iter_mut().zip(right) {
                    let h = *b;
                    *b = s * *a + c * h;
                    *a = c * *a - s * h;
                }
            }
            p = if dl1 == 0.0 {
                0.0
            } else {
                -s * s2 * c3 * el1 * e[l] / dl1
            };
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

    /// Matrices that are awkward each in its own way, (name, dim, matrix).
    fn awkward() -> Vec<(&'static str, usize, Vec<f64>)> {
        let dim = 12;
        let x = random(dim, 7);
        let cells = |cell: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
            (0..dim * dim).map(|at| cell(at / dim, at % dim)).collect()
        };
        let across = |i: usize| x[i * dim..][..dim].iter().sum::<f64>() / dim as f64;
        vec![
            ("one value", 1, vec![-3.0]),
            ("zeros", dim, vec![0.0; dim * dim]),
            ("units", dim, cells(&|i, j| f64::from(u8::from(i == j)))),
            ("one direction", dim, cells(&|i, j| x[i] * x[j])),
            ("equal rows", dim, cells(&|_, j| x[j])),
            ("all equal", dim, vec![2.5; dim * dim]),
            (
                "rows whose sum is zero",
                dim,
                cells(&|i, j| x[i * dim + j] - across(i)),
            ),
            ("huge", dim, cells(&|i, j| 1e200 * x[i * dim + j])),
            ("tiny", dim, cells(&|i, j| 1e-200 * x[i * dim + j])),
            (
                "one huge value",
                dim,
                cells(&|i, j| {
                    if (i, j) == (3, 5) {
                        1e30
                    } else {
                        x[i * dim + j]
                    }
                }),
            ),
            (
                "a wide range",
                dim,
                cells(&|i, j| x[i * dim + j] * 1e-12f64.powf((i + j) as f64 / dim as f64)),
            ),
        ]
    }

    #[test]
    fn an_awkward_matrix_has_a_nearest_rotation() {
        for (name, dim, matrix) in awkward() {
            let start: Vec<f32> = (0..dim * dim).map(|at| identity(at, dim)).collect();
            let rotation = nearest_rotation(&machine(), &matrix, &start, dim);
            let squares = product(&machine(), &transposed(&rotation, dim), &rotation, dim);
            for (at, s) in squares.iter().enumerate() {
                assert!((s - identity(at, dim)).abs() < 1e-5, "{name}: {s}");
            }
            // The trace of R^T M is the sum of the singular values there, so no other rotation has a larger one.
            let trace = |r: &[f32]| -> f64 {
                let largest = largest(matrix.iter().copied()).max(1e-300);
                let each = r
                    .iter()
                    .zip(&matrix)
                    .map(|(r, m)| f64::from(*r) * m / largest);
                each.sum()
            };
            let best = trace(&rotation);
            assert!(best >= trace(&start) - 1e-5, "{name}");
            for seed in 0..20 {
                let direction = random(dim, 100 + seed);
                let other = nearest_rotation(&machine(), &direction, &start, dim);
                assert!(best >= trace(&other) - 1e-5, "{name}");
            }
        }
    }

    #[test]
    fn an_awkward_matrix_has_eigenvectors() {
        for (name, dim, x) in awkward() {
            // Symmetric, and of the same scale.
            let matrix: Vec<f64> = (0..dim * dim)
                .map(|at| 0.5 * (x[at] + x[at % dim * dim + at / dim]))
                .collect();
            let largest = largest(matrix.iter().copied()).max(1e-300);
            let (values, vectors) = symmetric_eigen(&matrix, dim);
            for i in 0..dim {
                for j in 0..dim {
                    let again: f64 = (0..dim)
                        .map(|k| values[k] / largest * vectors[k * dim + i] * vectors[k * dim + j])
                        .sum();
                    let apart = (again - matrix[i * dim + j] / largest).abs();
                    assert!(apart < 1e-10, "{name}: {i} {j}: {apart}");
                    let along = dot(&vectors[i * dim..][..dim], &vectors[j * dim..][..dim]);
                    let unit = f64::from(u8::from(i == j));
                    assert!((along - unit).abs() < 1e-10, "{name}: {i} {j}: {along}");
                }
            }
        }
    }

    #[test]
    fn a_matrix_that_is_not_finite_changes_nothing() {
        let dim = 5;
        let start: Vec<f32> = (0..dim * dim).map(|at| identity(at, dim)).collect();
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for at in [0, 7, 24] {
                let mut matrix = random(dim, 9);
                matrix[at] = bad;
                assert_eq!(nearest_rotation(&machine(), &matrix, &start, dim), start);
                let (values, vectors) = symmetric_eigen(&matrix, dim);
                assert_eq!(values, [0.0; 5]);
                assert!(vectors.iter().zip(&start).all(|(v, s)| *v == f64::from(*s)));
            }
        }
    }
}
