//! The one error of the engine: few variants, by what a caller can do about them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The file whose lock a rebuild holds while it prepares; the message of [`Error::Locked`] tells the two locks apart.
pub(crate) const PREPARE_LOCK: &str = "prepare.lock";

/// What every fallible function of the engine returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, by what a caller can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused: no space, no permission, a failing disk.
    #[error("{}: {doing}: {source}", path.display())]
    Io {
        /// What we were doing, in a verb: "writing", "syncing", "opening".
        doing: &'static str,
        /// The file or directory concerned.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },

    /// Bytes on disk are not what was written. Run `verify` to see how much, `repair` to mend what can be.
    #[error("{0}")]
    Corrupt(Box<Corruption>),

    /// The file is of a version or kind that this program does not read.
    #[error("{}: {what}", path.display())]
    Incompatible {
        /// The file concerned.
        path: PathBuf,
        /// Which version or kind was found, and which are served.
        what: String,
    },

    /// A model, its encoder or its files can't be used as asked.
    #[error("{0}")]
    Model(String),

    /// The caller's input can't be accepted; nothing was changed. The text says what to do instead.
    #[error("{0}")]
    Invalid(String),

    /// There is no database here.
    #[error("{}: not found", path.display())]
    NotFound {
        /// Where it was looked for.
        path: PathBuf,
    },

    /// Another process holds the lock that this needs. A `Reader` needs none.
    #[error("{} by {holder}", locked(path))]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Who holds it: program and process id, as it wrote them.
        holder: String,
    },

    /// A part that is installed apart is missing. The text names the command that gets it.
    #[error("{what}; {remedy}")]
    Missing {
        /// The missing part.
        what: String,
        /// How to get it.
        remedy: String,
    },

    /// A commit whose second witness could not be written: it may or may not be found on the next open.
    #[error("outcome unknown: {0}; reopen the database before writing to it again")]
    OutcomeUnknown(String),
}

/// Names the database, not its lock file, which means nothing to those who never made one.
fn locked(lock: &Path) -> String {
    let purpose = match lock.file_name() {
        Some(name) if name == PREPARE_LOCK => "rebuilding",
        _ => "writing",
    };
    let dir = lock.parent().unwrap_or(lock).display();
    format!("{dir} is locked for {purpose}")
}

/// Where bytes were found that are not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// The damaged file.
    pub file: PathBuf,
    /// The part of it, by the name that FORMAT.md gives it.
    pub section: String,
    /// Offset in the file of the first byte of the part that failed its check.
    pub offset: u64,
    /// What was found and what was expected.
    pub detail: String,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            section,
            offset,
            detail,
        } = self;
        write!(
            f,
            "{}: section {section} is damaged at byte {offset}: {detail}",
            file.display()
        )
    }
}

impl Error {
    /// Whether a file is not there, or no longer.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether there was no room on the disk, or the user may take no more of it.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }

    /// The same failure, of a step after which nobody knows what reached the disk.
    pub(crate) fn outcome_unknown(self) -> Self {
        match self {
            known @ Self::OutcomeUnknown(_) => known,
            other => Self::OutcomeUnknown(other.to_string()),
        }
    }

    /// What went wrong, without saying that the outcome is unknown: for an error that says so itself.
    pub(crate) fn cause(&self) -> String {
        match self {
            Self::OutcomeUnknown(why) => why.clone(),
            other => other.to_string(),
        }
    }

    /// An I/O error with its path, for `map_err`.
    pub fn io(doing: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Self::Io {
            doing,
            path,
            source,
        }
    }

    /// Damaged bytes at a place.
    pub fn corrupt(
        file: impl Into<PathBuf>,
        section: impl Into<String>,
        offset: u64,
        detail: impl Into<String>,
    ) -> Self {
        Self::Corrupt(Box::new(Corruption {
            file: file.into(),
            section: section.into(),
            offset,
            detail: detail.into(),
        }))
    }

    /// A directory that holds no database.
    pub(crate) fn not_a_database(dir: impl Into<PathBuf>) -> Self {
        Self::Incompatible {
            path: dir.into(),
            what: "not a mopqdb database; `mopqdb create` makes one".into(),
        }
    }

    /// Input that can't be accepted, with what to do instead.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(what.into())
    }
}

/// Returns `true` if a call failed for want of room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}
