//! Names: newtypes for the numbers that must not be swapped for one another, and ids [by content](content).

pub(crate) mod content;
mod database;

pub use content::{CodesId, EncoderId, ModelId, WordsId};
pub use database::DatabaseId;

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// When a row, or the deletion of one, was accepted: unique in a database, ascending, never reused.
    /// Equal scores are ordered by it.
    Seq(u64)
}
number! {
    /// A segment of a database. Never reused.
    SegmentId(u64)
}
number! {
    /// The number of a committed version of a database.
    Generation(u64)
}
number! {
    /// A write-ahead log of a database. Never reused.
    LogId(u64)
}
number! {
    /// The position of a row in its segment.
    RowId(u32)
}

impl Seq {
    /// Returns the next number.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
