use super::filter;
use crate::key_lines;
use crate::out::Out;
use crate::settings::Settings;
use anyhow::Result;
use clap::Args;
use mopqdb::{Error, Filter};
use serde_json::json;
use std::path::PathBuf;

/// List keys, oldest row first
///
/// Prints one key per line, unchanged. A key that holds a line end or begins with a double quote is written as a JSON
/// string; `delete` and `query --keys-from` read it back. With --json each line is an object. On a terminal, control
/// characters and bidirectional controls are shown as �. Memory does not grow with the number of rows; no lock is
/// taken.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb keys my.db | wc -l
  mopqdb keys my.db --prefix 2023/ > old.txt
  mopqdb keys my.db --where \"year < 2000\"
  mopqdb keys my.db | grep draft | mopqdb delete my.db -")]
pub struct Keys {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Only keys that begin with P
    #[arg(long, value_name = "P")]
    prefix: Option<String>,
    /// Only keys of rows that pass this filter, in SQL: `mopqdb query --help` describes it
    #[arg(long = "where", value_name = "EXPR")]
    filter: Option<String>,
}

impl Keys {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<()> {
        let prefix = self.prefix.as_deref().unwrap_or_default();
        let filter = match &self.filter {
            Some(expression) => filter::sql(expression)?.and(Filter::Prefix(prefix.into())),
            None => Filter::Prefix(prefix.into()),
        };
        let reader = super::read(&self.db, settings)?;
        let mut out = Out::new(settings);
        let mut unwritten = None;
        let each = |key: &str| {
            let written = match out.is_json() {
                true => out.object(&json!({"key": key})),
                false => out.line(match out.is_terminal() {
                    true => key.into(),
                    false => key_lines::line(key),
                }),
            };
            written.map_err(|error| {
                unwritten = Some(error);
                Error::invalid("the keys could not be written")
            })
        };
        let snapshot = reader.snapshot();
        let outcome = match &self.filter {
            Some(_) => snapshot.for_each_key_where(&filter, each),
            None => snapshot.for_each_key(prefix, each),
        };
        match unwritten {
            Some(error) => return Err(error),
            None => outcome?,
        }
        out.flush()
    }
}
