//! Dropping and retyping columns: a new version of the schema alone. Files and logs keep their values as they are.

use super::commit::Change;
use super::{Store, lock};
use crate::columns::{self, ColumnId, ColumnType, Schema};
use crate::error::{Error, Result};
use crate::ids::RowId;
use crate::snapshot::Snapshot;

impl Store {
    /// Removes a column. Compaction frees the space of its values.
    pub(crate) fn drop_column(&self, name: &str) -> Result<()> {
        self.change_schema(|schema, _| schema.drop(name).map(drop))
    }

    /// Gives a column another type that can hold each of its values.
    pub(crate) fn retype_column(&self, name: &str, to: ColumnType) -> Result<()> {
        // Most values are looked at without the lock.
        let before = self.current();
        let retyped = Schema::clone(&before.schema).retype(name, to)?;
        if retyped.needs_look {
            expect_lossless(&before, name, (retyped.id, to), None)?;
        }
        self.change_schema(|schema, snapshot| {
            let retyped = schema.retype(name, to)?;
            match retyped.needs_look {
                true => expect_lossless(snapshot, name, (retyped.id, to), Some(&before)),
                false => Ok(()),
            }
        })
    }

    /// Commits another schema.
    fn change_schema(
        &self,
        change: impl FnOnce(&mut Schema, &Snapshot) -> Result<()>,
    ) -> Result<()> {
        let compacting = self.start_compacting();
        let mut committer = lock(&self.commit);
        self.flush(&mut committer);
        let mut snapshot = Snapshot::clone(&self.current());
        let mut schema = Schema::clone(&snapshot.schema);
        change(&mut schema, &snapshot)?;
        snapshot.schema = schema.into();
        let (first_log, first_seq) = (committer.record.first_log, committer.record.first_seq);
        let change = Change {
            snapshot,
            first_log,
            first_seq,
        };
        self.commit_version(&compacting, &mut committer, change)
    }
}

/// Refuses a type that can't hold every living value of a column. Parts that a snapshot before this had were looked at.
fn expect_lossless(
    snapshot: &Snapshot,
    name: &str,
    (id, to): (ColumnId, ColumnType),
    before: Option<&Snapshot>,
) -> Result<()> {
    for part in snapshot.parts() {
        let known =
            before.is_some_and(|before| before.parts().any(|other| other.has_rows_of(part)));
        let Some(column) = part.column(id).filter(|_| !known) else {
            continue;
        };
        let rows = part.live().iter().map(|row| row.0 as usize);
        if let Some((row, value)) = columns::first_lossy(column, to, rows)? {
            return Err(Error::invalid(format!(
                "column {name:?} can't become {}: the row {:?} has {} there; change that value first, or add another column",
                to.described(),
                part.key(RowId(row as u32))?,
                value.to_json()
            )));
        }
    }
    Ok(())
}
