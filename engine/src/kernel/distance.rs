//! Scores of full-precision vectors: 16 interleaved sums per pair and one fixed tree. Several queries are compared with
//! several rows at a time, so that loaded values are used more than once. The grouping does not change any bit of a
//! score.

use super::rows::{Places, Value, widened};
use super::scalar;
use super::stream::ask_for;
use half::f16;

/// The sums in one register, of the 16.
///
/// # Safety
/// Every function may be called only where the CPU has the implementor's features, and is inlined into a function
/// compiled for them.
pub(super) trait Sums: Copy {
    /// 16, 8 or 4.
    const LANES: usize;

    unsafe fn zero() -> Self;

    /// [`Self::LANES`] of the values, from `first` on.
    unsafe fn load(values: &[f32; 16], first: usize) -> Self;

    /// The same of halves, which are widened.
    unsafe fn load_halves(values: &[f16; 16], first: usize) -> Self;

    /// The same of bytes.
    unsafe fn load_bytes(values: &[i8; 16], first: usize) -> Self;

    /// Returns a register with `value` in all lanes.
    unsafe fn all(value: f32) -> Self;

    unsafe fn times(self, other: Self) -> Self;

    unsafe fn store(self, values: &mut [f32; 16], first: usize);

    unsafe fn minus(self, other: Self) -> Self;

    /// `self + a * b`, rounded once.
    unsafe fn plus_product(self, a: Self, b: Self) -> Self;

    /// [`scalar::halves`] of four at a time.
    #[inline(always)]
    unsafe fn halves(sums: &[[f32; 16]; 4]) -> [f32; 4] {
        [0, 1, 2, 3].map(|n| scalar::halves(sums[n]))
    }
}

/// Sums for any architecture.
#[derive(Clone, Copy)]
pub(super) struct Plain([f32; 16]);

impl Sums for Plain {
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0.0; 16])
    }

    #[inline(always)]
    unsafe fn load(values: &[f32; 16], _first: usize) -> Self {
        Self(*values)
    }

    #[inline(always)]
    unsafe fn load_halves(values: &[f16; 16], _first: usize) -> Self {
        Self(widened(values))
    }

    #[inline(always)]
    unsafe fn load_bytes(values: &[i8; 16], _first: usize) -> Self {
        Self(values.map(f32::from))
    }

    #[inline(always)]
    unsafe fn all(value: f32) -> Self {
        Self([value; 16])
    }

    #[inline(always)]
    unsafe fn times(self, other: Self) -> Self {
        Self(std::array::from_fn(|l| self.0[l] * other.0[l]))
    }

    #[inline(always)]
    unsafe fn store(self, values: &mut [f32; 16], _first: usize) {
        *values = self.0;
    }

    #[inline(always)]
    unsafe fn minus(self, other: Self) -> Self {
        Self(std::array::from_fn(|l| self.0[l] - other.0[l]))
    }

    #[inline(always)]
    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        Self(std::array::from_fn(|l| a.0[l].mul_add(b.0[l], self.0[l])))
    }
}

/// The number of rows per tile; four, for [`Sums::halves`].
pub(super) const ROWS: usize = 4;
/// The number of queries per tile: enough sums to hide the latency of an addition, and few enough for 16
/// registers.
pub(super) const QUERIES: usize = 3;

/// The plain twin of [`similarities`].
pub(super) fn plain<V: Value, const L2: bool>(
    queries: &[f32],
    dim: usize,
    rows: Places<'_, V>,
    scales: &[f32],
    out: &mut [f32],
) {
    let count = out.len() / (queries.len() / dim);
    let pairs = queries
        .chunks_exact(dim)
        .flat_map(|query| (0..count).map(move |n| (query, n)));
    for ((query, n), out) in pairs.zip(out) {
        let scale = if V::SCALED { scales[n] } else { 1.0 };
        let row = rows.row(n, dim).iter().map(|value| value.widened(scale));
        *out = scalar::similarity::<L2>(query, row);
    }
}

/// The score of each row for each query (m, dim): (m, n). Where [values](Value) have scales, `scales` has one per row.
///
/// # Safety
/// As for [`Sums`].
#[inline(always)]
pub(super) unsafe fn similarities<S: Sums, V: Value, const L2: bool>(
    queries: &[f32],
    dim: usize,
    rows: Places<'_, V>,
    scales: &[f32],
    out: &mut [f32],
) {
    let count = out.len() / (queries.len() / dim);
    let mut groups = queries.chunks_exact(QUERIES * dim);
    let mut outs = out.chunks_exact_mut(QUERIES * count);
    // SAFETY: the caller's promise is ours.
    unsafe {
        for (group, out) in (&mut groups).zip(&mut outs) {
            some::<S, V, QUERIES, ROWS, L2>(group, dim, rows, scales, out);
        }
        for (query, out) in groups
            .remainder()
            .chunks_exact(dim)
            .zip(outs.into_remainder().chunks_exact_mut(count))
        {
            // A single query uses more rows per tile.
            some::<S, V, 1, { 2 * ROWS }, L2>(query, dim, rows, scales, out);
        }
    }
}

/// The scores of `Q` queries, `N` rows at a time.
///
/// # Safety
/// As for [`Sums`].
#[inline(always)]
unsafe fn some<S: Sums, V: Value, const Q: usize, const N: usize, const L2: bool>(
    queries: &[f32],
    dim: usize,
    rows: Places<'_, V>,
    scales: &[f32],
    out: &mut [f32],
) {
    let count = out.len() / Q;
    let each: [&[f32]; Q] = std::array::from_fn(|q| &queries[q * dim..][..dim]);
    let rows_ahead = SCATTERED_AHEAD.div_ceil(dim * size_of::<V>()).max(N);
    for at in (0..count).step_by(N) {
        // The last rows fill the tile by repetition.
        let place = |n: usize| (at + n).min(count - 1);
        let group: [&[V]; N] = std::array::from_fn(|n| rows.row(place(n), dim));
        let scales = std::array::from_fn(|n| if V::SCALED { scales[place(n)] } else { 1.0 });
        // SAFETY: the caller's promise is ours; rows have `dim` values, as queries do.
        let scores = unsafe {
            match rows {
                // Rows that are used once come from memory: scattered ones are asked for one by one, others are read one after
                // the other.
                Places::Scattered(rows) if Q == 1 => {
                    let next = |n| rows[place(n + rows_ahead)].as_ptr().cast::<u8>();
                    let next = std::array::from_fn(next);
                    tile::<S, V, Q, N, L2, true>(each, group, scales, next)
                }
                Places::Dense(_) if Q == 1 => [in_order::<S, V, N, L2>(each[0], group, scales); Q],
                _ => tile::<S, V, Q, N, L2, false>(each, group, scales, [std::ptr::null(); N]),
            }
        };
        let n = (count - at).min(N);
        for q in 0..Q {
            out[q * count + at..][..n].copy_from_slice(&scores[q][..n]);
        }
    }
}

/// The minimum number of bytes of scattered rows to prefetch. Measured on an EPYC (Zen 5): 4, 6, 8 and 12 KiB are
/// alike, 400 rows of 768 bytes take 26 us; asking for a row all at once takes 34 us.
pub(super) const SCATTERED_AHEAD: usize = 6 << 10;

/// Scores of `Q` queries and `N` rows. While a row is read, memory may be asked for one of the same length that is read later.
///
/// # Safety
/// As for [`Sums`]; and all queries and rows have the same length.
#[inline(always)]
unsafe fn tile<
    S: Sums,
    V: Value,
    const Q: usize,
    const N: usize,
    const L2: bool,
    const ASKS: bool,
>(
    queries: [&[f32]; Q],
    rows: [&[V]; N],
    scales: [f32; N],
    next: [*const u8; N],
) -> [[f32; N]; Q] {
    let queries = queries.map(|query| query.as_chunks::<16>());
    let rows = rows.map(|row| row.as_chunks::<16>());
    let whole = queries[0].0.len();
    debug_assert!(queries.iter().all(|query| query.0.len() == whole));
    debug_assert!(rows.iter().all(|row| row.0.len() == whole));
    let per_line = 64 / size_of::<[V; 16]>();
    let mut sums = [[[0.0f32; 16]; N]; Q];
    // SAFETY: the caller's promise is ours: all have `whole` groups of 16.
    unsafe {
        // The sums of one register after the other: so there are registers for all pairs.
        for first in (0..16).step_by(S::LANES) {
            let mut own = [[S::zero(); N]; Q];
            for d in 0..whole {
                let mut x = [S::zero(); Q];
                for q in 0..Q {
                    x[q] = S::load(queries[q].0.get_unchecked(d), first);
                }
                let asks = ASKS && first == 0 && d % per_line == 0;
                for n in 0..N {
                    if asks {
                        ask_for(next[n].wrapping_add(d * size_of::<[V; 16]>()));
                    }
                    let v = V::load::<S>(rows[n].0.get_unchecked(d), first, S::all(scales[n]));
                    for q in 0..Q {
                        own[q][n] = if L2 {
                            let difference = x[q].minus(v);
                            own[q][n].plus_product(difference, difference)
                        } else {
                            own[q][n].plus_product(x[q], v)
                        };
                    }
                }
            }
            for q in 0..Q {
                for n in 0..N {
                    own[q][n].store(&mut sums[q][n], first);
                }
            }
        }
    }
    let mut scores = [[0.0; N]; Q];
    for q in 0..Q {
        for n in 0..N {
            add_rest::<V, L2>(&mut sums[q][n], queries[q].1, rows[n].1, scales[n]);
        }
        // SAFETY: the caller's promise is ours.
        scores[q] = unsafe { totals::<S, N, L2>(&sums[q]) };
    }
    scores
}

/// How far ahead of the value that is read memory is asked for the next ones: a page, at whose end CPUs stop by themselves.
/// Measured on an EPYC (Zen 5), 480 MB, of the pace of plain loads: f32 95% and f16 97% with 4 KiB, 91% and 94% with 8 KiB, 102%
/// and 91% without. Eight rows in turn reach 94% and 82%, with every line of them read first.
const IN_ORDER_AHEAD: usize = 4 << 10;

/// Scores of `N` rows that lie one after the other. Each is read completely before the next, as memory delivers them fastest.
///
/// # Safety
/// As for [`Sums`]; and the query and all rows have the same length.
#[inline(always)]
unsafe fn in_order<S: Sums, V: Value, const N: usize, const L2: bool>(
    query: &[f32],
    rows: [&[V]; N],
    scales: [f32; N],
) -> [f32; N] {
    let (query, rest) = query.as_chunks::<16>();
    let per_line = 64 / size_of::<[V; 16]>();
    let mut sums = [[0.0f32; 16]; N];
    // SAFETY: the caller's promise is ours: every row has as many groups of 16 as the query.
    unsafe {
        for n in 0..N {
            let (row, rest_of_row) = rows[n].as_chunks::<16>();
            debug_assert_eq!(row.len(), query.len());
            let scale = S::all(scales[n]);
            // As many registers as 16 sums take.
            let mut own = [S::zero(); 4];
            for d in 0..query.len() {
                let values = row.get_unchecked(d);
                if d % per_line == 0 {
                    ask_for(
                        std::ptr::from_ref(values)
                            .cast::<u8>()
                            .wrapping_add(IN_ORDER_AHEAD),
                    );
                }
                for (register, own) in own.iter_mut().take(16 / S::LANES).enumerate() {
                    let first = register * S::LANES;
                    let x = S::load(query.get_unchecked(d), first);
                    let v = V::load::<S>(values, first, scale);
                    *own = if L2 {
                        let difference = x.minus(v);
                        own.plus_product(difference, difference)
                    } else {
                        own.plus_product(x, v)
                    };
                }
            }
            for (register, own) in own.iter().take(16 / S::LANES).enumerate() {
                own.store(&mut sums[n], register * S::LANES);
            }
            add_rest::<V, L2>(&mut sums[n], rest, rest_of_row, scales[n]);
        }
        totals::<S, N, L2>(&sums)
    }
}

/// Adds the values after the last group of 16.
#[inline(always)]
fn add_rest<V: Value, const L2: bool>(sums: &mut [f32; 16], query: &[f32], row: &[V], scale: f32) {
    for (sum, (x, v)) in sums.iter_mut().zip(query.iter().zip(row)) {
        let v = v.widened(scale);
        *sum = if L2 {
            (x - v).mul_add(x - v, *sum)
        } else {
            x.mul_add(v, *sum)
        };
    }
}

/// Returns the score that each row's sums make.
///
/// # Safety
/// As for [`Sums`].
#[inline(always)]
unsafe fn totals<S: Sums, const N: usize, const L2: bool>(sums: &[[f32; 16]; N]) -> [f32; N] {
    let mut scores = [0.0; N];
    let fours = scores.as_chunks_mut::<4>().0;
    for (sums, scores) in sums.as_chunks::<4>().0.iter().zip(fours) {
        // SAFETY: the caller's promise is ours.
        *scores = unsafe { S::halves(sums) }.map(scalar::signed::<L2>);
    }
    scores
}

#[cfg(test)]
mod tests {
    use crate::kernel::random::Random;
    use crate::kernel::{Kernel, Places, Queries, Rows};
    use crate::metric::Metric;
    use half::f16;
    use half::slice::HalfFloatSliceExt;

    const DIMS: [usize; 12] = [1, 3, 15, 16, 17, 31, 33, 48, 100, 128, 200, 384];
    const COUNTS: [(usize, usize); 8] = [
        (1, 1),
        (3, 2),
        (4, 3),
        (7, 4),
        (8, 1),
        (9, 6),
        (17, 1),
        (64, 7),
    ];

    fn bits(
        kernel: Kernel,
        metric: Metric,
        queries: &[f32],
        dim: usize,
        rows: Rows<'_>,
    ) -> Vec<u32> {
        let mut out = vec![f32::NAN; queries.len() / dim * rows.count(dim).unwrap()];
        kernel.scores_of_rows(metric, &Queries::new(queries, dim), rows, &mut out);
        out.iter().map(|x| x.to_bits()).collect()
    }

    /// The rows in an order of their own, each somewhere in memory that is odd for their kind.
    fn scattered<V: Copy + Default>(
        values: &[V],
        dim: usize,
        random: &mut Random,
    ) -> (Vec<V>, Vec<usize>) {
        let count = values.len() / dim;
        let mut places: Vec<usize> = (0..count).collect();
        for n in (1..count).rev() {
            places.swap(n, random.below(n + 1));
        }
        let gap = dim + 1 + random.below(7);
        let mut memory = vec![V::default(); count * gap];
        for (n, &place) in places.iter().enumerate() {
            memory[place * gap..][..dim].copy_from_slice(&values[n * dim..][..dim]);
        }
        (
            memory,
            places.into_iter().map(|place| place * gap).collect(),
        )
    }

    #[test]
    fn every_kernel_scores_as_the_plain_twin_does_whatever_the_company() {
        let plain = Kernel::named("scalar").unwrap();
        let mut random = Random::new(5);
        for dim in DIMS {
            for (count, asked) in COUNTS {
                let (queries, rows) = (random.normals(asked * dim), random.normals(count * dim));
                let mut halves = vec![f16::ZERO; rows.len()];
                halves.convert_from_f32_slice(&rows);
                // Subnormal halves are widened to normal floats.
                halves[0] = f16::from_bits(1);
                let mut wide = vec![0.0; rows.len()];
                halves.convert_to_f32_slice(&mut wide);
                let (memory, at) = scattered(&rows, dim, &mut random);
                let apart: Vec<&[f32]> = at.iter().map(|&at| &memory[at..][..dim]).collect();
                let (memory, at) = scattered(&halves, dim, &mut random);
                let halves_apart: Vec<&[f16]> = at.iter().map(|&at| &memory[at..][..dim]).collect();
                for metric in [Metric::Ip, Metric::L2] {
                    let of = |kernel, rows| bits(kernel, metric, &queries, dim, rows);
                    let expected = of(plain, Rows::F32(Places::Dense(&rows)));
                    let widened = of(plain, Rows::F32(Places::Dense(&wide)));
                    for kernel in Kernel::available() {
                        let what = format!("{kernel:?}, {asked} queries, {count} rows of {dim}");
                        let dense = Rows::F32(Places::Dense(&rows));
                        assert_eq!(of(kernel, dense), expected, "{what}");
                        let apart = Rows::F32(Places::Scattered(&apart));
                        assert_eq!(of(kernel, apart), expected, "{what}, scattered");
                        let dense = Rows::F16(Places::Dense(&halves));
                        assert_eq!(of(kernel, dense), widened, "{what}, halves");
                        let apart = Rows::F16(Places::Scattered(&halves_apart));
                        assert_eq!(of(kernel, apart), widened, "{what}, scattered halves");
                        let alone = Rows::F32(Places::Dense(&rows[..dim]));
                        let alone = bits(kernel, metric, &queries[..dim], dim, alone);
                        assert_eq!(alone[0], expected[0], "{kernel:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn distances_to_bytes_are_those_to_the_widened_rows() {
        let mut random = Random::new(7);
        for dim in DIMS {
            for (count, asked) in COUNTS {
                let queries = random.normals(asked * dim);
                let bytes: Vec<i8> = (0..count * dim)
                    .map(|_| random.below(256) as u8 as i8)
                    .collect();
                let scales = random.normals(count);
                let wide: Vec<f32> = (bytes.chunks_exact(dim).zip(&scales))
                    .flat_map(|(row, scale)| row.iter().map(move |&byte| scale * f32::from(byte)))
                    .collect();
                let (memory, at) = scattered(&bytes, dim, &mut random);
                let apart: Vec<&[i8]> = at.iter().map(|&at| &memory[at..][..dim]).collect();
                let of = |kernel, rows| bits(kernel, Metric::L2, &queries, dim, rows);
                let plain = Kernel::named("scalar").unwrap();
                let expected = of(plain, Rows::F32(Places::Dense(&wide)));
                for kernel in Kernel::available() {
                    for values in [Places::Dense(&bytes[..]), Places::Scattered(&apart)] {
                        let scales = &scales;
                        let what = format!("{kernel:?}, {asked} queries, {count} rows of {dim}");
                        assert_eq!(of(kernel, Rows::I8 { values, scales }), expected, "{what}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_half_is_widened_alike_by_every_kernel() {
        let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        for (query, metric) in [(1.0, Metric::Ip), (0.0, Metric::L2)] {
            // One value of 16 counts, so that the score is that value.
            for lane in [0, 5, 15] {
                let mut query = [query; 1].repeat(16);
                if metric == Metric::Ip {
                    query.fill(0.0);
                    query[lane] = 1.0;
                }
                let rows: Vec<f16> = (halves.iter())
                    .flat_map(|half| {
                        (0..16).map(move |l| if l == lane { *half } else { f16::ZERO })
                    })
                    .collect();
                let of = |kernel| bits(kernel, metric, &query, 16, Rows::F16(Places::Dense(&rows)));
                let expected = of(Kernel::named("scalar").unwrap());
                for kernel in Kernel::available() {
                    let alike = |(a, b): (&u32, &u32)| {
                        a == b || f32::from_bits(*a).is_nan() && f32::from_bits(*b).is_nan()
                    };
                    assert!(of(kernel).iter().zip(&expected).all(alike), "{kernel:?}");
                }
            }
        }
    }
}
