//! An encoder that is a Python function.

use crate::call::callback;
use crate::input::from_tuple;
use mopqdb::encoder::Encoder;
use mopqdb::{Error, Result, Watch};
use numpy::{PyArray2, PyArrayMethods as _};
use pyo3::prelude::*;
use pyo3::types::PyList;

/// Texts of one call, after which Ctrl-C is seen.
const TOGETHER: usize = 128;

/// Functions from a list of texts to an array (texts, dim), of keys and of queries.
pub(crate) struct PyEncoder {
    name: String,
    dim: usize,
    keys: Py<PyAny>,
    queries: Py<PyAny>,
}

from_tuple! {
    /// As Python gives it.
    Functions {
        name: String,
        dim: usize,
        keys: Py<PyAny>,
        queries: Py<PyAny>,
    }
}

impl From<Functions> for PyEncoder {
    fn from(given: Functions) -> Self {
        let Functions {
            name,
            dim,
            keys,
            queries,
        } = given;
        Self {
            name,
            dim,
            keys,
            queries,
        }
    }
}

impl PyEncoder {
    fn encode(&self, function: &Py<PyAny>, texts: &[&str]) -> Result<Vec<f32>> {
        let attached = Python::try_attach(|py| callback(|| self.call(py, function, texts)));
        attached.unwrap_or_else(|| Err(Error::invalid("the interpreter is shutting down")))
    }

    fn call(&self, py: Python<'_>, function: &Py<PyAny>, texts: &[&str]) -> Result<Vec<f32>> {
        let raised =
            |why: PyErr| Error::encoder(format!("the encoder {:?}: {why}", self.name), why);
        let encoded = (|| {
            let encoded = function.bind(py).call1((PyList::new(py, texts)?,))?;
            let arrays = py.import("mopqdb._arrays")?;
            let shape = (texts.len(), self.dim);
            let array = arrays.call_method1("encoded", (encoded, shape, &self.name))?;
            let array = array.cast_into::<PyArray2<f32>>()?;
            Ok(array.to_vec()?)
        })();
        encoded.map_err(raised)
    }
}

impl Encoder for PyEncoder {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn encode_keys(&self, texts: &[&str]) -> Result<Vec<f32>> {
        self.encode_keys_watched(texts, &Watch::new())
    }

    fn encode_keys_watched(&self, texts: &[&str], watch: &Watch) -> Result<Vec<f32>> {
        let mut vectors = Vec::with_capacity(texts.len() * self.dim);
        for texts in texts.chunks(TOGETHER) {
            watch.check()?;
            vectors.extend(self.encode(&self.keys, texts)?);
        }
        Ok(vectors)
    }

    fn encode_queries(&self, texts: &[&str]) -> Result<Vec<f32>> {
        self.encode(&self.queries, texts)
    }
}
