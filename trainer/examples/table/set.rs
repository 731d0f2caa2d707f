//! A set of pairs, encoded.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use mopqdb::{Bundle, Metric};
use mopqdb_trainer::corpus::Corpus;
use mopqdb_trainer::data::{Columns, KeyColumn, Pairs, QueryColumn};
use mopqdb_trainer::embeddings::Embeddings;
use mopqdb_trainer::evaluate::Questions;

pub(crate) struct Set {
    pub(crate) corpus: Corpus,
    /// Of the training queries.
    pub(crate) queries: Vec<f32>,
    pub(crate) pairs: Vec<(u32, u32)>,
    pub(crate) validation: Questions,
    pub(crate) test: Questions,
}

impl Set {
    pub(crate) fn load(dir: &Path, cache: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = dir.join(name);
            fs::read_to_string(&path).with_context(|| format!("{}: reading", path.display()))
        };
        // The keys are a file of their own, or those of all pairs in order of appearance.
        let keys: Vec<String> = if dir.join("keys.tsv").exists() {
            read("keys.tsv")?.lines().map(str::to_owned).collect()
        } else {
            let mut seen = HashSet::new();
            let mut keys = Vec::new();
            for part in ["train.tsv", "test.tsv", "valid.tsv"] {
                for line in read(part)?.lines() {
                    let (_, key) = line
                        .split_once('\t')
                        .with_context(|| format!("{part}: no TAB in {line:?}"))?;
                    if seen.insert(key.to_owned()) {
                        keys.push(key.to_owned());
                    }
                }
            }
            keys
        };
        let bundle = Bundle::open(mopqdb::encoder::default_bundle()?)?;
        let embeddings = Embeddings::new(cache, bundle.encoder_id().to_string());
        let hidden = bundle.input_dim();
        let encode = |side: &str, texts: &[&str]| {
            let mut seen = 0;
            let mut encoder = None;
            let by_side = |some: &[&str]| {
                // Loaded only when there is something to encode.
                if encoder.is_none() {
                    encoder = bundle.encoder()?;
                }
                let encoder = encoder
                    .as_ref()
                    .context("the default bundle has an encoder")?;
                if side == "query" {
                    return Ok(encoder.encode_queries(some)?);
                }
                let mut vectors = encoder.encode_keys(some)?;
                mopqdb::encoder::round_to_f16(&mut vectors); // as a database stores them
                Ok(vectors)
            };
            embeddings.of(side, texts, hidden, by_side, |done| {
                seen += done;
                if done < texts.len() && seen % 16_384 < done {
                    eprintln!("  encoded {seen} of {} texts ({side})", texts.len());
                }
            })
        };
        let texts: Vec<&str> = keys.iter().map(String::as_str).collect();
        let vectors = encode("key", &texts)?;
        let names = (0..keys.len()).map(|row| row.to_string()).collect();
        let corpus = Corpus::new(names, Some(keys.clone()), vectors, hidden, Metric::Cosine)?;
        let columns = Columns {
            query: QueryColumn::Text,
            key: KeyColumn::Text,
            skip_missing: false,
        };
        let pairs_of = |name: &str| Pairs::read(&dir.join(name), columns, &corpus);
        let vectors_of = |pairs: &Pairs| {
            let texts: Vec<&str> = pairs.queries.iter().map(String::as_str).collect();
            encode("query", &texts)
        };
        let groups = match dir.join("keys_group.txt").exists() {
            true => Some(groups(&read("keys_group.txt")?)?),
            false => None,
        };
        let rows = corpus.by_text().context("texts")?;
        let questions = |pairs: &Pairs| -> Result<Questions> {
            let mut answers = pairs.answers();
            let mut excluded = vec![None; answers.len()];
            if let Some((group_of, members)) = &groups {
                for ((answers, excluded), query) in
                    answers.iter_mut().zip(&mut excluded).zip(&pairs.queries)
                {
                    // Any other member of the group is right; the query itself is left out of its result.
                    let own = rows.get(query.as_str()).copied();
                    let group = group_of[answers[0] as usize];
                    let others = members.get(&group).into_iter().flatten().copied();
                    let others: Vec<u32> = others.filter(|&row| Some(row) != own).collect();
                    if !others.is_empty() {
                        *answers = others;
                    }
                    *excluded = own;
                }
            }
            Ok(Questions {
                vectors: vectors_of(pairs)?,
                answers,
                excluded,
            })
        };
        let (train, valid, test) = (
            pairs_of("train.tsv")?,
            pairs_of("valid.tsv")?,
            pairs_of("test.tsv")?,
        );
        Ok(Self {
            queries: vectors_of(&train)?,
            validation: questions(&valid.first(2_000))?,
            test: questions(&test)?,
            pairs: train.pairs,
            corpus,
        })
    }
}

type Groups = (Vec<i64>, HashMap<i64, Vec<u32>>);

/// The group of each row (-1: none), and the rows of each group.
fn groups(text: &str) -> Result<Groups> {
    let group_of: Vec<i64> = text
        .lines()
        .map(|line| line.trim().parse().context("keys_group.txt"))
        .collect::<Result<_>>()?;
    let mut members: HashMap<i64, Vec<u32>> = HashMap::new();
    for (row, &group) in group_of
        .iter()
        .enumerate()
        .filter(|&(_, &group)| group >= 0)
    {
        members.entry(group).or_default().push(row as u32);
    }
    Ok((group_of, members))
}
