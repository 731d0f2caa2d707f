//! Pairs of a query and a right answer, as questions to the engine.

use super::Lines;
use crate::out::say;
use anyhow::{Context, Result};
use clap::Args;
use mopqdb::Value;
use mopqdb::eval::{Ask, Questions};
use mopqdb_formats::pairs::{self, Answers, Queries};
use mopqdb_formats::vectors::read_all;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// The columns of a file of pairs.
#[derive(Debug, Clone, Args)]
pub struct Columns {
    /// The second column is a key, not a key's text
    #[arg(long)]
    pub key_ids: bool,
    /// Query vectors (.npy, .fvecs, .fbin): the first column is a row number of them, the second a key
    #[arg(long, value_name = "Q.npy")]
    pub queries: Option<PathBuf>,
    /// Leave out pairs whose right answer is not in the database, and say how many
    #[arg(long)]
    pub skip_missing: bool,
}

/// The pairs of a file.
#[derive(Debug)]
pub struct Pairs {
    /// Each query with all its right answers.
    pub asks: Vec<Ask>,
    file: pairs::Pairs,
}

impl Columns {
    /// Returns `true` if answers are named by key.
    pub fn by_key(&self) -> bool {
        self.key_ids || self.queries.is_some()
    }

    /// Reads pairs.
    pub fn read(&self, path: &Path) -> Result<Pairs> {
        let vectors = self.queries.as_deref().map(read_all).transpose()?;
        let queries = match &vectors {
            None => Queries::Texts,
            Some((dim, values)) => Queries::Rows {
                of: values.len() / dim,
                file: "--queries",
            },
        };
        let file = pairs::Pairs::read(&mut lines(path)?, queries)?;
        let ask = |query: &String| Ask {
            query: match &vectors {
                None => Value::Text(query.clone()),
                Some((dim, values)) => Value::Vector(row(query, *dim, values)),
            },
            right: BTreeSet::new(),
        };
        let mut asks: Vec<Ask> = file.queries.iter().map(ask).collect();
        for pair in &file.lines {
            asks[pair.query].right.insert(pair.answer.clone());
        }
        Ok(Pairs { asks, file })
    }

    /// Refuses pairs whose right answers are not in the database, or, with `--skip-missing`, reports how many there
    /// are.
    pub fn check_missing(&self, pairs: &Pairs, questions: &Questions) -> Result<()> {
        let answers = match self.by_key() {
            true => Answers::Keys,
            false => Answers::Texts,
        };
        let left_out = pairs.file.check_missing(
            |answer| questions.missing_answers.contains(answer),
            answers,
            // With --groups a query may have right rows other than those of its lines.
            questions.all.is_empty(),
            self.skip_missing,
        )?;
        left_out.iter().for_each(say);
        Ok(())
    }
}

/// Returns the vector of a query, whose number was checked when the pairs were read.
fn row(number: &str, dim: usize, values: &[f32]) -> Vec<f32> {
    let number: usize = number.parse().expect("it was checked to be a row number");
    values[number * dim..][..dim].to_vec()
}

fn lines(path: &Path) -> Result<Lines> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    Ok(Lines::new(
        path.display().to_string(),
        Box::new(BufReader::new(file)),
    ))
}

/// Reads `--groups FILE`: each line is `key TAB group`, or a group alone, for the key equal to the line number. `-1`
/// and an empty group mean no group.
pub fn groups(path: &Path) -> Result<HashMap<String, String>> {
    let mut lines = lines(path)?;
    let mut groups = HashMap::new();
    while let Some(line) = lines.read()? {
        let line = line?.to_owned();
        let (key, group) = match line.split_once('\t') {
            Some((key, group)) => (key.to_owned(), group),
            None => (lines.number().to_string(), line.as_str()),
        };
        let group = group.trim();
        if !group.is_empty() && group != "-1" {
            groups.insert(key, group.to_owned());
        }
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &str, columns: &Columns) -> Result<Vec<Ask>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.tsv");
        std::fs::write(&path, content).unwrap();
        Ok(columns.read(&path)?.asks)
    }

    #[test]
    fn lines_with_equal_queries_form_one_query() {
        let columns = Columns {
            key_ids: false,
            queries: None,
            skip_missing: false,
        };
        let asks = read("a\tx\nb\ty\n\na\tz\tz\n", &columns).unwrap();
        assert_eq!(asks.len(), 2);
        assert_eq!(asks[0].query, Value::Text("a".into()));
        assert_eq!(
            asks[0].right,
            BTreeSet::from(["x".to_owned(), "z\tz".to_owned()])
        );
    }

    #[test]
    fn an_error_names_the_bad_line() {
        let columns = Columns {
            key_ids: true,
            queries: None,
            skip_missing: false,
        };
        let said = read("a\tx\nb\n", &columns).unwrap_err().to_string();
        assert!(
            said.ends_with("p.tsv:2: has no tab; a line is `query TAB right answer`"),
            "{said}"
        );
        assert!(
            read("", &columns)
                .unwrap_err()
                .to_string()
                .contains("no pairs")
        );
    }

    #[test]
    fn queries_may_be_row_numbers_in_a_file_of_vectors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q.npy");
        let mut writer = mopqdb_formats::vectors::VectorWriter::create(&path, 2).unwrap();
        writer.write(&[1.0, 2.0, 3.0, 4.0]).unwrap();
        writer.finish().unwrap();
        let columns = Columns {
            key_ids: false,
            queries: Some(path),
            skip_missing: false,
        };
        let asks = read("1\tk\n", &columns).unwrap();
        assert_eq!(asks[0].query, Value::Vector(vec![3.0, 4.0]));
        let said = format!("{:#}", read("0\tk\n2\tk\n", &columns).unwrap_err());
        assert!(
            said.contains("p.tsv:2: row 2 is not in --queries, which has 2 rows"),
            "{said}"
        );
    }

    #[test]
    fn groups_are_assigned_by_key_or_line_number() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("groups.txt");
        std::fs::write(&path, "5\n-1\nk\t7\n\n").unwrap();
        let wanted = HashMap::from([
            ("1".to_owned(), "5".to_owned()),
            ("k".to_owned(), "7".to_owned()),
        ]);
        assert_eq!(groups(&path).unwrap(), wanted);
    }
}
