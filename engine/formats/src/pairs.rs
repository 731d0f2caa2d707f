//! Pairs of a query and a right answer: one per line, `query TAB right answer`.
//!
//! Lines with the same query are one query with several right answers. The query is a text, or the number of a row in a
//! file of vectors. The caller looks up the answer, which is a row's key or its text. Every error names file and line.
//!
//! ```
//! use mopqdb_formats::lines::Lines;
//! use mopqdb_formats::pairs::{Pairs, Queries};
//!
//! let file = "red\tapple\ngreen\tpear\nred\tcherry\n";
//! let pairs = Pairs::read(&mut Lines::new("pairs.tsv", Box::new(file.as_bytes())), Queries::Texts)?;
//! assert_eq!(pairs.queries, ["red", "green"]);
//! assert_eq!((pairs.lines[2].query, &*pairs.lines[2].answer), (0, "cherry"));
//! # Ok::<(), mopqdb_formats::Error>(())
//! ```

use crate::error::{Error, Result};
use crate::lines::Lines;
use std::collections::HashMap;

/// The meaning of the first column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queries<'a> {
    /// A text.
    Texts,
    /// The number of a row of a file of vectors, from 0.
    Rows {
        /// The number of rows in the file.
        of: usize,
        /// The name of the file in messages.
        file: &'a str,
    },
}

/// The meaning of the second column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// The key of a row.
    Keys,
    /// The text of a row.
    Texts,
}

/// The pairs of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pairs {
    /// The name of the file in messages.
    pub name: String,
    /// The distinct queries, which are texts or row numbers as written, in the order of their first lines.
    pub queries: Vec<String>,
    /// One pair per line that is not empty, in the order of the file.
    pub lines: Vec<Pair>,
}

/// A line with a query and a right answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The index of its query in [`Pairs::queries`].
    pub query: usize,
    /// The right answer.
    pub answer: String,
    /// The number of the line, from 1.
    pub number: u64,
}

impl Pairs {
    /// Reads pairs to the end of the file.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Invalid`] for the first line that is not a pair, and for a file without
    /// pairs.
    pub fn read(lines: &mut Lines, queries: Queries<'_>) -> Result<Self> {
        let mut pairs = Self {
            name: lines.name().to_owned(),
            queries: Vec::new(),
            lines: Vec::new(),
        };
        let mut seen: HashMap<String, usize> = HashMap::new();
        while let Some(line) = lines.read()? {
            let line = line?;
            if line.is_empty() {
                continue;
            }
            let split = split(line).map(|(query, answer)| (query.to_owned(), answer.to_owned()));
            let (query, answer) = split.map_err(|what| Error::invalid(lines.place(), what))?;
            let query = match seen.get(&query) {
                Some(at) => *at,
                None => {
                    check_row(&query, queries)
                        .map_err(|what| Error::invalid(lines.place(), what))?;
                    pairs.queries.push(query.clone());
                    seen.insert(query, pairs.queries.len() - 1);
                    pairs.queries.len() - 1
                }
            };
            pairs.lines.push(Pair {
                query,
                answer,
                number: lines.number(),
            });
        }
        match pairs.lines.is_empty() {
            true => Err(Error::invalid(
                pairs.name,
                "the file has no pairs; a line is `query TAB right answer`",
            )),
            false => Ok(pairs),
        }
    }

    /// Reports pairs whose answers no row has, if there are any.
    ///
    /// They are an error, unless `skip` asks to leave them out; then a message with their number is returned. If no
    /// other pairs remain and no query has a right row from another source (`nothing_left`), that is an error even
    /// then.
    pub fn check_missing(
        &self,
        missing: impl Fn(&str) -> bool,
        answers: Answers,
        nothing_left: bool,
        skip: bool,
    ) -> Result<Option<String>> {
        let mut missed = self.lines.iter().filter(|line| missing(&line.answer));
        let Some(first) = missed.next() else {
            return Ok(None);
        };
        let (gone, all) = (missed.count() + 1, self.lines.len());
        let place = format!("{}:{}", self.name, first.number);
        let column = match answers {
            Answers::Keys => "key",
            Answers::Texts => "text",
        };
        let what = format!(
            "no row has the {column} {:?} ({gone} of {all} lines)",
            shorten(&first.answer)
        );
        let remedy = match (nothing_left && gone == all, answers) {
            (true, Answers::Keys) => "insert it first",
            (true, Answers::Texts) => {
                "insert it first, or give --key-ids if the second column is keys"
            }
            _ if skip => return Ok(Some(format!("{place}: {what}; such lines are left out"))),
            _ => "insert it first, or leave such lines out with --skip-missing",
        };
        Err(Error::invalid(place, format!("{what}; {remedy}")))
    }
}

/// Splits a line into query and answer. Tabs after the first belong to the answer.
fn split(line: &str) -> Result<(&str, &str), String> {
    let (query, answer) = line
        .split_once('\t')
        .ok_or("has no tab; a line is `query TAB right answer`")?;
    match (query, answer) {
        ("", _) => Err("the query is empty".into()),
        (_, "") => Err("the answer is empty".into()),
        both => Ok(both),
    }
}

/// Returns an error unless the file of vectors has this row.
fn check_row(query: &str, queries: Queries<'_>) -> Result<(), String> {
    let Queries::Rows { of, file } = queries else {
        return Ok(());
    };
    match query.parse::<usize>() {
        Err(error) => Err(format!("{query:?} is not a row number of {file}: {error}")),
        Ok(row) if row >= of => Err(format!(
            "row {row} is not in {file}, which has {of} rows (the first is 0)"
        )),
        Ok(_) => Ok(()),
    }
}

/// Returns enough of a text to recognise it.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &str, queries: Queries<'_>) -> Result<Pairs> {
        let content = std::io::Cursor::new(content.to_owned());
        Pairs::read(&mut Lines::new("p.tsv", Box::new(content)), queries)
    }

    fn refusal(content: &str, queries: Queries<'_>) -> String {
        read(content, queries)
            .expect_err("it must be refused")
            .to_string()
    }

    #[test]
    fn lines_with_equal_queries_form_one_query() {
        let pairs = read("a\tx\nb\ty\r\n\na\tz\tz\n", Queries::Texts).unwrap();
        assert_eq!(pairs.queries, ["a", "b"]);
        let lines: Vec<_> = (pairs.lines.iter())
            .map(|line| (line.query, &*line.answer, line.number))
            .collect();
        assert_eq!(lines, [(0, "x", 1), (1, "y", 2), (0, "z\tz", 4)]);
    }

    #[test]
    fn a_byte_order_mark_is_not_part_of_the_first_query() {
        let pairs = read("\u{feff}a\tx\na\ty\n", Queries::Texts).unwrap();
        assert_eq!(pairs.queries, ["a"]);
    }

    #[test]
    fn an_error_names_the_bad_line() {
        let no_tab = "p.tsv:2: has no tab; a line is `query TAB right answer`";
        for (content, said) in [
            (
                "",
                "p.tsv: the file has no pairs; a line is `query TAB right answer`",
            ),
            (
                "\n\n",
                "p.tsv: the file has no pairs; a line is `query TAB right answer`",
            ),
            ("a\tx\nb\n", no_tab),
            ("a\tx\n\tx\n", "p.tsv:2: the query is empty"),
            ("a\t\n", "p.tsv:1: the answer is empty"),
        ] {
            assert_eq!(refusal(content, Queries::Texts), said);
        }
    }

    #[test]
    fn row_numbers_must_exist_in_the_file() {
        let queries = Queries::Rows {
            of: 2,
            file: "--queries",
        };
        assert_eq!(read("1\tx\n", queries).unwrap().queries, ["1"]);
        assert_eq!(
            refusal("0\tx\n2\tx\n", queries),
            "p.tsv:2: row 2 is not in --queries, which has 2 rows (the first is 0)"
        );
        let said = refusal("one\tx\n", queries);
        assert!(
            said.starts_with("p.tsv:1: \"one\" is not a row number of --queries: invalid digit"),
            "{said}"
        );
    }

    #[test]
    fn missing_answers_are_refused_or_counted() {
        let pairs = read("a\tx\nb\ty\na\ty\n", Queries::Texts).unwrap();
        let check = |nothing_left, skip| {
            let missing = |answer: &str| answer == "y";
            pairs.check_missing(missing, Answers::Texts, nothing_left, skip)
        };
        let what = "p.tsv:2: no row has the text \"y\" (2 of 3 lines)";
        assert_eq!(
            check(false, true).unwrap(),
            Some(format!("{what}; such lines are left out"))
        );
        assert_eq!(
            check(false, false).unwrap_err().to_string(),
            format!("{what}; insert it first, or leave such lines out with --skip-missing")
        );
        assert!(check(true, true).is_ok(), "one line is left");
        let all = pairs.check_missing(|_| true, Answers::Texts, true, true);
        assert_eq!(
            all.unwrap_err().to_string(),
            "p.tsv:1: no row has the text \"x\" (3 of 3 lines); insert it first, or give --key-ids if the second column is keys"
        );
        let none = pairs.check_missing(|_| false, Answers::Keys, false, false);
        assert_eq!(none.unwrap(), None);
    }
}
