//! What tells a database from every other.

use super::content::{from_hex, to_hex};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;

/// Which database this is: drawn at random when it is created, and kept by its copies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DatabaseId(pub [u8; 16]);

impl DatabaseId {
    /// Draws an id.
    ///
    /// # Errors
    /// [`Error::Io`] if the operating system has no random numbers.
    pub(crate) fn random() -> Result<Self> {
        let mut id = [0; 16];
        getrandom::fill(&mut id)
            .map_err(|e| Error::io("drawing an id for", "the database")(io::Error::other(e)))?;
        Ok(Self(id))
    }
}

impl fmt::Display for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseId({self})")
    }
}

impl TryFrom<String> for DatabaseId {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        let id = from_hex(&text).map(Self);
        id.ok_or_else(|| Error::invalid(format!("{text:?} is not an id of 32 hex digits")))
    }
}

impl From<DatabaseId> for String {
    fn from(id: DatabaseId) -> Self {
        id.to_string()
    }
}
