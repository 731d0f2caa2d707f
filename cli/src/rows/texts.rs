//! Rows of JSONL, TSV and TXT: one per line.

use super::{BadRow, Fields, Format, Lines, Places, ReadRow, RowReader, jsonl, parse};
use anyhow::Result;
use mopqdb::Row;
use mopqdb::columns::infer::Notation;
use serde_json::Map;

/// Reads one row per line.
pub(super) struct TextRows {
    pub(super) lines: Lines,
    pub(super) format: Format,
    /// The names of the fields of JSONL.
    pub(super) fields: Fields,
    /// The prefix of each numbered key: `FILESTEM:` if there are several files.
    pub(super) prefix: String,
}

impl RowReader for TextRows {
    fn next_row(&mut self) -> Result<Option<Result<ReadRow, BadRow>>> {
        loop {
            let number = self.lines.number() + 1;
            let parsed = match self.lines.read()? {
                None => return Ok(None),
                Some(Err(bad)) => return Ok(Some(Err(self.explain(bad.into())))),
                // Blank lines are skipped; the lines after them keep their numbers.
                Some(Ok(line)) if line.trim().is_empty() => continue,
                Some(Ok(line)) => match self.format {
                    Format::Jsonl => jsonl::jsonl(line, &self.fields),
                    Format::Tsv => parse::tsv(line).map(|row| (row, Map::new())),
                    _ => parse::check(Row::text(format!("{}{number}", self.prefix), line))
                        .map(|row| (row, Map::new())),
                },
            };
            let place = self.lines.place();
            return Ok(Some(match parsed {
                Ok((row, fields)) => Ok(ReadRow {
                    row,
                    fields,
                    notation: Notation::Json,
                    place,
                    number,
                }),
                Err(what) => Err(BadRow { place, what }),
            }));
        }
    }

    fn numbered(&self) -> bool {
        self.format.numbered()
    }

    fn places(&self) -> Places {
        Places::Lines(self.lines.name().to_owned())
    }
}

impl TextRows {
    /// Explains a line that is too long: it may be a whole file in one JSON array.
    fn explain(&self, bad: BadRow) -> BadRow {
        match self.format == Format::Jsonl && self.lines.begins_with(b'[') {
            true => BadRow {
                what: jsonl::ARRAY.into(),
                ..bad
            },
            false => bad,
        }
    }
}
