use crate::out::{Out, plural};
use crate::rows::Lines;
use crate::settings::Settings;
use anyhow::Result;
use clap::Args;
use serde_json::json;
use std::io::BufReader;
use std::path::PathBuf;

/// Delete rows by key
///
/// Keys that are not there are no error. Space is freed by compaction, which happens by itself.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb delete my.db doc-17 doc-18
  mopqdb delete my.db - < keys.txt      # a key a line")]
pub struct Delete {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Keys to delete; `-` reads them from standard input, one a line
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<String>,
}

/// Deleted, and durable, at once.
const BATCH: usize = 10_000;

impl Delete {
    /// Deletes them.
    pub fn run(self, settings: &Settings) -> Result<()> {
        let keys = match &self.keys[..] {
            [only] if only == "-" => from_stdin()?,
            _ => self.keys,
        };
        let database = super::open(&self.db, settings)?;
        let mut deleted = 0;
        for keys in keys.chunks(BATCH) {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            deleted += database.delete(&keys)?;
        }
        let missing = keys.len() as u64 - deleted.min(keys.len() as u64);
        let mut out = Out::new(settings);
        match out.is_json() {
            true => out.object(&json!({"deleted": deleted, "missing": missing}))?,
            false if missing > 0 => {
                out.line(format!(
                    "deleted {}; {} not there",
                    plural(deleted, "row"),
                    plural(missing, "key")
                ))?;
            }
            false => out.line(format!("deleted {}", plural(deleted, "row")))?,
        }
        out.flush()?;
        Ok(database.close()?)
    }
}

fn from_stdin() -> Result<Vec<String>> {
    let mut lines = Lines::new("stdin", Box::new(BufReader::new(std::io::stdin())));
    let mut keys = Vec::new();
    while let Some(line) = lines.read()? {
        let line = line?;
        if !line.is_empty() {
            keys.push(line.to_owned());
        }
    }
    Ok(keys)
}
