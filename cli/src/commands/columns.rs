use crate::out::{Out, Table, say};
use crate::settings::Settings;
use anyhow::Result;
use clap::{Args, Subcommand};
use mopqdb::columns::ColumnType;
use serde_json::json;
use std::path::{Path, PathBuf};

/// List the columns of a database with their types
///
/// Columns are attributes of rows, in addition to key and text or vector. `--where` filters by them, in SQL. A column is
/// created with the first value that is inserted, or is declared with `mopqdb create --column NAME:TYPE`. Every column
/// may be null. Types: bool, int (64 bits), float (64 bits), string, strings (a list), timestamp (RFC 3339, microseconds).
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  mopqdb columns my.db
  mopqdb columns retype my.db published timestamp
  mopqdb columns drop my.db draft"
)]
pub struct Columns {
    #[command(subcommand)]
    action: Option<Action>,
    /// The database
    #[arg(value_name = "DB", required = true)]
    db: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Action {
    Drop(DropColumn),
    Retype(Retype),
}

/// Remove a column and its values from all rows
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  mopqdb columns drop my.db draft")]
struct DropColumn {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// The column
    #[arg(value_name = "NAME")]
    name: String,
}

/// Change the type of a column, if no value is lost
///
/// Possible are: int and float to each other, string to timestamp or int, anything but lists to string, string to strings.
/// If any value can't be represented exactly, the command names its row and changes nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  mopqdb columns retype my.db published timestamp")]
struct Retype {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// The column
    #[arg(value_name = "NAME")]
    name: String,
    /// The new type: bool, int, float, string, strings or timestamp
    #[arg(value_name = "TYPE", value_parser = kind)]
    to: ColumnType,
}

/// Parses the name of a type.
fn kind(name: &str) -> Result<ColumnType, String> {
    name.parse()
}

/// Parses `NAME:TYPE`. A name may contain colons.
pub(super) fn declaration(text: &str) -> Result<(String, ColumnType), String> {
    let (name, kind) = text
        .rsplit_once(':')
        .ok_or("give NAME:TYPE, as in year:int")?;
    Ok((name.to_owned(), kind.parse()?))
}

impl Columns {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<()> {
        match (self.action, self.db) {
            (Some(Action::Drop(DropColumn { db, name })), _) => {
                let database = super::open(&db, settings)?;
                database.drop_column(&name)?;
                tell(
                    settings,
                    &json!({"dropped": name}),
                    &format!("dropped {name}"),
                )?;
                Ok(database.close()?)
            }
            (Some(Action::Retype(Retype { db, name, to })), _) => {
                let database = super::open(&db, settings)?;
                database.retype_column(&name, to)?;
                let object = json!({"column": name, "type": to.name()});
                tell(settings, &object, &format!("{name} is now of type {to}"))?;
                Ok(database.close()?)
            }
            (None, Some(db)) => list(&db, settings),
            (None, None) => unreachable!("clap asks for DB where there is no subcommand"),
        }
    }
}

fn tell(settings: &Settings, object: &serde_json::Value, line: &str) -> Result<()> {
    let mut out = Out::new(settings);
    match out.is_json() {
        true => out.object(object)?,
        false => out.line(line)?,
    }
    out.flush()
}

fn list(db: &Path, settings: &Settings) -> Result<()> {
    let columns = super::read(db, settings)?.columns();
    let mut out = Out::new(settings);
    let mut table = Table::new(&["", ""]);
    for column in &columns {
        match out.is_json() {
            true => out.object(&json!({"column": column.name, "type": column.kind.name()}))?,
            false => table.row(vec![column.name.clone(), column.kind.to_string()]),
        }
    }
    if !out.is_json() {
        if columns.is_empty() {
            say(
                "there are no columns; `mopqdb insert` makes them of the other fields of JSON objects",
            );
        }
        out.table(&table)?;
    }
    out.flush()
}
