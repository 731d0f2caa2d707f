//! Which reader a file gets: by its extension, or by `--format`.

use super::vectors::VectorRows;
use super::{BadRow, Lines, Places, ReadRow, RowReader, parse};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use mopqdb::Row;
use mopqdb::vectors::{VectorFormat, VectorReader};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A format of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A JSON object a line: {"key": "...", "text": "..."} or {"key": "...", "vector": [...]}.
    Jsonl,
    /// A line is key TAB text.
    Tsv,
    /// A line is a text; its key is the line's number, from 1.
    Txt,
    /// numpy's array of vectors; keys are row numbers, from 0.
    Npy,
    /// Vectors as in the TEXMEX benchmarks; keys are row numbers, from 0.
    Fvecs,
    /// Vectors as in the big-ann benchmarks; keys are row numbers, from 0.
    Fbin,
}

impl Format {
    /// By the extension.
    pub fn of(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match extension.as_str() {
            "jsonl" | "ndjson" | "json" => Self::Jsonl,
            "tsv" => Self::Tsv,
            "txt" => Self::Txt,
            "npy" => Self::Npy,
            "fvecs" => Self::Fvecs,
            "fbin" => Self::Fbin,
            _ => return None,
        })
    }

    fn vectors(self) -> Option<VectorFormat> {
        match self {
            Self::Npy => Some(VectorFormat::Npy),
            Self::Fvecs => Some(VectorFormat::Fvecs),
            Self::Fbin => Some(VectorFormat::Fbin),
            _ => None,
        }
    }
}

/// Where rows come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Standard input.
    Stdin,
    /// A file.
    File(PathBuf),
}

impl Source {
    /// `-` is standard input.
    pub fn of(argument: &Path) -> Self {
        match argument.as_os_str() == "-" {
            true => Self::Stdin,
            false => Self::File(argument.to_owned()),
        }
    }

    /// For messages.
    pub fn name(&self) -> String {
        match self {
            Self::Stdin => "stdin".into(),
            Self::File(path) => path.display().to_string(),
        }
    }
}

/// Opens rows. `several` files: numbered keys are `FILESTEM:N`. `bytes` counts what was read, for progress.
pub fn open(
    source: &Source,
    format: Option<Format>,
    several: bool,
    bytes: &Arc<AtomicU64>,
) -> Result<Box<dyn RowReader>> {
    let name = source.name();
    let by_name = match source {
        Source::Stdin => Some(Format::Jsonl),
        Source::File(path) => Format::of(path),
    };
    let Some(format) = format.or(by_name) else {
        bail!(
            "{name}: can't tell the format by the name; give --format jsonl, tsv, txt, npy, fvecs or fbin"
        );
    };
    let stem = match source {
        Source::Stdin => "stdin".into(),
        Source::File(path) => path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
    };
    let prefix = if several {
        format!("{stem}:")
    } else {
        String::new()
    };
    let counted = Counted {
        source: raw(source)?,
        bytes: Arc::clone(bytes),
    };
    if let Some(vectors) = format.vectors() {
        let reader = match source {
            // The length of a file is compared with what its header claims before a row is read.
            Source::File(path) => VectorReader::open_as(path, vectors)?,
            Source::Stdin => {
                VectorReader::from_reader(&name, Box::new(BufReader::new(counted)), vectors)?
            }
        };
        return Ok(Box::new(VectorRows {
            places: Places::Rows(name),
            prefix,
            reader,
            buffer: Vec::new(),
            at: 0,
            number: 0,
        }));
    }
    let source: Box<dyn BufRead + Send> = Box::new(BufReader::with_capacity(256 << 10, counted));
    Ok(Box::new(TextRows {
        lines: Lines::new(name, source),
        format,
        prefix,
    }))
}

fn raw(source: &Source) -> Result<Box<dyn Read + Send>> {
    Ok(match source {
        Source::Stdin => Box::new(std::io::stdin()),
        Source::File(path) => {
            let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
            if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
                bail!("{} is a directory; name the files in it", path.display());
            }
            Box::new(file)
        }
    })
}

/// Counts the bytes that pass.
struct Counted {
    source: Box<dyn Read + Send>,
    bytes: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.bytes.fetch_add(read as u64, Ordering::SeqCst);
        Ok(read)
    }
}

/// A row a line.
struct TextRows {
    lines: Lines,
    format: Format,
    prefix: String,
}

impl RowReader for TextRows {
    fn next_row(&mut self) -> Result<Option<Result<ReadRow, BadRow>>> {
        loop {
            let number = self.lines.number() + 1;
            let parsed = match self.lines.read()? {
                None => return Ok(None),
                Some(Err(bad)) => return Ok(Some(Err(bad))),
                // A blank line is no row; those after it keep their numbers.
                Some(Ok(line)) if line.trim().is_empty() => continue,
                Some(Ok(line)) => match self.format {
                    Format::Jsonl => parse::jsonl(line),
                    Format::Tsv => parse::tsv(line),
                    _ => parse::check(Row::text(format!("{}{number}", self.prefix), line)),
                },
            };
            let place = self.lines.place();
            return Ok(Some(match parsed {
                Ok(row) => Ok(ReadRow { row, place, number }),
                Err(what) => Err(BadRow { place, what }),
            }));
        }
    }

    fn numbered(&self) -> bool {
        self.format == Format::Txt
    }

    fn places(&self) -> Places {
        Places::Lines(self.lines.name().to_owned())
    }
}
