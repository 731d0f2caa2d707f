//! Reading the numbered lines of a file, in bounded memory.

use crate::error::{Error, Result};
use std::fmt;
use std::io::BufRead;

/// The longest line that is read: far above the longest text of a row, however it is escaped.
pub const MAX_LINE: usize = 512 << 20;

/// A line that can't be used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// The file and the line.
    pub place: String,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

impl std::error::Error for BadLine {}

impl From<BadLine> for Error {
    fn from(bad: BadLine) -> Self {
        Self::invalid(bad.place, bad.what)
    }
}

/// Reads the lines of a text file from its start to its end.
pub struct Lines {
    name: String,
    source: Box<dyn BufRead + Send>,
    number: u64,
    longest: usize,
    line: Vec<u8>,
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Lines");
        let debug = debug.field("name", &self.name);
        debug.field("number", &self.number).finish_non_exhaustive()
    }
}

impl Lines {
    /// Reads `source`; `name` is used in messages.
    pub fn new(name: impl Into<String>, source: Box<dyn BufRead + Send>) -> Self {
        Self::with_longest(name, source, MAX_LINE)
    }

    /// Like [`new`](Self::new), with another maximum length.
    pub fn with_longest(
        name: impl Into<String>,
        source: Box<dyn BufRead + Send>,
        longest: usize,
    ) -> Self {
        Self {
            name: name.into(),
            source,
            number: 0,
            longest,
            line: Vec::new(),
        }
    }

    /// Returns the number of the line that was read last; the first is 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the name of the file, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns `true` if the line that was read last begins with this byte. Also works for a line that was too long.
    pub fn begins_with(&self, byte: u8) -> bool {
        self.line.trim_ascii_start().first() == Some(&byte)
    }

    /// Returns the file and line that was read last, for messages.
    pub fn place(&self) -> String {
        format!("{}:{}", self.name, self.number)
    }

    /// Returns the next line without its line end, or what is wrong with it; `None` at the end.
    ///
    /// After an outer error (of the disk) nothing more can be read; after an inner one the next line can be.
    pub fn read(&mut self) -> Result<Option<Result<&str, BadLine>>> {
        self.line.clear();
        let mut too_long = false;
        let mut any = false;
        loop {
            let buffer = match self.source.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Error::read(&self.name, error)),
            };
            if buffer.is_empty() {
                break;
            }
            any = true;
            let end = buffer.iter().position(|&byte| byte == b'\n');
            let part = &buffer[..end.unwrap_or(buffer.len())];
            too_long |= self.line.len() + part.len() > self.longest;
            if !too_long {
                self.line.extend_from_slice(part);
            }
            let used = end.map_or(buffer.len(), |end| end + 1);
            self.source.consume(used);
            if end.is_some() {
                break;
            }
        }
        if !any {
            return Ok(None);
        }
        self.number += 1;
        let bad = |what: String| BadLine {
            place: format!("{}:{}", self.name, self.number),
            what,
        };
        if too_long {
            let longest = self.longest;
            return Ok(Some(Err(bad(format!(
                "the line is longer than {longest} bytes"
            )))));
        }
        let mut line = &self.line[..];
        if self.number == 1 {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        line = line.strip_suffix(b"\r").unwrap_or(line);
        Ok(Some(std::str::from_utf8(line).map_err(|error| {
            bad(format!(
                "byte {} of the line is not UTF-8",
                error.valid_up_to() + 1
            ))
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Cursor, Read};

    #[test]
    fn a_line_above_the_limit_is_one_bad_line_in_bounded_memory() {
        let long = std::io::repeat(b'x')
            .take(10 << 20)
            .chain(&b"\nshort\n"[..]);
        let mut lines = Lines::with_longest("f", Box::new(BufReader::new(long)), 1000);
        let bad = lines.read().unwrap().unwrap().unwrap_err();
        assert_eq!(bad.to_string(), "f:1: the line is longer than 1000 bytes");
        assert_eq!(lines.read().unwrap().unwrap().unwrap(), "short");
        assert!(lines.read().unwrap().is_none());
    }

    #[test]
    fn bytes_that_are_not_utf8_are_a_bad_line_of_their_own() {
        let mut lines = Lines::new("f", Box::new(Cursor::new(b"ab\xff\nok")));
        let bad = lines.read().unwrap().unwrap().unwrap_err();
        assert_eq!(bad.to_string(), "f:1: byte 3 of the line is not UTF-8");
        assert_eq!(lines.read().unwrap().unwrap().unwrap(), "ok");
    }
}
