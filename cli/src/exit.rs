//! Exit codes and error messages: what happened, and what to do next.

use crate::out::say;
use crate::visible::visible;
use mopqdb::Error;
use std::io::ErrorKind;
use std::process::ExitCode;

/// Something failed.
pub const FAILED: u8 = 1;
/// The command line is wrong.
pub const USAGE: u8 = 2;
/// Data on disk are damaged.
pub const CORRUPT: u8 = 3;
/// Another process holds the lock.
pub const LOCKED: u8 = 4;
/// A separately installed component is missing.
pub const MISSING: u8 = 5;

/// A command line error that clap does not detect.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Returns a usage error.
pub fn usage(what: impl Into<String>) -> anyhow::Error {
    Usage(what.into()).into()
}

/// The database is damaged; the details are on stdout.
#[derive(Debug, thiserror::Error)]
#[error("{}", counted(*.0, "problem was found", "problems were found"))]
pub struct Damaged(pub usize);

/// A repair left damage as it was, because repairing it would lose data.
#[derive(Debug, thiserror::Error)]
#[error("{}", counted(*.0, "problem was left as it is", "problems were left as they are"))]
pub struct Unrepaired(pub usize);

/// Something could not be read, and the command continued without it. The details are on stdout.
#[derive(Debug, thiserror::Error)]
#[error("{}", counted(*.0, "part could not be read and is left out", "parts could not be read and are left out"))]
pub struct Lost(pub usize);

/// Another program failed and has reported why.
#[derive(Debug, thiserror::Error)]
#[error("it ended with exit code {0}")]
pub struct Child(pub u8);

fn counted(n: usize, one: &str, many: &str) -> String {
    let what = if n == 1 { one } else { many };
    format!("{n} {what}")
}

/// Prints an error with advice, and returns the exit code of its kind.
pub fn report(error: &anyhow::Error) -> ExitCode {
    // The reader of the output has closed the pipe (`mopqdb query ... | head`), which is not a failure.
    if error.chain().any(is_broken_pipe) {
        return ExitCode::SUCCESS;
    }
    if let Some(Child(code)) = error.downcast_ref() {
        return ExitCode::from(*code);
    }
    let words = in_words(error);
    let (what, pointer) = pointing(&words);
    say(what);
    for line in pointer {
        eprintln!("{}", visible(line));
    }
    if let Some(advice) = advice(error) {
        eprintln!("        {advice}");
    }
    ExitCode::from(code(error))
}

/// Returns the chain of causes, each once, because errors of the engine and of the formats include their cause.
pub(crate) fn in_words(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if words.is_empty() {
            words = cause;
        } else if !words.contains(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

/// Splits a message that ends with a line of input and a mark below it, as those about filters do. Both lines are printed
/// as lines, so that the mark is below its character.
fn pointing(words: &str) -> (&str, Vec<&str>) {
    let mut lines = words.rsplitn(3, '\n');
    match (lines.next(), lines.next(), lines.next()) {
        (Some(mark), Some(line), Some(what)) if mark.trim_start() == "^" => {
            (what, vec![line, mark])
        }
        _ => (words, Vec::new()),
    }
}

fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    let io = cause.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Returns the exit code of an error.
pub fn code(error: &anyhow::Error) -> u8 {
    if error.downcast_ref::<Usage>().is_some() {
        return USAGE;
    }
    let corrupt = error.is::<Damaged>() || error.is::<Unrepaired>() || error.is::<Lost>();
    if corrupt {
        return CORRUPT;
    }
    match cause::<Error>(error) {
        Some(Error::Corrupt(_)) => CORRUPT,
        Some(Error::Locked { .. }) => LOCKED,
        Some(Error::Missing { .. }) => MISSING,
        _ => FAILED,
    }
}

/// Returns what to do next, unless the error says so itself.
fn advice(error: &anyhow::Error) -> Option<&'static str> {
    if error.downcast_ref::<Usage>().is_some() {
        return Some("`mopqdb COMMAND --help` describes its arguments");
    }
    if error.downcast_ref::<Unrepaired>().is_some() {
        return Some(
            "`mopqdb repair DB --yes` continues without what can't be read; `mopqdb export DB DEST --format jsonl --salvage` exports what can",
        );
    }
    if error.downcast_ref::<Damaged>().is_some() {
        return Some("`mopqdb repair DB` repairs what can be repaired and deletes nothing");
    }
    if let Some(mopqdb_formats::Error::Io { source, .. }) = cause(error) {
        return refused(source);
    }
    match cause::<Error>(error)? {
        Error::Corrupt(_) => Some(
            "`mopqdb verify DB` lists what is damaged; `mopqdb repair DB` repairs what can be repaired",
        ),
        Error::OutcomeUnknown(_) => {
            Some("run the same command again; rows that exist already are not inserted twice")
        }
        Error::NoModel { .. } => {
            Some("`mopqdb models DB` lists its models; `mopqdb train DB` trains one")
        }
        Error::Incompatible { what, .. } if what == "not a mopqdb database" => {
            Some("`mopqdb create DB` creates one")
        }
        Error::Missing { remedy, .. } if !remedy.contains('`') => {
            Some("`mopqdb setup` installs the encoder library and the default encoder")
        }
        Error::NotFound { .. } => {
            Some("`mopqdb create DB` creates one; `mopqdb insert DB FILE` creates and fills one")
        }
        Error::Locked { .. } => Some(
            "only one process can write at a time: run this again when the other process has ended (`mopqdb insert --wait SECONDS` waits for it), or stop that process; query, get and other commands that only read work in the meantime",
        ),
        Error::Io { source, .. } => refused(source),
        _ => None,
    }
}

/// Returns what to do about an error of the operating system.
fn refused(source: &std::io::Error) -> Option<&'static str> {
    match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some(
            "free some space and run this again: `mopqdb prune DB` removes unused models, `mopqdb delete DB KEY` and then `mopqdb compact DB` remove rows; these commands work on a full disk",
        ),
        ErrorKind::PermissionDenied => {
            Some("check who owns the directory; queries need to read it, inserts to write it")
        }
        _ => None,
    }
}

/// Returns the first cause of this type.
fn cause<E: std::error::Error + 'static>(error: &anyhow::Error) -> Option<&E> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    fn not_there() -> mopqdb_formats::Error {
        mopqdb_formats::vectors::read_all("none.npy".as_ref()).unwrap_err()
    }

    #[test]
    fn each_kind_of_error_has_its_exit_code_at_any_depth() {
        let corrupt = Error::corrupt("f", "codes", 7, "checksum");
        let locked = Error::Locked {
            path: "LOCK".into(),
            holder: "mopqdb (1)".into(),
        };
        let missing = Error::Missing {
            what: "x".into(),
            remedy: "y".into(),
        };
        for (error, wanted) in [
            (anyhow::Error::from(corrupt), CORRUPT),
            (locked.into(), LOCKED),
            (missing.into(), MISSING),
            (Error::invalid("no").into(), FAILED),
            (not_there().into(), FAILED),
            (usage("-k 0"), USAGE),
            (Damaged(2).into(), CORRUPT),
            (Unrepaired(1).into(), CORRUPT),
            (Lost(1).into(), CORRUPT),
        ] {
            assert_eq!(code(&error), wanted, "{error}");
        }
        let deep = Err::<(), _>(Error::corrupt("f", "codes", 7, "x"))
            .context("querying")
            .unwrap_err();
        assert_eq!(code(&deep), CORRUPT);
        assert!(advice(&deep).unwrap().contains("repair"));
        let said = in_words(&not_there().into());
        assert!(
            said.starts_with("none.npy: opening: No such file"),
            "{said}"
        );
        assert_eq!(said.matches("No such file").count(), 1, "{said}");
        let missing = anyhow::Error::from(Error::NotFound { path: "f".into() });
        assert_eq!(in_words(&missing), "f: not found");
        assert!(advice(&missing).unwrap().contains("create"));
    }
}
