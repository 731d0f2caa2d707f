//! Results on stdout: JSON if requested, a table that fits the terminal, or tab-separated fields in a pipe. Messages on
//! stderr.
//!
//! A terminal gets only [visible] text. A pipe gets the data unchanged, except that a row is always one line.

use crate::json;
use crate::settings::Settings;
use crate::visible::visible;
use anyhow::Result;
use console::{Alignment, Term, measure_text_width, pad_str, truncate_str};
use serde::Serialize;
use std::fmt::Display;
use std::io::{BufWriter, IsTerminal, Stdout, Write};

/// Prints a message on stderr, on one line. It may quote keys, paths and messages of other programs.
pub fn say(message: impl Display) {
    eprintln!("mopqdb: {}", visible(&message.to_string()));
}

/// The output for results.
#[derive(Debug)]
pub struct Out {
    stdout: BufWriter<Stdout>,
    json: bool,
    /// The width of the terminal in columns, if stdout is a terminal.
    width: Option<usize>,
}

impl Out {
    /// Creates the output for the settings and the terminal.
    pub fn new(settings: &Settings) -> Self {
        let stdout = std::io::stdout();
        let width = stdout.is_terminal().then(|| {
            let (_, columns) = Term::stdout().size();
            usize::from(columns).max(20)
        });
        Self {
            stdout: BufWriter::new(stdout),
            json: settings.json,
            width,
        }
    }

    /// Returns `true` if JSON was requested.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Returns `true` if stdout is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.width.is_some()
    }

    /// Prints one line.
    pub fn line(&mut self, line: impl AsRef<str>) -> Result<()> {
        let line = line.as_ref();
        let line = match self.is_terminal() {
            true => visible(line),
            false if line.contains(['\n', '\r']) => {
                line.replace('\n', "\\n").replace('\r', "\\r").into()
            }
            false => line.into(),
        };
        Ok(writeln!(self.stdout, "{line}")?)
    }

    /// Prints an object on one line.
    pub fn object(&mut self, object: &impl Serialize) -> Result<()> {
        json::write(&mut self.stdout, object)?;
        Ok(writeln!(self.stdout)?)
    }

    /// Prints rows of cells below their header, if they have one: aligned and cut to the width of a terminal, or one
    /// line with tabs in a pipe.
    pub fn table(&mut self, table: &Table) -> Result<()> {
        match self.width {
            Some(width) => write!(self.stdout, "{}", table.for_terminal(width))?,
            None => write!(self.stdout, "{}", table.for_pipe())?,
        }
        Ok(())
    }

    /// Flushes the output.
    pub fn flush(&mut self) -> Result<()> {
        Ok(self.stdout.flush()?)
    }
}

/// Rows of cells.
#[derive(Debug, Default)]
pub struct Table {
    headers: Vec<String>,
    /// Whether the column holds numbers, which are right-aligned.
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these columns. A name that begins with `>` is a column of numbers.
    pub fn new<S: AsRef<str>>(headers: &[S]) -> Self {
        Self {
            right: headers
                .iter()
                .map(|header| header.as_ref().starts_with('>'))
                .collect(),
            headers: headers
                .iter()
                .map(|header| header.as_ref().trim_start_matches('>').to_owned())
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.headers.len(), "a cell a column");
        self.rows.push(cells);
    }

    /// Returns the names of the columns, if there are any.
    fn header(&self) -> Option<&Vec<String>> {
        let named = self.headers.iter().any(|header| !header.is_empty());
        named.then_some(&self.headers)
    }

    fn for_pipe(&self) -> String {
        let mut text = String::new();
        for row in self.header().into_iter().chain(&self.rows) {
            let cells: Vec<String> = row.iter().map(|cell| escape(cell)).collect();
            text.push_str(&cells.join("\t"));
            text.push('\n');
        }
        text
    }

    fn for_terminal(&self, width: usize) -> String {
        let shown: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| row.iter().map(|cell| visible(cell).into_owned()).collect())
            .collect();
        let mut widths: Vec<usize> = self.headers.iter().map(|header| header.len()).collect();
        for row in &shown {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(measure_text_width(cell));
            }
        }
        // The last column takes the remaining width; others are limited to a third of the terminal.
        let last = widths.len() - 1;
        let mut left = width;
        for column in widths.iter_mut().take(last) {
            *column = (*column).min((width / 3).max(8));
            left = left.saturating_sub(*column + 2);
        }
        widths[last] = widths[last].min(left.max(8));

        let mut text = String::new();
        for row in self.header().into_iter().chain(&shown) {
            let mut line = String::new();
            for (n, cell) in row.iter().enumerate() {
                let cut = truncate_str(cell, widths[n], "…");
                let side = if self.right[n] {
                    Alignment::Right
                } else {
                    Alignment::Left
                };
                line.push_str(&pad_str(&cut, widths[n], side, None));
                if n < last {
                    line.push_str("  ");
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Escapes a field of a tab-separated line: tabs, line ends and backslashes are written as in C.
pub fn escape(field: &str) -> String {
    if !field.contains(['\t', '\n', '\r', '\\']) {
        return field.to_owned();
    }
    field
        .replace('\\', "\\\\")
        .replace('\t', "\\t")
        .replace('\n', "\\n")
        .replace('\r', "\\r")
}

/// Formats 1234567 as 1,234,567.
pub fn count(n: u64) -> String {
    indicatif::HumanCount(n).to_string()
}

/// Formats a count with its noun: 1 row, 2 rows.
pub fn plural(n: u64, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        _ => format!("{} {what}s", count(n)),
    }
}

/// Formats a size in bytes with a unit.
pub fn size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits() -> Table {
        let mut table = Table::new(&[">", ">score", "key", "text"]);
        table.row(vec![
            "1".into(),
            "0.5".into(),
            "a".into(),
            "a text\nof two lines, and long".into(),
        ]);
        table.row(vec![
            "10".into(),
            "-12.25".into(),
            "ключ\t2".into(),
            "漢字漢字漢字漢字".into(),
        ]);
        table
    }

    #[test]
    fn a_pipe_gets_the_header_tabs_and_complete_texts() {
        assert_eq!(
            hits().for_pipe(),
            "\tscore\tkey\ttext\n1\t0.5\ta\ta text\\nof two lines, and long\n10\t-12.25\tключ\\t2\t漢字漢字漢字漢字\n"
        );
    }

    #[test]
    fn a_table_without_names_has_no_header() {
        let mut table = Table::new(&[">", ""]);
        table.row(vec!["1".into(), "a\u{1b}b\u{202e}".into()]);
        assert_eq!(
            table.for_pipe(),
            "1\ta\u{1b}b\u{202e}\n",
            "the data as they are"
        );
        assert_eq!(table.for_terminal(40), "1  a�b�\n");
    }

    #[test]
    fn a_terminal_gets_columns_cut_to_its_width() {
        let text = hits().for_terminal(34);
        assert_eq!(
            text,
            "     score  key     text\n 1     0.5  a       a text of two…\n10  -12.25  ключ 2  漢字漢字漢字…\n".to_owned()
        );
        for line in text.lines() {
            assert!(measure_text_width(line) <= 34, "{line}");
        }
    }
}
