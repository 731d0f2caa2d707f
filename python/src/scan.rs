//! All rows as record batches, by the Arrow C data interface.

use crate::call::detached;
use crate::columns::Fields;
use crate::errors;
use arrow_array::builder::{LargeStringBuilder, ListBuilder, StringBuilder};
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, to_ffi};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, Float32Array, Float64Array, Int64Array,
    RecordBatch, RecordBatchIterator, RecordBatchReader, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use mopqdb::{Column, ColumnType, ColumnValue, Error, Row, RowCursor, RowsKind, Snapshot, Value};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};

/// The bytes of texts of a batch from which it is not filled up.
const BATCH_BYTES: usize = 64 << 20;

/// Record batches of all rows of a snapshot, in the order in which the rows were accepted. Can be read once.
#[pyclass(frozen, module = "mopqdb")]
pub(crate) struct Scan {
    schema: SchemaRef,
    batches: Mutex<Batches>,
}

/// Makes batches of rows.
#[derive(Clone)]
struct Batches {
    schema: SchemaRef,
    columns: Vec<Column>,
    source: Source,
    rows: usize,
    dim: usize,
}

/// Where rows come from.
#[derive(Clone)]
enum Source {
    All(RowCursor),
    /// Those that pass a filter.
    Some(Arc<Snapshot>, std::vec::IntoIter<String>),
}

impl Source {
    fn next(&mut self) -> mopqdb::Result<Option<Row>> {
        match self {
            Self::All(cursor) => cursor.next().transpose(),
            Self::Some(snapshot, keys) => match keys.next() {
                Some(key) => snapshot.get(&key),
                None => Ok(None),
            },
        }
    }
}

impl Scan {
    pub(crate) fn new(
        py: Python<'_>,
        snapshot: Arc<Snapshot>,
        rows: usize,
        vectors: bool,
        keys: Option<Vec<String>>,
    ) -> PyResult<Self> {
        if rows == 0 {
            return Err(errors::invalid(py, "a batch has at least one row"));
        }
        let dim = snapshot.model().dim();
        let value = match snapshot.model().kind() {
            RowsKind::Text => Field::new("text", DataType::LargeUtf8, false),
            RowsKind::Vector => Field::new("vector", vector_type(dim), false),
        };
        let mut fields = vec![Field::new("key", DataType::Utf8, false)];
        if vectors || snapshot.model().kind() == RowsKind::Text {
            fields.push(value);
        }
        let columns = snapshot.columns().to_vec();
        fields.extend(
            columns
                .iter()
                .map(|column| Field::new(&column.name, arrow_type(column.kind), true)),
        );
        let schema = Arc::new(Schema::new(fields));
        let source = match keys {
            Some(keys) => Source::Some(snapshot, keys.into_iter()),
            None => Source::All(snapshot.cursor()),
        };
        let batches = Mutex::new(Batches {
            schema: Arc::clone(&schema),
            columns,
            source,
            rows,
            dim,
        });
        Ok(Self { schema, batches })
    }
}

fn vector_type(dim: usize) -> DataType {
    let item = Field::new("item", DataType::Float32, false);
    DataType::FixedSizeList(Arc::new(item), dim as i32)
}

fn arrow_type(kind: ColumnType) -> DataType {
    match kind {
        ColumnType::Bool => DataType::Boolean,
        ColumnType::Int => DataType::Int64,
        ColumnType::Float => DataType::Float64,
        ColumnType::String => DataType::Utf8,
        ColumnType::Strings => DataType::new_list(DataType::Utf8, true),
        ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
    }
}

/// Returns the values of a column in some rows.
fn array(column: &Column, rows: &[Fields]) -> ArrayRef {
    macro_rules! values {
        ($variant:ident) => {
            rows.iter().map(|fields| match fields.get(&column.name) {
                Some(ColumnValue::$variant(value)) => Some(value.clone()),
                _ => None,
            })
        };
    }
    match column.kind {
        ColumnType::Bool => Arc::new(values!(Bool).collect::<BooleanArray>()),
        ColumnType::Int => Arc::new(values!(Int).collect::<Int64Array>()),
        ColumnType::Float => Arc::new(values!(Float).collect::<Float64Array>()),
        ColumnType::String => Arc::new(values!(String).collect::<StringArray>()),
        ColumnType::Strings => {
            let mut lists = ListBuilder::new(StringBuilder::new());
            for list in values!(Strings) {
                match list {
                    Some(list) => lists.append_value(list.into_iter().map(Some)),
                    None => lists.append_null(),
                }
            }
            Arc::new(lists.finish())
        }
        ColumnType::Timestamp => {
            let times = values!(Timestamp).collect::<TimestampMicrosecondArray>();
            Arc::new(times.with_timezone("UTC"))
        }
    }
}

impl Batches {
    fn next(&mut self) -> mopqdb::Result<Option<RecordBatch>> {
        let (mut keys, mut texts) = (StringBuilder::new(), LargeStringBuilder::new());
        let (mut values, mut bytes, mut rows) = (Vec::new(), 0, 0);
        let mut columns: Vec<Fields> = Vec::new();
        while rows < self.rows && bytes < BATCH_BYTES {
            let Some(row) = self.source.next()? else {
                break;
            };
            bytes += row.key.len();
            keys.append_value(&row.key);
            match &row.value {
                Value::Text(text) => {
                    bytes += text.len();
                    texts.append_value(text);
                }
                Value::Vector(vector) => {
                    bytes += vector.len() * 4;
                    values.extend_from_slice(vector);
                }
            }
            columns.push(row.columns);
            rows += 1;
        }
        if rows == 0 {
            return Ok(None);
        }
        let own = self.schema.fields().len() - self.columns.len();
        let arrays = (self.schema.fields()[..own].iter()).map(|field| match field.data_type() {
            DataType::Utf8 => Ok(Arc::new(keys.finish()) as ArrayRef),
            DataType::LargeUtf8 => Ok(Arc::new(texts.finish()) as ArrayRef),
            _ => {
                let DataType::FixedSizeList(item, dim) = vector_type(self.dim) else {
                    unreachable!("vectors are lists of a fixed size")
                };
                let values = Arc::new(Float32Array::from(std::mem::take(&mut values)));
                let list = FixedSizeListArray::try_new(item, dim, values, None);
                list.map(|list| Arc::new(list) as ArrayRef)
            }
        });
        let arrays: Result<Vec<ArrayRef>, ArrowError> = arrays.collect();
        let others = self.columns.iter().map(|column| array(column, &columns));
        arrays
            .and_then(|mut arrays| {
                arrays.extend(others);
                RecordBatch::try_new(Arc::clone(&self.schema), arrays)
            })
            .map(Some)
            .map_err(|why| Error::invalid(why.to_string()))
    }
}

/// What a consumer of the stream pulls, perhaps without the GIL.
struct Stream(Batches);

impl Iterator for Stream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.0.next().transpose()?;
        Some(next.map_err(|why| ArrowError::ExternalError(Box::new(why))))
    }
}

impl RecordBatchReader for Stream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0.schema)
    }
}

#[pymethods]
impl Scan {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        let next = detached(py, || {
            self.batches
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .next()
        })?;
        Ok(next.map(Batch))
    }

    /// Returns the schema, for pyarrow, polars and others.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.schema)
    }

    /// Returns the batches that were not read yet, for pyarrow, polars and others.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A producer may ignore what it is asked for; the consumer casts.
        let _ = requested_schema;
        let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = FFI_ArrowArrayStream::new(Box::new(Stream(batches.clone())));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

/// A record batch, for anything that takes the Arrow C data interface.
#[pyclass(frozen, module = "mopqdb")]
pub(crate) struct Batch(RecordBatch);

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("Batch({} rows)", self.0.num_rows())
    }

    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        let schema = self.0.schema();
        schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    }

    /// Returns the schema, for pyarrow, polars and others.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.0.schema())
    }

    /// Returns the batch as a stream of one, for what takes tables.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let one = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(one));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// Returns schema and columns, for pyarrow, polars and others.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let _ = requested_schema;
        let rows = StructArray::from(self.0.clone());
        let (array, schema): (FFI_ArrowArray, FFI_ArrowSchema) =
            to_ffi(&rows.to_data()).map_err(|why| errors::invalid(py, why.to_string()))?;
        let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
        let array = PyCapsule::new_with_value(py, array, c"arrow_array")?;
        (schema, array).into_pyobject(py)
    }
}

fn schema_capsule<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema);
    let schema = schema.map_err(|why| errors::invalid(py, why.to_string()))?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}
