//! An embedded approximate-nearest-neighbour database whose quantizer learns what its users search for.

mod error;
mod metric;

pub use error::{Corruption, Error, Result};
pub use metric::Metric;
