use super::filter;
use crate::out::{Out, Table};
use crate::settings::Settings;
use anyhow::{Result, bail};
use clap::Args;
use mopqdb::{Row, Snapshot, Value};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

/// Show rows by key, or all rows that pass a filter
///
/// With --json each row is an object as `insert` reads it, with its columns.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb get my.db doc-17
  mopqdb get my.db doc-17 doc-18 --json
  mopqdb get my.db --where \"year = 2020\" --columns year,lang")]
pub struct Get {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Keys to look up
    #[arg(value_name = "KEY", required_unless_present = "filter")]
    keys: Vec<String>,
    /// Show every row that passes this filter, in SQL, instead of single keys: `mopqdb query --help` describes it
    #[arg(
        long = "where",
        id = "filter",
        value_name = "EXPR",
        conflicts_with = "keys"
    )]
    filter: Option<String>,
    /// Print these columns after the text; separated by commas. With --json: only these columns; default: all
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Option<Vec<String>>,
}

/// The number of rows per table.
const TOGETHER: usize = 4096;

impl Get {
    /// Runs the command. Keys that do not exist are an error.
    pub fn run(self, settings: &Settings) -> Result<()> {
        let expression = self.filter.as_deref().map(filter::sql).transpose()?;
        let reader = super::read(&self.db, settings)?;
        let snapshot = reader.snapshot();
        if let Some(names) = &self.columns {
            filter::check_names(names, snapshot.columns())?;
        }
        let mut shown = Shown {
            out: Out::new(settings),
            columns: self.columns,
            rows: Vec::new(),
        };
        let missing = match expression {
            Some(filter) => {
                for row in snapshot.cursor().among(&filter)? {
                    shown.row(row?)?;
                }
                Vec::new()
            }
            None => by_key(&snapshot, self.keys, &mut shown)?,
        };
        shown.finish()?;
        match missing.len() {
            0 => Ok(()),
            _ => bail!("no row has the key {}", missing.join(", ")),
        }
    }
}

/// Shows the rows with these keys, and returns the keys that do not exist.
fn by_key(snapshot: &Arc<Snapshot>, keys: Vec<String>, shown: &mut Shown) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for key in keys {
        match snapshot.get(&key)? {
            Some(row) => shown.row(row)?,
            None => missing.push(key),
        }
    }
    Ok(missing)
}

/// Prints rows.
struct Shown {
    out: Out,
    /// The columns to print; `None`: none in a table, all in JSON.
    columns: Option<Vec<String>>,
    /// Cells that are not printed yet.
    rows: Vec<Vec<String>>,
}

impl Shown {
    fn row(&mut self, mut row: Row) -> Result<()> {
        if self.out.is_json() {
            if let Some(names) = &self.columns {
                row.columns.retain(|name, _| names.contains(name));
            }
            return self.out.object(&object(&row));
        }
        let mut cells = vec![row.key, shown(&row.value)];
        cells.extend(filter::cells(&row.columns, self.names()));
        self.rows.push(cells);
        match self.rows.len() >= TOGETHER {
            true => self.print(),
            false => Ok(()),
        }
    }

    fn names(&self) -> &[String] {
        self.columns.as_deref().unwrap_or_default()
    }

    fn print(&mut self) -> Result<()> {
        let mut table = Table::new(&vec![""; 2 + self.names().len()]);
        self.rows.drain(..).for_each(|cells| table.row(cells));
        self.out.table(&table)
    }

    fn finish(mut self) -> Result<()> {
        self.print()?;
        self.out.flush()
    }
}

/// Returns a row as JSON, as `insert` reads it.
pub(super) fn object(row: &Row) -> serde_json::Value {
    let mut object = match &row.value {
        Value::Text(text) => json!({"key": row.key, "text": text}),
        Value::Vector(vector) => json!({"key": row.key, "vector": vector}),
    };
    for (name, value) in &row.columns {
        object[name] = value.to_json();
    }
    object
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
