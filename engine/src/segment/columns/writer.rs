//! Writing the columns of a segment, column after column.

use super::dictionary::{Dictionary, for_each_code};
use super::meta::{ARRAY, ColumnsMeta, Entry, Meta, code_bytes};
use crate::Result;
use crate::columns::{
    self, BLOCK_ROWS, Column, ColumnData, ColumnRead, ColumnSource, ColumnType, Piece, Schema, Zone,
};
use crate::disk::files::Files;
use crate::format::{Check, Encode, Kind, PAGE, Put, Section, Written};
use crate::segment::output::Output;
use std::path::Path;
use std::sync::Arc;

/// Writes a columns file, column after column. It holds the codes of one column's strings in memory, and no values.
struct ColumnsWriter {
    output: Output,
    meta: Meta,
}

impl ColumnsWriter {
    /// Begins a file. `path` is its final path.
    pub(crate) fn create(files: Arc<dyn Files>, path: &Path, about: ColumnsMeta) -> Result<Self> {
        let mut output = Output::create(files, path, Kind::Columns)?;
        output.begin(Section::Columns, Check::Pages)?;
        Ok(Self {
            output,
            meta: Meta {
                about,
                entries: Vec::new(),
            },
        })
    }

    /// Appends a column: the live rows of all pieces, in order. Values of a type that the column had before it was
    /// retyped are converted.
    ///
    /// # Errors
    /// If a piece is damaged, or has a value that the type can't hold.
    ///
    /// # Panics
    /// If ids do not ascend, or if the number of live rows differs from that of the rows file.
    pub(crate) fn push(&mut self, column: &Column, pieces: &[Piece<'_>]) -> Result<()> {
        let last = self.meta.entries.last().map(|entry| entry.column.id);
        assert!(
            last.is_none_or(|last| last < column.id),
            "columns must ascend"
        );
        let alive: usize = pieces.iter().map(|piece| piece.alive()).sum();
        assert_eq!(
            alive, self.meta.about.rows as usize,
            "there must be one value per row"
        );
        let converted = converted(pieces, column.kind)?;
        let pieces: Vec<Piece<'_>> = pieces
            .iter()
            .zip(&converted)
            .map(|(piece, converted)| match converted {
                None => *piece,
                Some(data) => Piece {
                    column: Some(data),
                    rows: data.rows(),
                    live: None,
                },
            })
            .collect();
        let mut writing = Writing {
            output: &mut self.output,
            pieces: &pieces,
            entry: Entry {
                column: column.clone(),
                nulls: 0,
                code_bytes: 0,
                strings: 0,
                items: 0,
                string_bytes: 0,
                offset: 0,
            },
            zones: Vec::new(),
        };
        writing.run()?;
        self.meta.entries.push(writing.entry);
        Ok(())
    }

    /// Syncs the file and renames it to its final name; the caller syncs the directory.
    pub(crate) fn finish(mut self) -> Result<Written> {
        let len = self.output.section_len();
        assert_eq!(len, self.meta.values_len(), "arrays are where META says");
        let meta = self.meta.encoded();
        self.output.section(Section::Meta, Check::Chunks, &meta)?;
        self.output.finish()
    }
}

/// Writes the columns of a segment whose rows are the live rows of these sources, in order: for a seal, a compaction
/// and a repair. Columns that the schema does not have are omitted.
///
/// # Errors
/// If a source is damaged, or writing fails.
///
/// # Panics
/// If the number of live rows differs from that in `about`.
pub(crate) fn write_columns(
    files: Arc<dyn Files>,
    path: &Path,
    about: ColumnsMeta,
    schema: &Schema,
    sources: &[(&dyn ColumnSource, Option<&[u64]>)],
) -> Result<Written> {
    assert_eq!(
        about.next_column,
        schema.next_id(),
        "the schema must be the same"
    );
    let mut writer = ColumnsWriter::create(files, path, about)?;
    for column in schema.columns() {
        let pieces = sources.iter().map(|&(source, live)| Piece {
            column: source.column(column.id),
            rows: source.rows(),
            live,
        });
        writer.push(column, &pieces.collect::<Vec<_>>())?;
    }
    writer.finish()
}

/// Returns the live values of those pieces that have another type, converted.
fn converted(pieces: &[Piece<'_>], kind: ColumnType) -> Result<Vec<Option<ColumnData>>> {
    let convert = |piece: &Piece<'_>| match piece.column {
        Some(column) if column.kind() != kind => {
            columns::gather(std::slice::from_ref(piece), kind).map(Some)
        }
        _ => Ok(None),
    };
    pieces.iter().map(convert).collect()
}

/// A column that is being written.
struct Writing<'w> {
    output: &'w mut Output,
    pieces: &'w [Piece<'w>],
    entry: Entry,
    zones: Vec<u8>,
}

impl Writing<'_> {
    fn run(&mut self) -> Result<()> {
        let valid = self.valid()?;
        let rows = valid.rows;
        self.entry.nulls = (rows - valid.count) as u32;
        if valid.count == 0 {
            return Ok(());
        }
        self.align(PAGE as u64)?;
        self.entry.offset = self.output.section_len();
        if valid.count < rows {
            self.words(&valid.words)?;
        }
        match self.entry.column.kind {
            ColumnType::Bool => self.bools(&valid)?,
            ColumnType::Int | ColumnType::Timestamp => {
                self.numbers(&valid, |column, row| {
                    let value = column.ints(row..row + 1)?[0];
                    Ok((value, value.to_le_bytes()))
                })?;
            }
            ColumnType::Float => {
                self.numbers(&valid, |column, row| {
                    let value = column.floats(row..row + 1)?[0];
                    Ok((columns::float_key(value), value.to_le_bytes()))
                })?;
            }
            ColumnType::String | ColumnType::Strings => self.strings(&valid)?,
        }
        self.align(ARRAY)?;
        self.output.write(&self.zones)
    }

    /// A bit for each live row that has a value.
    fn valid(&self) -> Result<Valid> {
        let mut valid = Valid {
            words: Vec::new(),
            rows: 0,
            count: 0,
        };
        for piece in self.pieces {
            for row in piece.living() {
                let is = match piece.column {
                    None => false,
                    Some(column) => columns::is_valid(column, row)?,
                };
                columns::push_bit(&mut valid.words, valid.rows, is);
                valid.rows += 1;
                valid.count += usize::from(is);
            }
        }
        Ok(valid)
    }

    fn bools(&mut self, valid: &Valid) -> Result<()> {
        let mut words = Vec::with_capacity(valid.words.len());
        let mut at = 0;
        for piece in self.pieces {
            for row in piece.living() {
                let is = match piece.column {
                    Some(column) if valid.get(at) => {
                        let word = row / 64;
                        column.bools(word..word + 1)?[0] >> (row % 64) & 1 == 1
                    }
                    _ => false,
                };
                columns::push_bit(&mut words, at, is);
                at += 1;
            }
        }
        self.zones = valid.zones();
        self.words(&words)
    }

    /// Writes eight bytes per row, with the place of each value in their order.
    fn numbers(
        &mut self,
        valid: &Valid,
        value: impl Fn(&dyn ColumnRead, usize) -> Result<(i64, [u8; 8])>,
    ) -> Result<()> {
        self.align(ARRAY)?;
        let mut zones = Zones::default();
        let mut block = Vec::with_capacity(BLOCK_ROWS * 8);
        let mut at = 0;
        for piece in self.pieces {
            for row in piece.living() {
                let found = match piece.column {
                    Some(column) if valid.get(at) => Some(value(column, row)?),
                    _ => None,
                };
                block.extend(found.map_or([0; 8], |(_, bytes)| bytes));
                zones.push(found.map(|(key, _)| key));
                at += 1;
                if block.len() == BLOCK_ROWS * 8 {
                    self.output.write(&block)?;
                    block.clear();
                }
            }
        }
        self.output.write(&block)?;
        self.zones = zones.finish();
        Ok(())
    }

    fn strings(&mut self, valid: &Valid) -> Result<()> {
        self.align(ARRAY)?;
        let output = &mut *self.output;
        let dictionary = Dictionary::merge(self.pieces, |string| output.write(string))?;
        self.entry.strings = dictionary.strings;
        self.entry.string_bytes = dictionary.bytes;
        self.entry.code_bytes = code_bytes(dictionary.strings);
        self.words(&dictionary.offsets)?;
        self.align(ARRAY)?;
        let width = self.entry.code_bytes as usize;
        let mut codes = Vec::with_capacity(BLOCK_ROWS * width);
        if self.entry.column.kind == ColumnType::Strings {
            for (source, &piece) in self.pieces.iter().enumerate() {
                for_each_code(piece, |code| {
                    let code = dictionary.code(source, code);
                    codes.extend_from_slice(&code.to_le_bytes()[..width]);
                    self.entry.items += 1;
                    if codes.len() == BLOCK_ROWS * width {
                        self.output.write(&codes)?;
                        codes.clear();
                    }
                    Ok(())
                })?;
            }
            self.output.write(&codes)?;
            self.zones = valid.zones();
            return self.offsets(valid);
        }
        let mut zones = Zones::default();
        let mut at = 0;
        for (source, piece) in self.pieces.iter().enumerate() {
            for row in piece.living() {
                let code = match piece.column {
                    Some(column) if valid.get(at) => {
                        let code = column.codes(row..row + 1)?.get(0);
                        Some(dictionary.code(source, code))
                    }
                    _ => None,
                };
                codes.extend_from_slice(&code.unwrap_or(0).to_le_bytes()[..width]);
                zones.push(code.map(i64::from));
                at += 1;
                if codes.len() == BLOCK_ROWS * width {
                    self.output.write(&codes)?;
                    codes.clear();
                }
            }
        }
        self.output.write(&codes)?;
        self.zones = zones.finish();
        Ok(())
    }

    /// Writes the first item of each list, and the one after the last.
    fn offsets(&mut self, valid: &Valid) -> Result<()> {
        self.align(ARRAY)?;
        let mut block = Vec::with_capacity(BLOCK_ROWS * 8);
        let mut end = 0;
        let mut at = 0;
        block.put_u64(0);
        for piece in self.pieces {
            for row in piece.living() {
                if let Some(column) = piece.column
                    && valid.get(at)
                {
                    end += columns::items(column, row..row + 1)?.len() as u64;
                }
                block.put_u64(end);
                at += 1;
                if block.len() >= BLOCK_ROWS * 8 {
                    self.output.write(&block)?;
                    block.clear();
                }
            }
        }
        self.output.write(&block)
    }

    fn words(&mut self, words: &[u64]) -> Result<()> {
        self.align(ARRAY)?;
        self.output.write(bytemuck::cast_slice(words))
    }

    /// Writes zeros up to a multiple of `to`.
    fn align(&mut self, to: u64) -> Result<()> {
        let at = self.output.section_len();
        let zeros = at.next_multiple_of(to) - at;
        self.output.write(&[0; PAGE][..zeros as usize])
    }
}

/// The live rows that have a value.
struct Valid {
    words: Vec<u64>,
    rows: usize,
    count: usize,
}

impl Valid {
    fn get(&self, row: usize) -> bool {
        self.words[row / 64] >> (row % 64) & 1 == 1
    }

    /// Returns the statistics of each block of values without an order: the number of nulls.
    fn zones(&self) -> Vec<u8> {
        let mut zones = Zones::default();
        (0..self.rows).for_each(|row| zones.push(self.get(row).then_some(0)));
        zones.finish()
    }
}

/// Collects the statistics of blocks of rows.
#[derive(Default)]
struct Zones {
    bytes: Vec<u8>,
    rows: usize,
    nulls: u32,
    ends: Option<(i64, i64)>,
}

impl Zones {
    fn push(&mut self, value: Option<i64>) {
        match (value, self.ends) {
            (None, _) => self.nulls += 1,
            (Some(value), None) => self.ends = Some((value, value)),
            (Some(value), Some((min, max))) => self.ends = Some((min.min(value), max.max(value))),
        }
        self.rows += 1;
        if self.rows == BLOCK_ROWS {
            self.end();
        }
    }

    fn end(&mut self) {
        let (min, max) = self.ends.take().unwrap_or_default();
        let nulls = std::mem::take(&mut self.nulls);
        Zone { min, max, nulls }.encode(&mut self.bytes);
        self.rows = 0;
    }

    fn finish(mut self) -> Vec<u8> {
        if self.rows > 0 {
            self.end();
        }
        self.bytes
    }
}

impl Encode for Zone {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.min as u64);
        out.put_u64(self.max as u64);
        out.put_u32(self.nulls);
        out.put_u32(0);
    }
}
