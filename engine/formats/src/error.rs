//! Errors of reading and writing files.

use std::io;
use std::path::{Path, PathBuf};

/// The result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system reported an error.
    #[error("{}: {doing}: {source}", path.display())]
    Io {
        /// The failed step, as a verb: "opening", "reading", "writing".
        doing: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },

    /// A stream could not be read to its end.
    #[error("reading {name}: {source}")]
    Read {
        /// The name of the stream in messages: a file, or `stdin`.
        name: String,
        /// The error of the operating system or of a decompressor.
        source: io::Error,
    },

    /// The content does not follow the file's format, or the format can't hold what was to be written.
    #[error("{place}: {what}")]
    Invalid {
        /// The file and, if it has lines, the line: `pairs.tsv:7`.
        place: String,
        /// What is wrong, and what to do about it.
        what: String,
    },
}

impl Error {
    /// Returns a function for `map_err` that adds the step and the path to an I/O error.
    pub(crate) fn io(
        doing: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Self::Io {
            doing,
            path,
            source,
        }
    }

    /// Returns an error for a failed read of a stream.
    pub(crate) fn read(name: impl Into<String>, source: io::Error) -> Self {
        Self::Read {
            name: name.into(),
            source,
        }
    }

    /// Returns an error for something wrong at a place.
    pub(crate) fn invalid(place: impl Into<String>, what: impl ToString) -> Self {
        Self::Invalid {
            place: place.into(),
            what: what.to_string(),
        }
    }
}
