//! Changing every row that passes a filter: in batches, each of them atomic, in the order of `Seq`.

use super::Store;
use super::prepare::{Prepared, Vectors};
use crate::columns::{ColumnValue, ColumnValueRef};
use crate::error::{Error, Result};
use crate::log::Change;
use crate::row::Filter;
use crate::snapshot::{Place, Snapshot, masks};
use crate::watch::Watch;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows changed together: one write to the log, one sync.
const BATCH: usize = 4096;
/// Bytes changed together, so that long keys and texts do not make large batches.
const BATCH_BYTES: usize = 4 << 20;

/// What is done to the rows.
enum To<'a> {
    Delete,
    Set(&'a [(&'a str, ColumnValue)]),
}

impl Store {
    /// Deletes the rows that pass the filter now. Returns how many there were.
    pub(crate) fn delete_where(&self, filter: &Filter, watch: &Watch) -> Result<u64> {
        self.change_where(filter, &To::Delete, watch)
    }

    /// Sets values of columns of the rows that pass the filter now. Returns how many rows had others.
    pub(crate) fn update_where(
        &self,
        filter: &Filter,
        values: &[(&str, ColumnValue)],
        watch: &Watch,
    ) -> Result<u64> {
        self.change_where(filter, &To::Set(values), watch)
    }

    fn change_where(&self, filter: &Filter, to: &To<'_>, watch: &Watch) -> Result<u64> {
        let snapshot = self.current();
        let total = snapshot.count_where(filter)?;
        let mut changing = Changing {
            store: self,
            filter,
            to,
            watch,
            keys: Vec::new(),
            bytes: 0,
            looked: 0,
            changed: 0,
            total,
        };
        snapshot.for_each_key_where(filter, |key| changing.add(key))?;
        changing.change()?;
        Ok(changing.changed)
    }
}

/// Rows on their way.
struct Changing<'a> {
    store: &'a Store,
    filter: &'a Filter,
    to: &'a To<'a>,
    watch: &'a Watch,
    keys: Vec<String>,
    bytes: usize,
    looked: u64,
    changed: u64,
    total: u64,
}

impl Changing<'_> {
    fn add(&mut self, key: &str) -> Result<()> {
        self.bytes += key.len();
        self.keys.push(key.to_owned());
        match self.keys.len() >= BATCH || self.bytes >= BATCH_BYTES {
            true => self.change(),
            false => Ok(()),
        }
    }

    /// Changes the rows with the gathered keys, in as many batches as their bytes ask for.
    fn change(&mut self) -> Result<()> {
        let keys = std::mem::take(&mut self.keys);
        self.bytes = 0;
        let mut keys = &keys[..];
        while !keys.is_empty() {
            if self.watch.is_stopped() {
                return Err(Error::Cancelled(match self.to {
                    To::Delete => {
                        "not all rows were deleted; the same call again deletes the others"
                    }
                    To::Set(_) => {
                        "not all rows were changed; the same call again changes the others"
                    }
                }));
            }
            if let To::Set(_) = self.to {
                self.store.expect_room()?;
            }
            let (prepared, taken) = self.prepare(&self.store.current(), keys)?;
            let changes = prepared.changes.len() as u64;
            if changes > 0 {
                // None: one of the rows was changed meanwhile. Whether it still passes is seen under the newest snapshot.
                if self.store.write(prepared)?.is_none() {
                    continue;
                }
                self.changed += changes;
                self.store.seal_or_warn();
            }
            self.looked += taken as u64;
            keys = &keys[taken..];
            self.watch.report(self.looked, self.total);
        }
        Ok(())
    }

    /// Prepares the changes of rows that still pass. Returns how many keys were looked at.
    fn prepare(&self, snapshot: &Arc<Snapshot>, keys: &[String]) -> Result<(Prepared, usize)> {
        let masks = masks(snapshot, Some(self.filter))?;
        let mut prepared = Prepared::new(snapshot);
        prepared.only_if_unchanged = true;
        let mut vectors = Vectors::default();
        let (mut bytes, mut taken) = (0, 0);
        for key in keys {
            if bytes >= BATCH_BYTES {
                break;
            }
            taken += 1;
            let Some(place) = snapshot.find(key)?.filter(|&place| masks.allow(place)) else {
                continue;
            };
            match self.to {
                To::Delete => prepared.changes.push(Change::Delete {
                    key: key[..].into(),
                }),
                To::Set(values) => {
                    let Some(columns) = set(snapshot, place, values)? else {
                        continue;
                    };
                    let given = columns.iter();
                    let given = given.map(|(name, value)| (&name[..], value.as_ref()));
                    let pushed = prepared.columns.push(given);
                    pushed.map_err(|conflict| conflict.of_key(key))?;
                    let text = snapshot.text(place)?;
                    bytes += text.as_ref().map_or(0, String::len);
                    bytes += snapshot.stored(place)?.bytes();
                    vectors.keep(place);
                    prepared.changes.push(Change::Put {
                        key: key[..].into(),
                        text: text.map(Into::into),
                        norm: snapshot.norm(place)?,
                    });
                }
            }
            bytes += key.len();
            prepared.found.push(Some(place));
        }
        (prepared.vectors, prepared.codes) = vectors.stored(snapshot, self.watch)?;
        Ok((prepared, taken))
    }
}

/// Returns the columns of a row with these values, or `None` if it has them already.
fn set(
    snapshot: &Snapshot,
    place: Place,
    values: &[(&str, ColumnValue)],
) -> Result<Option<BTreeMap<String, ColumnValue>>> {
    let mut columns = snapshot.values(place)?;
    for (name, value) in values {
        columns.insert((*name).to_owned(), value.clone());
    }
    let given = columns.iter();
    let given = given.map(|(name, value)| (&name[..], value.as_ref()));
    let given: Vec<(&str, ColumnValueRef<'_>)> = given.collect();
    Ok(match snapshot.has_columns(place, given)? {
        true => None,
        false => Some(columns),
    })
}
