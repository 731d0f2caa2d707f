//! Stored vectors: as given, or rounded to fewer bits.

use crate::kernel::{quantize_i8_into, unit_scale};
use half::f16;
use half::slice::HalfFloatSliceExt;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// How stored vectors are rounded. It is chosen when a database is created.
///
/// Search compares stored vectors, so fewer bits cost a little recall: on text embeddings less than .002 of R@10.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Precision {
    /// As given (normalised for cosine): 4 bytes per value. The default for vectors.
    F32,
    /// 2 bytes per value. The default for what an encoder makes of texts.
    F16,
    /// 1 byte per value, and a scale of 4 bytes per vector.
    I8,
}

impl Precision {
    /// All variants, the largest first.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::I8];

    /// Returns its name, as the program writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::I8 => "i8",
        }
    }

    /// Returns the bytes of a value.
    pub(crate) fn width(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
            Self::I8 => 1,
        }
    }

    /// Returns vectors of `dim` values as they are stored. With `unit` they have length 1, and stored bytes get the scale
    /// that gives them this length again.
    ///
    /// Requires: values are finite, and far enough from the largest f32 for sums of their squares. Halves are still to be
    /// checked: they may be infinite.
    pub(crate) fn round(self, vectors: &[f32], dim: usize, unit: bool) -> Stored {
        let mut stored = Stored::none(self);
        match &mut stored {
            Stored::F32(values) => values.extend_from_slice(vectors),
            Stored::F16(values) => {
                values.resize(vectors.len(), f16::ZERO);
                values.convert_from_f32_slice(vectors);
            }
            Stored::I8 { scales, values } => {
                for vector in vectors.chunks_exact(dim) {
                    scales.push(bytes_of(vector, unit, values));
                }
            }
        }
        stored
    }
}

impl std::fmt::Display for Precision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Appends a vector as bytes and returns their scale.
fn bytes_of(vector: &[f32], unit: bool, out: &mut Vec<i8>) -> f32 {
    let first = out.len();
    out.resize(first + vector.len(), 0);
    let scale = quantize_i8_into(vector, &mut out[first..]);
    match unit {
        true => unit_scale(&out[first..]),
        false => scale,
    }
}

/// Returns a norm as it is stored next to its vector: 0 stands for one that is not known.
pub(crate) fn known(norm: f64) -> Option<f64> {
    (norm != 0.0).then_some(norm)
}

/// Stored vectors, row-major, borrowed.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum StoredRef<'a> {
    /// As given by the user (normalised for cosine).
    F32(&'a [f32]),
    /// Rounded to halves.
    F16(&'a [f16]),
    /// Rounded to bytes: a value is its vector's scale times its byte.
    I8 {
        /// One per vector.
        scales: &'a [f32],
        /// The bytes.
        values: &'a [i8],
    },
}

impl<'a> StoredRef<'a> {
    /// Returns how the values are rounded.
    pub fn precision(self) -> Precision {
        match self {
            Self::F32(_) => Precision::F32,
            Self::F16(_) => Precision::F16,
            Self::I8 { .. } => Precision::I8,
        }
    }

    /// Returns the number of values.
    pub fn len(self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
            Self::I8 { values, .. } => values.len(),
        }
    }

    /// Returns `true` if there are no values.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes that they take.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32(values) => size_of_val(values),
            Self::F16(values) => size_of_val(values),
            Self::I8 { scales, values } => size_of_val(scales) + values.len(),
        }
    }

    /// Returns some of the vectors, of `dim` values each.
    ///
    /// # Panics
    /// If they are not there.
    pub fn rows(self, rows: Range<usize>, dim: usize) -> Self {
        let span = rows.start * dim..rows.end * dim;
        match self {
            Self::F32(all) => Self::F32(&all[span]),
            Self::F16(all) => Self::F16(&all[span]),
            Self::I8 { scales, values } => Self::I8 {
                scales: &scales[rows],
                values: &values[span],
            },
        }
    }

    /// Appends the values as f32.
    pub fn widen_into(self, out: &mut Vec<f32>) {
        let start = out.len();
        out.resize(start + self.len(), 0.0);
        self.widen_to(&mut out[start..]);
    }

    /// Replaces `out` by the values as f32.
    ///
    /// # Panics
    /// If `out` has another length.
    pub(crate) fn widen_to(self, out: &mut [f32]) {
        match self {
            Self::F32(values) => out.copy_from_slice(values),
            Self::F16(values) => values.convert_to_f32_slice(out),
            Self::I8 { scales, values } => {
                assert_eq!(values.len(), out.len(), "as many values");
                let dim = values.len().checked_div(scales.len()).unwrap_or(0).max(1);
                let vectors = values.chunks_exact(dim).zip(out.chunks_exact_mut(dim));
                for ((values, out), scale) in vectors.zip(scales) {
                    for (out, &value) in out.iter_mut().zip(values) {
                        *out = scale * f32::from(value);
                    }
                }
            }
        }
    }

    /// Returns the values as f32.
    pub fn widen(self) -> Vec<f32> {
        let mut wide = Vec::with_capacity(self.len());
        self.widen_into(&mut wide);
        wide
    }

    /// Returns a vector as the user gave it, up to rounding: the stored one with its length before it was normalised.
    pub fn given(self, norm: Option<f64>) -> Vec<f32> {
        let mut wide = self.widen();
        if let Some(norm) = norm {
            (wide.iter_mut()).for_each(|x| *x = (f64::from(*x) * norm) as f32);
        }
        wide
    }

    /// Returns `true` if both are the same to the bit: 0 and -0 are two values.
    pub(crate) fn same_bits(self, other: StoredRef<'_>) -> bool {
        match (self, other) {
            (Self::F32(a), StoredRef::F32(b)) => bytes(a) == bytes(b),
            (Self::F16(a), StoredRef::F16(b)) => bytes(a) == bytes(b),
            (
                Self::I8 { scales, values },
                StoredRef::I8 {
                    scales: theirs,
                    values: others,
                },
            ) => bytes(scales) == bytes(theirs) && values == others,
            _ => false,
        }
    }
}

fn bytes<T: bytemuck::NoUninit>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// Stored vectors, row-major, owned.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Stored {
    /// As given by the user (normalised for cosine).
    F32(Vec<f32>),
    /// Rounded to halves.
    F16(Vec<f16>),
    /// Rounded to bytes: a value is its vector's scale times its byte.
    I8 {
        /// One per vector.
        scales: Vec<f32>,
        /// The bytes.
        values: Vec<i8>,
    },
}

impl Stored {
    /// Returns an empty value of this precision.
    pub fn none(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::F32(Vec::new()),
            Precision::F16 => Self::F16(Vec::new()),
            Precision::I8 => Self::I8 {
                scales: Vec::new(),
                values: Vec::new(),
            },
        }
    }

    /// Borrows the values.
    pub fn as_ref(&self) -> StoredRef<'_> {
        match self {
            Self::F32(values) => StoredRef::F32(values),
            Self::F16(values) => StoredRef::F16(values),
            Self::I8 { scales, values } => StoredRef::I8 { scales, values },
        }
    }

    /// Reserves memory for more vectors of `dim` values.
    pub fn reserve(&mut self, vectors: usize, dim: usize) {
        match self {
            Self::F32(all) => all.reserve(vectors * dim),
            Self::F16(all) => all.reserve(vectors * dim),
            Self::I8 { scales, values } => {
                scales.reserve(vectors);
                values.reserve(vectors * dim);
            }
        }
    }

    /// Appends vectors.
    ///
    /// # Panics
    /// If they are of another precision: a database stores vectors of one.
    pub fn extend(&mut self, vectors: StoredRef<'_>) {
        match (self, vectors) {
            (Self::F32(all), StoredRef::F32(some)) => all.extend_from_slice(some),
            (Self::F16(all), StoredRef::F16(some)) => all.extend_from_slice(some),
            (
                Self::I8 { scales, values },
                StoredRef::I8 {
                    scales: more,
                    values: bytes,
                },
            ) => {
                scales.extend_from_slice(more);
                values.extend_from_slice(bytes);
            }
            _ => panic!("a database stores vectors of one precision"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_widen_to_the_same_bits_one_by_one_and_together() {
        let halves: Vec<f16> = (0..=u16::MAX)
            .map(f16::from_bits)
            .filter(|half| half.is_finite())
            .collect();
        let wide = StoredRef::F16(&halves).widen();
        assert!(
            (wide.iter().zip(&halves))
                .all(|(wide, half)| wide.to_bits() == half.to_f32().to_bits())
        );
        let mut stored = Stored::none(Precision::F16);
        stored.extend(StoredRef::F16(&halves[..8]));
        stored.extend(StoredRef::F16(&halves[8..]));
        assert_eq!(stored.as_ref().rows(1..4, 2).widen(), wide[2..8]);
    }

    #[test]
    fn bytes_are_the_nearest_and_the_largest_is_127() {
        let stored = Precision::I8.round(&[1.0, -0.5, 0.004, 0.0, 0.0, 0.0], 3, false);
        let Stored::I8 { scales, values } = &stored else {
            panic!("bytes were asked for")
        };
        // -63.5 is as far from -63 as from -64: to the even one.
        assert_eq!(values, &[127, -64, 1, 0, 0, 0]);
        assert_eq!(scales, &[(1.0 / 127.0) as f32, 0.0]);
        assert_eq!(stored.as_ref().widen()[3..], [0.0; 3]);
        assert_eq!(stored.as_ref().rows(1..2, 3).widen(), [0.0; 3]);
        for extreme in [3e18, f32::MIN_POSITIVE, 1e-45] {
            let stored = Precision::I8.round(&[extreme, -extreme], 2, false);
            let wide = stored.as_ref().widen();
            assert!(wide.iter().all(|x| x.is_finite()), "{extreme}: {wide:?}");
        }
    }

    #[test]
    fn unit_vectors_of_bytes_have_length_1_again() {
        let mut random = crate::kernel::random::Random::new(3);
        for dim in [1, 3, 384, 1024] {
            let mut vector = random.normals(dim);
            let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
            vector.iter_mut().for_each(|x| *x /= length);
            let wide = Precision::I8.round(&vector, dim, true).as_ref().widen();
            let square = |x: &f32| f64::from(*x).powi(2);
            let length = wide.iter().map(square).sum::<f64>().sqrt();
            assert!((length - 1.0).abs() < 1e-6, "{length}");
        }
    }
}
