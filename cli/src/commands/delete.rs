use super::filter;
use crate::exit::usage;
use crate::key_lines;
use crate::out::{Out, plural, say};
use crate::progress::Progress;
use crate::settings::Settings;
use crate::stop;
use anyhow::Result;
use clap::Args;
use mopqdb::{Filter, Watch};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Delete rows by key, or all rows with a key prefix or that pass a filter
///
/// Keys that do not exist are ignored. Compaction frees the space automatically.
///
/// --prefix and --where delete in batches, oldest row first. Each batch is durable and atomic. When the command
/// is stopped, it prints how many rows were deleted, and the same command again deletes the others.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb delete my.db doc-17 doc-18
  mopqdb delete my.db --prefix 2023/
  mopqdb delete my.db --where \"expires < '2024-01-01'\"
  mopqdb delete my.db - < keys.txt      # one key per line, as `mopqdb keys` prints them")]
pub struct Delete {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Keys to delete; `-` reads them from standard input, one per line
    #[arg(value_name = "KEY", required_unless_present_any = ["prefix", "filter"])]
    keys: Vec<String>,
    /// Delete every row whose key begins with P, instead of single keys
    #[arg(long, value_name = "P", conflicts_with = "keys")]
    prefix: Option<String>,
    /// Delete every row that passes this filter, in SQL: `mopqdb query --help` describes it
    #[arg(
        long = "where",
        id = "filter",
        value_name = "EXPR",
        conflicts_with = "keys"
    )]
    filter: Option<String>,
}

/// The number of keys per batch.
const BATCH: usize = 10_000;

impl Delete {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<()> {
        match &self.prefix {
            // This is easily the value of a variable that was never set (`--prefix "$OLD"`).
            Some(prefix) if prefix.is_empty() => Err(usage(
                "--prefix is empty, which would delete every row; if that is what you want: `mopqdb keys DB | mopqdb delete DB -`",
            )),
            prefix => match filter::of(prefix.as_deref(), self.filter.as_deref())? {
                Some(filter) => self.by_filter(&filter, settings),
                None => self.by_key(settings),
            },
        }
    }

    fn by_key(self, settings: &Settings) -> Result<()> {
        let keys = match &self.keys[..] {
            [only] if only == "-" => key_lines::from_stdin()?,
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
                    "deleted {}; {} not found",
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

impl Delete {
    /// Deletes rows and counts them. If it ends early, the rows deleted until then stay deleted.
    fn by_filter(&self, filter: &Filter, settings: &Settings) -> Result<()> {
        let database = super::open(&self.db, settings)?;
        stop::listen();
        let progress = Progress::new("deleting", "rows", Some(0));
        let deleted = Arc::new(AtomicU64::new(0));
        let outcome = database.delete_where(filter, &counting(&progress, &deleted));
        drop(progress);
        let deleted = deleted.load(Ordering::Relaxed);
        let mut out = Out::new(settings);
        match (&outcome, out.is_json(), &self.prefix) {
            (_, true, _) => out.object(&json!({"deleted": deleted}))?,
            (Ok(_), false, Some(prefix)) if deleted == 0 && self.filter.is_none() => {
                out.line(format!("deleted 0 rows: no key begins with {prefix}"))?;
            }
            (Ok(_), false, _) => out.line(format!("deleted {}", plural(deleted, "row")))?,
            (Err(_), false, _) if deleted > 0 => say(format!(
                "deleted {}, durably, and then stopped, because:",
                plural(deleted, "row")
            )),
            (Err(_), false, _) => {}
        }
        out.flush()?;
        database.close()?;
        outcome.map(drop).map_err(Into::into)
    }
}

/// Shows the progress, and keeps the count for the end.
fn counting(progress: &Progress, deleted: &Arc<AtomicU64>) -> Watch {
    let (shown, deleted) = (progress.shown(), Arc::clone(deleted));
    Watch::new()
        .on_progress(move |now| {
            deleted.store(now.done, Ordering::Relaxed);
            shown(now);
        })
        .stop_when(stop::flag())
}
