//! Vectors as they are stored: f32 as the user gave them, or f16 as an encoder made them.

use half::f16;
use half::slice::HalfFloatSliceExt;
use std::ops::Range;

/// Stored vectors, row-major, borrowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StoredRef<'a> {
    /// As given by the user (normalised for cosine).
    F32(&'a [f32]),
    /// An encoder's output, rounded.
    F16(&'a [f16]),
}

impl<'a> StoredRef<'a> {
    /// Returns the number of values.
    pub fn len(self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
        }
    }

    /// Returns `true` if there are no values.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns some of the values.
    pub fn slice(self, values: Range<usize>) -> Self {
        match self {
            Self::F32(all) => Self::F32(&all[values]),
            Self::F16(all) => Self::F16(&all[values]),
        }
    }

    /// Returns the values that the user gave; `None` if they are an encoder's.
    pub fn given(self) -> Option<&'a [f32]> {
        match self {
            Self::F32(values) => Some(values),
            Self::F16(_) => None,
        }
    }

    /// Returns the values of an encoder; `None` if the user gave them.
    pub fn halves(self) -> Option<&'a [f16]> {
        match self {
            Self::F32(_) => None,
            Self::F16(values) => Some(values),
        }
    }

    /// Appends the values as f32.
    pub fn widen_into(self, out: &mut Vec<f32>) {
        match self {
            Self::F32(values) => out.extend_from_slice(values),
            Self::F16(values) => {
                let start = out.len();
                out.resize(start + values.len(), 0.0);
                values.convert_to_f32_slice(&mut out[start..]);
            }
        }
    }

    /// Returns the values as f32.
    pub fn widen(self) -> Vec<f32> {
        let mut wide = Vec::with_capacity(self.len());
        self.widen_into(&mut wide);
        wide
    }
}

/// Stored vectors, row-major, owned.
#[derive(Debug, Clone, PartialEq)]
pub enum Stored {
    /// As given by the user (normalised for cosine).
    F32(Vec<f32>),
    /// An encoder's output, rounded.
    F16(Vec<f16>),
}

impl Stored {
    /// Returns no values, of the same kind.
    pub fn none_like(&self) -> Self {
        match self {
            Self::F32(_) => Self::F32(Vec::new()),
            Self::F16(_) => Self::F16(Vec::new()),
        }
    }

    /// Borrows the values.
    pub fn as_ref(&self) -> StoredRef<'_> {
        match self {
            Self::F32(values) => StoredRef::F32(values),
            Self::F16(values) => StoredRef::F16(values),
        }
    }

    /// Makes room for more values.
    pub fn reserve(&mut self, values: usize) {
        match self {
            Self::F32(all) => all.reserve(values),
            Self::F16(all) => all.reserve(values),
        }
    }

    /// Appends values.
    ///
    /// # Panics
    /// If they are of the other kind: a database stores vectors of one kind.
    pub fn extend(&mut self, values: StoredRef<'_>) {
        match (self, values) {
            (Self::F32(all), StoredRef::F32(some)) => all.extend_from_slice(some),
            (Self::F16(all), StoredRef::F16(some)) => all.extend_from_slice(some),
            _ => panic!("a database stores vectors of one kind"),
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
        let mut stored = Stored::F16(halves.clone()).none_like();
        stored.extend(StoredRef::F16(&halves[..7]));
        stored.extend(StoredRef::F16(&halves[7..]));
        assert_eq!(stored.as_ref().slice(3..9).widen(), wide[3..9]);
    }
}
