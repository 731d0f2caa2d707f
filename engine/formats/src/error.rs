//! Errors of reading and writing files.

use std::io;
use std::path::{Path, PathBuf};

/// What every fallible function of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{}: {doing}: {source}", path.display())]
    Io {
        /// The failed step, in a verb: "opening", "reading", "writing".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },

    /// A stream could not be read to its end.
    #[error("reading {name}: {source}")]
    Read {
        /// What messages call the stream: a file, or `stdin`.
        name: String,
        /// The operating system's answer, or what a decompressor found.
        source: io::Error,
    },

    /// The file is not what its format asks for, or its format can't hold what was to be written.
    #[error("{place}: {what}")]
    Invalid {
        /// The file, and where it has lines the line: `pairs.tsv:7`.
        place: String,
        /// What is wrong there, and what to do about it.
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

    /// Something wrong at a place.
    pub(crate) fn invalid(place: impl Into<String>, what: impl ToString) -> Self {
        Self::Invalid {
            place: place.into(),
            what: what.to_string(),
        }
    }
}
