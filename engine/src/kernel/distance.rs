//! Scores of whole vectors: 16 interleaved sums a pair and one fixed tree. Some queries meet some rows at a time, so that
//! what was loaded is used more than once; which and how many changes no bit of a score.

use super::scalar;
use super::stream::touch;

/// Sums that are kept side by side: of the 16, those of one register.
///
/// # Safety
/// Every function may be called only where the CPU has the implementor's features, and is inlined into a function
/// compiled for them.
pub(super) trait Sums: Copy {
    /// 16, or a divisor of it.
    const LANES: usize;

    unsafe fn zero() -> Self;

    /// The first [`Self::LANES`] of the values.
    unsafe fn load(values: &[f32; 16], first: usize) -> Self;

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

/// Any architecture's.
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

/// Rows that are met together; four, for [`Sums::halves`].
const ROWS: usize = 4;
/// Queries that are: with the rows, sums enough to hide an addition's latency, and few enough for 16 registers.
const QUERIES: usize = 3;

/// The plain twin of [`similarities`].
pub(super) fn plain<const L2: bool>(queries: &[f32], dim: usize, rows: &[f32], out: &mut [f32]) {
    let pairs = queries
        .chunks_exact(dim)
        .flat_map(|query| rows.chunks_exact(dim).map(move |row| (query, row)));
    for ((query, row), out) in pairs.zip(out) {
        *out = scalar::similarity::<L2>(query, row);
    }
}

/// The score of each row (n, dim) for each query (m, dim): (m, n).
///
/// # Safety
/// As for [`Sums`].
#[inline(always)]
pub(super) unsafe fn similarities<S: Sums, const L2: bool>(
    queries: &[f32],
    dim: usize,
    rows: &[f32],
    out: &mut [f32],
) {
    let count = rows.len() / dim;
    let mut groups = queries.chunks_exact(QUERIES * dim);
    let mut outs = out.chunks_exact_mut(QUERIES * count);
    // SAFETY: the caller's promise is ours.
    unsafe {
        for (group, out) in (&mut groups).zip(&mut outs) {
            some::<S, QUERIES, ROWS, L2>(group, dim, rows, out);
        }
        for (query, out) in groups
            .remainder()
            .chunks_exact(dim)
            .zip(outs.into_remainder().chunks_exact_mut(count))
        {
            // One query has more rows instead.
            some::<S, 1, { 2 * ROWS }, L2>(query, dim, rows, out);
        }
    }
}

/// The scores of `Q` queries, `N` rows at a time.
///
/// # Safety
/// As for [`Sums`].
#[inline(always)]
unsafe fn some<S: Sums, const Q: usize, const N: usize, const L2: bool>(
    queries: &[f32],
    dim: usize,
    rows: &[f32],
    out: &mut [f32],
) {
    let count = rows.len() / dim;
    let each: [&[f32]; Q] = std::array::from_fn(|q| &queries[q * dim..][..dim]);
    let mut at = 0;
    // SAFETY: the caller's promise is ours.
    unsafe {
        while at + N <= count {
            let group: [&[f32]; N] = std::array::from_fn(|n| &rows[(at + n) * dim..][..dim]);
            // Rows that are used once come from memory, which is read in order.
            if Q == 1 {
                touch(&rows[at * dim..][..N * dim]);
            }
            let scores = tile::<S, Q, N, L2>(each, group);
            for q in 0..Q {
                out[q * count + at..][..N].copy_from_slice(&scores[q]);
            }
            at += N;
        }
        // The last few rows stand beside themselves.
        if at < count {
            let group: [&[f32]; N] =
                std::array::from_fn(|n| &rows[(at + n).min(count - 1) * dim..][..dim]);
            let scores = tile::<S, Q, N, L2>(each, group);
            for q in 0..Q {
                out[q * count + at..][..count - at].copy_from_slice(&scores[q][..count - at]);
            }
        }
    }
}

/// # Safety
/// As for [`Sums`].
#[inline(always)]
unsafe fn tile<S: Sums, const Q: usize, const N: usize, const L2: bool>(
    queries: [&[f32]; Q],
    rows: [&[f32]; N],
) -> [[f32; N]; Q] {
    let queries = queries.map(|query| query.as_chunks::<16>());
    let rows = rows.map(|row| row.as_chunks::<16>());
    let whole = queries[0].0.len();
    let mut sums = [[[0.0f32; 16]; N]; Q];
    // SAFETY: the caller's promise is ours.
    unsafe {
        // The sums of one register after the other: so there are registers for all pairs.
        for first in (0..16).step_by(S::LANES) {
            let mut own = [[S::zero(); N]; Q];
            for d in 0..whole {
                let mut x = [S::zero(); Q];
                for q in 0..Q {
                    x[q] = S::load(&queries[q].0[d], first);
                }
                for n in 0..N {
                    let v = S::load(&rows[n].0[d], first);
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
            let pairs = queries[q].1.iter().zip(rows[n].1);
            for (sum, (x, v)) in sums[q][n].iter_mut().zip(pairs) {
                *sum = if L2 {
                    (x - v).mul_add(x - v, *sum)
                } else {
                    x.mul_add(*v, *sum)
                };
            }
        }
        for (sums, scores) in sums[q]
            .as_chunks::<4>()
            .0
            .iter()
            .zip(scores[q].as_chunks_mut::<4>().0)
        {
            // SAFETY: the caller's promise is ours.
            *scores = unsafe { S::halves(sums) }.map(scalar::signed::<L2>);
        }
    }
    scores
}

#[cfg(test)]
mod tests {
    use crate::kernel::Kernel;
    use crate::kernel::random::Random;
    use crate::metric::Metric;

    #[test]
    fn every_kernel_scores_as_the_plain_twin_does_whatever_the_company() {
        let plain = Kernel::named("scalar").unwrap();
        let mut random = Random::new(5);
        for dim in [1, 3, 15, 16, 17, 31, 48, 100, 128, 384] {
            for (count, asked) in [(1, 1), (3, 2), (4, 3), (7, 4), (8, 1), (9, 6), (64, 7)] {
                let (queries, rows) = (random.normals(asked * dim), random.normals(count * dim));
                for metric in [Metric::Ip, Metric::L2] {
                    let scores = |kernel: Kernel, queries: &[f32], rows: &[f32]| {
                        let mut out = vec![f32::NAN; queries.len() / dim * rows.len() / dim];
                        kernel.similarities(metric, queries, dim, rows, &mut out);
                        out.iter().map(|x| x.to_bits()).collect::<Vec<u32>>()
                    };
                    let expected = scores(plain, &queries, &rows);
                    for kernel in Kernel::available() {
                        assert_eq!(
                            scores(kernel, &queries, &rows),
                            expected,
                            "{kernel:?}, {asked} queries, {count} rows of {dim}"
                        );
                        let alone = scores(kernel, &queries[..dim], &rows[..dim]);
                        assert_eq!(alone[0], expected[0], "{kernel:?}");
                    }
                }
            }
        }
    }
}
