//! Writing a Faiss index file: `IxPT` (a chain of transforms) around `IxPq` (codes) or a flat index (full-precision
//! vectors).
//!
//! Faiss does not document its format; this follows its reader (faiss/impl/index_read.cpp): a four-letter code, then
//! fields in order, little-endian, vectors preceded by their length as u64.
//!
//! ```
//! use mopqdb_formats::faiss::{Codebooks, Distance, Index, IndexWriter};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! let index = Index {
//!     rows: 2,
//!     dim: 2,
//!     distance: Distance::InnerProduct,
//!     transforms: &[],
//!     codebooks: Some(Codebooks {
//!         subspaces: 2,
//!         codewords: 2,
//!         values: &[-1.0, 1.0, -2.0, 2.0],
//!     }),
//! };
//! let mut writer = IndexWriter::create(&dir.path().join("index.faiss"), &index)?;
//! writer.write_codes(&[0, 1, 1, 1])?;
//! writer.finish()?;
//! # Ok::<(), mopqdb_formats::Error>(())
//! ```

mod fields;

use crate::error::{Error, Result};
use fields::Fields;
use std::path::Path;

/// How an index compares vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    /// By inner product; for vectors of length 1 that is their cosine.
    InnerProduct,
    /// By squared Euclidean distance.
    L2,
}

/// A step that Faiss applies to queries and to added rows before the inner index.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Transform<'a> {
    /// Scales to length 1.
    Normalise,
    /// `y = W x + b`.
    Linear {
        /// W, (outputs, inputs).
        weight: &'a [f32],
        /// b, (outputs), or empty.
        bias: &'a [f32],
        /// The number of values per vector after this step.
        outputs: usize,
    },
    /// `y = x R`; R is (dim, dim).
    Rotation(&'a [f32]),
}

/// The codebooks of a product quantizer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Codebooks<'a> {
    /// The number of codes per row.
    pub subspaces: usize,
    /// The number of codewords per subspace, 256 at most. Up to 16, a code takes four bits; above that, eight.
    pub codewords: usize,
    /// The codewords: (subspaces, codewords, sub_dim).
    pub values: &'a [f32],
}

impl Codebooks<'_> {
    /// Returns the bits per code as Faiss packs them.
    fn bits(&self) -> usize {
        if self.codewords <= 16 { 4 } else { 8 }
    }

    fn sub_dim(&self) -> usize {
        self.values.len() / (self.subspaces * self.codewords)
    }

    /// Returns the width of the vectors that are split into subspaces.
    fn dim(&self) -> usize {
        self.subspaces * self.sub_dim()
    }

    /// Returns the bytes per row.
    fn row_bytes(&self) -> usize {
        (self.subspaces * self.bits()).div_ceil(8)
    }
}

/// The description of an index, without its rows.
#[derive(Debug, Clone, Copy)]
pub struct Index<'a> {
    /// The number of rows that will be written.
    pub rows: u64,
    /// The number of values per query.
    pub dim: usize,
    /// How the index compares vectors.
    pub distance: Distance,
    /// The steps from a query to what is compared with the rows, in order.
    pub transforms: &'a [Transform<'a>],
    /// The codebooks, if rows are codes; otherwise rows are vectors of `dim` values.
    pub codebooks: Option<Codebooks<'a>>,
}

/// Writes an index, a few rows at a time.
#[derive(Debug)]
pub struct IndexWriter {
    fields: Fields,
    rows: Rows,
    /// The bytes of rows that are still to be written.
    left: u64,
}

#[derive(Debug)]
enum Rows {
    Vectors,
    Codes { subspaces: usize, bits: usize },
}

impl IndexWriter {
    /// Creates the file and writes everything before the rows.
    pub fn create(path: &Path, index: &Index<'_>) -> Result<Self> {
        let mut fields = Fields::create(path)?;
        chain(&mut fields, index)?;
        let (rows, row_bytes) = match &index.codebooks {
            None => (flat(&mut fields, index)?, index.dim * 4),
            Some(books) => (codes(&mut fields, index, books)?, books.row_bytes()),
        };
        let left = index.rows * row_bytes as u64;
        Ok(Self { fields, rows, left })
    }

    /// Writes complete rows of an index without codebooks: the transformed rows of the database.
    pub fn write_vectors(&mut self, values: &[f32]) -> Result<()> {
        assert!(matches!(self.rows, Rows::Vectors), "the index has codes");
        self.take(values.len() * 4);
        self.fields.floats(values)
    }

    /// Writes rows of an index with codebooks, (n, subspaces), one byte per code.
    pub fn write_codes(&mut self, codes: &[u8]) -> Result<()> {
        let Rows::Codes { subspaces, bits } = self.rows else {
            panic!("the index has vectors");
        };
        assert_eq!(codes.len() % subspaces, 0, "codes must form complete rows");
        if bits == 8 {
            self.take(codes.len());
            return self.fields.bytes(codes);
        }
        let packed = pack(codes, subspaces);
        self.take(packed.len());
        self.fields.bytes(&packed)
    }

    /// Writes what follows the rows, and syncs.
    pub fn finish(mut self) -> Result<()> {
        assert_eq!(
            self.left, 0,
            "the number of rows differs from the announced one"
        );
        if let Rows::Codes { subspaces, bits } = self.rows {
            // The search type is plain ADC, without signs, with Faiss's default threshold, which plain ADC does not
            // use.
            self.fields.i32(0)?;
            self.fields.bytes(&[0])?;
            self.fields.i32(bits * subspaces + 1)?;
        }
        self.fields.finish()
    }

    fn take(&mut self, bytes: usize) {
        let left = self.left.checked_sub(bytes as u64);
        self.left = left.expect("more rows were written than announced");
    }
}

/// Writes the fields with which every index begins.
fn header(fields: &mut Fields, code: &[u8; 4], dim: usize, index: &Index<'_>) -> Result<()> {
    fields.bytes(code)?;
    fields.i32(dim)?;
    fields.u64(index.rows)?;
    // Two fields that Faiss no longer uses.
    fields.u64(1 << 20)?;
    fields.u64(1 << 20)?;
    // Whether the index is trained.
    fields.bytes(&[1])?;
    fields.i32(match index.distance {
        Distance::InnerProduct => 0,
        Distance::L2 => 1,
    })
}

/// Writes the transforms, which wrap the index that follows.
fn chain(fields: &mut Fields, index: &Index<'_>) -> Result<()> {
    if index.transforms.is_empty() {
        return Ok(());
    }
    header(fields, b"IxPT", index.dim, index)?;
    fields.i32(index.transforms.len())?;
    let mut dim = index.dim;
    for transform in index.transforms {
        dim = match *transform {
            Transform::Normalise => {
                fields.bytes(b"VNrm")?;
                fields.floats(&[2.0])?;
                transform_end(fields, dim, dim)?
            }
            Transform::Linear {
                weight,
                bias,
                outputs,
            } => linear(fields, weight, bias, dim, outputs)?,
            Transform::Rotation(matrix) => {
                // mopqdb computes y = x R, Faiss y = A x.
                let transposed: Vec<f32> = (0..dim * dim)
                    .map(|n| matrix[n % dim * dim + n / dim])
                    .collect();
                linear(fields, &transposed, &[], dim, dim)?
            }
        };
    }
    Ok(())
}

fn linear(
    fields: &mut Fields,
    matrix: &[f32], // outputs, inputs
    bias: &[f32],
    inputs: usize,
    outputs: usize,
) -> Result<usize> {
    assert_eq!(matrix.len(), outputs * inputs, "the matrix fits the chain");
    fields.bytes(b"LTra")?;
    fields.bytes(&[u8::from(!bias.is_empty())])?;
    fields.vector(matrix)?;
    fields.vector(bias)?;
    transform_end(fields, inputs, outputs)
}

/// Writes the fields with which every transform ends. Returns the width of its output.
fn transform_end(fields: &mut Fields, inputs: usize, outputs: usize) -> Result<usize> {
    fields.i32(inputs)?;
    fields.i32(outputs)?;
    // Whether the transform is trained.
    fields.bytes(&[1])?;
    Ok(outputs)
}

/// Writes the header of an index of full-precision vectors.
fn flat(fields: &mut Fields, index: &Index<'_>) -> Result<Rows> {
    let code = match index.distance {
        Distance::InnerProduct => b"IxFI",
        Distance::L2 => b"IxF2",
    };
    header(fields, code, index.dim, index)?;
    // The length is in values, not in bytes.
    fields.u64(index.rows * index.dim as u64)?;
    Ok(Rows::Vectors)
}

/// Writes the header of an index of codes: the codebooks, and the number of bytes of codes that follow.
fn codes(fields: &mut Fields, index: &Index<'_>, books: &Codebooks<'_>) -> Result<Rows> {
    let (subspaces, bits) = (books.subspaces, books.bits());
    let size = books.codewords * books.sub_dim();
    assert_eq!(
        books.values.len(),
        subspaces * size,
        "the codebooks are complete"
    );
    header(fields, b"IxPq", books.dim(), index)?;
    for field in [books.dim(), subspaces, bits] {
        fields.u64(field as u64)?;
    }
    let full = (1 << bits) * books.sub_dim();
    fields.u64((subspaces * full) as u64)?;
    for book in books.values.chunks_exact(size) {
        fields.floats(book)?;
        // Codewords that no code refers to.
        fields.floats(&vec![0.0; full - size])?;
    }
    fields.u64(index.rows * books.row_bytes() as u64)?;
    Ok(Rows::Codes { subspaces, bits })
}

/// Packs codes of four bits like Faiss: the first of two is the low half of a byte, and each row begins a new byte.
fn pack(codes: &[u8], subspaces: usize) -> Vec<u8> {
    let mut packed = Vec::with_capacity(codes.len().div_ceil(2));
    for row in codes.chunks_exact(subspaces) {
        packed.extend(
            row.chunks(2)
                .map(|pair| pair[0] | pair.get(1).map_or(0, |high| high << 4)),
        );
    }
    packed
}

#[cfg(test)]
mod tests;
