//! Rows to be scored, wherever they are, and how their values become lanes of f32.

use super::distance::Sums;
use half::f16;
use half::slice::HalfFloatSliceExt;

/// Stored rows of equal length.
#[derive(Debug, Clone, Copy)]
pub enum Rows<'a> {
    /// Values as they are.
    F32(Places<'a, f32>),
    /// Values that are widened in registers.
    F16(Places<'a, f16>),
    /// Each value is the byte times the scale of its row.
    ///
    /// Inner products are of the bytes of the rounded query, exact, and times both scales; distances are of the query
    /// as it is and the widened row.
    I8 {
        /// The bytes.
        values: Places<'a, i8>,
        /// One per row.
        scales: &'a [f32],
    },
}

/// Where rows are.
#[derive(Debug, Clone, Copy)]
pub enum Places<'a, V> {
    /// One after the other: (rows, dim).
    Dense(&'a [V]),
    /// Each at a place of its own: (dim) each.
    Scattered(&'a [&'a [V]]),
}

impl Rows<'_> {
    /// Returns the number of rows of `dim` values each; `None` if one is of another length, or without
    /// its scale.
    pub(super) fn count(self, dim: usize) -> Option<usize> {
        match self {
            Self::F32(places) => places.count(dim),
            Self::F16(places) => places.count(dim),
            Self::I8 { values, scales } => {
                (values.count(dim)).filter(|&count| count == scales.len())
            }
        }
    }
}

impl<'a, V> Places<'a, V> {
    pub(super) fn count(self, dim: usize) -> Option<usize> {
        match self {
            Self::Dense(values) => (values.len().is_multiple_of(dim)).then_some(values.len() / dim),
            Self::Scattered(rows) => (rows.iter())
                .all(|row| row.len() == dim)
                .then_some(rows.len()),
        }
    }

    /// Returns the n-th of the rows of `dim` values each.
    #[inline(always)]
    pub(super) fn row(self, n: usize, dim: usize) -> &'a [V] {
        match self {
            Self::Dense(values) => &values[n * dim..][..dim],
            Self::Scattered(rows) => rows[n],
        }
    }
}

/// A value as rows store it.
pub(super) trait Value: Copy {
    /// Whether rows have scales. Others are passed any.
    const SCALED: bool = false;

    fn widened(self, scale: f32) -> f32;

    /// Those of the values that one register of sums is about, as f32.
    ///
    /// # Safety
    /// As for [`Sums`].
    unsafe fn load<S: Sums>(values: &[Self; 16], first: usize, scale: S) -> S;
}

impl Value for f32 {
    #[inline(always)]
    fn widened(self, _: f32) -> f32 {
        self
    }

    #[inline(always)]
    unsafe fn load<S: Sums>(values: &[Self; 16], first: usize, _: S) -> S {
        // SAFETY: the caller's promise is ours.
        unsafe { S::load(values, first) }
    }
}

impl Value for f16 {
    #[inline(always)]
    fn widened(self, _: f32) -> f32 {
        self.to_f32()
    }

    #[inline(always)]
    unsafe fn load<S: Sums>(values: &[Self; 16], first: usize, _: S) -> S {
        // SAFETY: the caller's promise is ours.
        unsafe { S::load_halves(values, first) }
    }
}

impl Value for i8 {
    const SCALED: bool = true;

    #[inline(always)]
    fn widened(self, scale: f32) -> f32 {
        scale * f32::from(self)
    }

    #[inline(always)]
    unsafe fn load<S: Sums>(values: &[Self; 16], first: usize, scale: S) -> S {
        // SAFETY: the caller's promise is ours.
        unsafe { S::load_bytes(values, first).times(scale) }
    }
}

/// Sixteen of them at once, on any architecture.
#[inline(always)]
pub(super) fn widened(halves: &[f16; 16]) -> [f32; 16] {
    let mut wide = [0.0; 16];
    halves.convert_to_f32_slice(&mut wide);
    wide
}
