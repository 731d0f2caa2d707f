//! A data set of real pairs, as `make compare` and `make table` read it: a folder with `train.tsv`, `valid.tsv` and
//! `test.tsv` (query TAB key), and optionally `keys.tsv` (all keys) and `keys_group.txt` (the group of each key; -1:
//! none). Keys in one group count as right answers for each other.

use anyhow::{Context, Result};
use mopqdb_formats::lines::Lines;
use mopqdb_formats::pairs::{Pairs, Queries};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

/// The keys of a set, and their groups.
#[derive(Debug)]
pub struct Set {
    /// All keys that are searched.
    pub keys: Vec<String>,
    groups: Option<Groups>,
}

/// Distinct queries in order of appearance, with the rows of their keys.
#[derive(Debug, PartialEq, Eq)]
pub struct Questions {
    /// The texts of the queries.
    pub queries: Vec<String>,
    /// Sorted rows of the right keys, per query.
    pub right: Vec<Vec<u32>>,
    /// The row of the query itself, which is left out of its own result.
    pub own: Vec<Option<u32>>,
}

impl Set {
    /// Reads the keys: `keys.tsv`, or the distinct keys of all pairs in order of appearance.
    pub fn load(dir: &Path) -> Result<Self> {
        let keys = if dir.join("keys.tsv").exists() {
            read(dir, "keys.tsv")?.lines().map(str::to_owned).collect()
        } else {
            let mut seen = HashSet::new();
            let mut keys = Vec::new();
            for name in ["train.tsv", "test.tsv", "valid.tsv"] {
                for pair in pairs(dir, name)?.lines {
                    if seen.insert(pair.answer.clone()) {
                        keys.push(pair.answer);
                    }
                }
            }
            keys
        };
        let groups = match dir.join("keys_group.txt").exists() {
            true => Some(Groups::parse(&read(dir, "keys_group.txt")?)?),
            false => None,
        };
        Ok(Self { keys, groups })
    }

    /// Returns the row of each key.
    pub fn rows(&self) -> HashMap<&str, u32> {
        self.keys.iter().map(String::as_str).zip(0..).collect()
    }

    /// Reads the questions of a file of pairs. If the set has groups, every other member of a query's group is right.
    pub fn questions(&self, dir: &Path, name: &str) -> Result<Questions> {
        let rows = self.rows();
        let pairs = pairs(dir, name)?;
        let mut all = Questions {
            right: vec![Vec::new(); pairs.queries.len()],
            own: Vec::with_capacity(pairs.queries.len()),
            queries: pairs.queries,
        };
        for pair in &pairs.lines {
            let row = *rows
                .get(pair.answer.as_str())
                .with_context(|| format!("{name}:{}: no key {:?}", pair.number, pair.answer))?;
            all.right[pair.query].push(row);
        }
        for (query, right) in all.queries.iter().zip(&mut all.right) {
            right.sort_unstable();
            right.dedup();
            all.own.push(self.regroup(&rows, query, right));
        }
        Ok(all)
    }

    /// Replaces the right keys by the query's group, if there are groups. Returns the row of the query itself.
    fn regroup(&self, rows: &HashMap<&str, u32>, query: &str, right: &mut Vec<u32>) -> Option<u32> {
        let groups = self.groups.as_ref()?;
        let own = rows.get(query).copied();
        let others = groups.others(*right.first()?, own);
        if !others.is_empty() {
            *right = others;
        }
        own
    }
}

impl Questions {
    /// Keeps only the first `most` questions.
    pub fn truncate(&mut self, most: usize) {
        self.queries.truncate(most);
        self.right.truncate(most);
        self.own.truncate(most);
    }
}

fn read(dir: &Path, name: &str) -> Result<String> {
    let path = dir.join(name);
    fs::read_to_string(&path).with_context(|| format!("{}: reading", path.display()))
}

fn pairs(dir: &Path, name: &str) -> Result<Pairs> {
    let path = dir.join(name);
    let file = File::open(&path).with_context(|| format!("{}: opening", path.display()))?;
    let mut lines = Lines::new(name, Box::new(BufReader::new(file)));
    Ok(Pairs::read(&mut lines, Queries::Texts)?)
}

#[derive(Debug)]
struct Groups {
    of: Vec<i64>,
    members: HashMap<i64, Vec<u32>>,
}

impl Groups {
    fn parse(text: &str) -> Result<Self> {
        let of: Vec<i64> = text
            .lines()
            .map(|line| line.trim().parse().context("keys_group.txt"))
            .collect::<Result<_>>()?;
        let mut members: HashMap<i64, Vec<u32>> = HashMap::new();
        for (&group, row) in of.iter().zip(0..).filter(|(group, _)| **group >= 0) {
            members.entry(group).or_default().push(row);
        }
        Ok(Self { of, members })
    }

    fn others(&self, row: u32, own: Option<u32>) -> Vec<u32> {
        let group = self.of.get(row as usize).copied().unwrap_or(-1);
        let members = self.members.get(&group).into_iter().flatten().copied();
        members.filter(|&row| Some(row) != own).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(files: &[(&str, &str)]) -> (tempfile::TempDir, Result<Set>) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let set = Set::load(dir.path());
        (dir, set)
    }

    #[test]
    fn without_a_file_of_keys_they_come_from_the_pairs() {
        let (dir, set) = set(&[
            ("train.tsv", "q1\tk1\nq1\tk2\n"),
            ("valid.tsv", "v\tk1\n"),
            ("test.tsv", "t\tk3\nt\tk1\n"),
        ]);
        let set = set.unwrap();
        assert_eq!(set.keys, ["k1", "k2", "k3"]);
        let test = set.questions(dir.path(), "test.tsv").unwrap();
        assert_eq!(test.queries, ["t"]);
        assert_eq!(test.right, [[0, 2]]);
        assert_eq!(test.own, [None]);
    }

    #[test]
    fn group_members_are_right_except_the_query_itself() {
        let (dir, set) = set(&[
            ("keys.tsv", "a\nb\nc\nd\n"),
            ("keys_group.txt", "0\n0\n0\n-1\n"),
            ("test.tsv", "a\tb\nx\td\n"),
        ]);
        let test = set.unwrap().questions(dir.path(), "test.tsv").unwrap();
        assert_eq!(test.right, [vec![1, 2], vec![3]]);
        assert_eq!(test.own, [Some(0), None]);
    }

    #[test]
    fn the_error_for_a_pair_with_an_unknown_key_names_it() {
        let (dir, set) = set(&[("keys.tsv", "a\n"), ("test.tsv", "q\tz\n")]);
        let error = set.unwrap().questions(dir.path(), "test.tsv").unwrap_err();
        assert_eq!(error.to_string(), "test.tsv:1: no key \"z\"");
    }
}
