//! All rows as record batches, by the Arrow C data interface.

use crate::call::detached;
use crate::errors;
use arrow_array::builder::{LargeStringBuilder, StringBuilder};
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, to_ffi};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float32Array, RecordBatch, RecordBatchReader, StructArray,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use mopqdb::{Error, RowCursor, RowsKind, Snapshot, Value};
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

/// Makes batches of a cursor.
struct Batches {
    schema: SchemaRef,
    cursor: RowCursor,
    rows: usize,
    dim: usize,
}

impl Scan {
    pub(crate) fn new(
        py: Python<'_>,
        snapshot: Arc<Snapshot>,
        rows: usize,
        vectors: bool,
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
        let schema = Arc::new(Schema::new(fields));
        let batches = Mutex::new(Batches {
            schema: Arc::clone(&schema),
            cursor: snapshot.cursor(),
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

impl Batches {
    fn next(&mut self) -> mopqdb::Result<Option<RecordBatch>> {
        let (mut keys, mut texts) = (StringBuilder::new(), LargeStringBuilder::new());
        let (mut values, mut bytes, mut rows) = (Vec::new(), 0, 0);
        while rows < self.rows && bytes < BATCH_BYTES {
            let Some(row) = self.cursor.next() else { break };
            let row = row?;
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
            rows += 1;
        }
        if rows == 0 {
            return Ok(None);
        }
        let columns = (self.schema.fields().iter()).map(|field| match field.data_type() {
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
        let columns: Result<Vec<ArrayRef>, ArrowError> = columns.collect();
        columns
            .and_then(|columns| RecordBatch::try_new(Arc::clone(&self.schema), columns))
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
        let rest = Batches {
            schema: Arc::clone(&self.schema),
            cursor: batches.cursor.clone(),
            rows: batches.rows,
            dim: batches.dim,
        };
        let stream = FFI_ArrowArrayStream::new(Box::new(Stream(rest)));
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
