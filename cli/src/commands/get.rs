use crate::out::{Out, Table};
use crate::settings::Settings;
use anyhow::{Result, bail};
use clap::Args;
use mopqdb::{Row, Value};
use serde_json::json;
use std::path::PathBuf;

/// Show rows by key
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb get my.db doc-17
  mopqdb get my.db doc-17 doc-18 --json")]
pub struct Get {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Keys to look up
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<String>,
}

impl Get {
    /// Runs the command. Keys that do not exist are an error.
    pub fn run(self, settings: &Settings) -> Result<()> {
        let reader = super::read(&self.db, settings)?;
        let snapshot = reader.snapshot();
        let mut out = Out::new(settings);
        let mut table = Table::new(&["", ""]);
        let mut missing = Vec::new();
        for key in self.keys {
            match snapshot.get(&key)? {
                Some(row) if out.is_json() => out.object(&object(&row))?,
                Some(row) => table.row(vec![row.key, shown(&row.value)]),
                None => missing.push(key),
            }
        }
        if !out.is_json() {
            out.table(&table)?;
        }
        out.flush()?;
        match missing.len() {
            0 => Ok(()),
            _ => bail!("no row has the key {}", missing.join(", ")),
        }
    }
}

/// Returns a row as JSON, as `insert` reads it.
pub(super) fn object(row: &Row) -> serde_json::Value {
    match &row.value {
        Value::Text(text) => json!({"key": row.key, "text": text}),
        Value::Vector(vector) => json!({"key": row.key, "vector": vector}),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Vector(vector) => {
            let values: Vec<String> = vector.iter().map(f32::to_string).collect();
            format!("[{}]", values.join(", "))
        }
    }
}
