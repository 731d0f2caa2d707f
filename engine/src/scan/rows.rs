//! Stored vectors as kernels take them.

use crate::kernel::{Places, Rows, prefetch};
use crate::stored::{Precision, StoredRef};
use half::f16;

/// Stored vectors that follow one another.
pub(super) fn dense(vectors: StoredRef<'_>) -> Rows<'_> {
    match vectors {
        StoredRef::F32(values) => Rows::F32(Places::Dense(values)),
        StoredRef::F16(values) => Rows::F16(Places::Dense(values)),
        StoredRef::I8 { scales, values } => Rows::I8 {
            values: Places::Dense(values),
            scales,
        },
    }
}

/// Stored vectors of one precision, each at a place of its own.
#[derive(Debug)]
pub(crate) enum Gathered<'a> {
    F32(Vec<&'a [f32]>),
    F16(Vec<&'a [f16]>),
    I8 {
        values: Vec<&'a [i8]>,
        /// Where the scales are.
        places: Vec<&'a f32>,
        scales: Vec<f32>,
    },
}

impl<'a> Gathered<'a> {
    /// Returns none, with room for as many.
    pub(crate) fn with_capacity(precision: Precision, vectors: usize) -> Self {
        match precision {
            Precision::F32 => Self::F32(Vec::with_capacity(vectors)),
            Precision::F16 => Self::F16(Vec::with_capacity(vectors)),
            Precision::I8 => Self::I8 {
                values: Vec::with_capacity(vectors),
                places: Vec::with_capacity(vectors),
                scales: Vec::with_capacity(vectors),
            },
        }
    }

    /// Appends one vector.
    ///
    /// # Panics
    /// If it is of another precision: a database has one.
    #[inline]
    pub(crate) fn push(&mut self, vector: StoredRef<'a>) {
        match (self, vector) {
            (Self::F32(all), StoredRef::F32(one)) => all.push(one),
            (Self::F16(all), StoredRef::F16(one)) => all.push(one),
            (
                Self::I8 { values, places, .. },
                StoredRef::I8 {
                    scales,
                    values: one,
                },
            ) => {
                values.push(one);
                // Scales lie apart from the values. Reading each at once would wait for memory once per row.
                prefetch(&scales[0]);
                places.push(&scales[0]);
            }
            _ => panic!("a database stores vectors of one precision"),
        }
    }

    /// Borrows them for a kernel.
    pub(crate) fn rows(&mut self) -> Rows<'_> {
        match self {
            Self::F32(values) => Rows::F32(Places::Scattered(values)),
            Self::F16(values) => Rows::F16(Places::Scattered(values)),
            Self::I8 {
                values,
                places,
                scales,
            } => {
                scales.extend(places.drain(..).copied());
                Rows::I8 {
                    values: Places::Scattered(values),
                    scales,
                }
            }
        }
    }
}
