//! `--keys FILE`: a key a line, for files whose rows have none.

use super::{BadRow, Lines, Places};
use anyhow::{Context, Result};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// Keys for numbered rows, read beside them.
pub struct KeyFile {
    lines: Lines,
}

impl KeyFile {
    /// Opens the file.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
        let lines = Lines::new(path.display().to_string(), Box::new(BufReader::new(file)));
        Ok(Self { lines })
    }

    /// How its lines are named in messages.
    pub fn places(&self) -> Places {
        Places::Lines(self.lines.name().to_owned())
    }

    /// The line of the key that was read last.
    pub fn number(&self) -> u64 {
        self.lines.number()
    }

    /// The next row's key. Rows without a line of their own can't be taken, nor can any after them.
    pub fn next_key(&mut self, row: &str) -> Result<Result<String, BadRow>> {
        match self.lines.read()? {
            Some(Ok("")) => Ok(Err(BadRow {
                place: self.lines.place(),
                what: "the key is empty".into(),
            })),
            Some(Ok(key)) => Ok(Ok(key.to_owned())),
            Some(Err(bad)) => Ok(Err(bad)),
            None => anyhow::bail!(
                "{} has {} keys, and {row} is one row more; give a key a row",
                self.lines.name(),
                self.lines.number()
            ),
        }
    }

    /// After the last row: there must be no key left over.
    pub fn expect_end(&mut self) -> Result<()> {
        match self.lines.read()? {
            None => Ok(()),
            Some(_) => anyhow::bail!(
                "{} goes on after the last row's key, at line {}; all rows were inserted, do they have the right keys?",
                self.lines.name(),
                self.lines.number()
            ),
        }
    }
}
