//! The columns of a database: names, ids, types.

use super::value::ColumnType;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The maximum number of columns in a database.
pub const MAX_COLUMNS: usize = 1_000;
/// The maximum length of a column's name in bytes.
pub const MAX_COLUMN_NAME: usize = 255;
/// Names of the parts that every row has.
pub(crate) const RESERVED_NAMES: [&str; 3] = ["key", "text", "vector"];
/// The number of names that a message lists.
const LISTED: usize = 20;

/// The number of a column, by which files and logs know it. It is never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ColumnId(pub(crate) u32);

impl fmt::Display for ColumnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A column. Users know it by its name, files by its id.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Column {
    /// The number of the column.
    pub(crate) id: ColumnId,
    /// The name of the column.
    pub name: String,
    /// The type of its values.
    pub kind: ColumnType,
}

/// The columns of a database, in the order in which they were introduced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Record", into = "Record")]
pub(crate) struct Schema {
    /// The columns, ascending by id.
    columns: Vec<Column>,
    next_id: u32,
}

/// A schema in the version record: a map from names to ids.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    next_id: u32,
    names: BTreeMap<String, Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: ColumnId,
    #[serde(rename = "type")]
    kind: ColumnType,
}

impl From<Schema> for Record {
    fn from(schema: Schema) -> Self {
        let entry = |column: Column| {
            let Column { id, name, kind } = column;
            (name, Entry { id, kind })
        };
        Self {
            next_id: schema.next_id,
            names: schema.columns.into_iter().map(entry).collect(),
        }
    }
}

impl TryFrom<Record> for Schema {
    type Error = String;

    fn try_from(record: Record) -> Result<Self, String> {
        let column = |(name, Entry { id, kind })| Column { id, name, kind };
        Self::of(record.names.into_iter().map(column), record.next_id)
    }
}

impl Schema {
    /// Returns the schema of these columns, whose ids are below `next_id`.
    ///
    /// # Errors
    /// A message about an inconsistency.
    pub(crate) fn of(
        columns: impl IntoIterator<Item = Column>,
        next_id: u32,
    ) -> Result<Self, String> {
        let mut columns: Vec<Column> = columns.into_iter().collect();
        columns.sort_by_key(|column| column.id);
        if columns.len() > MAX_COLUMNS {
            return Err(format!(
                "{} columns of at most {MAX_COLUMNS}",
                columns.len()
            ));
        }
        let mut names = std::collections::BTreeSet::new();
        let mut below = None;
        for column in &columns {
            check_name(&column.name)?;
            if !names.insert(&column.name) {
                return Err(format!("two columns with the name {:?}", column.name));
            }
            if column.id.0 >= next_id || below.is_some_and(|below| column.id <= below) {
                return Err(format!("a column with the id {} of {next_id}", column.id));
            }
            below = Some(column.id);
        }
        Ok(Self { columns, next_id })
    }

    /// Returns `true` if there is no column and there never was one.
    pub(crate) fn is_new(&self) -> bool {
        self.next_id == 0
    }

    /// Returns the columns, in the order in which they were introduced.
    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the next id: no column has this id or a higher one.
    pub(crate) fn next_id(&self) -> u32 {
        self.next_id
    }

    /// Returns the column of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Returns the columns of these names.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no column with a name.
    pub(crate) fn named(&self, names: &[String]) -> Result<Vec<&Column>> {
        let find = |name: &String| {
            let column = self.find(name);
            column.ok_or_else(|| Error::invalid(self.unknown(name)))
        };
        names.iter().map(find).collect()
    }

    /// Adds a column.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name is not valid for a column or is taken, or if there are too many columns.
    pub(crate) fn introduce(&mut self, name: &str, kind: ColumnType) -> Result<&Column> {
        check_name(name).map_err(Error::invalid)?;
        if let Some(column) = self.find(name) {
            return Err(Error::invalid(format!(
                "column {name:?} exists already, with type {}",
                column.kind
            )));
        }
        if self.columns.len() == MAX_COLUMNS {
            return Err(Error::invalid(format!(
                "column {name:?} would be one more than the {MAX_COLUMNS} that a database can have; drop one, or put several values into one column"
            )));
        }
        let next = self.next_id.checked_add(1);
        let next = next.ok_or_else(|| Error::invalid("there are no more ids for columns"))?;
        self.columns.push(Column {
            id: ColumnId(self.next_id),
            name: name.to_owned(),
            kind,
        });
        self.next_id = next;
        Ok(self.columns.last().expect("just pushed"))
    }

    /// Returns `true` if one of these columns is newer than all in the schema.
    pub(crate) fn lacks(&self, named: &[Column]) -> bool {
        named.iter().any(|column| column.id.0 >= self.next_id)
    }

    /// Adds the new columns of logged batches, given in order. Columns whose ids are known, or were dropped, are
    /// skipped: the record with these ids is newer than the batch.
    ///
    /// # Errors
    /// A message about a conflict with the columns so far.
    pub(crate) fn merge(&mut self, named: &[Column]) -> Result<(), String> {
        let new = named.iter().filter(|column| column.id.0 >= self.next_id);
        let new: Vec<Column> = new.cloned().collect();
        let Some(last) = new.iter().map(|column| column.id.0).max() else {
            return Ok(());
        };
        let next_id = last.checked_add(1).ok_or("a column with the last id")?;
        *self = Self::of(self.columns.iter().cloned().chain(new), next_id)?;
        Ok(())
    }

    /// Returns the columns that files and logs mention, given oldest first, if there is no record. If they disagree
    /// about a column, the last one counts; of two columns with one name, the older was dropped.
    pub(crate) fn told(columns: impl IntoIterator<Item = Column>) -> Self {
        let mut known = BTreeMap::new();
        let columns = columns.into_iter().filter(|column| column.id.0 < u32::MAX);
        columns.for_each(|column| drop(known.insert(column.id, column)));
        let next = known.last_key_value().map_or(0, |(id, _)| id.0 + 1);
        let named = known
            .into_values()
            .map(|column| (column.name.clone(), column));
        let named: BTreeMap<String, Column> = named.collect();
        let newest = named.into_values().rev().take(MAX_COLUMNS);
        Self::of(newest, next).expect("ids and names are there once, and none is too high")
    }

    /// Removes a column. Its id is not used again, and its values disappear with their rows.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no column with this name.
    pub(crate) fn drop(&mut self, name: &str) -> Result<Column> {
        let at = self.columns.iter().position(|column| column.name == name);
        let at = at.ok_or_else(|| Error::invalid(self.unknown(name)))?;
        Ok(self.columns.remove(at))
    }

    /// Changes the type of a column. Its values must all fit the new type, which the caller may have to check: files
    /// and logs keep their values, which are converted when they are read.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no column with this name, or if values of its type never fit the other.
    pub(crate) fn retype(&mut self, name: &str, to: ColumnType) -> Result<Retyped> {
        let unknown = self.unknown(name);
        let column = self.columns.iter_mut().find(|column| column.name == name);
        let column = column.ok_or_else(|| Error::invalid(unknown))?;
        let from = column.kind;
        let needs_look = match lossless(from, to) {
            Some(always) => !always,
            None => {
                return Err(Error::invalid(format!(
                    "column {name:?} is {} and can't become {} without loss; add another column, or insert the rows again",
                    from.described(),
                    to.described()
                )));
            }
        };
        column.kind = to;
        Ok(Retyped {
            id: column.id,
            from,
            to,
            needs_look,
        })
    }

    /// Returns the message for a name that no column has.
    pub(crate) fn unknown(&self, name: &str) -> String {
        let near = self.columns.iter().map(|column| &column.name);
        let mut near = near.filter(|other| other.to_lowercase() == name.to_lowercase());
        let near = near.next().map(|near| format!(" (did you mean {near:?}?)"));
        format!(
            "there is no column {name:?}{}; {}",
            near.unwrap_or_default(),
            self.list()
        )
    }

    /// Returns a list of the columns for a message.
    pub(crate) fn list(&self) -> String {
        let listed = self.columns.iter().take(LISTED);
        let listed: Vec<_> = listed.map(|c| format!("{} ({})", c.name, c.kind)).collect();
        match self.columns.len() {
            0 => "there are no columns yet".to_owned(),
            len if len > LISTED => {
                format!(
                    "the columns are {} and {} more",
                    listed.join(", "),
                    len - LISTED
                )
            }
            _ => format!("the columns are {}", listed.join(", ")),
        }
    }
}

/// A column whose type was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retyped {
    /// The column.
    pub(crate) id: ColumnId,
    /// Its old type.
    pub(crate) from: ColumnType,
    /// Its new type.
    pub(crate) to: ColumnType,
    /// Whether some values of the old type do not fit the new one: then every stored value must be checked before the
    /// change is committed (see [`first_lossy`](super::first_lossy)).
    pub(crate) needs_look: bool,
}

/// Returns `true` if all values of one type fit another, `false` if only some do; `None` if none do.
fn lossless(from: ColumnType, to: ColumnType) -> Option<bool> {
    use ColumnType as Type;
    match (from, to) {
        (from, to) if from == to => Some(true),
        (Type::String, Type::Strings)
        | (Type::Bool | Type::Int | Type::Timestamp, Type::String) => Some(true),
        (Type::Int, Type::Float)
        | (Type::Float, Type::Int)
        | (Type::String, Type::Int | Type::Timestamp) => Some(false),
        _ => None,
    }
}

/// Checks that a name is valid for a column.
///
/// # Errors
/// A message that says what is wrong and what to do instead.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    if RESERVED_NAMES.contains(&name) {
        return Err(format!(
            "{name:?} is part of every row and can't be the name of a column; give the column another name"
        ));
    }
    if name.is_empty() || name.len() > MAX_COLUMN_NAME {
        return Err(format!(
            "the name of a column must have 1 to {MAX_COLUMN_NAME} bytes, not {}",
            name.len()
        ));
    }
    if let Some(c) = name.chars().find(|c| c.is_control()) {
        return Err(format!("the name of a column can't contain {c:?}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ColumnType as Type;

    fn schema() -> Schema {
        let mut schema = Schema::default();
        for (name, kind) in [
            ("year", Type::Int),
            ("lang", Type::String),
            ("at", Type::String),
        ] {
            schema.introduce(name, kind).unwrap();
        }
        schema
    }

    #[test]
    fn a_schema_is_written_and_read_as_a_map_from_names_to_ids() {
        let mut schema = schema();
        schema.drop("lang").unwrap();
        let json = serde_json::to_string(&schema).unwrap();
        assert_eq!(
            json,
            r#"{"next_id":3,"names":{"at":{"id":2,"type":"string"},"year":{"id":0,"type":"int"}}}"#
        );
        assert_eq!(serde_json::from_str::<Schema>(&json).unwrap(), schema);
        for broken in [
            r#"{"next_id":1,"names":{"at":{"id":1,"type":"string"}}}"#,
            r#"{"next_id":9,"names":{"a":{"id":1,"type":"int"},"b":{"id":1,"type":"int"}}}"#,
            r#"{"next_id":9,"names":{"key":{"id":1,"type":"int"}}}"#,
            r#"{"next_id":9,"names":{"":{"id":1,"type":"int"}}}"#,
            r#"{"next_id":9,"names":{"a":{"id":1,"type":"number"}}}"#,
            r#"{"next_id":9,"names":{},"more":1}"#,
        ] {
            assert!(serde_json::from_str::<Schema>(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn an_id_is_never_used_again() {
        let mut schema = schema();
        let dropped = schema.drop("at").unwrap();
        let again = schema.introduce("at", Type::Timestamp).unwrap();
        assert!(again.id > dropped.id);
        let id = again.id;
        let ids: Vec<_> = schema.columns().iter().map(|column| column.id).collect();
        assert!(ids.contains(&id) && !ids.contains(&dropped.id));
    }

    #[test]
    fn batches_in_order_make_the_schema_and_dropped_columns_stay_dropped() {
        let columns = schema().columns().to_vec();
        let mut merged = Schema::default();
        merged.merge(&columns[..1]).unwrap();
        merged.merge(&columns[..2]).unwrap();
        merged.merge(&[]).unwrap();
        merged.merge(&columns[2..]).unwrap();
        assert_eq!(merged, schema());
        merged.drop("lang").unwrap();
        merged.merge(&columns).unwrap();
        assert_eq!(merged.find("lang"), None);
        // A new column with the name of an existing one.
        let twice = [Column {
            id: ColumnId(7),
            ..columns[0].clone()
        }];
        assert!(merged.merge(&twice).unwrap_err().contains("year"));
        let last = [Column {
            id: ColumnId(u32::MAX),
            name: "z".into(),
            kind: Type::Int,
        }];
        assert!(merged.merge(&last).is_err());
    }

    #[test]
    fn without_a_record_the_last_mention_of_a_column_counts() {
        let column = |id, name: &str, kind| Column {
            id: ColumnId(id),
            name: name.into(),
            kind,
        };
        let schema = Schema::told([
            column(4, "lang", Type::String),
            column(0, "year", Type::Int),
            column(1, "lang", Type::Int),
            column(0, "year", Type::Float),
        ]);
        let columns = [
            column(0, "year", Type::Float),
            column(4, "lang", Type::String),
        ];
        assert_eq!(schema, Schema::of(columns, 5).unwrap());
        assert!(Schema::told([]).is_new());
    }

    #[test]
    fn names_and_their_number_have_limits() {
        let mut schema = Schema::default();
        for name in ["key", "text", "vector", "", "a\nb", &"x".repeat(256)] {
            assert!(schema.introduce(name, Type::Int).is_err(), "{name}");
        }
        for at in 0..MAX_COLUMNS {
            schema.introduce(&format!("c{at}"), Type::Int).unwrap();
        }
        let error = schema.introduce("more", Type::Int).unwrap_err().to_string();
        assert!(error.contains("1000"), "{error}");
        let error = schema.drop("C7").unwrap_err().to_string();
        assert!(error.contains("did you mean \"c7\""), "{error}");
        assert!(error.ends_with("c19 (int) and 980 more"), "{error}");
        let error = schema.introduce("c7", Type::Bool).unwrap_err().to_string();
        assert!(error.contains("with type int"), "{error}");
    }

    #[test]
    fn a_column_gets_another_type_only_without_loss() {
        let mut schema = schema();
        assert!(schema.retype("year", Type::Float).unwrap().needs_look);
        assert!(schema.retype("at", Type::Timestamp).unwrap().needs_look);
        assert!(!schema.retype("lang", Type::Strings).unwrap().needs_look);
        assert_eq!(schema.find("lang").unwrap().kind, Type::Strings);
        let error = schema.retype("lang", Type::Int).unwrap_err().to_string();
        assert!(error.contains("\"lang\" is a list of strings"), "{error}");
        assert_eq!(schema.find("lang").unwrap().kind, Type::Strings);
        assert!(schema.retype("none", Type::Int).is_err());
    }
}
