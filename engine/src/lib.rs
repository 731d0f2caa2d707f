//! An embedded approximate-nearest-neighbour database whose quantizer learns what its users search for.

pub mod bundle;
pub mod encoder;
mod error;
pub mod files;
pub mod format;
mod ids;
pub mod kernel;
mod metric;
pub mod quantizer;
pub mod scan;
pub mod segment;
pub mod vectors;

pub use error::{Corruption, Error, Result};
pub use ids::{Generation, LogId, RowId, SegmentId, Seq};
pub use metric::Metric;
