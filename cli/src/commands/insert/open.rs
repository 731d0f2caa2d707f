//! The database of an insert: opened, or made if there is none.

use super::Insert;
use super::feed::Item;
use crate::exit::in_words;
use crate::rows::ReadRow;
use crate::settings::Settings;
use anyhow::{Context, Result, bail};
use mopqdb::{CreateOptions, Database, Metric, Value};

impl Insert {
    /// Opens the database, or makes one that suits the first row. Returns `true` beside it if it was made.
    pub(super) fn open(&self, settings: &Settings, first: &Item) -> Result<(Database, bool)> {
        let db = &self.db;
        if !Database::is_vacant(db)? {
            return Ok((super::super::open(db, settings)?, false));
        }
        let new = match first {
            Item::Row(ReadRow { row, .. }, _) => match &row.value {
                Value::Text(_) => CreateOptions::bundle(mopqdb::encoder::default_bundle()?),
                Value::Vector(vector) => CreateOptions::vectors(vector.len(), Metric::Cosine),
            },
            Item::Bad(bad) => return Err(bad.clone()).context("no database was made"),
            Item::Failed(error) => bail!("no database was made: {}", in_words(error)),
            Item::End | Item::Waiting => bail!("there are no rows to insert; no database was made"),
        };
        Ok((super::super::create(db, &new, settings)?, true))
    }
}
