//! A batch's columns as bytes in the log: chapter 6 of FORMAT.md.

use super::batch::LoggedColumns;
use super::bits;
use super::data::{ColumnData, ColumnRead};
use super::schema::{Column, ColumnId, MAX_COLUMNS, check_name};
use super::value::{ColumnType, ColumnValueRef, MAX_LIST, MAX_STRING};
use crate::format::{Encode, FormatError, Put, Take};

impl Encode for LoggedColumns {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.batch.rows() as u32);
        out.put_u32(self.named.len() as u32);
        for (column, (id, data)) in self.named.iter().zip(self.batch.columns()) {
            assert_eq!(column.id, id, "each column has a name");
            encode_column(column, out);
            encode_values(data, out);
        }
    }
}

/// Appends id, type and name of a column.
pub(crate) fn encode_column(column: &Column, out: &mut Vec<u8>) {
    out.put_u32(column.id.0);
    out.put_u32(column.kind.number());
    put_string(out, &column.name);
}

/// Takes what [`encode_column`] wrote.
pub(crate) fn decode_column(fields: &mut Take<'_>) -> Result<Column, FormatError> {
    let id = ColumnId(fields.u32()?);
    let kind = kind(fields)?;
    let name = string(fields, super::schema::MAX_COLUMN_NAME)?;
    check_name(name).map_err(|why| fields.wrong(why))?;
    Ok(Column {
        id,
        name: name.to_owned(),
        kind,
    })
}

fn put_string(out: &mut Vec<u8>, string: &str) {
    out.put_u32(string.len() as u32);
    out.extend_from_slice(string.as_bytes());
}

fn encode_values(data: &ColumnData, out: &mut Vec<u8>) {
    let rows = data.rows();
    let bits = |is: &dyn Fn(ColumnValueRef<'_>) -> bool| {
        let mut words = Vec::with_capacity(bits::words(rows));
        (0..rows).for_each(|row| bits::push(&mut words, row, is(data.value(row))));
        words
    };
    let valid = bits(&|value| value != ColumnValueRef::Null);
    valid.iter().for_each(|&word| out.put_u64(word));
    if data.kind() == ColumnType::Bool {
        let bools = bits(&|value| value == ColumnValueRef::Bool(true));
        return bools.iter().for_each(|&word| out.put_u64(word));
    }
    for row in bits::ones(&valid) {
        match data.value(row) {
            ColumnValueRef::Int(value) | ColumnValueRef::Timestamp(value) => {
                out.put_u64(value as u64);
            }
            ColumnValueRef::Float(value) => out.put_u64(value.to_bits()),
            ColumnValueRef::String(value) => put_string(out, value),
            ColumnValueRef::Strings(values) => {
                out.put_u32(values.len() as u32);
                values.iter().for_each(|value| put_string(out, value));
            }
            // Their bits are all of them.
            ColumnValueRef::Null | ColumnValueRef::Bool(_) => {}
        }
    }
}

impl LoggedColumns {
    /// Takes the columns of `rows` rows as `encode` wrote them. It allocates at most 64 times the bytes, since a null
    /// takes one bit.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub(crate) fn decode(fields: &mut Take<'_>, rows: usize) -> Result<Self, FormatError> {
        let found = fields.u32()?;
        if u32::try_from(rows) != Ok(found) {
            return Err(fields.wrong(format!("columns of {found} rows, of {rows}")));
        }
        let mut decoded = Self::none(rows);
        for _ in 0..counted(fields)? {
            let column = decode_column(fields)?;
            let id = column.id;
            if (decoded.named.last()).is_some_and(|last| last.id >= id) {
                return Err(fields.wrong(format!("column {id} does not follow the one before")));
            }
            let data = decode_values(fields, column.kind, rows)?;
            if data.nulls() == rows {
                return Err(fields.wrong(format!("column {id} has no values")));
            }
            decoded.batch.set(id, data);
            decoded.named.push(column);
        }
        Ok(decoded)
    }
}

fn counted(fields: &mut Take<'_>) -> Result<u32, FormatError> {
    match fields.u32()? {
        count if count as usize > MAX_COLUMNS => Err(fields.wrong(format!("{count} columns"))),
        count => Ok(count),
    }
}

fn kind(fields: &mut Take<'_>) -> Result<ColumnType, FormatError> {
    let number = fields.u32()?;
    ColumnType::of_number(number).ok_or_else(|| fields.wrong(format!("values of type {number}")))
}

fn string<'a>(fields: &mut Take<'a>, most: usize) -> Result<&'a str, FormatError> {
    let len = fields.u32()? as usize;
    if len > most {
        return Err(fields.wrong(format!("a string of {len} bytes")));
    }
    let bytes = fields.bytes(len)?;
    std::str::from_utf8(bytes).map_err(|e| fields.wrong(e.to_string()))
}

fn words(fields: &mut Take<'_>, rows: usize) -> Result<Vec<u64>, FormatError> {
    let count = bits::words(rows);
    let bytes = fields.bytes(count * 8)?;
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let last = words.last().copied().unwrap_or(0);
    if count > 0 && last & !bits::used(count - 1, rows) != 0 {
        return Err(fields.wrong("bits past the last row"));
    }
    Ok(words)
}

fn decode_values(
    fields: &mut Take<'_>,
    kind: ColumnType,
    rows: usize,
) -> Result<ColumnData, FormatError> {
    let valid = words(fields, rows)?;
    let mut data = ColumnData::new(kind);
    let mut push = |fields: &Take<'_>, row: usize, value: ColumnValueRef<'_>| {
        value.check().map_err(|why| fields.wrong(why))?;
        data.push_nulls(row - data.rows());
        data.push(&value);
        Ok::<_, FormatError>(())
    };
    let bools = match kind {
        ColumnType::Bool => words(fields, rows)?,
        _ => Vec::new(),
    };
    if (bools.iter().zip(&valid)).any(|(value, valid)| value & !valid != 0) {
        return Err(fields.wrong("a null that is true"));
    }
    for row in bits::ones(&valid) {
        let value = match kind {
            ColumnType::Bool => ColumnValueRef::Bool(bits::get(&bools, row)),
            ColumnType::Int => ColumnValueRef::Int(fields.u64()? as i64),
            ColumnType::Timestamp => ColumnValueRef::Timestamp(fields.u64()? as i64),
            ColumnType::Float => ColumnValueRef::Float(f64::from_bits(fields.u64()?)),
            ColumnType::String => ColumnValueRef::String(string(fields, MAX_STRING)?),
            ColumnType::Strings => {
                let count = fields.u32()? as usize;
                if count > MAX_LIST {
                    return Err(fields.wrong(format!("a list of {count} strings")));
                }
                let strings = (0..count).map(|_| string(fields, MAX_STRING));
                ColumnValueRef::Strings(strings.collect::<Result<_, _>>()?)
            }
        };
        push(fields, row, value)?;
    }
    data.push_nulls(rows - data.rows());
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::batch::Columns;
    use crate::columns::schema::Schema;
    use crate::columns::value::ColumnValue;

    const ROWS: usize = 130;

    fn sample() -> LoggedColumns {
        let mut schema = Schema::default();
        schema.introduce("known", ColumnType::Int).unwrap();
        let mut draft = Columns::default();
        for row in 0..ROWS as i64 {
            let names = ["known", "flag", "score", "lang", "tags", "at"];
            let values: [ColumnValue; 6] = [
                (row - 7).into(),
                (row % 3 == 0).into(),
                (row as f64 / 8.0).into(),
                "de".repeat(row as usize % 4).into(),
                vec!["x", "größe"][..row as usize % 3].to_vec().into(),
                ColumnValue::Timestamp(row * 1_000_003),
            ];
            let given = names.into_iter().zip(&values).enumerate();
            let given = given.filter(|(at, _)| !(row as usize + at).is_multiple_of(5));
            draft
                .push(given.map(|(_, (name, value))| (name, value.as_ref())))
                .unwrap();
        }
        draft.bind(&schema).unwrap()
    }

    fn decode(bytes: &[u8], rows: usize) -> Result<LoggedColumns, FormatError> {
        let mut fields = Take::new("COLUMNS", 0, bytes);
        let decoded = LoggedColumns::decode(&mut fields, rows)?;
        fields.end()?;
        Ok(decoded)
    }

    #[test]
    fn a_batch_comes_back_as_it_was() {
        let sample = sample();
        assert_eq!(sample.named.len(), 6);
        assert_eq!(decode(&sample.encoded(), ROWS).unwrap(), sample);
        let none = LoggedColumns::default();
        assert_eq!(none.encoded(), [0; 8]);
        assert_eq!(decode(&[0; 8], 0).unwrap(), none);
    }

    #[test]
    fn truncated_and_excess_bytes_are_refused() {
        let mut bytes = sample().encoded();
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len], ROWS).is_err(), "cut at {len}");
        }
        for rows in [0, 1, ROWS - 1, ROWS + 1, ROWS + 64] {
            assert!(decode(&bytes, rows).is_err(), "{rows} rows");
        }
        bytes.push(0);
        assert!(decode(&bytes, ROWS).is_err());
    }

    #[test]
    fn flipped_bytes_give_an_error_or_another_batch_that_comes_back() {
        let bytes = sample().encoded();
        for at in 0..bytes.len() {
            for mask in [1, 0x80, 0xff] {
                let mut flipped = bytes.clone();
                flipped[at] ^= mask;
                if let Ok(other) = decode(&flipped, ROWS) {
                    let again = decode(&other.encoded(), ROWS).unwrap();
                    // Not the bytes: both zeros are one value.
                    assert_eq!(again, other);
                }
            }
        }
    }

    #[test]
    fn hostile_bytes_are_refused_before_they_take_memory() {
        let number = |numbers: &[u32]| -> Vec<u8> {
            numbers
                .iter()
                .flat_map(|number| number.to_le_bytes())
                .collect()
        };
        // One row, one column, whose name has four bytes.
        let of = |kind: u32, values: &[u32]| {
            let name = u32::from_le_bytes(*b"year");
            number(&[&[1, 1, 0, kind, 4, name], values].concat())
        };
        for (bytes, why) in [
            (number(&[1, u32::MAX]), "4294967295 columns"),
            (number(&[1, 1001]), "1001 columns"),
            (number(&[1, 1, 0, 9]), "type 9"),
            (number(&[1, 1, 0, 2, u32::MAX]), "4294967295 bytes"),
            (of(4, &[1, 0, u32::MAX]), "4294967295 bytes"),
            (of(5, &[1, 0, 10_001]), "list of 10001"),
            (of(2, &[2, 0, 0, 0]), "past the last row"),
            (of(2, &[0, 0]), "no values"),
            (of(3, &[1, 0, 0, 0x7ff8_0000]), "NaN"),
            (of(6, &[1, 0, 0, i32::MAX as u32]), "9999"),
            (of(1, &[0, 0, 1, 0]), "null that is true"),
            (of(4, &[1, 0, 1, 0xff]), "utf-8"),
        ] {
            let mut bytes = bytes;
            if why == "utf-8" {
                bytes.truncate(bytes.len() - 3);
            }
            let error = decode(&bytes, 1).unwrap_err().to_string();
            assert!(error.contains(why), "{why}: {error}");
        }
        let many = [&number(&[u32::MAX])[..], &of(2, &[0, 0])[4..]].concat();
        assert!(decode(&many, u32::MAX as usize).is_err());
    }
}
