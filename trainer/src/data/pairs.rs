//! Pairs of a query and a key that answers it, read from TSV and looked up in the [`Corpus`].
//!
//! There are three kinds of lines: `query TAB key text`, `query TAB key` (`--key-ids`), and `row number TAB key` if the
//! queries are vectors in a file. Every error names file and line.

use std::fs::File;
use std::io::{BufReader, Cursor};
use std::path::Path;

use anyhow::{Context, Result};
use mopqdb_formats::lines::Lines;
use mopqdb_formats::pairs::{self, Answers, Queries};

use super::Corpus;

/// The meaning of the second column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyColumn {
    /// The key's text.
    Text,
    /// The key.
    Id,
}

/// The meaning of the first column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryColumn {
    /// The query's text.
    Text,
    /// The number of a row in a file of query vectors.
    Row {
        /// The number of rows in that file.
        of: usize,
    },
}

/// How a file of pairs is read.
#[derive(Debug, Clone, Copy)]
pub struct Columns {
    /// The meaning of the first column.
    pub query: QueryColumn,
    /// The meaning of the second column.
    pub key: KeyColumn,
    /// Whether to leave out lines whose key does not exist, instead of refusing the file.
    pub skip_missing: bool,
}

/// The distinct queries of a file, and the keys that answer them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pairs {
    /// The queries: texts, or row numbers as written.
    pub queries: Vec<String>,
    /// The pairs (query, row of the corpus), one per line of the file.
    pub pairs: Vec<(u32, u32)>,
    /// A message about lines that were left out, if there are any.
    pub left_out: Option<String>,
}

impl Pairs {
    /// Returns no pairs.
    pub fn none() -> Self {
        Self {
            queries: Vec::new(),
            pairs: Vec::new(),
            left_out: None,
        }
    }

    /// Reads a file and looks up its keys.
    pub fn read(path: &Path, columns: Columns, corpus: &Corpus) -> Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| format!("{name}: reading the pairs"))?;
        let lines = Lines::new(name, Box::new(BufReader::new(file)));
        Self::resolve(lines, columns, corpus)
    }

    /// Like [`Pairs::read`], from bytes. `name` is the name of the file in errors.
    pub fn parse(name: &str, bytes: &[u8], columns: Columns, corpus: &Corpus) -> Result<Self> {
        let lines = Lines::new(name, Box::new(Cursor::new(bytes.to_vec())));
        Self::resolve(lines, columns, corpus)
    }

    fn resolve(mut lines: Lines, columns: Columns, corpus: &Corpus) -> Result<Self> {
        let (rows, answers) = match columns.key {
            KeyColumn::Id => (corpus.by_key(), Answers::Keys),
            KeyColumn::Text => (
                corpus.by_text().context(
                    "this database contains vectors, not texts; give keys, with --key-ids",
                )?,
                Answers::Texts,
            ),
        };
        let queries = match columns.query {
            QueryColumn::Text => Queries::Texts,
            QueryColumn::Row { of } => Queries::Rows {
                of,
                file: "the file of queries",
            },
        };
        let read = pairs::Pairs::read(&mut lines, queries)?;
        let mut found = Self {
            queries: Vec::new(),
            pairs: Vec::new(),
            left_out: None,
        };
        // Queries are numbered again, because some may have no existing answer.
        let mut numbers = vec![None; read.queries.len()];
        for pair in &read.lines {
            let Some(&row) = rows.get(pair.answer.as_str()) else {
                continue;
            };
            let query = *numbers[pair.query].get_or_insert_with(|| {
                found.queries.push(read.queries[pair.query].clone());
                found.queries.len() as u32 - 1
            });
            found.pairs.push((query, row));
        }
        found.left_out = read.check_missing(
            |answer| !rows.contains_key(answer),
            answers,
            found.pairs.is_empty(),
            columns.skip_missing,
        )?;
        Ok(found)
    }

    /// Returns the right keys of each query, ascending and distinct.
    pub fn answers(&self) -> Vec<Vec<u32>> {
        let mut answers = vec![Vec::new(); self.queries.len()];
        for &(query, row) in &self.pairs {
            answers[query as usize].push(row);
        }
        for rows in &mut answers {
            rows.sort_unstable();
            rows.dedup();
        }
        answers
    }

    /// Returns the first `most` queries, with their pairs.
    pub fn first(&self, most: usize) -> Self {
        Self {
            queries: self.queries.iter().take(most).cloned().collect(),
            pairs: self
                .pairs
                .iter()
                .copied()
                .filter(|&(query, _)| (query as usize) < most)
                .collect(),
            left_out: self.left_out.clone(),
        }
    }

    /// Splits the pairs by query, for a run without validation pairs: the queries for which `choose` returns `true` go
    /// into the second part. The message about left-out lines stays with the first.
    pub fn split(&self, mut choose: impl FnMut() -> bool) -> (Self, Self) {
        let mut parts = [Vec::new(), Vec::new()];
        let mut place = Vec::with_capacity(self.queries.len());
        for query in &self.queries {
            let part = usize::from(choose());
            place.push((part, parts[part].len() as u32));
            parts[part].push(query.clone());
        }
        let [one, two] = parts;
        let pairs_of = |part: usize| {
            self.pairs
                .iter()
                .filter(|(query, _)| place[*query as usize].0 == part)
                .map(|&(query, row)| (place[query as usize].1, row))
                .collect()
        };
        let of = |queries, part| Self {
            queries,
            pairs: pairs_of(part),
            left_out: self.left_out.clone().filter(|_| part == 0),
        };
        (of(one, 0), of(two, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mopqdb::Metric;

    fn corpus() -> Corpus {
        let keys = ["a", "b", "c"].map(String::from).to_vec();
        let texts = ["apple", "pear", "apple"].map(String::from).to_vec();
        Corpus::new(keys, Some(texts), vec![0.0; 6], 2, Metric::Ip).unwrap()
    }

    const BY_TEXT: Columns = Columns {
        query: QueryColumn::Text,
        key: KeyColumn::Text,
        skip_missing: false,
    };

    fn words(text: &str, columns: Columns) -> String {
        format!(
            "{:#}",
            Pairs::parse("t.tsv", text.as_bytes(), columns, &corpus()).unwrap_err()
        )
    }

    #[test]
    fn lines_with_equal_queries_form_one_query_with_several_answers() {
        let pairs = Pairs::parse(
            "t",
            b"red\tapple\ngreen\tpear\r\nred\tpear\n",
            BY_TEXT,
            &corpus(),
        )
        .unwrap();
        assert_eq!(pairs.queries, ["red", "green"]);
        assert_eq!(pairs.pairs, [(0, 0), (1, 1), (0, 1)]);
        assert_eq!(pairs.answers(), [vec![0, 1], vec![1]]);
    }

    #[test]
    fn an_error_names_the_bad_line() {
        assert!(words("", BY_TEXT).contains("t.tsv: the file has no pairs"));
        assert!(words("\n\n", BY_TEXT).contains("t.tsv: the file has no pairs"));
        assert!(words("x\tapple\nfine\tpear\nnothing\n", BY_TEXT).contains("t.tsv:3: has no tab"));
        assert!(words("\tapple", BY_TEXT).contains("t.tsv:1: the query is empty"));
        assert!(words("x\t", BY_TEXT).contains("t.tsv:1: the answer is empty"));
        let missing = words("x\tapple\ny\tplum\nz\tfig", BY_TEXT);
        assert!(
            missing.contains("t.tsv:2") && missing.contains("plum") && missing.contains("2 of 3"),
            "{missing}"
        );
        let rows = Columns {
            query: QueryColumn::Row { of: 2 },
            key: KeyColumn::Id,
            skip_missing: false,
        };
        assert!(words("0\ta\n2\tb", rows).contains("t.tsv:2: row 2"));
        assert!(words("one\ta", rows).contains("\"one\" is not a row number"));
    }

    #[test]
    fn missing_keys_may_be_left_out_unless_all_are_missing() {
        let columns = Columns {
            skip_missing: true,
            ..BY_TEXT
        };
        let pairs = Pairs::parse("t", b"x\tapple\ny\tplum\n", columns, &corpus()).unwrap();
        assert_eq!((pairs.queries.len(), pairs.pairs.len()), (1, 1));
        assert_eq!(
            pairs.left_out.as_deref(),
            Some("t:2: no row has the text \"plum\" (1 of 2 lines); such lines are left out")
        );
        assert!(words("y\tplum", columns).contains("1 of 1"));
    }

    #[test]
    fn a_split_shares_no_query() {
        let pairs = Pairs::parse(
            "t",
            b"x\tapple\ny\tpear\nx\tpear\nz\tapple\n",
            BY_TEXT,
            &corpus(),
        )
        .unwrap();
        let mut turn = 0;
        let (one, two) = pairs.split(|| {
            turn += 1;
            turn == 2
        });
        assert_eq!(
            (one.queries, one.pairs),
            (
                vec!["x".to_owned(), "z".to_owned()],
                vec![(0, 0), (0, 1), (1, 0)]
            )
        );
        assert_eq!(
            (two.queries, two.pairs),
            (vec!["y".to_owned()], vec![(0, 1)])
        );
    }
}
