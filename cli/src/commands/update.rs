use super::filter;
use crate::out::{Out, plural, say};
use crate::progress::Progress;
use crate::rows::long_integer;
use crate::settings::Settings;
use crate::stop;
use anyhow::{Result, anyhow, bail};
use clap::Args;
use mopqdb::Watch;
use mopqdb::columns::infer::{self, Notation, convert};
use mopqdb::columns::{Column, ColumnType, ColumnValue};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Set columns of the rows that pass a filter
///
/// Texts and vectors stay as they are, and nothing is encoded again. Rows are changed in batches, oldest first; each batch
/// is durable and atomic. When the command is stopped, it prints how many rows were changed, and the same command again
/// changes the others.
///
/// VALUE is read as the type of the column: a number, true or false, a string with or without double quotes, a time in
/// RFC 3339, or a JSON array of strings. `null` removes the value. A column that does not exist is added: its type is
/// that of the value, as in JSON.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb update my.db --where \"lang IS NULL\" --set lang=en
  mopqdb update my.db --where \"year < 1900\" --set year=null --set checked=true
  mopqdb update my.db --where \"title LIKE 'Rust%'\" --set 'tags=[\"rust\"]'")]
pub struct Update {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// The rows to change, in SQL: `mopqdb query --help` describes it; TRUE is every row
    #[arg(long = "where", value_name = "EXPR")]
    filter: String,
    /// The new value of a column
    #[arg(long = "set", value_name = "NAME=VALUE", required = true, value_parser = assignment)]
    values: Vec<(String, String)>,
}

/// Parses `NAME=VALUE`. The name ends at the first `=`.
fn assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("give NAME=VALUE, as in year=2021")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl Update {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<()> {
        let filter = filter::sql(&self.filter)?;
        let database = super::open(&self.db, settings)?;
        let columns = database.columns();
        let values: Vec<(&str, ColumnValue)> = (self.values.iter())
            .map(|(name, text)| Ok((&name[..], value(name, text, &columns)?)))
            .collect::<Result<_>>()?;
        stop::listen();
        let progress = Progress::new("updating", "rows", Some(0));
        let done = Arc::new(AtomicU64::new(0));
        let outcome = database.update_where(&filter, &values, &counting(&progress, &done));
        drop(progress);
        let done = done.load(Ordering::Relaxed);
        let mut out = Out::new(settings);
        match (&outcome, out.is_json()) {
            (Ok(changed), true) => out.object(&json!({"rows": done, "changed": changed}))?,
            (Err(_), true) => out.object(&json!({"rows": done}))?,
            (Ok(changed), false) => out.line(format!(
                "{} passed the filter; changed {}",
                plural(done, "row"),
                plural(*changed, "row")
            ))?,
            (Err(_), false) if done > 0 => say(format!(
                "the first {} that passed the filter have the values, durably; then it stopped, because:",
                plural(done, "row")
            )),
            (Err(_), false) => {}
        }
        out.flush()?;
        database.close()?;
        outcome.map(drop).map_err(Into::into)
    }
}

/// Shows the progress, and keeps the count for the end.
fn counting(progress: &Progress, done: &Arc<AtomicU64>) -> Watch {
    let (shown, done) = (progress.shown(), Arc::clone(done));
    Watch::new()
        .on_progress(move |now| {
            done.store(now.done, Ordering::Relaxed);
            shown(now);
        })
        .stop_when(stop::flag())
}

/// Returns the value that a text is in a column.
fn value(name: &str, text: &str, columns: &[Column]) -> Result<ColumnValue> {
    let known = columns.iter().find(|column| column.name == name);
    let json = match serde_json::from_str(text) {
        // A string column takes digits, `true` and so on as they are; only quotes and null have a meaning.
        Ok(json @ (Value::Null | Value::String(_))) => json,
        Ok(json) if known.is_none_or(|column| column.kind != ColumnType::String) => json,
        _ => Value::String(text.to_owned()),
    };
    if let Some(number) = long_integer(text).filter(|_| json.is_number()) {
        bail!(
            "column {name:?}: {number} is beyond the integers of 64 bits; give it as a string, in double quotes"
        );
    }
    let kind = known.map(|column| column.kind);
    match kind {
        Some(kind) => {
            convert(&json, kind, Notation::Json).map_err(|why| anyhow!("column {name:?}: {why}"))
        }
        None => {
            let fields = Map::from_iter([(name.to_owned(), json)]);
            let mut row = infer::row(&fields, &BTreeMap::new(), Notation::Json)
                .map_err(|why| anyhow!(why))?;
            Ok(row.pop().map_or(ColumnValue::Null, |(_, value)| value))
        }
    }
}
