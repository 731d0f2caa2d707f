//! A handle to a database, or to a snapshot of one: a contents page of what can be called.

use crate::call::{detached, in_callback, watched};
use crate::columns;
use crate::errors;
use crate::evaluate::{self, Measured};
use crate::input::{self, Count, Text};
use crate::query::{self, Options};
use crate::row::Row;
use crate::scan::Scan;
use crate::write;
use mopqdb::{
    BackupOptions, ColumnValue, Database, Error, Filter, Reader, RebuildOptions, Snapshot,
    VerifyOptions,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use serde::Serialize;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A database that is open for writing, one that is open for reading, or a snapshot of either.
#[pyclass(frozen, module = "mopqdb._native")]
pub(crate) struct Handle {
    /// `None` once it is closed. Calls under way share it.
    open: Mutex<Option<Arc<Open>>>,
    dir: PathBuf,
    /// The process that opened it. The threads of a handle exist there only.
    process: u32,
}

/// What is open.
pub(crate) enum Open {
    Writer(Database),
    Reader(Reader),
    Snapshot(Arc<Snapshot>),
}

impl Open {
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        match self {
            Self::Writer(db) => db.snapshot(),
            Self::Reader(reader) => reader.snapshot(),
            Self::Snapshot(snapshot) => Arc::clone(snapshot),
        }
    }

    /// Returns the database, if it may be written.
    pub(crate) fn writer(&self) -> mopqdb::Result<&Database> {
        match self {
            Self::Writer(db) => Ok(db),
            Self::Reader(_) | Self::Snapshot(_) => Err(Error::invalid(
                "the database is open for reading; open it without read_only=True to write",
            )),
        }
    }
}

impl Handle {
    pub(crate) fn new(open: Open, dir: PathBuf) -> Self {
        Self {
            open: Mutex::new(Some(Arc::new(open))),
            dir,
            process: std::process::id(),
        }
    }

    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Takes what is open away from the handle.
    fn take(&self) -> Option<Arc<Open>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.take()
    }

    /// Returns what is open.
    pub(crate) fn open(&self, py: Python<'_>) -> PyResult<Arc<Open>> {
        let dir = self.dir.display();
        if self.is_forked() {
            let message = format!(
                "{dir} was opened by process {} before it forked this one, which has none of its threads; open the database \
                 here, or start processes with multiprocessing's method \"spawn\"",
                self.process
            );
            return Err(errors::invalid(py, message));
        }
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.clone()
            .ok_or_else(|| errors::invalid(py, format!("{dir} is closed; open the database again")))
    }

    pub(crate) fn snapshot_of(&self, py: Python<'_>) -> PyResult<Arc<Snapshot>> {
        Ok(self.open(py)?.snapshot())
    }
}

/// Returns a result as JSON.
pub(crate) fn json(value: &impl Serialize) -> mopqdb::Result<String> {
    serde_json::to_string(value).map_err(|why| Error::invalid(why.to_string()))
}

#[pymethods]
impl Handle {
    #[getter]
    fn path(&self) -> &Path {
        &self.dir
    }

    #[getter]
    fn closed(&self) -> bool {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.is_none() || self.is_forked()
    }

    /// Closes the handle once the calls of other threads have ended. Does nothing if it is closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if in_callback() {
            let message = "close was called from within a call of the database; close it after that has returned";
            return Err(errors::invalid(py, message));
        }
        let Some(mut open) = self.take() else {
            return Ok(());
        };
        if self.is_forked() {
            mem::forget(open);
            return Ok(());
        }
        loop {
            match Arc::try_unwrap(open) {
                Ok(Open::Writer(db)) => return detached(py, || db.close()),
                Ok(other) => {
                    py.detach(|| drop(other));
                    return Ok(());
                }
                Err(shared) => open = shared,
            }
            py.detach(|| std::thread::sleep(Duration::from_millis(1)));
            py.check_signals()?;
        }
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let snapshot = self.snapshot_of(py)?;
        Ok(py.detach(|| snapshot.rows()) as usize)
    }

    /// Returns kind, metric, width and precision of the rows, and the id and method of the active model.
    fn shape(&self, py: Python<'_>) -> PyResult<(String, String, usize, String, String, String)> {
        let snapshot = self.snapshot_of(py)?;
        let model = snapshot.model();
        let kind = match model.kind() {
            mopqdb::RowsKind::Text => "text",
            mopqdb::RowsKind::Vector => "vector",
        };
        Ok((
            kind.into(),
            model.metric().name().into(),
            model.dim(),
            model.precision().name().into(),
            model.model_id().to_string(),
            model.method().into(),
        ))
    }

    fn warnings(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(match &*self.open(py)? {
            Open::Writer(db) => db.warnings().to_vec(),
            Open::Reader(_) | Open::Snapshot(_) => Vec::new(),
        })
    }

    fn snapshot(&self, py: Python<'_>) -> PyResult<Self> {
        let snapshot = self.snapshot_of(py)?;
        Ok(Self::new(Open::Snapshot(snapshot), self.dir.clone()))
    }

    fn refresh(&self, py: Python<'_>) -> PyResult<bool> {
        let open = self.open(py)?;
        detached(py, || match &*open {
            Open::Reader(reader) => reader.refresh(),
            Open::Writer(_) | Open::Snapshot(_) => Ok(false),
        })
    }

    fn contains(&self, py: Python<'_>, key: Text) -> PyResult<bool> {
        let snapshot = self.snapshot_of(py)?;
        detached(py, || snapshot.contains(&key.0))
    }

    fn get(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<Vec<Option<Row>>> {
        let snapshot = self.snapshot_of(py)?;
        let keys = input::texts(keys, "key")?;
        detached(py, || {
            let rows = keys.iter().map(|key| snapshot.get(&key.0));
            rows.map(|row| Ok(row?.map(Row::from))).collect()
        })
    }

    fn scan(
        &self,
        py: Python<'_>,
        rows: Count,
        vectors: bool,
        condition: Option<Text>,
    ) -> PyResult<Scan> {
        let (snapshot, filter) = (
            self.snapshot_of(py)?,
            query::filter(py, None, None, condition.as_ref())?,
        );
        let keys = filter.map(|filter| query::keys(py, &snapshot, Some(&filter)));
        Scan::new(py, snapshot, rows.0, vectors, keys.transpose()?)
    }

    fn query<'py>(
        &self,
        py: Python<'py>,
        asked: &Bound<'py, PyAny>,
        options: Options,
    ) -> PyResult<Bound<'py, PyList>> {
        query::one(&*self.snapshot_of(py)?, asked, options)
    }

    fn query_batch<'py>(
        &self,
        py: Python<'py>,
        asked: Vec<Bound<'py, PyAny>>,
        options: Options,
    ) -> PyResult<Vec<Bound<'py, PyList>>> {
        query::batch(py, &*self.snapshot_of(py)?, &asked, options)
    }

    fn query_vectors<'py>(
        &self,
        py: Python<'py>,
        asked: &Bound<'py, PyAny>,
        options: Options,
    ) -> PyResult<Bound<'py, PyTuple>> {
        query::arrays(py, &*self.snapshot_of(py)?, asked, options)
    }

    fn insert(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        fields: Vec<Bound<'_, PyDict>>,
    ) -> PyResult<write::Counts> {
        write::rows(py, &*self.open(py)?, keys, values, &fields)
    }

    fn insert_vectors(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        vectors: &Bound<'_, PyAny>,
    ) -> PyResult<(u64, u64, u64)> {
        write::vectors(py, &*self.open(py)?, keys, vectors)
    }

    fn delete(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<u64> {
        let (open, keys) = (self.open(py)?, input::texts(keys, "key")?);
        detached(py, || open.writer()?.delete(&Text::all(&keys)))
    }

    fn delete_prefix(&self, py: Python<'_>, prefix: Text) -> PyResult<u64> {
        let open = self.open(py)?;
        watched(py, None, |watch| {
            open.writer()?.delete_prefix(&prefix.0, watch)
        })
    }

    fn delete_where(&self, py: Python<'_>, condition: Text) -> PyResult<u64> {
        let open = self.open(py)?;
        watched(py, None, |watch| {
            open.writer()?
                .delete_where(&Filter::sql(&condition.0)?, watch)
        })
    }

    fn update_where(
        &self,
        py: Python<'_>,
        condition: Text,
        values: &Bound<'_, PyDict>,
    ) -> PyResult<u64> {
        let (open, values) = (self.open(py)?, columns::fields(values)?);
        watched(py, None, |watch| {
            let values: Vec<(&str, ColumnValue)> = (values.iter())
                .map(|(name, value)| (name.as_str(), value.clone()))
                .collect();
            open.writer()?
                .update_where(&Filter::sql(&condition.0)?, &values, watch)
        })
    }

    /// Returns the names of columns and of their types, in the order in which they came.
    fn columns(&self, py: Python<'_>) -> PyResult<Vec<(String, &'static str)>> {
        let snapshot = self.snapshot_of(py)?;
        let columns = snapshot.columns().iter();
        Ok(columns
            .map(|column| (column.name.clone(), column.kind.name()))
            .collect())
    }

    fn count(&self, py: Python<'_>, condition: Text) -> PyResult<u64> {
        let snapshot = self.snapshot_of(py)?;
        detached(py, || snapshot.count_where(&Filter::sql(&condition.0)?))
    }

    fn keys(
        &self,
        py: Python<'_>,
        prefix: Option<Text>,
        condition: Option<Text>,
    ) -> PyResult<Vec<String>> {
        let filter = query::filter(py, None, prefix.as_ref(), condition.as_ref())?;
        query::keys(py, &*self.snapshot_of(py)?, filter.as_ref())
    }

    fn seal(&self, py: Python<'_>) -> PyResult<bool> {
        let open = self.open(py)?;
        watched(py, None, |_| open.writer()?.seal())
    }

    fn compact(&self, py: Python<'_>) -> PyResult<String> {
        let open = self.open(py)?;
        watched(py, None, |_| json(&open.writer()?.compact()?))
    }

    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        let open = self.open(py)?;
        detached(py, || match &*open {
            Open::Writer(db) => json(&db.stats()?),
            Open::Reader(reader) => json(&reader.stats()?),
            Open::Snapshot(_) => Err(Error::invalid(
                "a snapshot has no files of its own; ask the database for its statistics",
            )),
        })
    }

    fn models(&self, py: Python<'_>) -> PyResult<String> {
        self.open(py)?;
        detached(py, || json(&mopqdb::models(&self.dir)?))
    }

    fn verify(&self, py: Python<'_>, deep: bool, encode: Count) -> PyResult<String> {
        self.open(py)?;
        let options = VerifyOptions::default().deep(deep).encode(encode.0);
        watched(py, None, |_| json(&mopqdb::verify(&self.dir, &options)?))
    }

    fn backup(
        &self,
        py: Python<'_>,
        dest: PathBuf,
        active_only: bool,
        link: bool,
    ) -> PyResult<String> {
        self.open(py)?;
        let options = BackupOptions::default().active_only(active_only).link(link);
        watched(py, None, |_| {
            json(&mopqdb::backup_with(&self.dir, &dest, &options)?)
        })
    }

    fn learn(
        &self,
        py: Python<'_>,
        options: write::Learning,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<String> {
        write::learn(py, &*self.open(py)?, options, progress)
    }

    fn rebuild(
        &self,
        py: Python<'_>,
        model: Option<Text>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<String> {
        let open = self.open(py)?;
        watched(py, progress, |watch| {
            let model = input::model(&self.dir, model.as_ref())?;
            let options = RebuildOptions::default().model(model).watch(watch.clone());
            json(&open.writer()?.rebuild(&options)?)
        })
    }

    fn eval(
        &self,
        py: Python<'_>,
        pairs: evaluate::Pairs<'_>,
        measured: Measured,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<String> {
        evaluate::eval(
            py,
            &*self.snapshot_of(py)?,
            &self.dir,
            pairs,
            measured,
            progress,
        )
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let Some(open) = self.take() else { return };
        // The threads of a handle do not exist in a forked child, where nobody could wait for them, and its lock is the
        // parent's.
        if self.is_forked() {
            mem::forget(open);
            return;
        }
        // Its threads may need the GIL to end. When the interpreter has gone, so have they, and the kernel cleans up.
        let mut open = Some(open);
        Python::try_attach(|py| py.detach(|| drop(open.take())));
        mem::forget(open);
    }
}
