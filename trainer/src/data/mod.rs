//! The inputs of a run: the rows of a database ([`Corpus`]), and the [`Pairs`] of queries and keys in a file.

mod corpus;
mod pairs;
mod vectors;

pub use corpus::Corpus;
pub use pairs::{Columns, KeyColumn, Pairs, QueryColumn};
pub use vectors::Vectors;
