//! The engine's error type. Its variants are grouped by what a caller can do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The file whose lock a rebuild holds while it prepares; the message of [`Error::Locked`] distinguishes the two locks.
pub(crate) const PREPARE_LOCK: &str = "prepare.lock";

/// The result of every fallible function of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the engine. Variants are grouped by what a caller can do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused: no space, no permission, a failing disk.
    #[error("{}: {doing}: {source}", path.display())]
    Io {
        /// The operation that failed, as a verb: "writing", "syncing", "opening".
        doing: &'static str,
        /// The file or directory concerned.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },

    /// Bytes on disk are not what was written. `verify` lists the damage, `repair` repairs what it can.
    #[error("{0}")]
    Corrupt(Box<Corruption>),

    /// The file is of a version or kind that this program does not read.
    #[error("{}: {what}", path.display())]
    Incompatible {
        /// The file concerned.
        path: PathBuf,
        /// The version or kind that was found, and the supported ones.
        what: String,
    },

    /// A model, its encoder or its files can't be used in this way.
    #[error(transparent)]
    Model(Problem),

    /// The caller's input can't be accepted; nothing was changed. The text says what to do instead.
    #[error("{0}")]
    Invalid(String),

    /// The directory does not contain a database.
    #[error("{}: not found", path.display())]
    NotFound {
        /// The path that was searched.
        path: PathBuf,
    },

    /// Another process holds the lock that this needs. A `Reader` needs none.
    #[error("{} by {holder}", locked(path))]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The holder: program and process id, as it wrote them.
        holder: String,
    },

    /// A separately installed component is missing. The text names the command that installs it.
    #[error("{what}; {remedy}")]
    Missing {
        /// The missing part.
        what: String,
        /// How to get it.
        remedy: String,
    },

    /// The database has no such model.
    #[error("this database has no model {wanted}")]
    NoModel {
        /// The requested model.
        wanted: String,
    },

    /// The caller stopped the work. What was done is kept or undone, as the text says; nothing is partially done.
    #[error("stopped: {0}")]
    Cancelled(&'static str),

    /// The second copy of a commit could not be written. The next open may or may not find the commit.
    #[error("outcome unknown: {0}; reopen the database before writing to it again")]
    OutcomeUnknown(String),
}

/// What is wrong with a model. Its source is the error of the library that found it, if there is one.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct Problem {
    what: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Returns the database that a lock file belongs to; users do not know lock files.
fn locked(lock: &Path) -> String {
    let purpose = match lock.file_name() {
        Some(name) if name == PREPARE_LOCK => "rebuilding",
        _ => "writing",
    };
    let dir = lock.parent().unwrap_or(lock).display();
    format!("{dir} is locked for {purpose}")
}

/// The place of bytes that differ from those that were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// The damaged file.
    pub file: PathBuf,
    /// The damaged part of it, by its name in FORMAT.md.
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
    /// Returns `true` if a file does not exist (any more).
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Returns `true` if the disk or the user's quota is full.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }

    /// Turns an error into `OutcomeUnknown`: it is not known what reached the disk.
    pub(crate) fn outcome_unknown(self) -> Self {
        match self {
            known @ Self::OutcomeUnknown(_) => known,
            other => Self::OutcomeUnknown(other.to_string()),
        }
    }

    /// Returns the message without the note that the outcome is unknown.
    pub(crate) fn cause(&self) -> String {
        match self {
            Self::OutcomeUnknown(why) => why.clone(),
            other => other.to_string(),
        }
    }

    /// Returns a function for `map_err` that adds the operation and the path to an I/O error.
    pub fn io(doing: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Self::Io {
            doing,
            path,
            source,
        }
    }

    /// Returns a [`Corrupt`](Self::Corrupt) error.
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

    /// Returns a [`NotFound`](Self::NotFound) error.
    pub(crate) fn not_a_database(dir: impl Into<PathBuf>) -> Self {
        Self::Incompatible {
            path: dir.into(),
            what: "not a mopqdb database".into(),
        }
    }

    /// Returns a [`Model`](Self::Model) error.
    pub(crate) fn model(what: impl Into<String>) -> Self {
        Self::Model(Problem {
            what: what.into(),
            source: None,
        })
    }

    /// Returns a [`Model`](Self::Model) error that another library found.
    pub(crate) fn model_because(
        what: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Model(Problem {
            what: what.into(),
            source: Some(source.into()),
        })
    }

    /// Names the place where a model's problem was found.
    pub(crate) fn of_model_at(self, path: &Path) -> Self {
        match self {
            Self::Model(problem) => Self::Model(Problem {
                what: format!("{}: {}", path.display(), problem.what),
                source: problem.source,
            }),
            other => other,
        }
    }

    /// Returns the error of an [encoder](crate::encoder::Encoder) that a program brings: a [`Model`](Self::Model) error with
    /// the program's own as its source.
    pub fn encoder(
        what: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::model_because(what, source)
    }

    /// Returns an [`Invalid`](Self::Invalid) error; `what` says what to do instead.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(what.into())
    }
}

/// Returns `true` if a call failed because the disk is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}
