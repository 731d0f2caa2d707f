//! `--where` and `--columns`: filters, and columns in tables.

use crate::exit::usage;
use anyhow::Result;
use mopqdb::columns::{ColumnValue, ColumnValueRef};
use mopqdb::{Filter, QueryOptions};
use std::collections::BTreeMap;

/// Returns the filter of a SQL expression. One that can't be read is a usage error that points at the character.
pub(super) fn sql(expression: &str) -> Result<Filter> {
    Filter::sql(expression).map_err(|error| usage(error.to_string()))
}

/// Returns the filter that all rows pass that have the prefix and for which the expression is true; `None`: every row.
pub(super) fn of(prefix: Option<&str>, expression: Option<&str>) -> Result<Option<Filter>> {
    let prefix = prefix.map(|prefix| Filter::Prefix(prefix.into()));
    let expression = expression.map(sql).transpose()?;
    Ok([prefix, expression]
        .into_iter()
        .flatten()
        .reduce(Filter::and))
}

/// Restricts a query to the rows that pass the expression.
pub(super) fn among(options: QueryOptions, expression: Option<&str>) -> Result<QueryOptions> {
    Ok(match expression {
        Some(expression) => options.among(sql(expression)?),
        None => options,
    })
}

/// Returns the values of these columns as cells of a table.
pub(super) fn cells<'c>(
    values: &'c BTreeMap<String, ColumnValue>,
    names: &'c [String],
) -> impl Iterator<Item = String> + 'c {
    names
        .iter()
        .map(|name| values.get(name).map_or(String::new(), cell))
}

/// Returns a value as text: nothing for null, a JSON array for a list.
fn cell(value: &ColumnValue) -> String {
    match value.as_ref() {
        ColumnValueRef::Null => String::new(),
        ColumnValueRef::String(text) => text.to_owned(),
        _ => match value.to_json() {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        },
    }
}

/// Returns values as a JSON object.
pub(super) fn object(values: &BTreeMap<String, ColumnValue>) -> serde_json::Value {
    let member = |(name, value): (&String, &ColumnValue)| (name.clone(), value.to_json());
    serde_json::Value::Object(values.iter().map(member).collect())
}

/// Returns an error that lists the columns unless all of these names are among them.
pub(super) fn check_names(names: &[String], columns: &[mopqdb::columns::Column]) -> Result<()> {
    let is_missing = |name: &&String| !columns.iter().any(|column| column.name == **name);
    let Some(missing) = names.iter().find(is_missing) else {
        return Ok(());
    };
    let all: Vec<String> = columns
        .iter()
        .map(|column| format!("{} ({})", column.name, column.kind))
        .collect();
    match all.is_empty() {
        true => anyhow::bail!("there is no column {missing:?}: the database has no columns"),
        false => anyhow::bail!(
            "there is no column {missing:?}; the columns are {}",
            all.join(", ")
        ),
    }
}
