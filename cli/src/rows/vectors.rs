//! Rows of npy, fvecs and fbin: vectors with numbers as keys.

use super::{BadRow, Places, ReadRow, RowReader, parse};
use anyhow::Result;
use mopqdb::Row;
use mopqdb::columns::infer::Notation;
use mopqdb_formats::vectors::VectorReader;
use serde_json::Map;

/// The maximum number of values held at once.
const BUFFER: usize = 1 << 18;

/// Numbers rows from 0, like numpy.
pub(super) struct VectorRows {
    pub(super) places: Places,
    /// The prefix of each key: `FILESTEM:` if there are several files.
    pub(super) prefix: String,
    pub(super) reader: VectorReader,
    pub(super) buffer: Vec<f32>,
    /// The position of the buffer's first unused row, in values.
    pub(super) at: usize,
    pub(super) number: u64,
}

impl RowReader for VectorRows {
    fn next_row(&mut self) -> Result<Option<Result<ReadRow, BadRow>>> {
        let dim = self.reader.dim();
        if self.at == self.buffer.len() {
            self.buffer.clear();
            self.at = 0;
            if self
                .reader
                .read_rows((BUFFER / dim).max(1), &mut self.buffer)?
                == 0
            {
                return Ok(None);
            }
        }
        let vector = self.buffer[self.at..self.at + dim].to_vec();
        self.at += dim;
        let number = self.number;
        let place = self.places.at(number);
        let key = format!("{}{number}", self.prefix);
        self.number += 1;
        Ok(Some(match parse::check(Row::vector(key, vector)) {
            Ok(row) => Ok(ReadRow {
                row,
                fields: Map::new(),
                notation: Notation::Json,
                place,
                number,
            }),
            Err(what) => Err(BadRow { place, what }),
        }))
    }

    fn numbered(&self) -> bool {
        true
    }

    fn places(&self) -> Places {
        self.places.clone()
    }

    fn rows_total(&self) -> Option<u64> {
        self.reader.rows()
    }
}
