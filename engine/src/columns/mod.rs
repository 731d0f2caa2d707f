//! Attributes of rows: typed columns that may be null, and filters on them.
//!
//! A row gets values by [`Row::set`](crate::Row::set), rows of a [`RowBatch`](crate::RowBatch) by [`Columns`]. A column exists
//! from the first value on, and keeps its type. [`Filter::sql`](crate::Filter::sql) restricts queries to the rows for which an
//! expression is true. [`infer`] makes columns of JSON, CSV and TSV.
//!
//! ```
//! use mopqdb::{CreateOptions, Database, Filter, Metric, Options, QueryOptions, Row};
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("papers.db");
//! let db = Database::create(&path, &CreateOptions::vectors(2, Metric::Ip), Options::default())?;
//! db.insert(&[
//!     Row::vector("a", [1.0, 0.0]).set("year", 2019).set("tags", vec!["rust"]),
//!     Row::vector("b", [0.8, 0.1]).set("year", 2021),
//! ])?;
//! let recent = QueryOptions::top(10).among(Filter::sql("year >= 2020")?).columns(["year"]);
//! let hits = db.query_with(&[1.0, 0.0], &recent)?;
//! assert_eq!(hits.len(), 1);
//! assert_eq!(hits[0].columns["year"], 2021.into());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// A `Schema` maps names to ids. `Columns` are bound to it: `LoggedColumns` are what the log has, and the `ColumnBatch` in them is
// what a run of the tail has. A segment has its values in a columns file. Both are a `ColumnSource`, and `BoundExpr::mask` asks
// nothing else. `MaskCache` keeps what it answered.

mod batch;
mod bits;
mod cache;
mod codec;
mod data;
mod eval;
#[cfg(test)]
pub(crate) mod eval_tests;
mod expr;
pub mod infer;
mod schema;
pub(crate) mod time;
mod value;

pub use batch::Columns;
pub use expr::{Expr, ExprError, MAX_EXPR};
pub use schema::{Column, MAX_COLUMN_NAME, MAX_COLUMNS};
pub use value::{ColumnType, ColumnValue, ColumnValueRef, MAX_LIST, MAX_STRING};

pub(crate) use batch::{ColumnBatch, ColumnSource, Conflict, LoggedColumns, fit, gather};
pub(crate) use bits::push as push_bit;
pub(crate) use cache::{DEFAULT_MASK_BYTES, MaskCache};
pub(crate) use codec::{decode_column, encode_column};
pub(crate) use data::{
    BLOCK_ROWS, Codes, ColumnData, ColumnRead, Piece, StringsRef, Zone, first_lossy, float_key,
    is_valid, items, string, value, value_as,
};
pub(crate) use eval::KeyRead;
pub(crate) use expr::BoundExpr;
pub(crate) use schema::{ColumnId, Schema};
