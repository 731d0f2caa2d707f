//! The values of one column, wherever they are: [`ColumnRead`] is what evaluation, copying and hits need, and
//! [`ColumnData`] holds values in memory. The columns file of a segment implements it too.

use super::bits;
use super::value::{ColumnType, ColumnValue, ColumnValueRef};
use crate::error::{Error, Result};
use std::ops::Range;

/// Rows per block: a block has its own minimum and maximum on disk, and is evaluated at once.
pub(crate) const BLOCK_ROWS: usize = 4096;

/// Statistics of a block of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Zone {
    /// The smallest value: as in [`int_key`], for strings their code. Zero if all are null.
    pub(crate) min: i64,
    /// The largest value.
    pub(crate) max: i64,
    /// The number of nulls.
    pub(crate) nulls: u32,
}

/// Returns the place of a float in the order of all values of a column, as an integer, so that floats and ints share
/// one comparison. Both zeros are one value.
#[inline]
pub(crate) fn float_key(value: f64) -> i64 {
    // Adding the positive zero makes both zeros equal.
    let bits = (value + 0.0).to_bits() as i64;
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}

/// Returns the float at a place in the order.
pub(crate) fn float_of_key(key: i64) -> f64 {
    f64::from_bits((key ^ ((key >> 63) as u64 >> 1) as i64) as u64)
}

/// Codes of strings: their places among the strings of the column.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Codes<'a> {
    /// At most 256 strings.
    U8(&'a [u8]),
    /// At most 65,536.
    U16(&'a [u16]),
    /// More.
    U32(&'a [u32]),
    /// Every item has a string of its own: the codes are these numbers.
    Own(usize, usize),
}

impl Codes<'_> {
    /// Returns the code of an item.
    pub(crate) fn get(&self, at: usize) -> usize {
        match self {
            Self::U8(codes) => codes[at].into(),
            Self::U16(codes) => codes[at].into(),
            Self::U32(codes) => codes[at] as usize,
            Self::Own(first, end) => {
                assert!(at < end - first, "item {at} of {}", end - first);
                first + at
            }
        }
    }
}

/// Strings, one behind the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StringsRef<'a> {
    /// Where each begins, and where the last ends, counted from anywhere.
    offsets: &'a [u64],
    bytes: &'a [u8],
}

impl<'a> StringsRef<'a> {
    /// Strings of which `bytes` are those from the first offset to the last.
    pub(crate) fn new(offsets: &'a [u64], bytes: &'a [u8]) -> Self {
        assert!(!offsets.is_empty(), "no strings have one offset");
        Self { offsets, bytes }
    }

    /// Returns the number of strings.
    pub(crate) fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Returns the bytes of a string; `None` if its offsets contradict the others.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&'a [u8]> {
        let start = self.offsets[at].checked_sub(self.offsets[0])?;
        let end = self.offsets[at + 1].checked_sub(self.offsets[0])?;
        self.bytes
            .get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }
}

/// The values of a column, in order. Ranges are within the rows, else these panic; what is damaged is an error.
pub(crate) trait ColumnRead {
    /// Returns the type of the values.
    fn kind(&self) -> ColumnType;
    /// Returns the number of values, nulls included.
    fn rows(&self) -> usize;
    /// Returns the number of nulls.
    fn nulls(&self) -> usize;
    /// Returns the statistics of a block of [`BLOCK_ROWS`] values, if there are any.
    fn zone(&self, block: usize) -> Result<Option<Zone>>;
    /// Returns some words with a bit for each value that is not null; `None` if none is.
    fn valid(&self, words: Range<usize>) -> Result<Option<&[u64]>>;
    /// Returns some words with the bits of values of type bool.
    fn bools(&self, words: Range<usize>) -> Result<&[u64]>;
    /// Returns values of type int or timestamp.
    fn ints(&self, rows: Range<usize>) -> Result<&[i64]>;
    /// Returns values of type float.
    fn floats(&self, rows: Range<usize>) -> Result<&[f64]>;
    /// Returns the first item of each of these rows of lists, and the one after the last.
    fn offsets(&self, rows: Range<usize>) -> Result<&[u64]>;
    /// Returns the codes of rows of type string, or of items of lists.
    fn codes(&self, items: Range<usize>) -> Result<Codes<'_>>;
    /// Returns the number of strings.
    fn string_count(&self) -> usize;
    /// Returns some of the strings.
    fn strings(&self, strings: Range<usize>) -> Result<StringsRef<'_>>;
    /// Returns `true` if the strings ascend and are distinct.
    fn is_sorted(&self) -> bool;
    /// Returns an error about an inconsistency.
    fn wrong(&self, what: String) -> Error;
}

/// Returns `true` if a row has a value.
pub(crate) fn is_valid(column: &dyn ColumnRead, row: usize) -> Result<bool> {
    let word = row / 64;
    let words = column.valid(word..word + 1)?;
    Ok(words.is_none_or(|words| bits::get(words, row % 64)))
}

/// Returns one value.
///
/// # Panics
/// If the column has no such row.
pub(crate) fn value(column: &dyn ColumnRead, row: usize) -> Result<ColumnValueRef<'_>> {
    assert!(row < column.rows(), "row {row} of {}", column.rows());
    if !is_valid(column, row)? {
        return Ok(ColumnValueRef::Null);
    }
    let rows = row..row + 1;
    Ok(match column.kind() {
        ColumnType::Bool => {
            let word = row / 64;
            ColumnValueRef::Bool(bits::get(column.bools(word..word + 1)?, row % 64))
        }
        ColumnType::Int => ColumnValueRef::Int(column.ints(rows)?[0]),
        ColumnType::Timestamp => ColumnValueRef::Timestamp(column.ints(rows)?[0]),
        ColumnType::Float => ColumnValueRef::Float(column.floats(rows)?[0]),
        ColumnType::String => ColumnValueRef::String(string(column, column.codes(rows)?.get(0))?),
        ColumnType::Strings => {
            let items = items(column, rows)?;
            let codes = column.codes(items.clone())?;
            let strings = (0..items.len()).map(|at| string(column, codes.get(at)));
            ColumnValueRef::Strings(strings.collect::<Result<_>>()?)
        }
    })
}

/// Returns the value of a live row as this type: a column may have been retyped since it was stored.
///
/// # Errors
/// If it is damaged, or the type can't hold it: a column is retyped only if every live value fits.
///
/// # Panics
/// If the column has no such row.
pub(crate) fn value_as(
    column: &dyn ColumnRead,
    row: usize,
    kind: ColumnType,
) -> Result<ColumnValue> {
    let given = value(column, row)?.to_value();
    if column.kind() == kind {
        return Ok(given);
    }
    let wrong = || {
        column.wrong(format!(
            "row {row} has {given:?} where the column is {kind}"
        ))
    };
    given.clone().convert(kind).ok_or_else(wrong)
}

/// Returns the range of the items of some lists.
pub(crate) fn items(column: &dyn ColumnRead, rows: Range<usize>) -> Result<Range<usize>> {
    let offsets = column.offsets(rows)?;
    let (first, end) = (offsets[0], offsets[offsets.len() - 1]);
    match (usize::try_from(first), usize::try_from(end)) {
        (Ok(first), Ok(end)) if first <= end => Ok(first..end),
        _ => Err(column.wrong(format!("a list from item {first} to {end}"))),
    }
}

/// Returns the string of a code.
pub(crate) fn string(column: &dyn ColumnRead, code: usize) -> Result<&str> {
    let count = column.string_count();
    if code >= count {
        return Err(column.wrong(format!("string {code} of {count}")));
    }
    let bytes = column.strings(code..code + 1)?.get(0);
    let bytes = bytes.ok_or_else(|| column.wrong(format!("string {code} has no position")))?;
    std::str::from_utf8(bytes).map_err(|e| column.wrong(format!("string {code}: {e}")))
}

/// Rows of one source that are copied: the live rows, with their values of one column.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    /// The values; if missing, all are null.
    pub(crate) column: Option<&'a dyn ColumnRead>,
    /// The number of rows, dead ones included.
    pub(crate) rows: usize,
    /// One bit per row, set if it is live; `None` if all are.
    pub(crate) live: Option<&'a [u64]>,
}

impl<'a> Piece<'a> {
    /// Returns the live rows, in order.
    pub(crate) fn living(self) -> impl Iterator<Item = usize> + 'a {
        let all = self.live.is_none().then_some(0..self.rows);
        let some = self.live.map(bits::ones);
        all.into_iter().flatten().chain(some.into_iter().flatten())
    }

    /// Returns the number of live rows.
    pub(crate) fn alive(self) -> usize {
        self.live.map_or(self.rows, bits::count)
    }
}

/// The values of a column, in memory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ColumnData {
    kind: ColumnType,
    rows: usize,
    nulls: usize,
    /// One bit per value, set if it is not null.
    valid: Vec<u64>,
    values: Values,
}

/// One slot per row; that of a null is zero or empty.
#[derive(Debug, Clone, PartialEq)]
enum Values {
    Bools(Vec<u64>),
    /// Ints and timestamps.
    Ints(Vec<i64>),
    Floats(Vec<f64>),
    Strings(Strings),
    Lists {
        /// The first item of each row, and the one after the last.
        offsets: Vec<u64>,
        items: Strings,
    },
}

/// Strings, one after the other.
#[derive(Debug, Clone, PartialEq)]
struct Strings {
    offsets: Vec<u64>,
    bytes: Vec<u8>,
}

impl Strings {
    fn new() -> Self {
        Self {
            offsets: vec![0],
            bytes: Vec::new(),
        }
    }

    fn push(&mut self, string: &str) {
        self.bytes.extend_from_slice(string.as_bytes());
        self.offsets.push(self.bytes.len() as u64);
    }

    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    fn get(&self, strings: Range<usize>) -> StringsRef<'_> {
        let offsets = &self.offsets[strings.start..=strings.end];
        let bytes = offsets[0] as usize..offsets[offsets.len() - 1] as usize;
        StringsRef::new(offsets, &self.bytes[bytes])
    }
}

impl ColumnData {
    /// Returns no values.
    pub(crate) fn new(kind: ColumnType) -> Self {
        let values = match kind {
            ColumnType::Bool => Values::Bools(Vec::new()),
            ColumnType::Int | ColumnType::Timestamp => Values::Ints(Vec::new()),
            ColumnType::Float => Values::Floats(Vec::new()),
            ColumnType::String => Values::Strings(Strings::new()),
            ColumnType::Strings => Values::Lists {
                offsets: vec![0],
                items: Strings::new(),
            },
        };
        Self {
            kind,
            rows: 0,
            nulls: 0,
            valid: Vec::new(),
            values,
        }
    }

    /// Returns this many nulls.
    pub(crate) fn nulls_of(kind: ColumnType, rows: usize) -> Self {
        let mut data = Self::new(kind);
        data.push_nulls(rows);
        data
    }

    /// Appends a value.
    ///
    /// # Panics
    /// If it is of another type. Requires: it can be stored ([`ColumnValueRef::check`]).
    pub(crate) fn push(&mut self, value: &ColumnValueRef<'_>) {
        if matches!(value, ColumnValueRef::Null) {
            return self.push_nulls(1);
        }
        bits::push(&mut self.valid, self.rows, true);
        match (&mut self.values, value) {
            (Values::Bools(all), ColumnValueRef::Bool(value)) => {
                bits::push(all, self.rows, *value);
            }
            (Values::Ints(all), ColumnValueRef::Int(value)) if self.kind == ColumnType::Int => {
                all.push(*value);
            }
            (Values::Ints(all), ColumnValueRef::Timestamp(value))
                if self.kind == ColumnType::Timestamp =>
            {
                all.push(*value);
            }
            // Both zeros are one value.
            (Values::Floats(all), ColumnValueRef::Float(value)) => all.push(value + 0.0),
            (Values::Strings(all), ColumnValueRef::String(value)) => all.push(value),
            (Values::Lists { offsets, items }, ColumnValueRef::Strings(values)) => {
                values.iter().for_each(|value| items.push(value));
                offsets.push(items.len() as u64);
            }
            (_, value) => panic!("{value:?} in a column of type {}", self.kind),
        }
        self.rows += 1;
    }

    /// Appends nulls.
    pub(crate) fn push_nulls(&mut self, count: usize) {
        let rows = self.rows + count;
        self.valid.resize(bits::words(rows), 0);
        match &mut self.values {
            Values::Bools(all) => all.resize(bits::words(rows), 0),
            Values::Ints(all) => all.resize(rows, 0),
            Values::Floats(all) => all.resize(rows, 0.0),
            Values::Strings(Strings { offsets, .. }) | Values::Lists { offsets, .. } => {
                let last = offsets[offsets.len() - 1];
                offsets.resize(rows + 1, last);
            }
        }
        self.nulls += count;
        self.rows = rows;
    }

    /// Appends some rows of a column of the same type, in order.
    ///
    /// # Panics
    /// If it is of another type, or has no such row.
    pub(crate) fn extend(
        &mut self,
        from: &dyn ColumnRead,
        rows: impl IntoIterator<Item = usize>,
    ) -> Result<()> {
        assert_eq!(self.kind, from.kind(), "values of one type");
        for row in rows {
            self.push(&value(from, row)?);
        }
        Ok(())
    }

    /// Appends the live values of another column in memory. Values of another type are converted; those that this type
    /// can't hold become null.
    pub(crate) fn extend_living(&mut self, from: &Self, live: Option<&[u64]>) {
        let piece = Piece {
            column: Some(from),
            rows: from.rows,
            live,
        };
        for row in piece.living() {
            let value = from.value(row);
            match self.kind == from.kind {
                true => self.push(&value),
                false => match value.to_value().convert(self.kind) {
                    Some(value) => self.push(&value.as_ref()),
                    None => self.push_nulls(1),
                },
            }
        }
    }

    /// Returns the values as another type, or the first row with a value that the type can't hold.
    pub(crate) fn convert(self, to: ColumnType) -> Result<Self, usize> {
        if self.kind == to {
            return Ok(self);
        }
        let mut data = Self::new(to);
        for row in 0..self.rows {
            let value = self.value(row).to_value().convert(to);
            data.push(&value.ok_or(row)?.as_ref());
        }
        Ok(data)
    }

    /// Returns one value.
    pub(crate) fn value(&self, row: usize) -> ColumnValueRef<'_> {
        value(self, row).expect("values in memory are valid")
    }
}

/// Returns the first row that has a value.
pub(crate) fn first_valid(data: &ColumnData) -> Option<usize> {
    bits::ones(&data.valid).next()
}

/// Returns the values of a column as another type. Values that the type can't hold become null: a column is
/// [retyped](super::Schema::retype) only if every live value fits, so these are values of dead rows.
pub(crate) fn convert(column: &dyn ColumnRead, to: ColumnType) -> Result<ColumnData> {
    let mut data = ColumnData::new(to);
    for row in 0..column.rows() {
        match value(column, row)?.to_value().convert(to) {
            Some(value) => data.push(&value.as_ref()),
            None => data.push_nulls(1),
        }
    }
    Ok(data)
}

/// Returns the first of some rows whose value a type can't hold. It is checked before a column is
/// [retyped](super::Schema::retype).
pub(crate) fn first_lossy(
    column: &dyn ColumnRead,
    to: ColumnType,
    rows: impl IntoIterator<Item = usize>,
) -> Result<Option<(usize, ColumnValue)>> {
    for row in rows {
        let given = value(column, row)?.to_value();
        if given.clone().convert(to).is_none() {
            return Ok(Some((row, given)));
        }
    }
    Ok(None)
}

impl ColumnRead for ColumnData {
    fn kind(&self) -> ColumnType {
        self.kind
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn nulls(&self) -> usize {
        self.nulls
    }

    fn zone(&self, _: usize) -> Result<Option<Zone>> {
        Ok(None)
    }

    fn valid(&self, words: Range<usize>) -> Result<Option<&[u64]>> {
        Ok((self.nulls > 0).then(|| &self.valid[words]))
    }

    fn bools(&self, words: Range<usize>) -> Result<&[u64]> {
        match &self.values {
            Values::Bools(all) => Ok(&all[words]),
            _ => panic!("bools of a column of type {}", self.kind),
        }
    }

    fn ints(&self, rows: Range<usize>) -> Result<&[i64]> {
        match &self.values {
            Values::Ints(all) => Ok(&all[rows]),
            _ => panic!("ints of a column of type {}", self.kind),
        }
    }

    fn floats(&self, rows: Range<usize>) -> Result<&[f64]> {
        match &self.values {
            Values::Floats(all) => Ok(&all[rows]),
            _ => panic!("floats of a column of type {}", self.kind),
        }
    }

    fn offsets(&self, rows: Range<usize>) -> Result<&[u64]> {
        match &self.values {
            Values::Lists { offsets, .. } => Ok(&offsets[rows.start..=rows.end]),
            _ => panic!("lists of a column of type {}", self.kind),
        }
    }

    fn codes(&self, items: Range<usize>) -> Result<Codes<'_>> {
        assert!(items.end <= self.string_count(), "{items:?} of the strings");
        Ok(Codes::Own(items.start, items.end))
    }

    fn string_count(&self) -> usize {
        match &self.values {
            Values::Strings(all) => all.len(),
            Values::Lists { items, .. } => items.len(),
            _ => 0,
        }
    }

    fn strings(&self, strings: Range<usize>) -> Result<StringsRef<'_>> {
        match &self.values {
            Values::Strings(all) => Ok(all.get(strings)),
            Values::Lists { items, .. } => Ok(items.get(strings)),
            _ => panic!("strings of a column of type {}", self.kind),
        }
    }

    fn is_sorted(&self) -> bool {
        false
    }

    fn wrong(&self, what: String) -> Error {
        Error::invalid(format!("a column in memory: {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_floats_have_their_order() {
        let ascending = [
            f64::NEG_INFINITY,
            f64::MIN,
            -1.5,
            -f64::MIN_POSITIVE,
            -f64::from_bits(1),
            0.0,
            f64::from_bits(1),
            1.0,
            1.0 + f64::EPSILON,
            f64::MAX,
            f64::INFINITY,
        ];
        for pair in ascending.windows(2) {
            assert!(float_key(pair[0]) < float_key(pair[1]), "{pair:?}");
        }
        assert_eq!(float_key(-0.0), float_key(0.0));
        for value in ascending {
            assert_eq!(float_of_key(float_key(value)), value);
        }
    }

    #[test]
    fn values_of_every_type_are_read_as_they_were_written() {
        let samples: [(ColumnType, Vec<ColumnValue>); 6] = [
            (ColumnType::Bool, vec![true.into(), false.into()]),
            (ColumnType::Int, vec![i64::MIN.into(), 7.into()]),
            (ColumnType::Float, vec![0.5.into(), (-1e300).into()]),
            (ColumnType::String, vec!["".into(), "größer".into()]),
            (
                ColumnType::Strings,
                vec![Vec::<String>::new().into(), vec!["a", "", "a"].into()],
            ),
            (ColumnType::Timestamp, vec![ColumnValue::Timestamp(-5)]),
        ];
        for (kind, values) in samples {
            let mut data = ColumnData::new(kind);
            let mut expected = Vec::new();
            for at in 0..200 {
                let value = match at % 3 {
                    0 => ColumnValue::Null,
                    _ => values[at % values.len()].clone(),
                };
                data.push(&value.as_ref());
                expected.push(value);
            }
            let read: Vec<_> = (0..200).map(|row| data.value(row).to_value()).collect();
            assert_eq!(read, expected);
            assert_eq!(data.nulls(), 67);
            let mut copied = ColumnData::nulls_of(kind, 3);
            copied
                .extend(&data, (0..200).filter(|row| row % 2 == 1))
                .unwrap();
            for row in 0..100 {
                assert_eq!(copied.value(row + 3), data.value(row * 2 + 1));
            }
            assert_eq!(copied.value(2), ColumnValueRef::Null);
        }
    }

    #[test]
    fn the_first_value_that_another_type_cannot_hold_is_named() {
        let mut data = ColumnData::new(ColumnType::Int);
        for value in [1.into(), ColumnValue::Null, ((1_i64 << 53) + 1).into()] {
            data.push(&value.as_ref());
        }
        assert_eq!(data.clone().convert(ColumnType::Float), Err(2));
        let lossy = first_lossy(&data, ColumnType::Float, 0..3).unwrap();
        assert_eq!(lossy, Some((2, ((1_i64 << 53) + 1).into())));
        assert_eq!(first_lossy(&data, ColumnType::Float, [0, 1]).unwrap(), None);
        let strings = data.convert(ColumnType::String).unwrap();
        assert_eq!(strings.value(0), ColumnValueRef::String("1"));
        assert_eq!(strings.value(1), ColumnValueRef::Null);
    }
}
