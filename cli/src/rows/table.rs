//! Rows of CSV, and of TSV with a header.

use super::{BadRow, Fields, Format, Lines, Places, ReadRow, RowReader, fields, parse};
use anyhow::{Result, bail};
use mopqdb::Row;
use mopqdb::columns::infer::{Inference, Notation};
use serde_json::{Map, Value};

/// The longest record of CSV: far above the longest text of a row. An open quote takes no more memory.
const MAX_RECORD: usize = 256 << 20;

/// Reads one row per record.
pub(super) struct TableRows {
    pub(super) lines: Lines,
    pub(super) format: Format,
    /// Which columns are the key and the text.
    pub(super) fields: Fields,
    pub(super) header: Header,
}

/// What is known of the names of the columns.
pub(super) enum Header {
    /// There is none: a record is a key and a text.
    Without,
    /// The first record has them.
    Unread,
    /// By position.
    Read(Vec<Part>),
}

/// What a cell is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Key,
    Text,
    Ignored,
    Column(String),
}

/// A record: its cells, and the number of its first line.
struct Record {
    cells: Vec<String>,
    number: u64,
}

impl RowReader for TableRows {
    fn next_row(&mut self) -> Result<Option<Result<ReadRow, BadRow>>> {
        if matches!(self.header, Header::Unread) {
            match self.record()? {
                None => return Ok(None),
                Some(Err(bad)) => return Err(bad.into()),
                Some(Ok(record)) => {
                    let place = self.places().at(record.number);
                    match parts(record.cells, &self.fields) {
                        Ok(parts) => self.header = Header::Read(parts),
                        Err(what) => bail!("{place}: {what}"),
                    }
                }
            }
        }
        let Some(record) = self.record()? else {
            return Ok(None);
        };
        Ok(Some(record.and_then(|Record { cells, number }| {
            let place = self.places().at(number);
            match self.row(cells) {
                Ok((row, fields)) => Ok(ReadRow {
                    row,
                    fields,
                    notation: Notation::Text,
                    place,
                    number,
                }),
                Err(what) => Err(BadRow { place, what }),
            }
        })))
    }

    fn numbered(&self) -> bool {
        false
    }

    fn places(&self) -> Places {
        Places::Lines(self.lines.name().to_owned())
    }
}

impl TableRows {
    /// Reads the next record that is not a blank line.
    fn record(&mut self) -> Result<Option<Result<Record, BadRow>>> {
        let mut record = String::new();
        let number = loop {
            match self.lines.read()? {
                None => return Ok(None),
                Some(Err(bad)) => return Ok(Some(Err(bad.into()))),
                Some(Ok(line)) if line.trim().is_empty() => {}
                Some(Ok(line)) => {
                    record.push_str(line);
                    break self.lines.number();
                }
            }
        };
        if self.format == Format::Tsv {
            let cells = record.split('\t').map(str::to_owned).collect();
            return Ok(Some(Ok(Record { cells, number })));
        }
        let bad = |name: &str, what: String| BadRow {
            place: Places::Lines(name.to_owned()).at(number),
            what,
        };
        let open = "has a double quote that opens a field and is not closed; within a field in quotes, a quote is written twice";
        if split(&record) == Err(Unfinished::Open) {
            // The record continues in the next lines. In quotes, quotes come in pairs, so the field ends in a line with an
            // odd number of them, unless another one is opened there.
            let mut closed = false;
            while !closed {
                let next = match self.lines.read()? {
                    Some(Ok(line)) if record.len() + line.len() < MAX_RECORD => line,
                    Some(Err(line)) => return Ok(Some(Err(line.into()))),
                    None | Some(Ok(_)) => {
                        return Ok(Some(Err(bad(self.lines.name(), open.into()))));
                    }
                };
                closed = next.matches('"').count() % 2 == 1;
                record.push('\n');
                record.push_str(next);
            }
        }
        Ok(Some(match split(&record) {
            Ok(cells) => Ok(Record { cells, number }),
            Err(Unfinished::Wrong(what)) => Err(bad(self.lines.name(), what)),
            Err(Unfinished::Open) => Err(bad(self.lines.name(), open.into())),
        }))
    }

    fn row(&self, cells: Vec<String>) -> Result<(Row, Map<String, Value>), String> {
        let Header::Read(parts) = &self.header else {
            let count = cells.len();
            let [key, text] = <[String; 2]>::try_from(cells).map_err(|_| {
                format!(
                    "has {}; a line is `key,text`, or give --header if the first line has names",
                    fields_of(count)
                )
            })?;
            return Ok((parse::check(Row::text(key, text))?, Map::new()));
        };
        if cells.len() != parts.len() {
            return Err(format!(
                "has {}, and the header has {}",
                fields_of(cells.len()),
                parts.len()
            ));
        }
        let (mut key, mut text, mut others) = (String::new(), String::new(), Map::new());
        for (part, cell) in parts.iter().zip(cells) {
            match part {
                Part::Key => key = cell,
                Part::Text => text = cell,
                Part::Ignored => {}
                Part::Column(name) => {
                    others.insert(name.clone(), Value::String(cell));
                }
            }
        }
        Ok((parse::check(Row::text(key, text))?, others))
    }
}

fn fields_of(count: usize) -> String {
    match count {
        1 => "1 field".into(),
        _ => format!("{count} fields"),
    }
}

/// Returns what the cells below a header are.
fn parts(names: Vec<String>, fields: &Fields) -> Result<Vec<Part>, String> {
    let listed = names.join(", ");
    for (name, flag) in [(&fields.key, "--key-field"), (&fields.text, "--text-field")] {
        if !names.contains(name) {
            return Err(format!(
                "the header has no {name:?}; {flag} NAME chooses one of {listed}"
            ));
        }
    }
    let mut columns = Map::new();
    let mut parts = Vec::new();
    for name in names {
        let part = match &name {
            name if *name == fields.key => Part::Key,
            name if *name == fields.text => Part::Text,
            _ if fields.ignore_unknown => Part::Ignored,
            name if *name == fields::VECTOR => {
                return Err("the header has \"vector\"; vectors are read from JSONL, .npy, .fvecs and .fbin".into());
            }
            _ => {
                let again = columns.insert(name.clone(), Value::Null).is_some();
                if again {
                    return Err(format!("the header has {name:?} twice"));
                }
                Part::Column(name)
            }
        };
        if matches!(part, Part::Key | Part::Text) && parts.contains(&part) {
            return Err(format!(
                "the header has the name of the key or the text twice, in {listed}"
            ));
        }
        parts.push(part);
    }
    // Checks the names, and how many there are.
    Inference::new(Notation::Text)
        .observe(&columns)
        .map_err(|what| format!("the header has a name that no column can have: {what}"))?;
    Ok(parts)
}

/// Why a text is not a record of CSV.
#[derive(Debug, PartialEq, Eq)]
enum Unfinished {
    /// A field in quotes continues in the next line.
    Open,
    Wrong(String),
}

/// Splits a record of CSV (RFC 4180) into its cells.
fn split(record: &str) -> Result<Vec<String>, Unfinished> {
    let mut cells = Vec::new();
    let mut rest = record;
    loop {
        let (cell, after) = match rest.strip_prefix('"') {
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
            Some(quoted) => quoted_cell(quoted)?,
        };
        cells.push(cell);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(cells),
            None => {
                return Err(Unfinished::Wrong(format!(
                    "has text after the closing quote of field {}; a field that contains a quote is in quotes, and the quote is written twice",
                    cells.len()
                )));
            }
        }
    }
}

/// Reads a cell whose opening quote was read, and returns it with what follows it.
fn quoted_cell(quoted: &str) -> Result<(String, &str), Unfinished> {
    let mut cell = String::new();
    let mut rest = quoted;
    loop {
        let at = rest.find('"').ok_or(Unfinished::Open)?;
        cell.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.strip_prefix('"') {
            Some(after) => {
                cell.push('"');
                rest = after;
            }
            None => return Ok((cell, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_split_as_in_rfc_4180() {
        for (record, cells) in [
            ("a,b", &["a", "b"][..]),
            ("", &[""]),
            (",", &["", ""]),
            ("\"a,b\",c", &["a,b", "c"]),
            ("\"a \"\"b\"\"\",\"\"", &["a \"b\"", ""]),
            ("\"a\nb\",c", &["a\nb", "c"]),
            ("a \"b\" c,d", &["a \"b\" c", "d"]),
        ] {
            assert_eq!(split(record).unwrap(), cells, "{record}");
        }
        assert_eq!(split("a,\"b"), Err(Unfinished::Open));
        assert_eq!(split("a,\"b\"\""), Err(Unfinished::Open));
        assert!(matches!(split("\"a\"b"), Err(Unfinished::Wrong(_))));
    }
}
