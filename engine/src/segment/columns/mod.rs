//! The columns of a segment's rows.
//!
//! Strings are sorted, each there once, and rows have their places. Every column begins on a page of its own, so damage of one is
//! none of another.
mod dictionary;
mod meta;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use meta::ColumnsMeta;
pub(crate) use reader::ColumnsFile;
pub(crate) use writer::write_columns;
