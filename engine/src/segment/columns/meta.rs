//! The metadata of a columns file, and the positions of each column's values.

use crate::columns::{BLOCK_ROWS, Column, ColumnType, Schema};
use crate::format::{Decode, Encode, FormatError, PAGE, Put, Take};
use crate::segment::RowsHash;
use crate::{SegmentId, columns};
use std::ops::Range;

/// The size of the statistics of a block of rows in bytes.
pub(super) const ZONE_BYTES: usize = 24;
/// Arrays begin at multiples of this, columns at page boundaries.
pub(super) const ARRAY: u64 = 64;

/// The metadata of a columns file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ColumnsMeta {
    /// The segment.
    pub(crate) segment: SegmentId,
    /// The rows file to which these columns belong.
    pub(crate) rows_hash: RowsHash,
    /// The number of rows, equal to that of the rows file.
    pub(crate) rows: u32,
    /// No column has this id or a higher one.
    pub(crate) next_column: u32,
}

/// A column of a file, as META describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) column: Column,
    /// The number of rows without a value. If all rows are, the file stores nothing else of the column.
    pub(super) nulls: u32,
    /// The bytes per code; zero if values are not strings.
    pub(super) code_bytes: u32,
    /// The number of distinct strings.
    pub(super) strings: u32,
    /// The number of items in all lists.
    pub(super) items: u64,
    /// The size of all strings in bytes.
    pub(super) string_bytes: u64,
    /// The position of the column in the section.
    pub(super) offset: u64,
}

/// The META section: metadata and columns.
pub(super) struct Meta {
    pub(super) about: ColumnsMeta,
    /// The columns, ascending by id.
    pub(super) entries: Vec<Entry>,
}

/// The positions of a column's arrays in the section. Arrays that it does not have are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) valid: Range<usize>,
    pub(super) string_bytes: Range<usize>,
    pub(super) string_offsets: Range<usize>,
    pub(super) values: Range<usize>,
    pub(super) offsets: Range<usize>,
    pub(super) zones: Range<usize>,
}

impl Entry {
    /// Returns the positions of its arrays; `None` if they do not fit any file.
    pub(super) fn layout(&self, rows: u32) -> Option<Layout> {
        let rows = u64::from(rows);
        let mut at = self.offset;
        let mut next = |len: Option<u64>| {
            let start = match len? {
                0 => at,
                _ => at.checked_next_multiple_of(ARRAY)?,
            };
            at = start.checked_add(len?)?;
            Some(usize::try_from(start).ok()?..usize::try_from(at).ok()?)
        };
        let is_stored = u64::from(self.nulls) < rows;
        let when = |is: bool, len: Option<u64>| if is && is_stored { len } else { Some(0) };
        let kind = self.column.kind;
        let is_list = kind == ColumnType::Strings;
        let has_strings = is_list || kind == ColumnType::String;
        let words = rows.div_ceil(64) * 8;
        let codes = if is_list { self.items } else { rows };
        let values = match kind {
            ColumnType::Bool => Some(words),
            ColumnType::Int | ColumnType::Timestamp | ColumnType::Float => Some(rows * 8),
            ColumnType::String | ColumnType::Strings => codes.checked_mul(self.code_bytes.into()),
        };
        let zones = rows.div_ceil(BLOCK_ROWS as u64) * ZONE_BYTES as u64;
        Some(Layout {
            valid: next(when(self.nulls > 0, Some(words)))?,
            string_bytes: next(when(has_strings, Some(self.string_bytes)))?,
            string_offsets: next(when(has_strings, Some((u64::from(self.strings) + 1) * 8)))?,
            values: next(when(true, values))?,
            offsets: next(when(is_list, Some((rows + 1) * 8)))?,
            zones: next(when(true, Some(zones)))?,
        })
    }

    /// Returns `true` if its numbers fit its type.
    fn is_consistent(&self, rows: u32) -> bool {
        let (has_strings, has_items) = match self.column.kind {
            ColumnType::String => (true, false),
            ColumnType::Strings => (true, true),
            _ => (false, false),
        };
        let is_stored = self.nulls < rows;
        let code_bytes = if has_strings && is_stored {
            code_bytes(self.strings)
        } else {
            0
        };
        self.nulls <= rows
            && self.code_bytes == code_bytes
            && (has_strings && is_stored || (self.strings, self.string_bytes) == (0, 0))
            && (has_items && is_stored || self.items == 0)
            && (is_stored || self.offset == 0)
    }
}

/// Returns the bytes per code for this many strings.
pub(super) fn code_bytes(strings: u32) -> u32 {
    match strings {
        0..=0x100 => 1,
        0x101..=0x1_0000 => 2,
        _ => 4,
    }
}

impl Encode for Meta {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.about.segment.0);
        out.put_u64(self.about.rows_hash.0);
        out.put_u32(self.about.rows);
        out.put_u32(self.about.next_column);
        out.put_u32(self.entries.len() as u32);
        out.put_u32(0);
        for entry in &self.entries {
            columns::encode_column(&entry.column, out);
            out.put_u32(entry.nulls);
            out.put_u32(entry.code_bytes);
            out.put_u32(entry.strings);
            out.put_u64(entry.items);
            out.put_u64(entry.string_bytes);
            out.put_u64(entry.offset);
        }
    }
}

impl Decode for Meta {
    fn decode(fields: &mut Take<'_>) -> Result<Self, FormatError> {
        let about = ColumnsMeta {
            segment: SegmentId(fields.u64()?),
            rows_hash: RowsHash(fields.u64()?),
            rows: fields.u32()?,
            next_column: fields.u32()?,
        };
        let count = fields.u32()?;
        fields.zero_u32()?;
        let mut entries: Vec<Entry> = Vec::new();
        let mut end = 0_usize;
        for _ in 0..count {
            let entry = Entry {
                column: columns::decode_column(fields)?,
                nulls: fields.u32()?,
                code_bytes: fields.u32()?,
                strings: fields.u32()?,
                items: fields.u64()?,
                string_bytes: fields.u64()?,
                offset: fields.u64()?,
            };
            let layout = entry.layout(about.rows);
            let Some(layout) = layout.filter(|_| entry.is_consistent(about.rows)) else {
                return Err(fields.wrong(format!("{entry:?} of {} rows", about.rows)));
            };
            if entry.nulls < about.rows {
                if entry.offset != end.next_multiple_of(PAGE) as u64 {
                    return Err(fields.wrong(format!("{entry:?} after byte {end}")));
                }
                end = layout.zones.end;
            }
            entries.push(entry);
        }
        let columns = entries.iter().map(|entry| entry.column.clone());
        if let Err(why) = Schema::of(columns, about.next_column) {
            return Err(fields.wrong(why));
        }
        if !entries.is_sorted_by_key(|entry| entry.column.id) {
            return Err(fields.wrong("columns do not ascend"));
        }
        Ok(Self { about, entries })
    }
}

impl Meta {
    /// Returns the size of the section of values.
    pub(super) fn values_len(&self) -> u64 {
        let layouts = self
            .entries
            .iter()
            .map(|entry| entry.layout(self.about.rows));
        let ends = layouts.map(|layout| layout.expect("checked when it was made").zones.end);
        ends.max().unwrap_or(0) as u64
    }
}
