//! Reading a columns file in place.

use super::meta::{ColumnsMeta, Entry, Layout, Meta, ZONE_BYTES};
use crate::columns::{
    self, BLOCK_ROWS, Codes, Column, ColumnData, ColumnId, ColumnRead, ColumnSource, ColumnType,
    ColumnValueRef, Schema, StringsRef, Zone,
};
use crate::disk::files::Storage;
use crate::format::{Kind, Part, Section, Take};
use crate::segment::RowsFile;
use crate::segment::file::SegmentFile;
use crate::segment::names::FileName;
use crate::{Error, Result, RowId, SegmentId};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The columns of a segment, read in place.
#[derive(Debug)]
pub(crate) struct ColumnsFile {
    file: Arc<SegmentFile>,
    about: ColumnsMeta,
    /// The columns, ascending by id.
    columns: Vec<StoredColumn>,
}

/// One column of a file.
#[derive(Debug)]
pub(super) struct StoredColumn {
    file: Arc<SegmentFile>,
    part: Part,
    rows: usize,
    entry: Entry,
    layout: Layout,
}

impl ColumnsFile {
    /// Opens a file, checking its frame and lengths.
    ///
    /// # Errors
    /// If it can't be read, is damaged, or is not a columns file.
    pub(crate) fn open(files: &dyn Storage, path: &Path) -> Result<Self> {
        let opened = Self::open_any(files, path)?;
        let segment = opened.about.segment;
        opened.file.expect_name(FileName::Columns(segment))?;
        Ok(opened)
    }

    /// Opens the file of a segment wherever it is, under any name.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and if it belongs to another segment.
    pub(crate) fn open_as(files: &dyn Storage, path: &Path, segment: SegmentId) -> Result<Self> {
        let opened = Self::open_any(files, path)?;
        match opened.about.segment == segment {
            true => Ok(opened),
            false => Err(Error::corrupt(
                path,
                "meta",
                0,
                "it belongs to another segment",
            )),
        }
    }

    fn open_any(files: &dyn Storage, path: &Path) -> Result<Self> {
        let file = SegmentFile::open(files, path, Kind::Columns)?;
        let meta: Meta = file.decode(Section::Meta)?;
        let part = file.sized(Section::Columns, Some(meta.values_len()))?;
        let file = Arc::new(file);
        let column = |entry: Entry| StoredColumn {
            layout: (entry.layout(meta.about.rows)).expect("META has been decoded"),
            file: file.clone(),
            part,
            rows: meta.about.rows as usize,
            entry,
        };
        Ok(Self {
            columns: meta.entries.into_iter().map(column).collect(),
            about: meta.about,
            file,
        })
    }

    /// Returns the segment of a file, according to its content; `None` if it is damaged.
    pub(crate) fn identify(files: &dyn Storage, path: &Path) -> Option<SegmentId> {
        let file = SegmentFile::open(files, path, Kind::Columns).ok()?;
        let meta: Meta = file.decode(Section::Meta).ok()?;
        Some(meta.about.segment)
    }

    /// Returns the metadata.
    pub(crate) fn meta(&self) -> &ColumnsMeta {
        &self.about
    }

    /// Checks that the file belongs to these rows.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it belongs to others.
    pub(crate) fn expect_rows(&self, rows: &RowsFile) -> Result<()> {
        let about = &self.about;
        (self.file).expect_rows((about.segment, about.rows_hash, about.rows), rows)
    }

    /// Returns the columns as they were when the file was written, for a repair that has lost the schema.
    pub(crate) fn schema(&self) -> Schema {
        let columns = self
            .columns
            .iter()
            .map(|column| column.entry.column.clone());
        Schema::of(columns, self.about.next_column).expect("META has been decoded")
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the hash of the file, which covers every byte.
    pub(crate) fn content_hash(&self) -> u64 {
        self.file.container().content_hash()
    }

    /// Returns a value with the type that its column had when the file was written; null if the file does not have the
    /// column.
    ///
    /// # Errors
    /// If it is damaged.
    ///
    /// # Panics
    /// If the file has no such row.
    pub(crate) fn value(&self, id: ColumnId, row: RowId) -> Result<ColumnValueRef<'_>> {
        match self.column(id) {
            Some(column) => columns::value(column, row.0 as usize),
            None => Ok(ColumnValueRef::Null),
        }
    }

    /// Releases the memory of the pages that were read, for sequential readers.
    pub(crate) fn release(&self) {
        self.file.container().file().release();
    }

    /// Reads everything and returns what is damaged: every damaged page, or, if all pages are intact, the first
    /// inconsistency in each column.
    pub(crate) fn verify(&self) -> Vec<Error> {
        let damage = self.file.damaged_chunks();
        if !damage.is_empty() {
            return damage;
        }
        let columns = self.columns.iter().filter(|column| column.is_stored());
        columns.filter_map(|column| column.verify().err()).collect()
    }

    /// Returns the values of a column as far as they can be read, and the rows whose values are lost, which are null.
    /// Returns `None` if the file does not have the column.
    pub(crate) fn salvage(&self, id: ColumnId) -> Option<(ColumnData, Vec<RowId>)> {
        let column = self.stored(id)?;
        let mut data = ColumnData::new(column.kind());
        let mut lost = Vec::new();
        if !column.is_stored() {
            data.push_nulls(column.rows);
            return Some((data, lost));
        }
        for row in 0..column.rows {
            let value = columns::value(column, row);
            match value.and_then(|value| value.check().map(|()| value).map_err(Error::invalid)) {
                Ok(value) => data.push(&value),
                Err(_) => {
                    data.push_nulls(1);
                    lost.push(RowId(row as u32));
                }
            }
        }
        Some((data, lost))
    }

    fn stored(&self, id: ColumnId) -> Option<&StoredColumn> {
        let at = self
            .columns
            .binary_search_by_key(&id, |column| column.entry.column.id);
        Some(&self.columns[at.ok()?])
    }
}

impl ColumnSource for ColumnsFile {
    fn rows(&self) -> usize {
        self.about.rows as usize
    }

    fn column(&self, id: ColumnId) -> Option<&dyn ColumnRead> {
        let column = self.stored(id).filter(|column| column.is_stored());
        column.map(|column| column as &dyn ColumnRead)
    }
}

impl StoredColumn {
    /// Returns the column as it was when the file was written.
    fn column(&self) -> &Column {
        &self.entry.column
    }

    /// Returns `true` if some row has a value.
    fn is_stored(&self) -> bool {
        (self.entry.nulls as usize) < self.rows
    }

    /// Returns a part of an array as numbers in place.
    #[inline]
    fn numbers<T: bytemuck::AnyBitPattern>(
        &self,
        array: &Range<usize>,
        range: Range<usize>,
    ) -> Result<&[T]> {
        let width = size_of::<T>();
        assert!(range.end * width <= array.len(), "{range:?} of an array");
        let bytes = array.start + range.start * width..array.start + range.end * width;
        // Arrays begin at multiples of 64 in a section and a mapping that are aligned too.
        Ok(bytemuck::cast_slice(self.file.checked(&self.part, bytes)?))
    }

    /// Checks the values, once all bytes are known to be intact.
    fn verify(&self) -> Result<()> {
        let (mut previous, mut string_bytes) = (None, 0);
        for code in 0..self.string_count() {
            let string = columns::string(self, code)?;
            if previous.is_some_and(|previous| previous >= string) {
                return Err(self.wrong(format!("string {code} does not follow the one before")));
            }
            previous = Some(string);
            string_bytes += string.len();
        }
        if string_bytes != self.layout.string_bytes.len() {
            return Err(self.wrong(format!("strings of {string_bytes} bytes")));
        }
        let words = self.rows.div_ceil(64);
        if let Some(valid) = self.valid(0..words)? {
            let used = self.rows - (words - 1) * 64;
            if used < 64 && valid[words - 1] >> used != 0 {
                return Err(self.wrong("values past the last row".to_owned()));
            }
        }
        let (mut nulls, mut end) = (0, 0);
        for block in 0..self.rows.div_ceil(BLOCK_ROWS) {
            let mut found: Option<(i64, i64)> = None;
            let mut here = 0;
            for row in block * BLOCK_ROWS..self.rows.min((block + 1) * BLOCK_ROWS) {
                let value = columns::value(self, row)?;
                value
                    .check()
                    .map_err(|why| self.wrong(format!("row {row}: {why}")))?;
                if self.kind() == ColumnType::Strings {
                    let items = columns::items(self, row..row + 1)?;
                    if items.start != end || value == ColumnValueRef::Null && !items.is_empty() {
                        return Err(self.wrong(format!("row {row} has the items {items:?}")));
                    }
                    end = items.end;
                }
                let place = match value {
                    ColumnValueRef::Null => {
                        here += 1;
                        continue;
                    }
                    ColumnValueRef::Int(value) | ColumnValueRef::Timestamp(value) => value,
                    ColumnValueRef::Float(value) => columns::float_key(value),
                    ColumnValueRef::String(_) => self.codes(row..row + 1)?.get(0) as i64,
                    ColumnValueRef::Bool(_) | ColumnValueRef::Strings(_) => 0,
                };
                found = Some(found.map_or((place, place), |(min, max)| {
                    (min.min(place), max.max(place))
                }));
            }
            let (min, max) = found.unwrap_or_default();
            let expected = Zone {
                min,
                max,
                nulls: here,
            };
            if self.zone(block)? != Some(expected) {
                return Err(self.wrong(format!("rows of block {block} are {expected:?}")));
            }
            nulls += here;
        }
        if (nulls, end as u64) != (self.entry.nulls, self.entry.items) {
            return Err(self.wrong(format!("{nulls} nulls and {end} items were found")));
        }
        Ok(())
    }
}

impl ColumnRead for StoredColumn {
    fn kind(&self) -> ColumnType {
        self.column().kind
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn nulls(&self) -> usize {
        self.entry.nulls as usize
    }

    fn zone(&self, block: usize) -> Result<Option<Zone>> {
        let start = self.layout.zones.start + block * ZONE_BYTES;
        assert!(start < self.layout.zones.end, "block {block}");
        let bytes = self.file.checked(&self.part, start..start + ZONE_BYTES)?;
        let mut fields = Take::new(
            Section::Columns.name(),
            self.part.offset() + start as u64,
            bytes,
        );
        let mut zone = || {
            let zone = Zone {
                min: fields.u64()? as i64,
                max: fields.u64()? as i64,
                nulls: fields.u32()?,
            };
            fields.zero_u32()?;
            Ok(Some(zone))
        };
        zone().map_err(|e| self.file.wrong(e))
    }

    fn valid(&self, words: Range<usize>) -> Result<Option<&[u64]>> {
        match self.entry.nulls {
            0 => Ok(None),
            _ => self.numbers(&self.layout.valid, words).map(Some),
        }
    }

    fn bools(&self, words: Range<usize>) -> Result<&[u64]> {
        self.numbers(&self.layout.values, words)
    }

    fn ints(&self, rows: Range<usize>) -> Result<&[i64]> {
        self.numbers(&self.layout.values, rows)
    }

    fn floats(&self, rows: Range<usize>) -> Result<&[f64]> {
        self.numbers(&self.layout.values, rows)
    }

    fn offsets(&self, rows: Range<usize>) -> Result<&[u64]> {
        self.numbers(&self.layout.offsets, rows.start..rows.end + 1)
    }

    fn codes(&self, items: Range<usize>) -> Result<Codes<'_>> {
        // Offsets of lists come from the file, so they may refer to items that it does not have.
        let count = self.layout.values.len() / self.entry.code_bytes as usize;
        if items.end > count {
            return Err(self.wrong(format!("items {items:?} of {count}")));
        }
        let values = &self.layout.values;
        Ok(match self.entry.code_bytes {
            1 => Codes::U8(self.numbers(values, items)?),
            2 => Codes::U16(self.numbers(values, items)?),
            _ => Codes::U32(self.numbers(values, items)?),
        })
    }

    fn string_count(&self) -> usize {
        self.entry.strings as usize
    }

    fn strings(&self, strings: Range<usize>) -> Result<StringsRef<'_>> {
        let offsets = &self.layout.string_offsets;
        let offsets: &[u64] = self.numbers(offsets, strings.start..strings.end + 1)?;
        let (first, end) = (offsets[0], offsets[offsets.len() - 1]);
        let all = &self.layout.string_bytes;
        if first > end || end > all.len() as u64 {
            return Err(self.wrong(format!("strings of the bytes {first} to {end}")));
        }
        let bytes = all.start + first as usize..all.start + end as usize;
        let bytes = self.file.checked(&self.part, bytes)?;
        Ok(StringsRef::new(offsets, bytes))
    }

    fn is_sorted(&self) -> bool {
        true
    }

    fn wrong(&self, what: String) -> Error {
        let Column { name, id, .. } = self.column();
        let what = format!("column {name:?} ({id}): {what}");
        self.file
            .wrong(self.part.wrong(self.entry.offset as usize, what))
    }
}
