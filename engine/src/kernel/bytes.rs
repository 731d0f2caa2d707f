//! Vectors rounded to i8, with one scale each. A value is its scale times its byte.

use std::sync::OnceLock;

/// The most dimensions of rows of bytes: a sum of products, each at most 128 x 127, then fits an i32.
pub const MAX_BYTES_DIM: usize = 1 << 17;

const _: () = assert!(128 * 127 * MAX_BYTES_DIM < 1 << 31);

/// The largest magnitude of a rounded value. It is the same on both sides of zero.
const LARGEST: f32 = 127.0;

#[cfg(any(test, feature = "testing"))]
/// Rounds a finite vector to i8, and returns its scale.
///
/// The scale is the largest magnitude divided by 127. A value becomes the integer nearest to it divided by the scale, ties to
/// even, and no more than 127 from zero, where the scale is subnormal. Both divisions are of f32 and rounded once. If the scale is 0, as
/// for a vector of zeros, all become 0.
pub fn quantize_i8(values: &[f32]) -> (f32, Vec<i8>) {
    let mut rounded = vec![0; values.len()];
    let scale = quantize_i8_into(values, &mut rounded);
    (scale, rounded)
}

/// Like [`quantize_i8`], into an existing buffer.
///
/// # Panics
/// If there are not as many bytes as values.
pub fn quantize_i8_into(values: &[f32], out: &mut [i8]) -> f32 {
    assert_eq!(values.len(), out.len(), "a byte per value");
    let largest = (values.iter()).fold(0.0, |largest: f32, value| largest.max(value.abs()));
    let scale = largest / LARGEST;
    if scale == 0.0 {
        out.fill(0);
        return 0.0;
    }
    for (value, out) in values.iter().zip(out) {
        *out = (value / scale).round_ties_even().clamp(-LARGEST, LARGEST) as i8;
    }
    scale
}

/// Returns the scale by which the widened row has length 1, as cosine needs it; 0 for a row of zeros.
///
/// The sum of squares is exact; its root and the quotient are of f64, each rounded once, and then the quotient is to f32.
pub fn unit_scale(row: &[i8]) -> f32 {
    let squares: u64 = (row.iter())
        .map(|&value| u64::from(value.unsigned_abs()).pow(2))
        .sum();
    match squares {
        0 => 0.0,
        squares => (1.0 / (squares as f64).sqrt()) as f32,
    }
}

/// Queries for stored rows of any kind.
#[derive(Debug)]
pub struct Queries<'a> {
    /// (queries, dim)
    pub(super) values: &'a [f32],
    pub(super) dim: usize,
    /// Made when first compared with rows of bytes.
    rounded: OnceLock<Rounded>,
}

/// Queries rounded by [`quantize_i8`].
#[derive(Debug)]
pub(super) struct Rounded {
    /// (queries, dim)
    pub(super) values: Vec<i8>,
    pub(super) scales: Vec<f32>,
    /// The sum of each query's bytes.
    pub(super) sums: Vec<i32>,
}

impl<'a> Queries<'a> {
    /// Takes queries, (queries, dim).
    ///
    /// # Panics
    /// If there are no dimensions, or not as many values as queries need.
    pub fn new(values: &'a [f32], dim: usize) -> Self {
        assert!(dim > 0 && values.len().is_multiple_of(dim));
        Self {
            values,
            dim,
            rounded: OnceLock::new(),
        }
    }

    /// Returns the number of queries.
    pub(super) fn count(&self) -> usize {
        self.values.len() / self.dim
    }

    pub(super) fn rounded(&self) -> &Rounded {
        self.rounded.get_or_init(|| {
            let mut values = vec![0; self.values.len()];
            let queries = self.values.chunks_exact(self.dim);
            let scales = (queries.zip(values.chunks_exact_mut(self.dim)))
                .map(|(query, out)| quantize_i8_into(query, out))
                .collect();
            let sums = (values.chunks_exact(self.dim))
                .map(|query| query.iter().map(|&value| i32::from(value)).sum())
                .collect();
            Rounded {
                values,
                scales,
                sums,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::random::Random;

    #[test]
    fn the_largest_becomes_127_and_ties_go_to_even() {
        let (scale, bytes) = quantize_i8(&[254.0, 1.0, 3.0, -1.0, -3.0, 5.0, 2.9, -254.0, 0.0]);
        assert_eq!(scale, 2.0);
        assert_eq!(bytes, [127, 0, 2, 0, -2, 2, 1, -127, 0]);
    }

    #[test]
    fn zeros_have_no_scale_and_tiny_values_stay_within_127() {
        assert_eq!(quantize_i8(&[0.0, -0.0]), (0.0, vec![0, 0]));
        assert_eq!(unit_scale(&[0, 0]), 0.0);
        // A 127th of the smallest subnormal is 0; the scale of the others is rounded by up to a half.
        let tiny = |n: u32| f32::from_bits(n);
        assert_eq!(quantize_i8(&[tiny(1), -tiny(1)]), (0.0, vec![0, 0]));
        let (scale, bytes) = quantize_i8(&[tiny(180), -tiny(180), tiny(3)]);
        assert_eq!((scale, bytes), (tiny(1), vec![127, -127, 3]));
        let (scale, bytes) = quantize_i8(&[f32::MAX, -f32::MAX]);
        assert!(scale.is_finite() && bytes == [127, -127]);
    }

    #[test]
    fn no_value_moves_by_more_than_half_a_scale_and_a_unit_row_has_length_1() {
        let mut random = Random::new(8);
        for dim in [1, 2, 7, 64, 384] {
            let row = random.normals(dim);
            let (scale, bytes) = quantize_i8(&row);
            assert!(bytes.iter().any(|byte| byte.abs() == 127), "{bytes:?}");
            for (value, byte) in row.iter().zip(&bytes) {
                let off = (value - scale * f32::from(*byte)).abs();
                assert!(off <= scale * 0.5001, "{value} as {byte} x {scale}");
            }
            let unit = f64::from(unit_scale(&bytes));
            let length: f64 = (bytes.iter())
                .map(|byte| (unit * f64::from(*byte)).powi(2))
                .sum();
            assert!((length - 1.0).abs() < 1e-6, "{length}");
        }
    }
}
