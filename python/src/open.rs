//! Opening and creating databases.

use crate::call::{detached, watched};
use crate::encoder::{Functions, PyEncoder};
use crate::errors;
use crate::handle::{Handle, Open};
use crate::input::{Count, Text, from_tuple, setting};
use mopqdb::encoder::Encoder;
use mopqdb::{
    CreateOptions, Database, Language, Metric, Options, Precision, ReadOptions, Reader,
    WordsSettings,
};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

from_tuple! {
    /// How a database is opened.
    Opening {
        threads: Count,
        memory_limit: Count,
        encoder: Option<Functions>,
    }
}

impl Opening {
    fn options(self) -> (Options, Option<Arc<dyn Encoder>>) {
        let encoder = self.encoder.map(PyEncoder::from);
        let encoder = encoder.map(|encoder| Arc::new(encoder) as Arc<dyn Encoder>);
        let options = Options::default()
            .threads(self.threads.0)
            .memory_limit(self.memory_limit.0);
        match &encoder {
            Some(own) => (options.encoder(Arc::clone(own)), encoder),
            None => (options, None),
        }
    }
}

from_tuple! {
    /// What a new database holds.
    Rows {
        dim: Option<Count>,
        metric: Option<Text>,
        bundle: Option<PathBuf>,
        precision: Option<Text>,
        /// `None`: texts are not searched by their words.
        language: Option<Text>,
    }
}

const METRICS: [Metric; 3] = [Metric::Ip, Metric::Cosine, Metric::L2];

impl Rows {
    fn options(
        &self,
        py: Python<'_>,
        encoder: Option<Arc<dyn Encoder>>,
    ) -> PyResult<CreateOptions> {
        let metric = (self.metric.as_ref())
            .map(|name| setting(py, "metric", &name.0, &METRICS, Metric::name))
            .transpose()?;
        let mut new = match (encoder, &self.bundle, &self.dim) {
            (Some(encoder), ..) => {
                CreateOptions::encoder(encoder, metric.unwrap_or(Metric::Cosine))
            }
            (None, Some(bundle), _) => CreateOptions::bundle(bundle),
            (None, None, Some(dim)) => {
                CreateOptions::vectors(dim.0, metric.unwrap_or(Metric::Cosine))
            }
            (None, None, None) => CreateOptions::text(),
        };
        if let (Some(_), Some(dim)) = (&self.bundle, self.dim) {
            new = new.dim(dim.0);
        }
        if let Some(metric) = metric {
            new = new.metric(metric);
        }
        if let Some(name) = &self.precision {
            let all = Precision::ALL;
            new = new.store(setting(py, "precision", &name.0, &all, Precision::name)?);
        }
        let language = (self.language.as_ref())
            .map(|name| setting(py, "language", &name.0, Language::ALL, Language::name))
            .transpose()?;
        Ok(new.words(language.map(|language| WordsSettings::default().language(language))))
    }
}

/// Opens a database.
#[pyfunction]
pub(crate) fn open(
    py: Python<'_>,
    path: PathBuf,
    read_only: bool,
    opening: Opening,
) -> PyResult<Handle> {
    let (options, _) = opening.options();
    let open = watched(py, None, |_| match read_only {
        true => Reader::open(&path, ReadOptions::from(options)).map(Open::Reader),
        false => Database::open(&path, options).map(Open::Writer),
    })?;
    Ok(Handle::new(open, absolute(py, path)?))
}

/// Creates a database.
#[pyfunction]
pub(crate) fn create(
    py: Python<'_>,
    path: PathBuf,
    rows: Rows,
    opening: Opening,
) -> PyResult<Handle> {
    let (options, encoder) = opening.options();
    let new = rows.options(py, encoder)?;
    let db = watched(py, None, |_| Database::create(&path, &new, options))?;
    Ok(Handle::new(Open::Writer(db), absolute(py, path)?))
}

/// Returns `True` if a database can be made at a path: there is nothing, or an empty folder.
#[pyfunction]
pub(crate) fn is_vacant(py: Python<'_>, path: PathBuf) -> PyResult<bool> {
    detached(py, || Database::is_vacant(&path))
}

/// A handle stays that of its directory when the program changes its own.
fn absolute(py: Python<'_>, path: PathBuf) -> PyResult<PathBuf> {
    std::path::absolute(path).map_err(|why| errors::invalid(py, why.to_string()))
}
