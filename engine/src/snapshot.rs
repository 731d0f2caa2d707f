//! What a query sees: the model, segments, tail and deletions of one moment, together.

use crate::error::Result;
use crate::ids::{Generation, RowId, Seq};
use crate::model::Model;
use crate::row::{Row, Value};
use crate::scan::Scanner;
use crate::segment::KeyHash;
use crate::view::part::Part;
use crate::view::segment::SegmentView;
use crate::view::tail::Tail;
use std::sync::Arc;

/// An immutable view of a database. Holding one keeps its files readable, whatever is sealed, compacted or rebuilt
/// meanwhile; its answers never change.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) generation: Generation,
    pub(crate) model: Arc<Model>,
    pub(crate) segments: Arc<Vec<SegmentView>>,
    pub(crate) tail: Tail,
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
    /// The committed version that it stands on.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Its model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Living rows.
    pub fn rows(&self) -> u64 {
        self.parts()
            .map(|part| u64::from(part.live().alive()))
            .sum()
    }

    /// Whether a row with this key is there.
    pub fn contains(&self, key: &str) -> Result<bool> {
        Ok(self.find(key)?.is_some())
    }

    /// The row with this key.
    pub fn get(&self, key: &str) -> Result<Option<Row>> {
        let Some(place) = self.find(key)? else {
            return Ok(None);
        };
        let value = match self.text(place)? {
            Some(text) => Value::Text(text),
            None => Value::Vector(self.vector(place)?),
        };
        Ok(Some(Row {
            key: key.into(),
            value,
        }))
    }

    /// The same view, searched by another scanner: to compare kernels, or numbers of threads.
    pub fn scanned_by(&self, scanner: Scanner) -> Self {
        Self {
            scanner: Arc::new(scanner),
            ..self.clone()
        }
    }

    /// The stored vectors of up to `count` living rows, evenly spaced over all rows, widened. Reads no others.
    pub fn sample_vectors(&self, count: usize) -> Result<Vec<Vec<f32>>> {
        let all = self.rows() as usize;
        let count = count.min(all);
        let mut wanted = (0..count).map(|part| part * all / count).peekable();
        let places = (self.parts().enumerate())
            .flat_map(|(part, rows)| rows.live().iter().map(move |row| Place { part, row }));
        (places.enumerate())
            .filter(|(number, _)| wanted.next_if_eq(number).is_some())
            .map(|(_, place)| self.vector(place))
            .collect()
    }

    /// Segments, oldest first, then the runs of the tail: by `Seq`, one after the other.
    pub(crate) fn parts(&self) -> impl DoubleEndedIterator<Item = Part<'_>> {
        let segments = self.segments.iter().map(Part::Segment);
        segments.chain(self.tail.runs().map(Part::Run))
    }

    /// One of the [`parts`](Self::parts).
    pub(crate) fn part(&self, at: usize) -> Part<'_> {
        match at.checked_sub(self.segments.len()) {
            None => Part::Segment(&self.segments[at]),
            Some(at) => Part::Run(self.tail.run(at)),
        }
    }

    /// Where the living row with this key is. The newest parts are asked first.
    pub(crate) fn find(&self, key: &str) -> Result<Option<Place>> {
        self.find_from(0, key)
    }

    /// The same in the tail alone.
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

    /// Whether a place is in a segment.
    pub(crate) fn is_sealed(&self, place: Place) -> bool {
        place.part < self.segments.len()
    }

    /// Ends the row at a place. Whether it lived.
    pub(crate) fn kill(&mut self, place: Place) -> bool {
        match place.part.checked_sub(self.segments.len()) {
            None => Arc::make_mut(&mut self.segments)[place.part]
                .live
                .kill(place.row),
            Some(at) => self.tail.kill(at, place.row),
        }
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

    /// The stored vector, widened.
    pub(crate) fn vector(&self, place: Place) -> Result<Vec<f32>> {
        let mut vector = Vec::with_capacity(self.model.dim());
        self.part(place.part).vector_into(place.row, &mut vector)?;
        Ok(vector)
    }

    /// Calls `each` with the key of every living row that begins with `prefix`, in the order in which the rows were
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
        /// Bytes of keys of a segment that stay in memory.
        const RESIDENT: usize = 8 << 20;
        for part in self.parts() {
            part.for_each_key(prefix, Some(RESIDENT), |_, key| each(key))?;
        }
        Ok(())
    }

    /// Calls `each` with every living row, in `Seq` order. The vector is the stored one, widened.
    pub fn for_each_row(&self, mut each: impl FnMut(RowView<'_>) -> Result<()>) -> Result<()> {
        let mut vector = Vec::with_capacity(self.model.dim());
        for part in self.parts() {
            part.for_each_row(None, |row| {
                part.vector_into(row.row, &mut vector)?;
                each(RowView {
                    seq: row.seq,
                    key: row.key,
                    text: row.value.text(),
                    vector: &vector,
                })
            })?;
        }
        Ok(())
    }
}

/// A row in passing.
#[derive(Debug, Clone, Copy)]
pub struct RowView<'a> {
    /// When it was accepted.
    pub seq: Seq,
    /// The user's key.
    pub key: &'a str,
    /// The text, where rows are texts.
    pub text: Option<&'a str>,
    /// The stored vector, widened.
    pub vector: &'a [f32],
}
