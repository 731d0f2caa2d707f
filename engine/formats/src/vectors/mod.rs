//! Vectors in files of other programs: numpy's `.npy`, and `.fvecs` and `.fbin` of the nearest-neighbour benchmarks.
//!
//! Files are read a few rows at a time, whatever their headers claim: no memory is allocated for a length in a file
//! before that many bytes were read. [`VectorReader`] reads all three formats and [`VectorWriter`] writes them;
//! [`NpyWriter`] writes arrays of other shapes and types, for exports.

mod header;
mod npy;
mod reader;
mod writer;

pub use npy::{Element, NpyWriter};
pub use reader::VectorReader;
pub use writer::VectorWriter;

use crate::error::Result;
use std::path::Path;
use std::str::FromStr;

/// The maximum number of values per vector: far above any encoder's, and far below what damaged headers usually claim.
pub const MAX_DIM: usize = 1 << 16;

/// A file format for vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VectorFormat {
    /// numpy's format: a header with type and shape, then the values. Types f2, f4 and f8, C order, one or two
    /// dimensions.
    Npy,
    /// Rows one after another, each with its width as i32, then its values as f32.
    Fvecs,
    /// The number of rows and the width as u32, then all values as f32.
    Fbin,
}

impl VectorFormat {
    /// Returns the format for the file's extension, if it is known.
    pub fn of(path: &Path) -> Option<Self> {
        path.extension()?
            .to_str()?
            .to_ascii_lowercase()
            .parse()
            .ok()
    }

    /// Returns the file extension of the format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Npy => "npy",
            Self::Fvecs => "fvecs",
            Self::Fbin => "fbin",
        }
    }
}

impl FromStr for VectorFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "npy" => Ok(Self::Npy),
            "fvecs" => Ok(Self::Fvecs),
            "fbin" => Ok(Self::Fbin),
            other => Err(format!(
                "{other:?} is not a vector format; use npy, fvecs or fbin"
            )),
        }
    }
}

/// Reads a complete file of vectors and returns their dimensions and values. Meant for queries; use [`VectorReader`]
/// for large files.
pub fn read_all(path: &Path) -> Result<(usize, Vec<f32>)> {
    let mut reader = VectorReader::open(path)?;
    let mut values = Vec::new();
    while reader.read_rows(4096, &mut values)? > 0 {}
    Ok((reader.dim(), values))
}

#[cfg(test)]
mod tests;
