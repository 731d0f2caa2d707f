use super::filter;
use crate::exit::usage;
use crate::key_lines;
use crate::out::{Out, Table, say};
use crate::rows::Lines;
use crate::settings::Settings;
use anyhow::{Context, Result, bail};
use clap::Args;
use mopqdb::{
    Explanation, Filter, FoundBy, Fusion, Hit, Probes, QueryOptions, Reader, RowsKind, Search,
    Snapshot, Stage,
};
use serde_json::{Value, json};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

/// Find the rows nearest to a text or a vector
///
/// `--search auto` finds candidates by their codes and by their words, and orders them by their stored vectors plus the
/// weighted score of their words. `codes` uses only the codes, `words` only the words (BM25), and `exact` compares the
/// query with every stored vector. Without codes and words, `auto` equals `exact`.
///
/// Prints one hit per line: rank, score, key, text. In a pipe, fields are tab-separated and complete; tabs, line ends
/// and backslashes in them are written \t, \n, \r and \\. Ranks start at 1 for each query (--json includes the query).
/// On a terminal, control characters and bidirectional controls are shown as �. Larger scores are better: the cosine,
/// the inner product, or the negative squared distance for l2. With `--search codes` the score is estimated from the
/// code; with words, their score is added.
///
/// `--where` restricts the search to the rows for which an expression in SQL is true: = != < <= > >=, AND, OR, NOT, IN,
/// BETWEEN, LIKE, IS NULL, IS TRUE, and tags HAS 'x' for lists. Texts are in single quotes, names of columns in double
/// quotes where they are not plain words. As in SQL, a comparison with null is not true. `mopqdb columns DB` lists the
/// columns. The result is the best k among exactly the rows that pass.
///
/// Words are joined by spaces. Words that begin with a dash must follow `--`, except negative numbers.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb query my.db how do birds navigate
  mopqdb query my.db -k 5 -- --json flag of curl      # a text that begins with a dash
  mopqdb query my.db --file questions.txt -k 5 --json > hits.jsonl
  mopqdb query my.db --vectors q.npy -k 100
  mopqdb query my.db bird navigation --offset 10     # the next ten
  mopqdb query my.db bird navigation --explain       # what each stage did
  mopqdb query my.db \"E0382\" --search words        # the words alone
  mopqdb query my.db \"taxes\" --prefix 2024/          # only keys that begin with 2024/
  mopqdb query my.db \"taxes\" --where \"year >= 2020 AND lang IN ('en', 'de')\" --columns year,lang
  some-program | mopqdb query my.db --stdin --json   # one answer per line, as the lines come")]
pub struct Query {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// What to search for; several words are one query, with or without quotes
    #[arg(value_name = "TEXT", allow_negative_numbers = true)]
    text: Vec<String>,
    /// Queries, one per line
    #[arg(long, value_name = "QUERIES.txt", conflicts_with = "text")]
    file: Option<PathBuf>,
    /// Queries from standard input, one per line; each is answered when it arrives
    #[arg(long, conflicts_with_all = ["text", "file"])]
    stdin: bool,
    /// Query vectors: .npy, .fvecs or .fbin
    #[arg(long, value_name = "Q.npy", conflicts_with_all = ["text", "file", "stdin"])]
    vectors: Option<PathBuf>,
    /// Number of hits
    #[arg(short, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=mopqdb::MAX_K as i64))]
    k: u32,
    /// Search mode: `auto`, `codes`, `exact` or `words`
    #[arg(long, value_name = "HOW", default_value_t = Search::Auto, value_parser = search, hide_default_value = true)]
    search: Search,
    /// Candidates of `auto`; more candidates raise recall and time. At least the number of hits, including --offset;
    /// default: ten per hit, at least 400
    #[arg(long, value_name = "C")]
    candidates: Option<usize>,
    /// Cells that are looked at, or `all`, under a model with cells (`mopqdb train --cells`); more probes raise recall and
    /// time. If their rows are fewer than the candidates, further cells follow. Default: what `mopqdb tune` chose, else
    /// twice the square root of the number of cells
    #[arg(long, value_name = "P|all", value_parser = probes)]
    probes: Option<Probes>,
    /// How `auto` combines vectors and words: `weighted`, or `rrf` for reciprocal ranks; default: weighted
    #[arg(long, value_name = "HOW", default_value = "weighted", value_parser = fusion, hide_default_value = true)]
    fusion: Fusion,
    /// Skip the first N hits
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    offset: usize,
    /// Skip hits with a score below S
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    min_score: Option<f32>,
    /// Skip hits with a similarity (metric of the stored vectors) below S
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    min_similarity: Option<f32>,
    /// Print what each stage of the query did (rows, bytes and microseconds, on stderr or within --json), and for each hit
    /// what found it (codes, vectors, words or both) and the score of its words
    #[arg(long)]
    explain: bool,
    /// Search only these keys, one per line, as `keys` prints them
    #[arg(long, value_name = "FILE", conflicts_with = "prefix")]
    keys_from: Option<PathBuf>,
    /// Search only keys that begin with P
    #[arg(long, value_name = "P")]
    prefix: Option<String>,
    /// Search only rows that pass this filter, in SQL
    #[arg(long = "where", value_name = "EXPR")]
    filter: Option<String>,
    /// Print these columns after the text; separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
}

/// The number of queries that share a pass over the codes.
const TOGETHER: usize = 64;

impl Query {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<()> {
        check_candidates(self.search, self.candidates)?;
        check_probes(self.search, self.probes)?;
        let mut options = QueryOptions::top(self.k as usize)
            .search(self.search)
            .fusion(self.fusion)
            .offset(self.offset);
        options.candidates = self.candidates;
        options.probes = self.probes;
        options.min_score = self.min_score;
        options.min_similarity = self.min_similarity;
        if let Some(path) = &self.keys_from {
            let keys = key_lines::from_file(path)?.into_iter().collect();
            options = options.among(Filter::Keys(keys));
        }
        if let Some(prefix) = self.prefix {
            options = options.among(Filter::Prefix(prefix));
        }
        options = filter::among(options, self.filter.as_deref())?.columns(self.columns);
        let reader = super::read(&self.db, settings)?;
        check_codes(self.search, &reader.snapshot(), &self.db)?;
        let mut asker = Asker {
            reader,
            options,
            explain: self.explain,
            out: Out::new(settings),
        };
        let text = self.text.join(" ");
        if !text.trim().is_empty() {
            asker.ask(&[text])?;
        } else if let Some(path) = &self.file {
            let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
            asker.lines(Lines::new(
                path.display().to_string(),
                Box::new(BufReader::new(file)),
            ))?;
        } else if self.stdin {
            asker.as_they_come()?;
        } else if let Some(path) = &self.vectors {
            asker.vectors(path)?;
        } else {
            return Err(usage(
                "nothing to search for: give a TEXT, --file, --stdin or --vectors",
            ));
        }
        asker.out.flush()
    }
}

/// Runs queries with a reader and prints the answers.
struct Asker {
    reader: Reader,
    options: QueryOptions,
    explain: bool,
    out: Out,
}

impl Asker {
    fn ask(&mut self, texts: &[String]) -> Result<()> {
        let queries: Vec<mopqdb::Query<'_>> = texts.iter().map(Into::into).collect();
        let (answers, explanation) = self.answers(&queries)?;
        for (text, hits) in texts.iter().zip(answers) {
            self.answer(
                Value::from(text.as_str()),
                texts.len() > 1,
                hits,
                &explanation,
            )?;
        }
        self.print(&explanation, texts.len())
    }

    /// Returns the hits of each query, and the explanation of all of them if it is requested.
    fn answers(
        &self,
        queries: &[mopqdb::Query<'_>],
    ) -> Result<(Vec<Vec<Hit>>, Option<Explanation>)> {
        let snapshot = self.reader.snapshot();
        let (hits, explanation) = snapshot.query_explained(queries, &self.options)?;
        Ok((hits, self.explain.then_some(explanation)))
    }

    /// Prints an explanation for people; with --json it is part of each answer.
    fn print(&self, explanation: &Option<Explanation>, queries: usize) -> Result<()> {
        let Some(explanation) = explanation else {
            return Ok(());
        };
        if self.out.is_json() {
            return Ok(());
        }
        let candidates = match explanation.candidates {
            Some(candidates) => format!(", {candidates} candidates"),
            None => String::new(),
        };
        let probes = match explanation.probes {
            Some(Probes::All) => ", all cells".into(),
            Some(Probes::Cells(probes)) => format!(", {probes} probes"),
            None => String::new(),
        };
        say(format!(
            "search by {}{candidates}{probes}, queries: {queries}",
            explanation.search
        ));
        for stage in &explanation.stages {
            let pages = match stage.pages {
                0 => String::new(),
                pages => format!(" in {pages} pages"),
            };
            let cells = match stage.cells {
                0 => String::new(),
                cells => format!(" in {cells} cells"),
            };
            say(format!(
                "  {:<10} {:>9.0} us {:>9} rows {:>11} bytes{pages}{cells}",
                stage.name, stage.micros, stage.rows, stage.bytes
            ));
        }
        Ok(())
    }

    fn lines(&mut self, mut lines: Lines) -> Result<()> {
        let mut texts = Vec::new();
        while let Some(line) = lines.read()? {
            let line = line?;
            if line.is_empty() {
                continue;
            }
            texts.push(line.to_owned());
            if texts.len() == TOGETHER {
                self.ask(&texts)?;
                texts.clear();
            }
        }
        if !texts.is_empty() {
            self.ask(&texts)?;
        }
        Ok(())
    }

    /// Answers each line as it arrives; lines that arrive together share one pass. Refreshes the reader before
    /// each pass.
    fn as_they_come(&mut self) -> Result<()> {
        let (sender, lines) = mpsc::sync_channel(TOGETHER);
        std::thread::spawn(move || {
            let mut source = Lines::new("stdin", Box::new(BufReader::new(std::io::stdin())));
            loop {
                let item = match source.read() {
                    Ok(None) => return,
                    Ok(Some(line)) => line.map(str::to_owned).map_err(anyhow::Error::from),
                    Err(error) => Err(error.into()),
                };
                let last = item.is_err();
                if sender.send(item).is_err() || last {
                    return;
                }
            }
        });
        while let Ok(first) = lines.recv() {
            let mut texts = vec![first?];
            while texts.len() < TOGETHER {
                match lines.try_recv() {
                    Ok(line) => texts.push(line?),
                    Err(_) => break,
                }
            }
            self.reader.refresh()?;
            self.ask(&texts)?;
            self.out.flush()?;
        }
        Ok(())
    }

    fn vectors(&mut self, path: &Path) -> Result<()> {
        let mut vectors = mopqdb_formats::vectors::VectorReader::open(path)?;
        let dim = vectors.dim();
        if dim != self.reader.model().dim() {
            bail!(
                "{}: the vectors have {dim} values, but those of the database have {}",
                path.display(),
                self.reader.model().dim()
            );
        }
        let many = vectors.rows() != Some(1);
        let mut number = 0_u64;
        let mut values = Vec::new();
        loop {
            values.clear();
            if vectors.read_rows(TOGETHER, &mut values)? == 0 {
                return Ok(());
            }
            let queries: Vec<mopqdb::Query<'_>> =
                values.chunks_exact(dim).map(Into::into).collect();
            let (answers, explanation) = self.answers(&queries)?;
            let asked = answers.len();
            for hits in answers {
                self.answer(Value::from(number), many, hits, &explanation)?;
                number += 1;
            }
            self.print(&explanation, asked)?;
        }
    }

    fn answer(
        &mut self,
        query: Value,
        many: bool,
        hits: Vec<Hit>,
        explanation: &Option<Explanation>,
    ) -> Result<()> {
        if self.out.is_json() {
            let hits: Vec<Value> = hits.into_iter().map(object).collect();
            let mut answer = json!({"query": query, "hits": hits});
            if let Some(explanation) = explanation {
                answer["search"] = json!(explanation.search.name());
                answer["candidates"] = json!(explanation.candidates);
                if let Some(probes) = explanation.probes {
                    answer["probes"] = match probes {
                        Probes::All => json!("all"),
                        Probes::Cells(probes) => json!(probes),
                    };
                }
                answer["stages"] = explanation.stages.iter().map(stage).collect();
            }
            return self.out.object(&answer);
        }
        if self.out.is_terminal() {
            if many {
                let shown = query
                    .as_str()
                    .map_or_else(|| format!("row {query}"), str::to_owned);
                self.out.line(format!("> {shown}"))?;
            }
            if hits.is_empty() {
                self.out.line("no rows")?;
            }
        }
        let mut headers = match self.explain {
            true => vec![">", ">", "", ">", "", ""],
            false => vec![">", ">", "", ""],
        };
        headers.extend(self.options.columns.iter().map(|_| ""));
        let mut table = Table::new(&headers);
        let on_terminal = self.out.is_terminal();
        for (rank, hit) in hits.into_iter().enumerate() {
            let score = if on_terminal {
                format!("{:.4}", hit.score)
            } else {
                hit.score.to_string()
            };
            let mut columns = vec![(rank + 1).to_string(), score];
            if self.explain {
                columns.push(hit.found_by.map_or("", FoundBy::name).into());
                columns.push(
                    hit.words
                        .map_or(String::new(), |words| format!("{words:.3}")),
                );
            }
            columns.extend([hit.key, hit.text.unwrap_or_default()]);
            columns.extend(filter::cells(&hit.columns, &self.options.columns));
            table.row(columns);
        }
        self.out.table(&table)
    }
}

fn object(hit: Hit) -> Value {
    let mut object = json!({"key": hit.key, "score": hit.score, "similarity": hit.similarity});
    if let (Some(words), Some(found_by)) = (hit.words, hit.found_by) {
        object["words"] = Value::from(words);
        object["found_by"] = Value::from(found_by.name());
    }
    if let Some(text) = hit.text {
        object["text"] = Value::from(text);
    }
    if !hit.columns.is_empty() {
        object["columns"] = filter::object(&hit.columns);
    }
    object
}

fn stage(stage: &Stage) -> Value {
    json!({
        "stage": stage.name, "rows": stage.rows, "cells": stage.cells, "bytes": stage.bytes, "pages": stage.pages,
        "us": stage.micros,
    })
}

/// Refuses a number of candidates in a mode that takes none.
pub(super) fn check_candidates(search: Search, candidates: Option<usize>) -> Result<()> {
    match candidates {
        Some(_) if search != Search::Auto => Err(usage(format!(
            "--candidates is for --search auto; --search {search} takes none"
        ))),
        _ => Ok(()),
    }
}

/// Reads a number of cells, or `all`.
pub(super) fn probes(text: &str) -> Result<Probes, String> {
    if text == "all" {
        return Ok(Probes::All);
    }
    match text.parse() {
        Ok(0) | Err(_) => Err("a number of cells, 1 at least, or all".into()),
        Ok(cells) => Ok(Probes::Cells(cells)),
    }
}

/// Refuses a number of cells where none are looked at.
pub(super) fn check_probes(search: Search, probes: Option<Probes>) -> Result<()> {
    match probes {
        Some(_) if matches!(search, Search::Exact | Search::Words) => Err(usage(format!(
            "--probes is for --search auto and codes; --search {search} looks at no cells"
        ))),
        _ => Ok(()),
    }
}

/// Returns an error with advice if rows should be searched by codes and there are none.
pub(super) fn check_codes(search: Search, snapshot: &Snapshot, db: &Path) -> Result<()> {
    if search == Search::Codes && snapshot.model().quantizer().is_none() {
        bail!(
            "the active model has no codes to search by; `mopqdb train {0} --method opq` learns some, or `--pairs PAIRS.tsv` \
             better ones, and `mopqdb rebuild {0}` switches to them",
            db.display()
        );
    }
    if search == Search::Words && snapshot.model().kind() == RowsKind::Vector {
        return Err(usage(
            "--search words is for texts, but this database contains vectors",
        ));
    }
    Ok(())
}

/// Parses the name of a fusion.
fn fusion(name: &str) -> Result<Fusion, String> {
    match name {
        "weighted" => Ok(Fusion::Weighted),
        "rrf" => Ok(Fusion::ReciprocalRank),
        _ => Err("it is one of weighted, rrf".into()),
    }
}

/// Parses the name of a search mode.
pub(super) fn search(name: &str) -> Result<Search, String> {
    let named = Search::ALL.into_iter().find(|search| search.name() == name);
    named.ok_or_else(|| format!("it is one of {}", Search::ALL.map(Search::name).join(", ")))
}
