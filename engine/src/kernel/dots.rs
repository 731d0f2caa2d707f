//! Inner products of bytes. Sums of integers are exact, so that every order of adding gives the same score.

use super::bytes::Rounded;
use super::distance::{QUERIES, ROWS, SCATTERED_AHEAD};
use super::rows::Places;
use super::scalar;
use super::stream::{ask_for, touch};

/// Sums of products of bytes, side by side in a register.
///
/// # Safety
/// Every function may be called only where the CPU has the implementor's features, and is inlined into a function
/// compiled for them.
pub(super) trait Dots: Copy {
    /// Bytes that are multiplied at a time; it divides 64.
    const WIDTH: usize;

    /// What is added to each byte of a row before it is multiplied.
    const OFFSET: i32;

    /// [`Self::WIDTH`] bytes, ready to be multiplied.
    type Bytes: Copy;

    unsafe fn zero() -> Self;

    /// # Safety
    /// [`Self::WIDTH`] bytes can be read.
    unsafe fn of_query(bytes: *const i8) -> Self::Bytes;

    /// # Safety
    /// [`Self::WIDTH`] bytes can be read.
    unsafe fn of_row(bytes: *const i8) -> Self::Bytes;

    unsafe fn plus_products(self, query: Self::Bytes, row: Self::Bytes) -> Self;

    /// Returns the sum of all lanes, of four at a time.
    unsafe fn totals(sums: &[Self; 4]) -> [i32; 4];
}

/// The plain twin of [`similarities`].
#[inline(always)]
pub(super) fn plain(
    queries: &Rounded,
    dim: usize,
    rows: Places<'_, i8>,
    scales: &[f32],
    out: &mut [f32],
) {
    let outs = out.chunks_exact_mut(scales.len());
    for (q, (query, out)) in queries.values.chunks_exact(dim).zip(outs).enumerate() {
        for (n, out) in out.iter_mut().enumerate() {
            let dot = scalar::dot(query, rows.row(n, dim));
            *out = scalar::scaled(queries.scales[q], scales[n], dot);
        }
    }
}

/// The score of each row, of which `scales` has the scales, for each query: (queries, rows).
///
/// # Safety
/// As for [`Dots`].
#[inline(always)]
pub(super) unsafe fn similarities<D: Dots>(
    queries: &Rounded,
    dim: usize,
    rows: Places<'_, i8>,
    scales: &[f32],
    out: &mut [f32],
) {
    let count = queries.scales.len();
    let together = count / QUERIES * QUERIES;
    // SAFETY: the caller's promise is ours.
    unsafe {
        for q in (0..together).step_by(QUERIES) {
            some::<D, QUERIES, ROWS>(queries, q, dim, rows, scales, out);
        }
        for q in together..count {
            some::<D, 1, { 2 * ROWS }>(queries, q, dim, rows, scales, out);
        }
    }
}

/// The scores of `Q` queries from the `first` on, `N` rows at a time.
///
/// # Safety
/// As for [`Dots`].
#[inline(always)]
unsafe fn some<D: Dots, const Q: usize, const N: usize>(
    queries: &Rounded,
    first: usize,
    dim: usize,
    rows: Places<'_, i8>,
    scales: &[f32],
    out: &mut [f32],
) {
    let count = scales.len();
    let each: [&[i8]; Q] = std::array::from_fn(|q| &queries.values[(first + q) * dim..][..dim]);
    let rows_ahead = SCATTERED_AHEAD.div_ceil(dim).max(N);
    for at in (0..count).step_by(N) {
        // The last rows fill the tile by repetition.
        let place = |n: usize| (at + n).min(count - 1);
        let group: [&[i8]; N] = std::array::from_fn(|n| rows.row(place(n), dim));
        // SAFETY: the caller's promise is ours; rows have `dim` values, as queries do.
        let dots = unsafe {
            match rows {
                // Rows that are used once come from memory: scattered ones are asked for one by one, others are read in order.
                Places::Scattered(rows) if Q == 1 => {
                    let next = |n| rows[place(n + rows_ahead)].as_ptr().cast::<u8>();
                    tile::<D, Q, N, true>(each, group, std::array::from_fn(next))
                }
                Places::Dense(values) if Q == 1 => {
                    touch(&values[at * dim..][..(count - at).min(N) * dim]);
                    tile::<D, Q, N, false>(each, group, [std::ptr::null(); N])
                }
                _ => tile::<D, Q, N, false>(each, group, [std::ptr::null(); N]),
            }
        };
        for q in 0..Q {
            let more = D::OFFSET.wrapping_mul(queries.sums[first + q]);
            let out = out[(first + q) * count + at..].iter_mut();
            for ((out, dot), scale) in out.zip(dots[q]).zip(&scales[at..]) {
                let dot = dot.wrapping_sub(more);
                *out = scalar::scaled(queries.scales[first + q], *scale, dot);
            }
        }
    }
}

/// Sums of `Q` queries and `N` rows, each value of a row [`Dots::OFFSET`] too large. While a row is read, memory may be asked for one
/// of the same length that is read later.
///
/// # Safety
/// As for [`Dots`]; and all queries and rows have the same length.
#[inline(always)]
unsafe fn tile<D: Dots, const Q: usize, const N: usize, const ASKS: bool>(
    queries: [&[i8]; Q],
    rows: [&[i8]; N],
    next: [*const u8; N],
) -> [[i32; N]; Q] {
    let dim = queries[0].len();
    debug_assert!(queries.iter().all(|query| query.len() == dim));
    debug_assert!(rows.iter().all(|row| row.len() == dim));
    let whole = dim / D::WIDTH * D::WIDTH;
    // SAFETY: the caller's promise is ours: `whole` bytes of each can be read, and 64 of each of what is left over.
    unsafe {
        let mut sums = [[D::zero(); N]; Q];
        for d in (0..whole).step_by(D::WIDTH) {
            let mut x = [D::of_query(queries[0].as_ptr().add(d)); Q];
            for q in 1..Q {
                x[q] = D::of_query(queries[q].as_ptr().add(d));
            }
            let asks = ASKS && d % 64 == 0;
            for n in 0..N {
                if asks {
                    ask_for(next[n].wrapping_add(d));
                }
                let v = D::of_row(rows[n].as_ptr().add(d));
                for q in 0..Q {
                    sums[q][n] = sums[q][n].plus_products(x[q], v);
                }
            }
        }
        if whole < dim {
            // Zeros in the query cancel the values of the row.
            let left_over = |bytes: &[i8]| {
                let mut padded = [0; 64];
                padded[..dim - whole].copy_from_slice(&bytes[whole..]);
                padded
            };
            for q in 0..Q {
                let x = left_over(queries[q]);
                for n in 0..N {
                    let v = left_over(rows[n]);
                    let (x, v) = (D::of_query(x.as_ptr()), D::of_row(v.as_ptr()));
                    sums[q][n] = sums[q][n].plus_products(x, v);
                }
            }
        }
        let mut totals = [[0; N]; Q];
        for q in 0..Q {
            let fours = totals[q].as_chunks_mut::<4>().0;
            for (sums, totals) in sums[q].as_chunks::<4>().0.iter().zip(fours) {
                *totals = D::totals(sums);
            }
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use crate::kernel::bytes::{MAX_BYTES_DIM, Queries};
    use crate::kernel::random::Random;
    use crate::kernel::rows::Places;
    use crate::kernel::{Kernel, Rows, quantize_i8};
    use crate::metric::Metric;

    /// Scores by each kernel, with and without VNNI.
    fn by_each(
        queries: &Queries<'_>,
        rows: Places<'_, i8>,
        scales: &[f32],
    ) -> Vec<(String, Vec<u32>)> {
        let bits = |out: &[f32]| out.iter().map(|score| score.to_bits()).collect();
        let mut all = Vec::new();
        for kernel in Kernel::available() {
            let mut out = vec![f32::NAN; queries.count() * scales.len()];
            let values = rows;
            let stored = Rows::I8 { values, scales };
            kernel.scores_of_rows(Metric::Ip, queries, stored, &mut out);
            all.push((format!("{kernel:?}"), bits(&out)));
            out.fill(f32::NAN);
            let (rounded, dim) = (queries.rounded(), queries.dim);
            kernel.scores_of_bytes(rounded, dim, values, scales, false, &mut out);
            all.push((format!("{kernel:?} without VNNI"), bits(&out)));
        }
        all
    }

    #[test]
    fn every_kernel_has_the_exact_sum_times_both_scales() {
        let mut random = Random::new(6);
        for dim in [1, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 128, 384] {
            for (count, asked) in [
                (1, 1),
                (3, 2),
                (4, 3),
                (7, 4),
                (8, 1),
                (9, 6),
                (17, 1),
                (64, 7),
            ] {
                let queries = random.normals(asked * dim);
                // All bytes, also those that no rounding makes.
                let rows: Vec<i8> = (0..count * dim)
                    .map(|_| random.below(256) as u8 as i8)
                    .collect();
                let scales = random.normals(count);
                let expected: Vec<u32> = (queries.chunks_exact(dim))
                    .flat_map(|query| {
                        let (scale, query) = quantize_i8(query);
                        (rows.chunks_exact(dim).zip(&scales))
                            .map(move |(row, of_row)| {
                                let pairs = query.iter().zip(row);
                                let sum: i64 =
                                    pairs.map(|(&q, &v)| i64::from(q) * i64::from(v)).sum();
                                (0.0 + (scale * of_row) * (sum as i32 as f32)).to_bits()
                            })
                            .collect::<Vec<_>>()
                    })
                    .collect();
                let queries = Queries::new(&queries, dim);
                for (kernel, scores) in by_each(&queries, Places::Dense(&rows), &scales) {
                    assert_eq!(scores, expected, "{kernel}: {asked}, {count} of {dim}");
                }
                let apart: Vec<Vec<i8>> = rows.chunks_exact(dim).map(<[i8]>::to_vec).collect();
                let apart: Vec<&[i8]> = apart.iter().map(Vec::as_slice).collect();
                for (kernel, scores) in by_each(&queries, Places::Scattered(&apart), &scales) {
                    assert_eq!(
                        scores, expected,
                        "{kernel}: {asked}, {count} of {dim}, scattered"
                    );
                }
            }
        }
    }

    #[test]
    fn the_largest_sums_there_can_be_are_exact() {
        let dim = MAX_BYTES_DIM;
        for (sign, byte) in [(1.0, -128), (-1.0, -128), (1.0, 127), (-1.0, 127)] {
            let query = vec![sign * 127.0; dim];
            let row = vec![byte; dim];
            let exact = f64::from(sign) * 127.0 * f64::from(byte) * dim as f64;
            for (kernel, scores) in by_each(&Queries::new(&query, dim), Places::Dense(&row), &[1.0])
            {
                assert_eq!(f64::from(f32::from_bits(scores[0])), exact, "{kernel}");
            }
        }
    }
}
