//! The scan: the k best rows for a query, exactly.
//!
//! [`Scanner::scan`] reads packed codes ([`BlockSource`]) with a query's
//! [`LookupTable`](crate::quantizer::LookupTable); [`Scanner::scan_exact`] reads full-precision vectors
//! ([`VectorSource`]). The answer is that of the plain f32 sum in subspace order, whatever the kernel, the
//! number of threads or the split into sources.

mod cells;
mod codes;
mod one_query;
mod rows;
mod scanner;
mod seed;
mod source;
mod topk;
mod vectors;

pub(crate) use cells::{CellScores, Looked, Visit};
pub(crate) use rows::Gathered;
pub use scanner::Scanner;
pub(crate) use source::CellSource;
#[cfg(feature = "testing")]
pub use source::InMemory;
pub use source::{BlockSource, VectorSource};
pub use topk::Found;
pub(crate) use topk::{TopK, merge};

#[cfg(test)]
mod tests;
