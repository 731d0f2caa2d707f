//! An embedded approximate-nearest-neighbour database whose quantizer learns what its users search for.

mod error;
pub mod kernel;
mod metric;
pub mod quantizer;
pub mod scan;

pub use error::{Corruption, Error, Result};
pub use metric::Metric;
