//! Gives the rows of a feed their columns. The types of new columns are those of the values in the first rows of the run.

use super::feed::{Feed, Item};
use crate::rows::{BadRow, ReadRow};
use crate::stop;
use mopqdb::columns::infer::{self, Inference, Notation, SAMPLE_ROWS};
use mopqdb::columns::{Column, ColumnType, MAX_COLUMNS};
use mopqdb::{Row, Value};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The size of the rows in bytes that are held until the types are known.
const MOST_BYTES: usize = 64 << 20;

/// The items of a feed, with typed columns.
pub(super) struct Typed<'a> {
    feed: &'a mut Feed,
    /// The types of the database's columns, and of those that this run adds.
    known: BTreeMap<String, ColumnType>,
    /// Rows that are still looked at. `None`: the types are known.
    sample: Option<Sample>,
    /// Items of the sample, in their order.
    held: VecDeque<Item>,
}

/// The rows from which types are inferred.
struct Sample {
    /// For JSON, and for text.
    inferences: [Inference; 2],
    rows: usize,
    bytes: usize,
}

impl<'a> Typed<'a> {
    /// Begins with an item that was taken from the feed already.
    pub(super) fn new(feed: &'a mut Feed, columns: &[Column], first: Item) -> Self {
        let named = |column: &Column| (column.name.clone(), column.kind);
        Self {
            feed,
            known: columns.iter().map(named).collect(),
            sample: Some(Sample {
                inferences: [Notation::Json, Notation::Text].map(Inference::new),
                rows: 0,
                bytes: 0,
            }),
            held: VecDeque::from([first]),
        }
    }

    /// Returns the next item; [`Item::Waiting`] if none arrived within `patience`.
    pub(super) fn next(&mut self, patience: Duration) -> Item {
        if let Some(sample) = self.sample.take() {
            self.look(sample, patience);
        }
        let item = match self.held.pop_front() {
            Some(item) => item,
            None => self.feed.next(patience),
        };
        match item {
            Item::Row(read, origin) => match self.typed(read) {
                Ok(read) => Item::Row(read, origin),
                Err(bad) => Item::Bad(bad),
            },
            other => other,
        }
    }

    /// Reads the rows of the sample and infers types from them. Ends early at a pause, because a slow pipe should not
    /// wait for thousands of rows. Rows before the first one with other fields are not held.
    fn look(&mut self, mut sample: Sample, patience: Duration) {
        let mut item = self.held.pop_front();
        let mut any = false;
        loop {
            let next = match item.take() {
                Some(item) => item,
                None => self.feed.next(patience),
            };
            let next = match next {
                Item::Row(read, origin) => {
                    any |= !read.fields.is_empty();
                    match sample.add(&read, &self.known) {
                        Ok(()) => Item::Row(read, origin),
                        Err(bad) => Item::Bad(bad),
                    }
                }
                other => other,
            };
            let ends = match &next {
                Item::Row(..) | Item::Bad(_) => sample.is_full() || stop::asked(),
                Item::Failed(_) | Item::Waiting | Item::End => true,
            };
            self.held.push_back(next);
            if ends {
                break;
            }
            if !any {
                self.sample = Some(sample);
                return;
            }
        }
        let [json, text] = sample.inferences.map(Inference::finish);
        // Of a column that both have, JSON says the type.
        let mut new: BTreeMap<_, _> = text.into_iter().collect();
        new.extend(json);
        // Where there are too many, rows are refused only from the one on that exceeds the limit.
        if self.known.len() + new.len() <= MAX_COLUMNS {
            self.known.extend(new);
        }
    }

    /// Returns a row with its columns, or what is wrong with them.
    fn typed(&mut self, read: ReadRow) -> Result<ReadRow, BadRow> {
        let ReadRow {
            mut row,
            fields,
            notation,
            place,
            number,
        } = read;
        if !fields.is_empty() {
            match self.columns(&mut row, &fields, notation) {
                Ok(()) => {}
                Err(what) => return Err(BadRow { place, what }),
            }
        }
        Ok(ReadRow {
            row,
            fields: serde_json::Map::new(),
            notation,
            place,
            number,
        })
    }

    fn columns(
        &mut self,
        row: &mut Row,
        fields: &serde_json::Map<String, serde_json::Value>,
        notation: Notation,
    ) -> Result<(), String> {
        let values = infer::row(fields, &self.known, notation)?;
        // Columns that first have values after the sample.
        let new: Vec<_> = (values.iter())
            .filter(|(name, _)| !self.known.contains_key(name))
            .filter_map(|(name, value)| Some((name.clone(), value.kind()?)))
            .collect();
        let columns = self.known.len() + new.len();
        if !new.is_empty() && columns > MAX_COLUMNS {
            return Err(format!(
                "with this row the database would have {columns} columns, and {MAX_COLUMNS} are the most; leave some fields \
                 out, or give --ignore-unknown, or remove columns with `mopqdb columns drop`"
            ));
        }
        self.known.extend(new);
        row.columns = values.into_iter().collect();
        Ok(())
    }
}

impl Sample {
    /// Looks at the fields of a row that are not columns of the database.
    fn add(&mut self, read: &ReadRow, known: &BTreeMap<String, ColumnType>) -> Result<(), BadRow> {
        self.rows += 1;
        self.bytes += match &read.row.value {
            Value::Text(text) => text.len(),
            Value::Vector(vector) => 4 * vector.len(),
        };
        let is_new = |(name, _): &(&String, _)| !known.contains_key(*name);
        let new = read.fields.iter().filter(is_new);
        let new: serde_json::Map<_, _> = new
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let inference = &mut self.inferences[usize::from(read.notation == Notation::Text)];
        inference.observe(&new).map_err(|what| BadRow {
            place: read.place.clone(),
            what,
        })
    }

    fn is_full(&self) -> bool {
        self.rows >= SAMPLE_ROWS || self.bytes >= MOST_BYTES
    }
}
