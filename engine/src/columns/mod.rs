//! Attributes of rows: typed columns that may be null, and filters on them.
//!
//! A [`Schema`] maps names to ids. Rows are gathered in a [`Draft`], which [`bind`](Draft::bind)s them to the schema:
//! [`LoggedColumns`] are what the log has, and the [`ColumnBatch`] in them is what a run of the tail has. A segment has its
//! values in a columns file. Both are a [`ColumnSource`], and [`BoundExpr::mask`] asks nothing else. [`MaskCache`] keeps
//! what it answered, [`infer`] makes columns of JSON, CSV and TSV.
#![expect(
    dead_code,
    unused_imports,
    reason = "log, tail, segments and queries take it up next"
)]

mod batch;
mod bits;
mod cache;
mod codec;
mod data;
mod eval;
#[cfg(test)]
pub(crate) mod eval_tests;
mod expr;
pub(crate) mod infer;
mod schema;
pub(crate) mod time;
mod value;

pub(crate) use batch::{ColumnBatch, ColumnSource, Conflict, Draft, LoggedColumns, gather};
pub(crate) use bits::push as push_bit;
pub(crate) use cache::{DEFAULT_MASK_BYTES, MaskCache};
pub(crate) use codec::{decode_column, encode_column};
pub(crate) use data::{
    BLOCK_ROWS, Codes, ColumnData, ColumnRead, Piece, StringsRef, Zone, first_lossy, float_key,
    is_valid, items, string, value,
};
pub(crate) use eval::KeyRead;
pub(crate) use expr::{BoundExpr, Expr, ExprError, MAX_EXPR};
pub(crate) use schema::{
    Column, ColumnId, MAX_COLUMN_NAME, MAX_COLUMNS, RESERVED_NAMES, Retyped, Schema, check_name,
};
pub(crate) use value::{ColumnType, ColumnValue, ColumnValueRef, MAX_LIST, MAX_STRING};
