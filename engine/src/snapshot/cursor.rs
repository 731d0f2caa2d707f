//! A cursor over the rows of a snapshot.

use super::{Masks, Snapshot, masks};
use crate::error::Result;
use crate::row::{Filter, Row};
use std::collections::VecDeque;
use std::sync::Arc;

impl Snapshot {
    /// Returns a cursor over all live rows, in `Seq` order, which keeps this snapshot.
    pub fn cursor(self: &Arc<Self>) -> RowCursor {
        RowCursor {
            snapshot: Arc::clone(self),
            masks: Arc::new(Masks::none()),
            part: 0,
            row: 0,
            read: VecDeque::new(),
        }
    }
}

/// A cursor over the rows of a snapshot, which it keeps: an iterator that may be stored, sent to another thread, and read
/// while others insert.
///
/// ```
/// use mopqdb::{CreateOptions, Database, Metric, Options, Row};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("colours.db");
/// let db = Database::create(&path, &CreateOptions::vectors(1, Metric::Ip), Options::default())?;
/// db.insert(&[Row::vector("red", [1.0]), Row::vector("blue", [2.0])])?;
/// let mut keys = Vec::new();
/// for row in db.rows() {
///     keys.push(row?.key);
/// }
/// assert_eq!(keys, ["red", "blue"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct RowCursor {
    snapshot: Arc<Snapshot>,
    /// The rows that are returned.
    masks: Arc<Masks>,
    /// Where the rows that were not read yet begin.
    part: usize,
    row: u32,
    /// Rows that were read, so that a block of texts is unpacked once for all of its rows.
    read: VecDeque<Row>,
}

impl Iterator for RowCursor {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        while self.read.is_empty() {
            match self.read_on() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(e) => {
                    // What is damaged is told once, and ends the cursor.
                    self.part = usize::MAX;
                    return Some(Err(e));
                }
            }
        }
        self.read.pop_front().map(Ok)
    }
}

impl RowCursor {
    /// Restricts the cursor to the rows that pass a filter. Requires: it was not read yet.
    ///
    /// # Errors
    /// As [`Snapshot::count_where`].
    pub fn among(mut self, filter: &Filter) -> Result<Self> {
        self.masks = Arc::new(masks(&self.snapshot, Some(filter))?);
        Ok(self)
    }

    /// Reads some more rows. Returns `false` at the end.
    fn read_on(&mut self) -> Result<bool> {
        const ROWS: u32 = 512;
        if self.part >= self.snapshot.segments.len() + self.snapshot.tail.len() {
            return Ok(false);
        }
        let part = self.snapshot.part(self.part);
        let rows = part.live().row_count();
        let end = self.row.saturating_add(ROWS).min(rows);
        let (read, schema) = (&mut self.read, &self.snapshot.schema);
        (self.masks).for_rows(&self.snapshot, self.part, self.row..end, |row| {
            read.push_back(Row {
                columns: part.values(schema, row.row)?,
                ..Row::new(row.key, row.value.given())
            });
            Ok(())
        })?;
        (self.part, self.row) = match end == rows {
            true => (self.part + 1, 0),
            false => (self.part, end),
        };
        Ok(true)
    }
}
