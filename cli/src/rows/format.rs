//! Formats of rows, and how the name of a file determines its format.

use clap::ValueEnum;
use mopqdb_formats::vectors::VectorFormat;
use std::path::{Path, PathBuf};

/// A format of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON object per line: {"key": "...", "text": "..."} or {"key": "...", "vector": [...]}.
    Jsonl,
    /// Each line is key TAB text; with a header, the values of its columns, between tabs.
    Tsv,
    /// Each record is key,text; with a header, the values of its columns. A value may be in double quotes.
    Csv,
    /// Each line is a text; its key is the line's number, from 1.
    Txt,
    /// numpy's array of vectors; keys are row numbers, from 0.
    Npy,
    /// Vectors as in the TEXMEX benchmarks; keys are row numbers, from 0.
    Fvecs,
    /// Vectors as in the big-ann benchmarks; keys are row numbers, from 0.
    Fbin,
}

impl Format {
    /// Returns the format that the extension names; that of `rows.jsonl.gz` is JSONL.
    pub fn of(path: &Path) -> Option<Self> {
        let path = without_compression(path);
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match extension.as_str() {
            "jsonl" | "ndjson" | "json" => Self::Jsonl,
            "tsv" => Self::Tsv,
            "csv" => Self::Csv,
            "txt" => Self::Txt,
            "npy" => Self::Npy,
            "fvecs" => Self::Fvecs,
            "fbin" => Self::Fbin,
            _ => return None,
        })
    }

    /// Returns `true` if its rows have no keys, so that their numbers are their keys.
    pub fn numbered(self) -> bool {
        !matches!(self, Self::Jsonl | Self::Tsv | Self::Csv)
    }

    pub(super) fn vectors(self) -> Option<VectorFormat> {
        match self {
            Self::Npy => Some(VectorFormat::Npy),
            Self::Fvecs => Some(VectorFormat::Fvecs),
            Self::Fbin => Some(VectorFormat::Fbin),
            _ => None,
        }
    }
}

/// Returns the path without a final `.gz` or `.zst`. Only the bytes of a file decide whether it is compressed.
pub(super) fn without_compression(path: &Path) -> PathBuf {
    let extension = path.extension().map(|e| e.to_ascii_lowercase());
    match extension.as_ref().and_then(|e| e.to_str()) {
        Some("gz" | "zst") => path.with_extension(""),
        _ => path.to_owned(),
    }
}
