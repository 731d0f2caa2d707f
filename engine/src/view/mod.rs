//! What a snapshot holds: segments on disk, the tail of rows that are in no segment yet, and which rows of both live.
//!
//! To those who read, both are [`Part`](part::Part)s: immutable rows with live bits.

pub(crate) mod live;
pub(crate) mod part;
pub(crate) mod searchable;
pub(crate) mod segment;
pub(crate) mod tail;
