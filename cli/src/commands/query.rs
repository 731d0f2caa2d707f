use crate::exit::usage;
use crate::key_lines;
use crate::out::{Out, Table};
use crate::rows::Lines;
use crate::settings::Settings;
use anyhow::{Context, Result, bail};
use clap::Args;
use mopqdb::{Filter, Hit, QueryOptions, Reader};
use serde_json::{Value, json};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

/// Find the rows nearest to a text or a vector
///
/// Prints one hit per line: rank, score, key, text. In a pipe the fields are separated by tabs and complete; tabs, line
/// ends and backslashes inside them are written \t, \n, \r and \\, everything else as it is. Ranks begin at 1 again with
/// each query (--json shows which query). On a terminal, control characters and controls of the writing direction are
/// shown as �. Larger scores are better, whatever the metric.
///
/// Words are joined by a space. Words that begin with a dash follow after `--`; negative numbers need none.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb query my.db how do birds navigate
  mopqdb query my.db -k 5 -- --json flag of curl      # a text that begins with a dash
  mopqdb query my.db --file questions.txt -k 5 --json > hits.jsonl
  mopqdb query my.db --vectors q.npy -k 100
  mopqdb query my.db \"taxes\" --prefix 2024/          # only among keys that begin so
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
    /// How many hits
    #[arg(short, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=mopqdb::MAX_K as i64))]
    k: u32,
    /// Only among these keys, one per line, as `keys` prints them
    #[arg(long, value_name = "FILE", conflicts_with = "prefix")]
    keys_from: Option<PathBuf>,
    /// Only among keys that begin with P
    #[arg(long, value_name = "P")]
    prefix: Option<String>,
}

/// Queries that share a pass over the codes.
const TOGETHER: usize = 64;

impl Query {
    /// Asks and prints.
    pub fn run(self, settings: &Settings) -> Result<()> {
        let mut options = QueryOptions::top(self.k as usize);
        if let Some(path) = &self.keys_from {
            let keys = key_lines::from_file(path)?.into_iter().collect();
            options = options.among(Filter::Keys(keys));
        }
        if let Some(prefix) = self.prefix {
            options = options.among(Filter::Prefix(prefix));
        }
        let mut asker = Asker {
            reader: super::read(&self.db, settings)?,
            options,
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

/// Asks a reader and prints its answers.
struct Asker {
    reader: Reader,
    options: QueryOptions,
    out: Out,
}

impl Asker {
    fn ask(&mut self, texts: &[String]) -> Result<()> {
        let queries: Vec<mopqdb::Query<'_>> = texts.iter().map(Into::into).collect();
        let answers = self.reader.query_batch(&queries, &self.options)?;
        for (text, hits) in texts.iter().zip(answers) {
            self.answer(Value::from(text.as_str()), texts.len() > 1, hits)?;
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

    /// Answers a line when it has come, and those that came with it in one pass. Sees what was inserted meanwhile.
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
                "{}: vectors of {dim} values; the database's have {}",
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
            for hits in self.reader.query_batch(&queries, &self.options)? {
                self.answer(Value::from(number), many, hits)?;
                number += 1;
            }
        }
    }

    fn answer(&mut self, query: Value, many: bool, hits: Vec<Hit>) -> Result<()> {
        if self.out.is_json() {
            let hits: Vec<Value> = hits.into_iter().map(object).collect();
            return self.out.object(&json!({"query": query, "hits": hits}));
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
        let mut table = Table::new(&[">", ">", "", ""]);
        let on_terminal = self.out.is_terminal();
        for (rank, hit) in hits.into_iter().enumerate() {
            let score = if on_terminal {
                format!("{:.4}", hit.score)
            } else {
                hit.score.to_string()
            };
            table.row(vec![
                (rank + 1).to_string(),
                score,
                hit.key,
                hit.text.unwrap_or_default(),
            ]);
        }
        self.out.table(&table)
    }
}

fn object(hit: Hit) -> Value {
    match hit.text {
        Some(text) => json!({"key": hit.key, "score": hit.score, "text": text}),
        None => json!({"key": hit.key, "score": hit.score}),
    }
}
