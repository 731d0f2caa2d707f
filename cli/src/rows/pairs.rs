//! Pairs of a query and a right answer, from TSV; lines with the same query are one query with many right answers.

use super::Lines;
use anyhow::{Context, Result, bail};
use clap::Args;
use mopqdb::eval::{Ask, Asked, Questions};
use mopqdb_formats::vectors::read_all;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// What the columns of a file of pairs are.
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

/// Pairs of a file.
#[derive(Debug)]
pub struct Pairs {
    /// Each query with all its right answers.
    pub asks: Vec<Ask>,
    path: PathBuf,
    /// Of each right answer the number of its first line, and how many lines have it.
    lines: HashMap<String, (u64, u64)>,
}

impl Columns {
    /// Whether answers are named by key.
    pub fn by_key(&self) -> bool {
        self.key_ids || self.queries.is_some()
    }

    /// Reads pairs.
    pub fn read(&self, path: &Path) -> Result<Pairs> {
        let vectors = self.queries.as_deref().map(read_all).transpose()?;
        let mut lines = lines(path)?;
        let mut at: HashMap<String, usize> = HashMap::new();
        let mut asks: Vec<Ask> = Vec::new();
        let mut answers: HashMap<String, (u64, u64)> = HashMap::new();
        while let Some(line) = lines.read()? {
            let line = line?.to_owned();
            let place = lines.place();
            if line.is_empty() {
                continue;
            }
            let Some((query, right)) = line.split_once('\t') else {
                bail!("{place}: has no tab; a line is `query TAB right answer`");
            };
            if query.is_empty() || right.is_empty() {
                bail!(
                    "{place}: {} is empty",
                    if query.is_empty() {
                        "the query"
                    } else {
                        "the answer"
                    }
                );
            }
            let n = match at.get(query) {
                Some(n) => *n,
                None => {
                    let asked = match &vectors {
                        None => Asked::Text(query.to_owned()),
                        Some((dim, values)) => {
                            Asked::Vector(row(query, *dim, values).with_context(|| place.clone())?)
                        }
                    };
                    at.insert(query.to_owned(), asks.len());
                    asks.push(Ask {
                        query: asked,
                        right: BTreeSet::new(),
                    });
                    asks.len() - 1
                }
            };
            asks[n].right.insert(right.to_owned());
            answers
                .entry(right.to_owned())
                .or_insert((lines.number(), 0))
                .1 += 1;
        }
        if asks.is_empty() {
            bail!(
                "{}: no pairs; a line is `query TAB right answer`",
                path.display()
            );
        }
        Ok(Pairs {
            asks,
            path: path.to_owned(),
            lines: answers,
        })
    }

    /// Refuses pairs whose right answers are not in the database, or, with `--skip-missing`, tells how many they are.
    ///
    /// `mopqdb-train` has the same rule and the same words.
    pub fn check_missing(&self, pairs: &Pairs, questions: &Questions) -> Result<()> {
        let missing = &questions.missing_answers;
        let of = |answer: &String| (pairs.lines.get(answer)).map(|(line, count)| (*line, *count));
        let Some((line, first)) = missing
            .iter()
            .filter_map(|answer| Some((of(answer)?.0, answer)))
            .min()
        else {
            return Ok(());
        };
        let gone: u64 = missing.iter().filter_map(of).map(|(_, count)| count).sum();
        let all: u64 = pairs.lines.values().map(|(_, count)| count).sum();
        let name = if self.by_key() { "key" } else { "text" };
        let what = format!(
            "{}:{line}: no row has the {name} {:?} ({gone} of {all} lines)",
            pairs.path.display(),
            shorten(first)
        );
        // With --groups a query may have other right rows than those of its lines.
        match (gone == all && questions.all.is_empty(), self.by_key()) {
            (true, true) => bail!("{what}; insert it first"),
            (true, false) => {
                bail!("{what}; insert it first, or give --key-ids if the second column is keys")
            }
            _ if !self.skip_missing => {
                bail!("{what}; insert it first, or leave such lines out with --skip-missing")
            }
            _ => eprintln!("mopqdb: {what}; such lines are left out"),
        }
        Ok(())
    }
}

/// Enough of a text to recognise it.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn row(number: &str, dim: usize, values: &[f32]) -> Result<Vec<f32>> {
    let rows = values.len() / dim;
    let number: usize = number
        .parse()
        .with_context(|| format!("{number:?} is not a row number of --queries"))?;
    if number >= rows {
        bail!("row {number} of --queries, which has {rows} (the first is 0)");
    }
    Ok(values[number * dim..][..dim].to_vec())
}

fn lines(path: &Path) -> Result<Lines> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    Ok(Lines::new(
        path.display().to_string(),
        Box::new(BufReader::new(file)),
    ))
}

/// `--groups FILE`: a line `key TAB group`, or a group alone, for the key that is the line's number. `-1` and an empty
/// group are none.
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
    fn lines_with_the_same_query_are_one_query() {
        let columns = Columns {
            key_ids: false,
            queries: None,
            skip_missing: false,
        };
        let asks = read("a\tx\nb\ty\n\na\tz\tz\n", &columns).unwrap();
        assert_eq!(asks.len(), 2);
        assert_eq!(asks[0].query, Asked::Text("a".into()));
        assert_eq!(
            asks[0].right,
            BTreeSet::from(["x".to_owned(), "z\tz".to_owned()])
        );
    }

    #[test]
    fn a_bad_line_is_named() {
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
    fn queries_may_be_rows_of_a_file_of_vectors() {
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
        assert_eq!(asks[0].query, Asked::Vector(vec![3.0, 4.0]));
        let said = format!("{:#}", read("0\tk\n2\tk\n", &columns).unwrap_err());
        assert!(
            said.contains("p.tsv:2: row 2 of --queries, which has 2"),
            "{said}"
        );
    }

    #[test]
    fn groups_go_by_key_or_by_line_number() {
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
