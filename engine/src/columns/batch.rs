//! Columns of some rows in memory: as the user gives them ([`Columns`]), as the log has them ([`LoggedColumns`]) and as
//! a run of the tail has them ([`ColumnBatch`]).

use super::bits;
use super::data::{self, ColumnData, ColumnRead, Piece};
use super::schema::{Column, ColumnId, MAX_COLUMNS, Schema};
use super::value::{ColumnType, ColumnValue, ColumnValueRef};
use crate::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// A source of columns: a batch, or the columns file of a segment.
pub(crate) trait ColumnSource {
    /// Returns the number of rows.
    fn rows(&self) -> usize;
    /// Returns the values of a column, whose type may be the one before it was retyped; `None` if all are null.
    fn column(&self, id: ColumnId) -> Option<&dyn ColumnRead>;
}

/// The columns of some rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ColumnBatch {
    rows: usize,
    /// Each has one value per row.
    columns: BTreeMap<ColumnId, ColumnData>,
}

impl ColumnBatch {
    /// Returns rows whose columns are all null.
    pub(crate) fn nulls(rows: usize) -> Self {
        Self {
            rows,
            columns: BTreeMap::new(),
        }
    }

    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the columns that have values, ascending by id.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (ColumnId, &ColumnData)> {
        self.columns.iter().map(|(&id, data)| (id, data))
    }

    /// Returns the values of a column; `None` if all are null.
    pub(crate) fn get(&self, id: ColumnId) -> Option<&ColumnData> {
        self.columns.get(&id)
    }

    /// Sets the values of a column.
    ///
    /// # Panics
    /// If the number of values is not the number of rows.
    pub(crate) fn set(&mut self, id: ColumnId, data: ColumnData) {
        assert_eq!(data.rows(), self.rows, "there must be one value per row");
        if data.nulls() < data.rows() {
            self.columns.insert(id, data);
        }
    }

    /// Returns the live rows of several sources, one after the other. A column that was retyped in between has the type
    /// of the last source that has it, which can hold every value that was live when it was retyped.
    pub(crate) fn gather(sources: &[(&ColumnBatch, Option<&[u64]>)]) -> Self {
        let ids = sources.iter().flat_map(|(batch, _)| batch.columns.keys());
        let ids: BTreeSet<ColumnId> = ids.copied().collect();
        let alive = |(batch, live): &(&Self, Option<&[u64]>)| live.map_or(batch.rows, bits::count);
        let mut gathered = Self::nulls(sources.iter().map(alive).sum());
        for id in ids {
            let mut kinds = sources.iter().filter_map(|(batch, _)| batch.get(id));
            let kind = kinds.next_back().expect("one of them has it").kind();
            let mut data = ColumnData::new(kind);
            for &(batch, live) in sources {
                match batch.get(id) {
                    None => data.push_nulls(live.map_or(batch.rows, bits::count)),
                    Some(from) => data.extend_living(from, live),
                }
            }
            gathered.set(id, data);
        }
        gathered
    }
}

/// Returns the live values of several sources, one after the other, as this type.
///
/// # Errors
/// If a source is damaged, or has a value that the type can't hold.
pub(crate) fn gather(pieces: &[Piece<'_>], kind: ColumnType) -> Result<ColumnData> {
    let mut gathered = ColumnData::new(kind);
    for piece in pieces {
        match piece.column {
            None => gathered.push_nulls(piece.alive()),
            Some(column) if column.kind() == kind => gathered.extend(column, piece.living())?,
            Some(column) => {
                for row in piece.living() {
                    let given = data::value(column, row)?.to_value();
                    let value = given.clone().convert(kind).ok_or_else(|| {
                        column.wrong(format!(
                            "row {row} has {given:?} where the column is {kind}"
                        ))
                    })?;
                    gathered.push(&value.as_ref());
                }
            }
        }
    }
    Ok(gathered)
}

impl ColumnSource for ColumnBatch {
    fn rows(&self) -> usize {
        self.rows
    }

    fn column(&self, id: ColumnId) -> Option<&dyn ColumnRead> {
        self.get(id).map(|data| data as &dyn ColumnRead)
    }
}

/// The columns of a logged batch: their values, and their names and types, so that the batch can be read alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LoggedColumns {
    /// The columns of the batch, ascending by id.
    pub(crate) named: Vec<Column>,
    /// The values of the columns.
    pub(crate) batch: ColumnBatch,
}

impl LoggedColumns {
    /// Returns rows without columns.
    pub(crate) fn none(rows: usize) -> Self {
        Self {
            named: Vec::new(),
            batch: ColumnBatch::nulls(rows),
        }
    }

    /// Returns `true` if no row has a value.
    pub(crate) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }
}

/// A value that its column can't have.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Conflict {
    /// The row, counted from the first of the batch.
    pub(crate) row: usize,
    /// The name of the column.
    pub(crate) column: String,
    /// What is wrong, and what to do instead.
    pub(crate) why: String,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {:?}: {}", self.column, self.why)
    }
}

impl Conflict {
    /// Returns the error for the row with this key.
    pub(crate) fn of_key(&self, key: &str) -> Error {
        Error::invalid(format!("key {key:?}: {self}"))
    }

    /// Returns the error for the row with this number.
    fn of_row(self) -> Error {
        Error::invalid(format!("row {}: {self}", self.row))
    }
}

/// Columns of some rows, by name. A column that a row does not set is null in that row.
///
/// ```
/// use mopqdb::columns::Columns;
/// use mopqdb::{CreateOptions, Database, Filter, Metric, Options, RowBatch};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("colours.db");
/// let db = Database::create(&path, &CreateOptions::vectors(2, Metric::Ip), Options::default())?;
/// let (keys, values) = (["red", "blue"], [1.0, 0.0, 0.0, 1.0]);
/// let mut columns = Columns::default();
/// columns.set("warm", [true, false])?;
/// columns.set("nanometres", [Some(700), None])?;
/// db.insert_batch(RowBatch::vectors(&keys, &values)?.with_columns(&columns)?)?;
/// assert_eq!(db.count_where(&Filter::sql("warm AND nanometres > 600")?)?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Columns {
    rows: usize,
    places: HashMap<String, usize>,
    /// Each may have fewer values than there are rows: the others are null.
    columns: Vec<(String, ColumnData)>,
}

impl Columns {
    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Adds a column with one value per row, whose type is that of its values. A column of nulls adds nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a value can't be stored, if values have several types, if their number differs from that
    /// of earlier columns, or if the name is not valid for a column or is used already.
    pub fn set<V: Into<ColumnValue>>(
        &mut self,
        name: &str,
        values: impl IntoIterator<Item = V>,
    ) -> Result<()> {
        let mut data: Option<ColumnData> = None;
        let mut rows = 0;
        for value in values {
            let value: ColumnValue = value.into();
            let conflict = |why: String| Conflict {
                row: rows,
                column: name.to_owned(),
                why,
            };
            (value.check()).map_err(|why| conflict(why).of_row())?;
            if let Some(kind) = value.kind() {
                let data = data.get_or_insert_with(|| ColumnData::nulls_of(kind, rows));
                data.push_nulls(rows - data.rows());
                let value = widen(data, value).map_err(|why| conflict(why).of_row())?;
                data.push(&value.as_ref());
            }
            rows += 1;
        }
        self.add(name, data, rows)
    }

    /// Adds a column of this type with one value per row.
    ///
    /// # Errors
    /// Those of [`set`](Self::set), and a value that is not of this type.
    pub fn set_typed<V: Into<ColumnValue>>(
        &mut self,
        name: &str,
        kind: ColumnType,
        values: impl IntoIterator<Item = V>,
    ) -> Result<()> {
        let mut data = ColumnData::new(kind);
        for (row, value) in values.into_iter().enumerate() {
            let conflict = |why: String| Conflict {
                row,
                column: name.to_owned(),
                why,
            };
            let value: ColumnValue = value.into();
            (value.check()).map_err(|why| conflict(why).of_row())?;
            let value = fit(value, kind);
            let value = value.map_err(|value| conflict(mismatch(&value, kind)).of_row())?;
            data.push(&value.as_ref());
        }
        let rows = data.rows();
        self.add(name, Some(data), rows)
    }

    fn add(&mut self, name: &str, data: Option<ColumnData>, rows: usize) -> Result<()> {
        super::schema::check_name(name).map_err(Error::invalid)?;
        if self.places.contains_key(name) {
            return Err(Error::invalid(format!("column {name:?} occurs twice")));
        }
        if self.columns.is_empty() && self.rows == 0 {
            self.rows = rows;
        }
        if rows != self.rows {
            return Err(Error::invalid(format!(
                "column {name:?} has {rows} values, but there are {} rows",
                self.rows
            )));
        }
        if let Some(data) = data {
            self.places.insert(name.to_owned(), self.columns.len());
            self.columns.push((name.to_owned(), data));
        }
        Ok(())
    }

    /// Returns the values of a row that are not null, by name.
    pub(crate) fn row(&self, row: usize) -> impl Iterator<Item = (&str, ColumnValueRef<'_>)> {
        let values = self
            .columns
            .iter()
            .filter(move |(_, data)| row < data.rows());
        let values = values.map(move |(name, data)| (&name[..], data.value(row)));
        values.filter(|(_, value)| *value != ColumnValueRef::Null)
    }

    /// Appends a row. Columns that it does not name are null.
    ///
    /// # Errors
    /// A value that can't be stored, a name that is not valid for a column or occurs twice, or a value of another type
    /// than the previous ones. The row is not appended.
    pub(crate) fn push<'v>(
        &mut self,
        values: impl IntoIterator<Item = (&'v str, ColumnValueRef<'v>)>,
    ) -> Result<(), Conflict> {
        let row = self.rows;
        let conflict = |name: &str, why: String| Conflict {
            row,
            column: name.to_owned(),
            why,
        };
        let mut names = BTreeSet::new();
        let mut checked = Vec::new();
        for (name, value) in values {
            super::schema::check_name(name).map_err(|why| conflict(name, why))?;
            if !names.insert(name) {
                return Err(conflict(name, "the row sets it twice".to_owned()));
            }
            value.check().map_err(|why| conflict(name, why))?;
            let Some(kind) = value.kind() else {
                continue;
            };
            if names.len() > MAX_COLUMNS {
                let why = format!("the row has more than {MAX_COLUMNS} columns");
                return Err(conflict(name, why));
            }
            let place = self.places.get(name).copied();
            let fitted = match place {
                Some(place) if self.columns[place].1.kind() != kind => {
                    let fitted = widen(&mut self.columns[place].1, value.to_value());
                    Some(fitted.map_err(|why| conflict(name, why))?)
                }
                _ => None,
            };
            checked.push((name, place, kind, value, fitted));
        }
        for (name, place, kind, value, fitted) in checked {
            let place = place.unwrap_or_else(|| {
                self.places.insert(name.to_owned(), self.columns.len());
                self.columns.push((name.to_owned(), ColumnData::new(kind)));
                self.columns.len() - 1
            });
            let (_, data) = &mut self.columns[place];
            data.push_nulls(row - data.rows());
            match fitted {
                Some(value) => data.push(&value.as_ref()),
                None => data.push(&value),
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// Converts columns to the types that the schema has for them, so that binding them to it is fast.
    ///
    /// # Errors
    /// A value whose type does not fit its column.
    pub(crate) fn fit(&mut self, schema: &Schema) -> Result<(), Conflict> {
        for (name, data) in &mut self.columns {
            let Some(column) = schema.find(name) else {
                continue;
            };
            if data.kind() != column.kind {
                let given = std::mem::replace(data, ColumnData::new(column.kind));
                *data = fit_all(given, column.kind).map_err(|(row, why)| Conflict {
                    row,
                    column: name.clone(),
                    why,
                })?;
            }
        }
        Ok(())
    }

    /// Assigns ids to columns: those in the schema, or else the next ones. Requires, for columns that are logged: the
    /// writer lock is held.
    ///
    /// # Errors
    /// A value whose type does not fit its column.
    pub(crate) fn bind(self, schema: &Schema) -> Result<LoggedColumns, Conflict> {
        let mut grown = schema.clone();
        let mut bound = LoggedColumns::none(self.rows);
        for (name, mut data) in self.columns {
            data.push_nulls(self.rows - data.rows());
            let Some(first) = data::first_valid(&data) else {
                continue;
            };
            let column = match grown.find(&name) {
                Some(column) => {
                    data = fit_all(data, column.kind).map_err(|(row, why)| Conflict {
                        row,
                        column: name.clone(),
                        why,
                    })?;
                    column.clone()
                }
                None => {
                    let column = grown.introduce(&name, data.kind());
                    let column = column.map_err(|why| Conflict {
                        row: first,
                        column: name.clone(),
                        why: why.to_string(),
                    })?;
                    column.clone()
                }
            };
            bound.batch.set(column.id, data);
            bound.named.push(column);
        }
        bound.named.sort_unstable_by_key(|column| column.id);
        Ok(bound)
    }
}

/// Converts a value to its column's type, or the column to the value's type.
fn widen(data: &mut ColumnData, value: ColumnValue) -> Result<ColumnValue, String> {
    let kind = data.kind();
    match fit(value, kind) {
        Ok(value) => Ok(value),
        Err(ColumnValue::Float(number)) if kind == ColumnType::Int => {
            // An int followed by a float, such as 10 and 10.5.
            let floats = data.clone().convert(ColumnType::Float);
            *data = floats.map_err(|row| {
                format!(
                    "{number} is a float, but row {row} of the batch has an int that no float equals; give both as strings"
                )
            })?;
            Ok(ColumnValue::Float(number))
        }
        Err(value) => Err(mismatch(&value, kind)),
    }
}

/// Returns the value as this type if a user may write it for that type; otherwise returns it unchanged.
pub(crate) fn fit(value: ColumnValue, kind: ColumnType) -> Result<ColumnValue, ColumnValue> {
    let may = match (&value, kind) {
        (ColumnValue::Null, _) => true,
        (ColumnValue::Int(_), ColumnType::Float) => true,
        (ColumnValue::Float(_), ColumnType::Int) => true,
        (ColumnValue::String(_), ColumnType::Timestamp) => true,
        (value, kind) => value.kind() == Some(kind),
    };
    match may.then(|| value.clone().convert(kind)).flatten() {
        Some(fitted) => Ok(fitted),
        None => Err(value),
    }
}

/// Returns the values as another type, or the first row that does not fit and the reason.
fn fit_all(data: ColumnData, kind: ColumnType) -> Result<ColumnData, (usize, String)> {
    if data.kind() == kind {
        return Ok(data);
    }
    let mut fitted = ColumnData::new(kind);
    for row in 0..data.rows() {
        let value = fit(data.value(row).to_value(), kind);
        let value = value.map_err(|value| (row, mismatch(&value, kind)))?;
        fitted.push(&value.as_ref());
    }
    Ok(fitted)
}

/// Returns the message for a value that is not of its column's type.
pub(super) fn mismatch(value: &ColumnValue, kind: ColumnType) -> String {
    let shown = show(value);
    if let (ColumnValue::String(text), ColumnType::Timestamp) = (value, kind)
        && let Err(why) = super::time::parse(text)
    {
        return why;
    }
    let exactly = match (value, kind) {
        (ColumnValue::Int(_), ColumnType::Float) => "can't be one exactly",
        (ColumnValue::Float(_), ColumnType::Int) => "is not an int",
        _ => {
            let is = value.kind().map_or("null", ColumnType::described);
            return format!(
                "{shown} is {is}, but the column has type {kind}; give {}, or use another column",
                kind.described()
            );
        }
    };
    format!(
        "the column has type {kind}, and {shown} {exactly}; use another column or retype this one"
    )
}

/// Returns a value for a message, shortened if it is long.
fn show(value: &ColumnValue) -> String {
    const MOST: usize = 40;
    let json = value.as_ref().to_json().to_string();
    match json.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &json[..end]),
        None => json,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ColumnType as Type;

    fn push(draft: &mut Columns, row: &[(&str, ColumnValue)]) -> Result<(), Conflict> {
        draft.push(row.iter().map(|(name, value)| (*name, value.as_ref())))
    }

    fn rows() -> Columns {
        let mut draft = Columns::default();
        push(&mut draft, &[("year", 2020.into())]).unwrap();
        push(&mut draft, &[]).unwrap();
        let tags = vec!["a", "b"];
        push(
            &mut draft,
            &[
                ("year", 2021.0.into()),
                ("tags", tags.into()),
                ("new", ColumnValue::Null),
            ],
        )
        .unwrap();
        push(&mut draft, &[("year", 2021.5.into())]).unwrap();
        draft
    }

    #[test]
    fn rows_become_columns_with_the_ids_of_the_schema() {
        let mut schema = Schema::default();
        schema.introduce("tags", Type::Strings).unwrap();
        let bound = rows().bind(&schema).unwrap();
        let year = ColumnId(1);
        assert_eq!(
            bound.named[1],
            Column {
                id: year,
                name: "year".into(),
                kind: Type::Float,
            }
        );
        let values: Vec<_> = (0..4)
            .map(|row| bound.batch.get(year).unwrap().value(row).to_value())
            .collect();
        let null = ColumnValue::Null;
        assert_eq!(values, [2020.0.into(), null, 2021.0.into(), 2021.5.into()]);
        assert_eq!(bound.batch.get(ColumnId(0)).unwrap().nulls(), 3);
        assert_eq!(bound.batch.get(ColumnId(2)), None);
    }

    #[test]
    fn a_conflict_names_row_and_column_and_what_to_do() {
        let mut schema = Schema::default();
        schema.introduce("year", Type::Int).unwrap();
        let conflict = rows().bind(&schema).unwrap_err();
        assert_eq!((conflict.row, conflict.column.as_str()), (3, "year"));
        assert!(conflict.why.contains("2021.5"), "{conflict}");
        let mut draft = rows();
        for (row, why) in [
            (
                &[("year", "x".into())][..],
                "\"x\" is a string, but the column has type float",
            ),
            (&[("key", 7.into())], "part of every row"),
            (&[("a", 7.into()), ("a", 8.into())], "twice"),
            (&[("a", f64::NAN.into())], "NaN"),
            (
                &[("b", 7.into()), ("tags", "one".into())],
                "give a list of strings",
            ),
            (&[("year", ((1_i64 << 53) + 1).into())], "exactly"),
        ] {
            let conflict = push(&mut draft, row).unwrap_err();
            assert!(conflict.to_string().contains(why), "{conflict}");
            assert_eq!(conflict.row, 4);
        }
        assert_eq!(draft.rows(), 4);
        assert!(draft.bind(&Schema::default()).unwrap().named.len() == 2);
        let error = conflict.of_key("k").to_string();
        assert!(error.starts_with("key \"k\": column \"year\": "), "{error}");
    }

    #[test]
    fn the_type_of_a_column_determines_its_values() {
        let mut schema = Schema::default();
        schema.introduce("year", Type::Int).unwrap();
        schema.introduce("at", Type::Timestamp).unwrap();
        let mut draft = Columns::default();
        push(
            &mut draft,
            &[("year", 5.0.into()), ("at", "1970-01-01".into())],
        )
        .unwrap();
        let bound = draft.bind(&schema).unwrap();
        let value = |id| bound.batch.get(ColumnId(id)).unwrap().value(0).to_value();
        assert_eq!([value(0), value(1)], [5.into(), ColumnValue::Timestamp(0)]);
        let mut draft = Columns::default();
        push(&mut draft, &[("at", "soon".into())]).unwrap();
        let conflict = draft.bind(&schema).unwrap_err();
        assert!(conflict.why.contains("2024-05-01T12:00:00Z"), "{conflict}");
    }

    #[test]
    fn columns_given_at_once_equal_rows_given_one_by_one() {
        let mut draft = Columns::default();
        let years = [2020.into(), ColumnValue::Null];
        draft.set_typed("year", Type::Float, years).unwrap();
        let bound = draft.bind(&Schema::default()).unwrap();
        let mut other = Columns::default();
        push(&mut other, &[("year", 2020.0.into())]).unwrap();
        push(&mut other, &[]).unwrap();
        assert_eq!(bound, other.bind(&Schema::default()).unwrap());
        let mut draft = Columns::default();
        let error = draft.set_typed("year", Type::Int, ["x"]).unwrap_err();
        assert!(error.to_string().contains("give an int"), "{error}");
        draft.set("a", [Some(1.0), None, Some(2.5)]).unwrap();
        draft.set("b", [1, 2, 3]).unwrap();
        for (error, why) in [
            (draft.set("c", [1, 2]), "2 values, but there are 3 rows"),
            (draft.set("b", [1, 2, 3]), "twice"),
            (draft.set("key", [1, 2, 3]), "part of every row"),
            (
                draft.set("c", [1.5, f64::NAN, 1.0]),
                "row 1: column \"c\": NaN",
            ),
        ] {
            let error = error.unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert_eq!(
            draft.row(1).collect::<Vec<_>>(),
            [("b", ColumnValueRef::Int(2))]
        );
    }

    #[test]
    fn live_rows_of_batches_are_gathered() {
        let first = rows().bind(&Schema::default()).unwrap().batch;
        let mut second = ColumnBatch::nulls(70);
        let mut flags = ColumnData::new(Type::Bool);
        (0..70).for_each(|row| flags.push(&ColumnValue::from(row % 2 == 0).as_ref()));
        second.set(ColumnId(9), flags);
        let live = [0b1101, 0];
        let some = [u64::MAX, 0b10_0000];
        let gathered = ColumnBatch::gather(&[
            (&first, Some(&live[..1])),
            (&second, Some(&some)),
            (&ColumnBatch::nulls(2), None),
        ]);
        assert_eq!(gathered.rows(), 3 + 65 + 2);
        let value = |id, row| gathered.get(ColumnId(id)).unwrap().value(row).to_value();
        assert_eq!(value(0, 1), 2021.0.into());
        assert_eq!(value(1, 1), vec!["a", "b"].into());
        assert_eq!(value(9, 1), ColumnValue::Null);
        assert_eq!(value(9, 3), true.into());
        assert_eq!(value(9, 67), false.into());
        assert_eq!(value(9, 69), ColumnValue::Null);
    }

    #[test]
    fn a_retyped_column_is_gathered_as_its_current_type() {
        let batch = |value: ColumnValue| {
            let mut batch = ColumnBatch::nulls(1);
            let mut data = ColumnData::new(value.kind().unwrap());
            data.push(&value.as_ref());
            batch.set(ColumnId(0), data);
            batch
        };
        let gathered = ColumnBatch::gather(&[(&batch(7.into()), None), (&batch(0.5.into()), None)]);
        let data = gathered.get(ColumnId(0)).unwrap();
        assert_eq!(data.value(0).to_value(), 7.0.into());
    }
}
