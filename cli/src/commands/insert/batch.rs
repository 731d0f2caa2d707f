//! Rows on their way into the database, checked one by one so that a message can name file and line.

use super::feed::Origin;
use super::seen::Seen;
use crate::rows::{BadRow, ReadRow};
use anyhow::Result;
use mopqdb::{Database, Inserted, Model, Row, RowsKind, Value};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes a batch holds, about.
const BYTES: usize = 16 << 20;
/// Rows of the first batch; texts take a millisecond or more to encode.
const FIRST: usize = 256;
/// Rows of any batch.
const MOST: usize = 32_768;
/// A batch that takes about so long costs little for its sync, and loses little to Ctrl-C.
const ABOUT: Duration = Duration::from_millis(500);

/// Rows to be inserted as one.
pub(super) struct Batch {
    database: Database,
    model: Arc<Model>,
    /// None: rows may replace others, and the last one counts.
    seen: Option<Seen>,
    rows: Vec<Row>,
    bytes: usize,
    /// Rows a batch, by how long the last one took.
    size: usize,
}

impl Batch {
    /// Rows may replace others unless the keys that were `seen` are told apart.
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

    /// Takes a row, or says why it can't be taken.
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
                    "the key {:?} came before in this run, at {before}; give each row a key of its own (files of the same name give the same numbered keys), --replace if the last row counts, or --skip-bad if the first does",
                    row.key
                ));
            }
            if origin.numbered && self.database.snapshot().differs(&row)? {
                return bad(format!(
                    "the key {:?} exists with other content; give --replace if this file replaces it, --keys FILE for keys of its own, or another file name among several",
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
            };
        self.rows.push(row);
        Ok(Ok(()))
    }

    /// What to do with rows that are not of this database's kind.
    fn other_database(&self, row: &Row) -> &'static str {
        match (&row.value, self.model.kind()) {
            (Value::Text(_), RowsKind::Vector) => {
                "; for texts make one with `mopqdb create DB --encoder default`"
            }
            (Value::Vector(_), RowsKind::Text) => {
                "; for vectors make one with `mopqdb create DB --encoder none --dim N`"
            }
            _ => "",
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.rows.len() >= self.size || self.bytes >= BYTES
    }

    /// Inserts what there is, durably.
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
