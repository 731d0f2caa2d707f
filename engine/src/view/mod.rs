//! What a snapshot holds: segments on disk, the tail of rows that are in no segment yet, and which rows of both live.

pub(crate) mod live;
pub(crate) mod segment;
pub(crate) mod tail;
