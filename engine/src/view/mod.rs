//! The contents of a snapshot: segments on disk, the tail of rows that are not in a segment yet, and the live rows of
//! both.
//!
//! Readers see both as [`Part`](part::Part)s: immutable rows with live bits.

pub(crate) mod live;
pub(crate) mod part;
pub(crate) mod searchable;
pub(crate) mod segment;
pub(crate) mod tail;
