//! The source of rows: a file or standard input.

use super::format::without_compression;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The source of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Standard input.
    Stdin,
    /// A file.
    File(PathBuf),
}

/// The bytes of a source, before decompression.
pub(super) struct Raw {
    pub(super) bytes: Box<dyn Read + Send>,
    /// The number of bytes; `None` for a pipe.
    pub(super) length: Option<u64>,
}

impl Source {
    /// Returns the source for an argument; `-` is standard input.
    pub fn of(argument: &Path) -> Self {
        match argument.as_os_str() == "-" {
            true => Self::Stdin,
            false => Self::File(argument.to_owned()),
        }
    }

    /// Returns its name, for messages.
    pub fn name(&self) -> String {
        match self {
            Self::Stdin => "stdin".into(),
            Self::File(path) => path.display().to_string(),
        }
    }

    /// Returns the name of the file without its directory and extensions: `x` for `d/x.jsonl.gz`.
    pub(super) fn stem(&self) -> String {
        match self {
            Self::Stdin => "stdin".into(),
            Self::File(path) => without_compression(path)
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        }
    }

    pub(super) fn open(&self) -> Result<Raw> {
        let Self::File(path) = self else {
            return Ok(Raw {
                bytes: Box::new(std::io::stdin()),
                length: None,
            });
        };
        let opening = || format!("opening {}", path.display());
        let file = File::open(path).with_context(opening)?;
        let metadata = file.metadata().with_context(opening)?;
        if metadata.is_dir() {
            bail!("{} is a directory; name the files in it", path.display());
        }
        Ok(Raw {
            bytes: Box::new(file),
            length: metadata.is_file().then_some(metadata.len()),
        })
    }
}
