//! Opens the database of an insert, or creates it, as soon as no other process writes to it.

use super::Insert;
use super::feed::Item;
use crate::exit::in_words;
use crate::rows::ReadRow;
use crate::settings::Settings;
use crate::stop;
use anyhow::{Context, Result, bail};
use mopqdb::{CreateOptions, Database, Error, Metric, Value};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often taking the lock is tried. The system does not tell when a lock is freed.
const PAUSE: Duration = Duration::from_millis(50);

impl Insert {
    /// Opens the database, or creates one that suits the first row. Waits for its lock if the user asks for that. Also
    /// returns `true` if it was created.
    pub(super) fn open(&self, settings: &Settings, first: &Item) -> Result<(Database, bool)> {
        let started = Instant::now();
        let wait = Duration::from_secs(self.wait);
        let mut said = false;
        loop {
            let error = match self.open_now(settings, first) {
                Err(error) if self.wait > 0 && is_locked(&error) => error,
                outcome => return outcome,
            };
            if stop::asked() {
                bail!("stopped while waiting for the database; nothing was inserted");
            }
            let left = wait.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(error.context(format!("gave up after {} s", self.wait)));
            }
            if !said {
                eprintln!("mopqdb: {error}; waiting up to {} s", self.wait);
                said = true;
            }
            sleep(PAUSE.min(left));
        }
    }

    fn open_now(&self, settings: &Settings, first: &Item) -> Result<(Database, bool)> {
        let db = &self.db;
        if !Database::is_vacant(db)? {
            return Ok((super::super::open(db, settings)?, false));
        }
        let new = match first {
            Item::Row(ReadRow { row, .. }, _) => match &row.value {
                Value::Text(_) => CreateOptions::bundle(mopqdb::encoder::default_bundle()?),
                Value::Vector(vector) => CreateOptions::vectors(vector.len(), Metric::Cosine),
            },
            Item::Bad(bad) => return Err(bad.clone()).context("no database was created"),
            Item::Failed(error) => bail!("no database was created: {}", in_words(error)),
            Item::End | Item::Waiting => {
                bail!("there are no rows to insert; no database was created")
            }
        };
        Ok((super::super::create(db, &new, settings)?, true))
    }
}

fn is_locked(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Locked { .. }))
}
