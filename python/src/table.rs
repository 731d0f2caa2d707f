//! Rows from Arrow data: what pyarrow, polars, DuckDB and others hand over by the C data interface.

use crate::call::watched;
use crate::errors;
use crate::handle::Handle;
use crate::input::Count;
use crate::write::{Counts, counts};
use arrow_array::cast::AsArray as _;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::types::{
    Date32Type, Date64Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, TimeUnit};
use mopqdb::{ColumnValue, Error, Row, RowBatch, RowsKind, Value};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::sync::{Mutex, PoisonError};

/// The rows of a stream of record batches, some at a time.
#[pyclass(frozen, module = "mopqdb._native")]
pub(crate) struct Table(Mutex<Slices>);

/// What was not inserted yet.
struct Slices {
    stream: RecordBatchStreamReader,
    rest: Option<RecordBatch>,
    rows: usize,
}

impl Slices {
    fn next(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let batch = loop {
            match self.rest.take() {
                Some(batch) if batch.num_rows() > 0 => break batch,
                _ => match self.stream.next().transpose()? {
                    Some(batch) => self.rest = Some(batch),
                    None => return Ok(None),
                },
            }
        };
        let some = batch.num_rows().min(self.rows);
        self.rest = Some(batch.slice(some, batch.num_rows() - some));
        Ok(Some(batch.slice(0, some)))
    }
}

#[pymethods]
impl Table {
    #[new]
    fn new(table: &Bound<'_, PyAny>, rows: Count) -> PyResult<Self> {
        Ok(Self(Mutex::new(Slices {
            stream: stream(table)?,
            rest: None,
            rows: rows.0.max(1),
        })))
    }

    /// Inserts the next rows; returns `None` at the end.
    fn insert(&self, py: Python<'_>, handle: &Handle) -> PyResult<Option<Counts>> {
        let open = handle.open(py)?;
        let next = self.0.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some(batch) = next.map_err(|why| errors::invalid(py, why.to_string()))? else {
            return Ok(None);
        };
        let kind = open.snapshot().model().kind();
        let done = watched(py, None, |watch| {
            let rows = read(&batch, kind).map_err(Error::invalid)?;
            open.writer()?
                .insert_watched(RowBatch::from(&rows[..]), watch)
        })?;
        Ok(Some(counts(done)))
    }
}

/// Takes over a stream of record batches.
#[expect(
    unsafe_code,
    reason = "the C data interface hands over a pointer, whose meaning the name of its capsule tells"
)]
fn stream(table: &Bound<'_, PyAny>) -> PyResult<RecordBatchStreamReader> {
    let capsule = table.call_method0("__arrow_c_stream__")?;
    let capsule = capsule.cast::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    let pointer = pointer.cast::<FFI_ArrowArrayStream>().as_ptr();
    // SAFETY: a capsule of this name holds a stream of the C data interface, valid as long as the capsule, which is alive
    // here. What is taken out leaves a released stream behind, so that it is released once.
    let stream = unsafe { RecordBatchStreamReader::from_raw(pointer) };
    stream.map_err(|why| errors::invalid(table.py(), why.to_string()))
}

/// Returns the rows of a batch: a column `key`, one `text` or `vector`, and others.
fn read(batch: &RecordBatch, kind: RowsKind) -> Result<Vec<Row>, String> {
    let value = match kind {
        RowsKind::Text => "text",
        RowsKind::Vector => "vector",
    };
    let named = |name: &str| {
        (batch.column_by_name(name)).ok_or_else(|| {
            format!("the table has no column {name:?}; it needs \"key\" and \"{value}\"")
        })
    };
    let keys = strings("key", named("key")?)?;
    let values: Vec<Value> = match kind {
        RowsKind::Text => {
            let texts = strings(value, named(value)?)?;
            texts.into_iter().map(Value::Text).collect()
        }
        RowsKind::Vector => {
            let vectors = vectors(named(value)?)?;
            vectors.into_iter().map(Value::Vector).collect()
        }
    };
    let mut rows: Vec<Row> = (keys.into_iter().zip(values))
        .map(|(key, value)| Row::new(key, value))
        .collect();
    let schema = batch.schema();
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        let name = field.name();
        if name == "key" || name == value {
            continue;
        }
        let values = column_values(column).map_err(|why| format!("column {name:?}: {why}"))?;
        for (row, value) in rows.iter_mut().zip(values) {
            if value != ColumnValue::Null {
                row.columns.insert(name.clone(), value);
            }
        }
    }
    Ok(rows)
}

/// Returns a column of strings, without nulls.
fn strings(name: &str, column: &ArrayRef) -> Result<Vec<String>, String> {
    let values = column_values(column).map_err(|why| format!("column {name:?}: {why}"))?;
    let strings = values
        .into_iter()
        .enumerate()
        .map(|(at, value)| match value {
            ColumnValue::String(text) => Ok(text),
            ColumnValue::Null => Err(format!("row {at} has no {name:?}")),
            _ => Err(format!(
                "column {name:?} has values of the type {}; give strings",
                column.data_type()
            )),
        });
    strings.collect()
}

/// Returns a column of vectors, without nulls.
fn vectors(column: &ArrayRef) -> Result<Vec<Vec<f32>>, String> {
    let row = |at: usize| match column.data_type() {
        DataType::FixedSizeList(..) => Ok(column.as_fixed_size_list().value(at)),
        DataType::List(_) => Ok(column.as_list::<i32>().value(at)),
        DataType::LargeList(_) => Ok(column.as_list::<i64>().value(at)),
        other => Err(format!(
            "column \"vector\" has values of the type {other}; give lists of float32"
        )),
    };
    (0..column.len())
        .map(|at| match column.is_null(at) {
            true => Err(format!("row {at} has no \"vector\"")),
            false => floats(&row(at)?).map_err(|why| format!("the vector of row {at} {why}")),
        })
        .collect()
}

fn floats(list: &ArrayRef) -> Result<Vec<f32>, String> {
    if list.null_count() > 0 {
        return Err("has a null in it".into());
    }
    Ok(match list.data_type() {
        DataType::Float32 => list.as_primitive::<Float32Type>().values().to_vec(),
        DataType::Float64 => {
            let values = list.as_primitive::<Float64Type>().values().iter();
            values.map(|&value| value as f32).collect()
        }
        DataType::Float16 => {
            let values = list.as_primitive::<Float16Type>().values().iter();
            values.map(|value| value.to_f32()).collect()
        }
        other => return Err(format!("is a list of {other}; give float32")),
    })
}

/// Returns the values of a column, row by row.
fn column_values(column: &ArrayRef) -> Result<Vec<ColumnValue>, String> {
    let value = reader(column)?;
    (0..column.len())
        .map(|at| match column.is_null(at) {
            true => Ok(ColumnValue::Null),
            false => value(at),
        })
        .collect()
}

type Reader<'a> = Box<dyn Fn(usize) -> Result<ColumnValue, String> + 'a>;

/// Returns a function that reads a row that is not null.
fn reader(column: &ArrayRef) -> Result<Reader<'_>, String> {
    macro_rules! integers {
        ($type:ty) => {{
            let values = column.as_primitive::<$type>();
            Box::new(move |at: usize| {
                let number = i64::try_from(values.value(at));
                number
                    .map(ColumnValue::Int)
                    .map_err(|_| format!("{} does not fit an integer of 64 bits", values.value(at)))
            })
        }};
    }
    macro_rules! floats {
        ($type:ty) => {{
            let values = column.as_primitive::<$type>();
            Box::new(move |at: usize| Ok(ColumnValue::Float(f64::from(values.value(at)))))
        }};
    }
    macro_rules! instants {
        ($type:ty, $to_micros:expr) => {{
            let values = column.as_primitive::<$type>();
            Box::new(move |at: usize| {
                let micros: Option<i64> = $to_micros(i64::from(values.value(at)));
                micros
                    .map(ColumnValue::Timestamp)
                    .ok_or_else(|| "a time is too far from now".to_owned())
            })
        }};
    }
    macro_rules! text {
        ($array:expr) => {{
            let texts = $array;
            Box::new(move |at: usize| Ok(ColumnValue::String(texts.value(at).to_owned())))
        }};
    }
    let reader: Reader<'_> = match column.data_type() {
        DataType::Null => Box::new(|_: usize| Ok(ColumnValue::Null)),
        DataType::Boolean => {
            let truths = column.as_boolean();
            Box::new(move |at: usize| Ok(ColumnValue::Bool(truths.value(at))))
        }
        DataType::Int8 => integers!(Int8Type),
        DataType::Int16 => integers!(Int16Type),
        DataType::Int32 => integers!(Int32Type),
        DataType::Int64 => integers!(Int64Type),
        DataType::UInt8 => integers!(UInt8Type),
        DataType::UInt16 => integers!(UInt16Type),
        DataType::UInt32 => integers!(UInt32Type),
        DataType::UInt64 => integers!(UInt64Type),
        DataType::Float16 => floats!(Float16Type),
        DataType::Float32 => floats!(Float32Type),
        DataType::Float64 => floats!(Float64Type),
        DataType::Utf8 => text!(column.as_string::<i32>()),
        DataType::LargeUtf8 => text!(column.as_string::<i64>()),
        DataType::Utf8View => text!(column.as_string_view()),
        DataType::Date32 => instants!(Date32Type, |days: i64| days.checked_mul(86_400_000_000)),
        DataType::Date64 => instants!(Date64Type, |millis: i64| millis.checked_mul(1_000)),
        DataType::Timestamp(unit, _) => match unit {
            TimeUnit::Second => instants!(TimestampSecondType, |s: i64| s.checked_mul(1_000_000)),
            TimeUnit::Millisecond => {
                instants!(TimestampMillisecondType, |ms: i64| ms.checked_mul(1_000))
            }
            TimeUnit::Microsecond => instants!(TimestampMicrosecondType, Some),
            TimeUnit::Nanosecond => {
                instants!(TimestampNanosecondType, |ns: i64| Some(
                    ns.div_euclid(1_000)
                ))
            }
        },
        DataType::Dictionary(..) => {
            let dictionary = column.as_any_dictionary();
            let (codes, words) = (
                dictionary.normalized_keys(),
                column_values(dictionary.values())?,
            );
            Box::new(move |at: usize| Ok(words[codes[at]].clone()))
        }
        DataType::List(_) => {
            let lists = column.as_list::<i32>();
            Box::new(move |at: usize| list(&lists.value(at)))
        }
        DataType::LargeList(_) => {
            let lists = column.as_list::<i64>();
            Box::new(move |at: usize| list(&lists.value(at)))
        }
        other => {
            return Err(format!(
                "values of the type {other} can't be those of a column; give bools, numbers, strings, lists of strings or times"
            ));
        }
    };
    Ok(reader)
}

/// A list of strings.
fn list(items: &ArrayRef) -> Result<ColumnValue, String> {
    let items = column_values(items)?.into_iter().map(|item| match item {
        ColumnValue::String(text) => Ok(text),
        _ => Err("a list has items that are not strings".to_owned()),
    });
    items.collect::<Result<_, _>>().map(ColumnValue::Strings)
}
