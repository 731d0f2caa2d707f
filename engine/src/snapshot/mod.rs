//! Snapshots: the model, segments, tail and deletions at one moment.

mod cursor;
mod masks;

pub use cursor::RowCursor;
pub(crate) use masks::{Masks, masks};

use crate::columns::{self, Column, ColumnValue, ColumnValueRef, MaskCache, Schema};
use crate::error::{Error, Result};
use crate::ids::{Generation, RowId, Seq};
use crate::kernel::Kernel;
use crate::model::Model;
use crate::row::{Filter, Given, Row, Serving, Value, ValueRef};
use crate::scan::Scanner;
use crate::segment::KeyHash;
use crate::stored::{Precision, StoredRef};
use crate::view::part::Part;
use crate::view::segment::SegmentView;
use crate::view::tail::Tail;
use crate::words::Vocabulary;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An immutable view of a database. Its files stay readable while it exists, also during seals, compaction and
/// rebuilds. Its answers never change.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) generation: Generation,
    /// Settings of queries under the model.
    pub(crate) serving: Option<Serving>,
    pub(crate) model: Arc<Model>,
    pub(crate) segments: Arc<Vec<SegmentView>>,
    pub(crate) tail: Tail,
    /// The columns, those that the logs introduce among them.
    pub(crate) schema: Arc<Schema>,
    /// Which rows of segments pass which filters, as far as it was asked.
    pub(crate) masks: Arc<MaskCache>,
    pub(crate) scanner: Arc<Scanner>,
}

/// Where a row is in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The part, by its position in [`Snapshot::parts`].
    pub(crate) part: usize,
    pub(crate) row: RowId,
}

impl Snapshot {
    /// Returns the committed version that the snapshot is based on.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Returns the columns, in the order in which they came.
    pub fn columns(&self) -> &[Column] {
        self.schema.columns()
    }

    /// Returns the number of live rows.
    pub fn rows(&self) -> u64 {
        self.parts()
            .map(|part| u64::from(part.live().alive()))
            .sum()
    }

    /// Returns `true` if there is a row with this key.
    pub fn contains(&self, key: &str) -> Result<bool> {
        Ok(self.find(key)?.is_some())
    }

    /// Returns the row with this key.
    pub fn get(&self, key: &str) -> Result<Option<Row>> {
        let Some(place) = self.find(key)? else {
            return Ok(None);
        };
        let value = match self.text(place)? {
            Some(text) => Value::Text(text),
            None => Value::Vector(self.stored(place)?.given(self.norm(place)?)),
        };
        Ok(Some(Row {
            columns: self.values(place)?,
            ..Row::new(key, value)
        }))
    }

    /// Returns the same snapshot, searched by the plain kernel on one thread, which is slow and gives the same answers.
    pub fn on_plain_kernel(&self) -> Result<Self> {
        Ok(self.scanned_by(Scanner::with_kernel(Kernel::named("scalar")?, 1)))
    }

    /// Returns the same snapshot with another scanner, to compare kernels or numbers of threads.
    #[doc(hidden)]
    pub fn scanned_by(&self, scanner: Scanner) -> Self {
        Self {
            scanner: Arc::new(scanner),
            ..self.clone()
        }
    }

    /// Returns the stored vectors of up to `count` live rows, evenly spaced, as f32.
    pub fn sample_vectors(&self, count: usize) -> Result<Vec<Vec<f32>>> {
        let all = self.rows() as usize;
        let count = count.min(all);
        let mut wanted = (0..count).map(|part| part * all / count).peekable();
        let places = (self.parts().enumerate())
            .flat_map(|(part, rows)| rows.live().iter().map(move |row| Place { part, row }));
        (places.enumerate())
            .filter(|(number, _)| wanted.next_if_eq(number).is_some())
            .map(|(_, place)| Ok(self.stored(place)?.widen()))
            .collect()
    }

    /// Segments, oldest first, then the runs of the tail: by `Seq`, one after the other.
    pub(crate) fn parts(&self) -> impl DoubleEndedIterator<Item = Part<'_>> {
        let segments = self.segments.iter().map(Part::Segment);
        segments.chain(self.tail.runs().map(Part::Run))
    }

    /// Returns one of the [`parts`](Self::parts).
    pub(crate) fn part(&self, at: usize) -> Part<'_> {
        match at.checked_sub(self.segments.len()) {
            None => Part::Segment(&self.segments[at]),
            Some(at) => Part::Run(self.tail.run(at)),
        }
    }

    /// Returns the place of the live row with this key. Searches the newest parts first.
    pub(crate) fn find(&self, key: &str) -> Result<Option<Place>> {
        self.find_from(0, key)
    }

    /// Like [`find`](Self::find), in the tail only.
    pub(crate) fn find_in_tail(&self, key: &str) -> Result<Option<Place>> {
        self.find_from(self.segments.len(), key)
    }

    fn find_from(&self, first: usize, key: &str) -> Result<Option<Place>> {
        let hash = KeyHash::of(key);
        for part in (first..self.segments.len() + self.tail.len()).rev() {
            if let Some(row) = self.part(part).find(hash, key)? {
                return Ok(Some(Place { part, row }));
            }
        }
        Ok(None)
    }

    /// Returns `true` if a place is in a segment.
    pub(crate) fn is_sealed(&self, place: Place) -> bool {
        place.part < self.segments.len()
    }

    /// Marks the row at a place dead. Returns `true` if it was live.
    pub(crate) fn kill(&mut self, place: Place) -> bool {
        match place.part.checked_sub(self.segments.len()) {
            None => Arc::make_mut(&mut self.segments)[place.part]
                .live
                .kill(place.row),
            Some(at) => self.tail.kill(at, place.row),
        }
    }

    /// Returns the values of columns that are not null, by name.
    pub(crate) fn values(&self, place: Place) -> Result<BTreeMap<String, ColumnValue>> {
        self.part(place.part).values(&self.schema, place.row)
    }

    pub(crate) fn seq(&self, place: Place) -> Result<Seq> {
        self.part(place.part).seq(place.row)
    }

    pub(crate) fn key(&self, place: Place) -> Result<&str> {
        self.part(place.part).key(place.row)
    }

    pub(crate) fn text(&self, place: Place) -> Result<Option<String>> {
        self.part(place.part).text(place.row)
    }

    /// Returns the stored vector.
    pub(crate) fn stored(&self, place: Place) -> Result<StoredRef<'_>> {
        let at = place.row.0 as usize;
        self.part(place.part).vectors(at..at + 1)
    }

    /// Returns `true` if the row at a place is this vector, of which `stored` and `norm` would be stored: they are the same
    /// to the bit, or the vector is what [`get`](Self::get) returns. Where a norm is not known, the direction decides.
    pub(crate) fn holds(
        &self,
        place: Place,
        vector: &[f32],
        stored: StoredRef<'_>,
        norm: Option<f64>,
    ) -> Result<bool> {
        let (own, known) = (self.stored(place)?, self.norm(place)?);
        if known.is_none_or(|known| Some(known) == norm) && own.same_bits(stored) {
            return Ok(true);
        }
        // An exported row that is inserted again is rounded.
        let rounds = known.is_some() || own.precision() != Precision::F32;
        Ok(rounds && StoredRef::F32(&own.given(known)).same_bits(StoredRef::F32(vector)))
    }

    /// Returns `true` if there is a row with this key that inserting this row would replace: one with other content.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the row can't be one of this database's.
    pub fn differs(&self, row: &Row) -> Result<bool> {
        self.model.check_row(row)?;
        let Some(place) = self.find(&row.key)? else {
            return Ok(false);
        };
        let given = row.columns.iter();
        let given = given.map(|(name, value)| (&name[..], value.as_ref()));
        Ok(!self.has_value(place, row.value.as_given())? || !self.has_columns(place, given)?)
    }

    /// Returns `true` if the row at a place has this text or vector.
    fn has_value(&self, place: Place, value: Given<'_>) -> Result<bool> {
        match value {
            Given::Text(text) => Ok(self.text(place)?.as_deref() == Some(text)),
            Given::Vector(vector) => {
                let (unit, norm) = self.model.check_norm(vector, || "the vector".into())?;
                let stored = self.model.round(&unit, |_| "the vector".into())?;
                self.holds(place, vector, stored.as_ref(), norm)
            }
        }
    }

    /// Returns `true` if the row at a place has these values of columns, and no others.
    pub(crate) fn has_columns<'v>(
        &self,
        place: Place,
        given: impl IntoIterator<Item = (&'v str, ColumnValueRef<'v>)>,
    ) -> Result<bool> {
        let part = self.part(place.part);
        let mut same = 0;
        for (name, value) in given {
            if value == ColumnValueRef::Null {
                continue;
            }
            let Some(column) = self.schema.find(name) else {
                return Ok(false);
            };
            match columns::fit(value.to_value(), column.kind) {
                Ok(value) if part.value(column, place.row)? == value => same += 1,
                _ => return Ok(false),
            }
        }
        for column in self.schema.columns() {
            if same == 0 && part.columns().is_none() {
                break;
            }
            same -= i64::from(part.value(column, place.row)? != ColumnValue::Null);
        }
        Ok(same == 0)
    }

    /// Returns the length of the vector before normalisation, if known.
    pub(crate) fn norm(&self, place: Place) -> Result<Option<f64>> {
        self.part(place.part).norm(place.row)
    }

    /// Calls `each` with the key of every live row that begins with `prefix`, in the order in which the rows were
    /// accepted. The empty prefix means every row. Memory does not grow with the number of rows.
    ///
    /// ```
    /// use mopqdb::{CreateOptions, Database, Metric, Options, Row};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("colours.db");
    /// let db = Database::create(&path, &CreateOptions::vectors(1, Metric::Ip), Options::default())?;
    /// db.insert(&[Row::vector("warm/red", [1.0]), Row::vector("cold/blue", [2.0])])?;
    /// let mut warm = Vec::new();
    /// db.snapshot().for_each_key("warm/", |key| {
    ///     warm.push(key.to_owned());
    ///     Ok(())
    /// })?;
    /// assert_eq!(warm, ["warm/red"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) if a block of keys is damaged, and what `each` returns.
    pub fn for_each_key(
        &self,
        prefix: &str,
        mut each: impl FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        /// The number of bytes of a segment's keys that stay in memory.
        const RESIDENT: usize = 8 << 20;
        for part in self.parts() {
            part.for_each_key(prefix, Some(RESIDENT), |_, key| each(key))?;
        }
        Ok(())
    }

    /// Calls `each` with every live row, in `Seq` order.
    pub fn for_each_row(&self, each: impl FnMut(RowView<'_>) -> Result<()>) -> Result<()> {
        self.visit(&Masks::none(), each)
    }

    /// Calls `each` with every row that passes a filter, in `Seq` order.
    ///
    /// # Errors
    /// As [`count_where`](Self::count_where), and what `each` returns.
    pub fn for_each_row_where(
        &self,
        filter: &Filter,
        each: impl FnMut(RowView<'_>) -> Result<()>,
    ) -> Result<()> {
        self.visit(&masks(self, Some(filter))?, each)
    }

    fn visit(&self, masks: &Masks, mut each: impl FnMut(RowView<'_>) -> Result<()>) -> Result<()> {
        let mut vector = Vec::with_capacity(self.model.dim());
        for (at, part) in self.parts().enumerate() {
            masks.for_rows(self, at, 0..part.len() as u32, |row| {
                part.vector_into(row.row, &mut vector)?;
                each(RowView {
                    seq: row.seq,
                    key: row.key,
                    text: row.value.text(),
                    vector: &vector,
                    norm: match row.value {
                        ValueRef::Vector { norm, .. } => norm,
                        ValueRef::Text(_) => None,
                    },
                    schema: &self.schema,
                    part,
                    row: row.row,
                })
            })?;
        }
        Ok(())
    }
}

/// A row during iteration.
#[derive(Debug, Clone, Copy)]
pub struct RowView<'a> {
    /// The sequence number.
    pub seq: Seq,
    /// The user's key.
    pub key: &'a str,
    /// The text, where rows are texts.
    pub text: Option<&'a str>,
    /// The stored vector, widened.
    pub vector: &'a [f32],
    /// The length that the vector had before it was normalised, where that is known.
    pub norm: Option<f64>,
    schema: &'a Schema,
    part: Part<'a>,
    row: RowId,
}

impl RowView<'_> {
    /// Returns the values of columns that are not null, by name.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) if one is damaged.
    pub fn columns(&self) -> Result<BTreeMap<String, ColumnValue>> {
        self.part.values(self.schema, self.row)
    }

    /// Returns the vector as the user gave it, up to rounding.
    pub fn given(&self) -> Vec<f32> {
        StoredRef::F32(self.vector).given(self.norm)
    }
}

impl Snapshot {
    /// Returns the statistics of all terms of the live rows; `None` where texts are not searched by their words.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a segment has no word index.
    pub fn term_statistics(&self) -> Result<Option<Vocabulary>> {
        let Some(words) = self.model.words() else {
            return Ok(None);
        };
        let mut vocabulary = Vocabulary::new(words.id);
        for part in self.parts() {
            let index = part.words(words).ok_or_else(|| {
                Error::invalid(
                    "a segment has no word index; a rebuild of the active model writes it",
                )
            })?;
            index.count_all(part.live().words(), &mut vocabulary)?;
        }
        Ok(Some(vocabulary))
    }
}
