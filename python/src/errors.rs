//! The engine's errors as the exceptions of `mopqdb.Error`'s tree, which `python/mopqdb/_errors.py` defines.

use mopqdb::Error;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::error::Error as _;

/// Returns an exception of the tree, by the name of its class.
fn named(py: Python<'_>, class: &str, message: impl Into<String>) -> PyErr {
    let made = (py.import("mopqdb._errors"))
        .and_then(|module| module.getattr(class))
        .and_then(|class| class.call1((message.into(),)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(why) => why,
    }
}

/// Returns the exception for a value that can't be accepted.
pub(crate) fn invalid(py: Python<'_>, message: impl Into<String>) -> PyErr {
    named(py, "InvalidError", message)
}

/// Returns the exception for a value of a wrong type, which is a `TypeError` too.
pub(crate) fn wrong_type(py: Python<'_>, message: impl Into<String>) -> PyErr {
    named(py, "InvalidTypeError", message)
}

/// Returns the exception for a panic, which is a bug of the engine.
pub(crate) fn panicked(py: Python<'_>, message: &str) -> PyErr {
    let message = format!("a bug in mopqdb: {message}; please report it");
    named(py, "Error", message)
}

/// Returns the exception for an error of the engine.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    // What an encoder of the program's own raised comes back as it was raised.
    let raised = error.source().and_then(|source| source.downcast_ref());
    if let Some(raised) = raised {
        return PyErr::clone_ref(raised, py);
    }
    let exception = named(py, class(error), message(error));
    // Attributes are a help; an exception without them still says everything.
    let _ = describe(exception.value(py), error);
    exception
}

fn class(error: &Error) -> &'static str {
    match error {
        Error::Io { .. } => "IoError",
        Error::Corrupt(_) => "CorruptError",
        Error::Incompatible { .. } => "IncompatibleError",
        Error::Model(_) => "ModelError",
        Error::Invalid(_) => "InvalidError",
        Error::NotFound { .. } | Error::NoModel { .. } => "NotFoundError",
        Error::Locked { .. } => "LockedError",
        Error::Missing { .. } => "MissingPartError",
        Error::Cancelled(_) => "Cancelled",
        Error::OutcomeUnknown(_) => "OutcomeUnknownError",
        _ => "Error",
    }
}

fn message(error: &Error) -> String {
    match error {
        Error::Missing { what, remedy } => {
            format!("{what}; run `python -m mopqdb setup`, or {remedy}")
        }
        other => other.to_string(),
    }
}

/// Adds what a program may want to know without reading the message.
fn describe(exception: &Bound<'_, PyAny>, error: &Error) -> PyResult<()> {
    match error {
        Error::Io { path, source, .. } => {
            exception.setattr("errno", source.raw_os_error())?;
            exception.setattr("filename", path)
        }
        Error::Corrupt(damage) => {
            exception.setattr("file", &damage.file)?;
            exception.setattr("section", &damage.section)?;
            exception.setattr("offset", damage.offset)
        }
        Error::Locked { holder, .. } => exception.setattr("holder", holder),
        _ => Ok(()),
    }
}

/// Returns the exception of a part, with its place before the message.
pub(crate) fn within(py: Python<'_>, place: &str, why: &PyErr) -> PyErr {
    let message = format!("{place}: {}", why.value(py));
    match why.is_instance_of::<PyTypeError>(py) {
        true => wrong_type(py, message),
        false => invalid(py, message),
    }
}
