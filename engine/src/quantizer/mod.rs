//! The learned product quantizer: how a vector becomes a code, and how a query scores codes.
//!
//! A vector is projected ([`Head`], [`Activation`], rotation), cut into `subspaces` slices, and each slice is
//! replaced by the number of the codeword that [`Selection`] prefers. A query becomes a [`LookupTable`]; the
//! score of a code is the sum of one entry per subspace. [`train_pq`], [`train_opq`] and
//! [`train_opq_on_axes`] make a [`Quantizer`] from vectors alone. Where there are many rows, [`Cells`] let a query look at
//! a part of them. The loops are in `kernel/`; `scan/` reads the codes.
//!
//! The arithmetic is fixed, so that codes and scores are the same on every CPU: each sum runs in dimension
//! order with fused multiply-add, SIMD lanes run over outputs or codewords, ties go to the lowest codeword.

mod arrange;
mod axes;
mod cells;
mod cluster;
mod codebook;
mod fixed;
mod head;
mod kmeans;
mod linalg;
mod opq;
mod order;
mod pq;
#[expect(clippy::module_inception, reason = "the file is named after its type")]
mod quantizer;
mod rough;
mod selection;
mod shape;
mod table;

pub use axes::train_opq_on_axes;
pub(crate) use cells::ScoredCell;
pub use cells::{Cells, MAX_CELLS};
pub use codebook::Codebook;
pub use head::Head;
pub use opq::train_opq;
pub use order::RowCodes;
pub(crate) use order::{CellOrder, CellStarts};
pub use pq::{TrainPq, Trained, add_cells, train_pq};
pub(crate) use quantizer::Asked;
pub use quantizer::{Quantizer, QuantizerBuilder};
pub use selection::{Activation, QueryMode, Selection};
pub use shape::{Bits, CodeShape, ROWS_PER_BLOCK};
pub use table::LookupTable;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod training_tests;
