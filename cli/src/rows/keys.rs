//! `--keys FILE`: one key per line, for files whose rows have none.

use super::open::open_lines;
use super::{BadRow, Format, Lines, Places, Source};
use anyhow::Result;
use std::path::Path;

/// Keys for numbered rows, read from another file.
pub struct KeyFile {
    lines: Lines,
}

impl KeyFile {
    /// Opens the file.
    pub fn open(path: &Path) -> Result<Self> {
        let source = Source::File(path.to_owned());
        Ok(Self {
            lines: open_lines(&source, Format::Txt)?,
        })
    }

    /// Returns how its lines are named in messages.
    pub fn places(&self) -> Places {
        Places::Lines(self.lines.name().to_owned())
    }

    /// Returns the line of the key that was read last.
    pub fn number(&self) -> u64 {
        self.lines.number()
    }

    /// Returns the next row's key. A row without a line in the file is an error, as are all rows after it.
    pub fn next_key(&mut self, row: &str) -> Result<Result<String, BadRow>> {
        match self.lines.read()? {
            Some(Ok("")) => Ok(Err(BadRow {
                place: self.lines.place(),
                what: "the key is empty".into(),
            })),
            Some(Ok(key)) => Ok(Ok(key.to_owned())),
            Some(Err(bad)) => Ok(Err(bad.into())),
            None => anyhow::bail!(
                "{} has {} keys, but there is another row, {row}; give one key per row",
                self.lines.name(),
                self.lines.number()
            ),
        }
    }

    /// Checks, after the last row, that no key is left over.
    pub fn expect_end(&mut self) -> Result<()> {
        match self.lines.read()? {
            None => Ok(()),
            Some(_) => anyhow::bail!(
                "{} has more keys than there are rows, from line {} on; all rows were inserted, but do they have the right keys?",
                self.lines.name(),
                self.lines.number()
            ),
        }
    }
}
