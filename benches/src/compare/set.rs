//! A data set: keys, pairs, and which keys are right for which query. Read as the trainer's table reads it.

use anyhow::{Context, Result};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

/// The texts of a set.
pub struct Set {
    /// All keys searched.
    pub keys: Vec<String>,
    /// Training pairs.
    pub train: Pairs,
    /// Validation pairs.
    pub valid: Pairs,
    /// Test queries.
    pub test: Questions,
    /// Keys that the set has, of which these may be a part.
    pub all_keys: usize,
    /// Training pairs that it has.
    pub all_pairs: usize,
}

/// Distinct queries, and (query, row of its key), a line each.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Pairs {
    /// In order of appearance.
    pub queries: Vec<String>,
    /// Query, key.
    pub pairs: Vec<(u32, u32)>,
}

/// Queries with their right keys.
#[derive(Debug, Default)]
pub struct Questions {
    /// In order of appearance.
    pub queries: Vec<String>,
    /// Rows that are right, a query.
    pub right: Vec<Vec<u32>>,
    /// The row of the query itself, which is left out of its own result.
    pub own: Vec<Option<u32>>,
}

impl Set {
    /// Reads `train.tsv`, `valid.tsv` and `test.tsv`, and `keys.tsv` and `keys_group.txt` where they are.
    pub fn load(dir: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = dir.join(name);
            fs::read_to_string(&path).with_context(|| format!("{}: reading", path.display()))
        };
        let optional = |name: &str| dir.join(name).exists().then(|| read(name)).transpose();
        Self::parse(
            [&read("train.tsv")?, &read("valid.tsv")?, &read("test.tsv")?],
            optional("keys.tsv")?.as_deref(),
            optional("keys_group.txt")?.as_deref(),
        )
        .with_context(|| dir.display().to_string())
    }

    fn parse(
        [train, valid, test]: [&str; 3],
        keys: Option<&str>,
        groups: Option<&str>,
    ) -> Result<Self> {
        let keys: Vec<String> = match keys {
            Some(keys) => keys.lines().map(str::to_owned).collect(),
            None => distinct_keys(&[train, test, valid])?,
        };
        let rows: HashMap<&str, u32> = keys.iter().map(String::as_str).zip(0..).collect();
        let (train, valid, test) = (
            pairs(train, &rows)?,
            pairs(valid, &rows)?,
            pairs(test, &rows)?,
        );
        let groups = groups.map(Groups::parse).transpose()?;
        let mut right = vec![Vec::new(); test.queries.len()];
        for (query, row) in test.pairs {
            right[query as usize].push(row);
        }
        let mut own = vec![None; right.len()];
        for ((right, own), query) in right.iter_mut().zip(&mut own).zip(&test.queries) {
            right.sort_unstable();
            right.dedup();
            if let Some(groups) = &groups {
                // Any other member of the group is right; the query itself is left out of its result.
                *own = rows.get(query.as_str()).copied();
                let others = groups.others(right[0], *own);
                if !others.is_empty() {
                    *right = others;
                }
            }
        }
        let test = Questions {
            queries: test.queries,
            right,
            own,
        };
        Ok(Self {
            all_keys: keys.len(),
            all_pairs: train.pairs.len(),
            keys,
            train,
            valid,
            test,
        })
    }
}

impl Pairs {
    /// The first `most` queries, with their pairs.
    pub fn first(&self, most: usize) -> Self {
        let most = most.min(self.queries.len());
        Self {
            queries: self.queries[..most].to_vec(),
            pairs: self
                .pairs
                .iter()
                .copied()
                .filter(|(query, _)| (*query as usize) < most)
                .collect(),
        }
    }
}

fn distinct_keys(parts: &[&str]) -> Result<Vec<String>> {
    let mut seen = HashSet::new();
    let mut keys = Vec::new();
    for line in parts.iter().flat_map(|part| part.lines()) {
        let (_, key) = line
            .split_once('\t')
            .with_context(|| format!("no TAB in {line:?}"))?;
        if seen.insert(key) {
            keys.push(key.to_owned());
        }
    }
    Ok(keys)
}

fn pairs(text: &str, rows: &HashMap<&str, u32>) -> Result<Pairs> {
    let mut numbers: HashMap<&str, u32> = HashMap::new();
    let mut found = Pairs::default();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (query, key) = line
            .split_once('\t')
            .with_context(|| format!("no TAB in {line:?}"))?;
        let row = *rows.get(key).with_context(|| format!("no key {key:?}"))?;
        let next = found.queries.len() as u32;
        let query = *numbers.entry(query).or_insert_with(|| {
            found.queries.push(query.to_owned());
            next
        });
        found.pairs.push((query, row));
    }
    Ok(found)
}

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

    #[test]
    fn keys_are_those_of_all_pairs_where_there_is_no_file_of_them() {
        let set = Set::parse(["q1\tk1\nq1\tk2\n", "v\tk1\n", "t\tk3\n"], None, None).unwrap();
        assert_eq!(set.keys, ["k1", "k2", "k3"]);
        assert_eq!(set.train.queries, ["q1"]);
        assert_eq!(set.train.pairs, [(0, 0), (0, 1)]);
        assert_eq!(set.test.right, [[2]]);
        assert_eq!(set.train.first(0), Pairs::default());
    }

    #[test]
    fn members_of_the_group_are_right_but_the_query_is_not() {
        let keys = Some("a\nb\nc\nd\n");
        let set = Set::parse(
            ["a\tb\n", "a\tb\n", "a\tb\nx\td\n"],
            keys,
            Some("0\n0\n0\n-1\n"),
        )
        .unwrap();
        assert_eq!(set.test.right, [vec![1, 2], vec![3]]);
        assert_eq!(set.test.own, [Some(0), None]);
    }

    #[test]
    fn a_pair_whose_key_is_nowhere_is_refused_by_name() {
        let error = Set::parse(["q\tz\n", "", ""], Some("a\n"), None);
        assert!(format!("{:#}", error.err().unwrap()).contains("\"z\""));
    }
}
