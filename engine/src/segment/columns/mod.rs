//! The columns of a segment's rows.
//!
//! Strings are sorted and distinct, and rows have their places. Every column begins on a page of its own, so damage to
//! one does not affect another.
mod dictionary;
mod meta;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use meta::ColumnsMeta;
pub(crate) use reader::ColumnsFile;
pub(crate) use writer::write_columns;
