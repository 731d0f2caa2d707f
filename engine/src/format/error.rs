//! Errors of file contents.

use super::{Kind, VERSION};
use crate::Error;
use std::path::Path;

/// What is wrong with the bytes of a file, and where. It does not name the file; [`FormatError::at`] adds the name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The first bytes are not those of a mopqdb file.
    #[error("the file does not begin as a mopqdb file does")]
    NotOurs,
    /// The header is valid, but of another kind of file.
    #[error("this is a file of kind {}, where {expected} was expected", .found.escape_ascii())]
    Kind {
        /// The kind found.
        found: [u8; 4],
        /// The kind expected.
        expected: Kind,
    },
    /// The header is valid, but of a version that this program does not know.
    #[error(
        "format version {found} is not known to this program, which reads versions 1 to {VERSION}; use a newer one"
    )]
    Version {
        /// The version found.
        found: u32,
    },
    /// The file ends before one of its parts does.
    #[error("it ends at byte {end}, but the file has {len} bytes")]
    Truncated {
        /// The section.
        section: &'static str,
        /// Where the part ends.
        end: u64,
        /// Where the file ends.
        len: u64,
    },
    /// The bytes differ from those that were written.
    #[error("the checksum is {computed:016x}, but {stored:016x} was written")]
    Checksum {
        /// The section.
        section: &'static str,
        /// The position of the first byte under this checksum.
        offset: u64,
        /// The checksum in the file.
        stored: u64,
        /// The checksum of the bytes found.
        computed: u64,
    },
    /// A byte between sections is not zero.
    #[error("a byte after its end is not zero")]
    Padding {
        /// The part before the byte.
        section: &'static str,
        /// The position of the byte.
        offset: u64,
    },
    /// The checksum is right, but the values are not valid.
    #[error("{what}")]
    Malformed {
        /// The section.
        section: &'static str,
        /// The position of the invalid value.
        offset: u64,
        /// What was found and what was expected.
        what: String,
    },
}

impl FormatError {
    /// Returns a [`Malformed`](Self::Malformed) error.
    pub fn malformed(section: &'static str, offset: u64, what: impl Into<String>) -> Self {
        Self::Malformed {
            section,
            offset,
            what: what.into(),
        }
    }

    /// Returns the engine's error for the file of this name.
    pub fn at(self, path: &Path) -> Error {
        let (section, offset) = match &self {
            Self::Kind { .. } | Self::Version { .. } => {
                return Error::Incompatible {
                    path: path.to_path_buf(),
                    what: self.to_string(),
                };
            }
            Self::NotOurs => ("HEADER", 0),
            Self::Truncated { section, len, .. } => (*section, *len),
            Self::Checksum {
                section, offset, ..
            }
            | Self::Padding { section, offset }
            | Self::Malformed {
                section, offset, ..
            } => (*section, *offset),
        };
        Error::corrupt(path, section, offset, self.to_string())
    }
}
