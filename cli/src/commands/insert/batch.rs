//! Batches of rows, checked one by one so that messages can name file and line.

use super::feed::Origin;
use super::seen::Seen;
use crate::rows::{BadRow, ReadRow};
use anyhow::Result;
use mopqdb::columns::ColumnValue;
use mopqdb::{Database, Inserted, Model, Row, RowsKind, Value};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The approximate size of a batch in bytes.
const BYTES: usize = 16 << 20;
/// The number of rows in the first batch; encoding a text takes a millisecond or more.
const FIRST: usize = 256;
/// The maximum number of rows per batch.
const MOST: usize = 32_768;
/// The target duration of a batch: long enough that its sync costs little, short enough that Ctrl-C
/// loses little.
const ABOUT: Duration = Duration::from_millis(500);

/// Rows that are inserted together.
pub(super) struct Batch {
    database: Database,
    model: Arc<Model>,
    /// The keys so far. `None`: rows may replace others, and the last one counts.
    seen: Option<Seen>,
    rows: Vec<Row>,
    bytes: usize,
    /// Rows per batch, adapted to the duration of the last one.
    size: usize,
}

impl Batch {
    /// Creates an empty batch. Rows may replace others unless `seen` is given.
    pub(super) fn new(database: Database, seen: Option<Seen>) -> Self {
        let model = database.model();
        Self {
            database,
            model,
            seen,
            rows: Vec::new(),
            bytes: 0,
            size: FIRST,
        }
    }

    /// Adds a row, or returns why it can't be inserted.
    pub(super) fn add(&mut self, read: ReadRow, origin: Origin) -> Result<Result<(), BadRow>> {
        let ReadRow { row, place, .. } = read;
        let bad = |what: String| Ok(Err(BadRow { place, what }));
        if let Err(error) = self.model.check_row(&row) {
            return bad(format!("{error}{}", self.other_database(&row)));
        }
        if let Value::Vector(vector) = &row.value
            && let Err(error) = self.model.check_vector(vector, || "the vector".into())
        {
            return bad(error.to_string());
        }
        if let Some(seen) = &self.seen {
            if let Some(before) = seen.find(&row.key, origin) {
                return bad(format!(
                    "the key {:?} occurred before in this run, at {before}; give each row its own key (files with the same name have the same numbered keys), or give --replace to keep the last row, or --skip-bad to keep the first",
                    row.key
                ));
            }
            if origin.numbered && self.database.snapshot().differs(&row)? {
                return bad(format!(
                    "the key {:?} exists with different content; give --replace to replace it, --keys FILE for other keys, or, with several files, another file name",
                    row.key
                ));
            }
        }
        if let Some(seen) = &mut self.seen {
            seen.take(&row.key, origin);
        }
        self.bytes += row.key.len()
            + match &row.value {
                Value::Text(text) => text.len(),
                Value::Vector(vector) => 4 * vector.len(),
            }
            + row.columns.values().map(size).sum::<usize>();
        self.rows.push(row);
        Ok(Ok(()))
    }

    /// Returns advice for rows that do not fit this database.
    fn other_database(&self, row: &Row) -> &'static str {
        match (&row.value, self.model.kind()) {
            (Value::Text(_), RowsKind::Vector) => {
                "; for texts create a database with `mopqdb create DB --encoder default`"
            }
            (Value::Vector(_), RowsKind::Text) => {
                "; for vectors create a database with `mopqdb create DB --encoder none --dim N`"
            }
            _ => "",
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.rows.len() >= self.size || self.bytes >= BYTES
    }

    /// Inserts the batch, durably.
    pub(super) fn insert(&mut self) -> Result<Option<Inserted>> {
        if self.rows.is_empty() {
            return Ok(None);
        }
        let started = Instant::now();
        let inserted = self.database.insert(&self.rows)?;
        let took = started.elapsed();
        if took < ABOUT / 2 && self.rows.len() >= self.size {
            self.size = (self.size * 2).min(MOST);
        } else if took > ABOUT * 2 {
            self.size = (self.size / 2).max(16);
        }
        self.rows.clear();
        self.bytes = 0;
        // A rebuild may have switched models meanwhile.
        self.model = self.database.model();
        Ok(Some(inserted))
    }
}

/// Returns the approximate size of a value in bytes.
fn size(value: &ColumnValue) -> usize {
    match value {
        ColumnValue::String(text) => text.len(),
        ColumnValue::Strings(items) => items.iter().map(|item| 8 + item.len()).sum(),
        _ => 8,
    }
}
