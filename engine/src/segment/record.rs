//! The entry of a segment in a version record.

use super::FileName;
use crate::ids::{Generation, SegmentId};
use serde::{Deserialize, Serialize};

/// A segment as a record names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegmentRecord {
    /// The segment.
    pub id: SegmentId,
    /// Rows in it, dead ones included.
    pub rows: u32,
    /// The hash of its rows file.
    pub rows_hash: u64,
    /// How many of them are dead.
    pub dead: u32,
    /// The generation in whose deletion file the dead rows are; none if all are alive.
    pub deletions: Option<Generation>,
    /// The hash of its columns file; none if no row of it has a value of a column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<u64>,
}

impl SegmentRecord {
    /// Returns the files that the record names. Those that are made from them, for a model, are not among them.
    pub(crate) fn files(&self) -> Vec<FileName> {
        let deletions = self
            .deletions
            .map(|version| FileName::Deletions(self.id, version));
        let rows = FileName::Rows(self.id);
        let columns = self.columns.map(|_| FileName::Columns(self.id));
        ([Some(rows), columns, deletions].into_iter().flatten()).collect()
    }
}
