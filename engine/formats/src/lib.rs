//! File formats of other programs. None of them is part of a database, and this crate does not depend on the engine.
//!
//! [`vectors`] reads and writes arrays of vectors: numpy's `.npy`, and `.fvecs` and `.fbin` of the nearest-neighbour
//! benchmarks. [`faiss`] writes an index that Faiss loads. [`pairs`] reads queries and their right
//! answers from [`lines`]. [`plot`] draws SVG, and [`page`] makes a page of it.
//!
//! ```
//! use mopqdb_formats::vectors::{VectorReader, VectorWriter};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! let path = dir.path().join("queries.npy");
//! let mut writer = VectorWriter::create(&path, 3)?;
//! writer.write(&[0.5, 1.0, 2.0, 4.0, 8.0, 16.0])?;
//! assert_eq!(writer.finish()?, 2);
//!
//! let mut reader = VectorReader::open(&path)?;
//! let mut first = Vec::new();
//! assert_eq!(reader.read_rows(1, &mut first)?, 1);
//! assert_eq!(first, [0.5, 1.0, 2.0]);
//! # Ok::<(), mopqdb_formats::Error>(())
//! ```

mod error;
pub mod faiss;
pub mod lines;
pub mod page;
pub mod pairs;
pub mod plot;
pub mod vectors;

pub use error::{Error, Result};
