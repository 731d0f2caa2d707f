//! The sections of stored vectors, in rows files of vectors and in vecs files: VECTORS, and SCALES if they are bytes.

use super::file::SegmentFile;
use super::output::Output;
use crate::Result;
use crate::format::{Check, FormatError, Part, Section, Take};
use crate::stored::{Precision, StoredRef};
use std::ops::Range;

/// Returns the number of a precision in META; 1 means texts.
pub(super) fn number(precision: Precision) -> u32 {
    match precision {
        Precision::F32 => 2,
        Precision::F16 => 3,
        Precision::I8 => 4,
    }
}

/// Returns the precision for a number in META.
pub(super) fn precision(number: u32, fields: &Take<'_>) -> Result<Precision, FormatError> {
    let known = Precision::ALL.into_iter();
    known
        .into_iter()
        .find(|precision| self::number(*precision) == number)
        .ok_or_else(|| fields.wrong(format!("values of unknown kind {number}")))
}

/// Writes the sections, one vector after another.
pub(super) struct VectorsWriter {
    dim: usize,
    precision: Precision,
    /// Scales, which are written after the values.
    scales: Vec<f32>,
    rows: u64,
}

impl VectorsWriter {
    /// Begins the first section.
    pub(super) fn begin(output: &mut Output, dim: usize, precision: Precision) -> Result<Self> {
        assert!(dim > 0, "vectors have dimensions");
        output.begin(Section::Vectors, Check::Pages)?;
        Ok(Self {
            dim,
            precision,
            scales: Vec::new(),
            rows: 0,
        })
    }

    /// Appends vectors.
    ///
    /// # Panics
    /// If they have another precision, or are incomplete.
    #[inline]
    pub(super) fn push(&mut self, output: &mut Output, vectors: StoredRef<'_>) -> Result<()> {
        assert_eq!(
            vectors.precision(),
            self.precision,
            "all vectors have the precision of the file"
        );
        assert_eq!(
            vectors.len() % self.dim,
            0,
            "the values must form complete vectors"
        );
        self.rows += (vectors.len() / self.dim) as u64;
        match vectors {
            StoredRef::F32(values) => output.write(bytemuck::cast_slice(values)),
            StoredRef::F16(values) => output.write(bytemuck::cast_slice(values)),
            StoredRef::I8 { scales, values } => {
                self.scales.extend_from_slice(scales);
                output.write(bytemuck::cast_slice(values))
            }
        }
    }

    /// Returns the number of vectors so far.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Writes everything that follows the last vector.
    pub(super) fn finish(self, output: &mut Output) -> Result<()> {
        match self.precision {
            Precision::F32 | Precision::F16 => Ok(()),
            Precision::I8 => {
                let scales = bytemuck::cast_slice(&self.scales);
                output.section(Section::Scales, Check::Pages, scales)
            }
        }
    }
}

/// The sections of an open file.
#[derive(Debug)]
pub(super) struct Vectors {
    dim: usize,
    rows: usize,
    values: Values,
}

#[derive(Debug)]
enum Values {
    F32(Part),
    F16(Part),
    I8 { scales: Part, values: Part },
}

impl Vectors {
    /// Finds the sections, which must have the lengths of `rows` vectors.
    pub(super) fn open(
        file: &SegmentFile,
        rows: u32,
        dim: u32,
        precision: Precision,
    ) -> Result<Self> {
        let bytes = (u64::from(rows) * u64::from(dim)).checked_mul(precision.width() as u64);
        let part = file.sized(Section::Vectors, bytes)?;
        Ok(Self {
            dim: dim as usize,
            rows: rows as usize,
            values: match precision {
                Precision::F32 => Values::F32(part),
                Precision::F16 => Values::F16(part),
                Precision::I8 => Values::I8 {
                    scales: file.sized(Section::Scales, Some(u64::from(rows) * 4))?,
                    values: part,
                },
            },
        })
    }

    /// Begins to read the vectors of rows, all at once. Requires: rows ascend.
    pub(super) fn prefetch(&self, file: &SegmentFile, rows: &[u32]) {
        let (part, width) = match &self.values {
            Values::F32(part) => (part, Precision::F32.width()),
            Values::F16(part) => (part, Precision::F16.width()),
            Values::I8 { values, .. } => (values, Precision::I8.width()),
        };
        let width = self.dim * width;
        let every = file.lacks(part, width, rows);
        file.prefetch(part, width, rows, every);
        if let Values::I8 { scales, .. } = &self.values {
            file.prefetch(scales, 4, rows, every);
        }
    }

    /// Returns the vectors of a range of rows, checked.
    ///
    /// # Panics
    /// If the range is not within the rows.
    #[inline]
    pub(super) fn read<'f>(
        &self,
        file: &'f SegmentFile,
        rows: Range<usize>,
    ) -> Result<StoredRef<'f>> {
        assert!(rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        let span = rows.start * self.dim..rows.end * self.dim;
        Ok(match &self.values {
            Values::F32(part) => StoredRef::F32(file.numbers(part, span)?),
            Values::F16(part) => StoredRef::F16(file.numbers(part, span)?),
            Values::I8 { scales, values } => StoredRef::I8 {
                scales: file.numbers(scales, rows)?,
                values: file.numbers(values, span)?,
            },
        })
    }
}
