//! Opening files of rows with the reader for their format.

use super::compression::Decompressed;
use super::table::{Header, TableRows};
use super::texts::TextRows;
use super::vectors::VectorRows;
use super::{Fields, Format, Lines, Places, RowReader, Source};
use anyhow::{Context, Result, bail};
use mopqdb_formats::vectors::{VectorFormat, VectorReader};
use std::io::BufReader;
use std::path::Path;

/// The number of decompressed bytes read at once.
const CHUNK: usize = 256 << 10;

/// The source of rows and their format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// The file or stream.
    pub source: Source,
    /// The format of the rows.
    pub format: Format,
}

impl Input {
    /// Returns the input for a file or `-`. Without a format it is inferred from the name; standard
    /// input is JSONL.
    pub fn of(argument: &Path, format: Option<Format>) -> Result<Self> {
        let source = Source::of(argument);
        let by_name = || match &source {
            Source::Stdin => Some(Format::Jsonl),
            Source::File(path) => Format::of(path),
        };
        let Some(format) = format.or_else(by_name) else {
            bail!(
                "{}: the format can't be determined from the name; give --format jsonl, csv, tsv, txt, npy, fvecs or fbin",
                source.name()
            );
        };
        Ok(Self { source, format })
    }
}

/// Opens rows. If there are `several` files, numbered keys are `FILESTEM:N`.
pub fn open(input: &Input, several: bool, fields: &Fields) -> Result<Box<dyn RowReader>> {
    let prefix = match several {
        true => format!("{}:", input.source.stem()),
        false => String::new(),
    };
    if input.format == Format::Csv || (input.format == Format::Tsv && fields.header) {
        return Ok(Box::new(TableRows {
            lines: open_lines(&input.source, input.format)?,
            format: input.format,
            fields: fields.clone(),
            header: match fields.header {
                true => Header::Unread,
                false => Header::Without,
            },
        }));
    }
    Ok(match input.format.vectors() {
        Some(format) => Box::new(VectorRows {
            places: Places::Rows(input.source.name()),
            prefix,
            reader: open_vectors(input, format)?,
            buffer: Vec::new(),
            at: 0,
            number: 0,
        }),
        None => Box::new(TextRows {
            lines: open_lines(&input.source, input.format)?,
            format: input.format,
            fields: fields.clone(),
            prefix,
        }),
    })
}

/// Opens lines, decompressed if necessary.
pub(super) fn open_lines(source: &Source, format: Format) -> Result<Lines> {
    let bytes = Decompressed::new(source.open()?.bytes, format);
    let bytes = Box::new(BufReader::with_capacity(CHUNK, bytes));
    Ok(Lines::new(source.name(), bytes))
}

fn open_vectors(input: &Input, format: VectorFormat) -> Result<VectorReader> {
    let name = input.source.name();
    let raw = input.source.open()?;
    let mut bytes = Decompressed::new(raw.bytes, input.format);
    let compressed = bytes
        .is_compressed()
        .with_context(|| format!("reading {name}"))?;
    let bytes = Box::new(BufReader::with_capacity(CHUNK, bytes));
    let reader = VectorReader::from_reader(name, bytes, format)?;
    // A truncated file is refused before any row is read. The decompressed length of a compressed file is unknown.
    if let Some(length) = raw.length.filter(|_| !compressed) {
        reader.check_length(length)?;
    }
    Ok(reader)
}
