//! What `python -m mopqdb setup` needs.

use crate::call::{detached, watched};
use mopqdb::encoder;
use pyo3::prelude::*;
use std::path::PathBuf;

/// Fetches native parts; the only place that has their versions and hashes.
pub(crate) const SCRIPT: &str = include_str!("../../scripts/setup.py");

/// The checkout that a debug build was made in.
#[cfg(debug_assertions)]
pub(crate) const CHECKOUT: Option<&str> = Some(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
#[cfg(not(debug_assertions))]
pub(crate) const CHECKOUT: Option<&str> = None;

/// Returns where native parts are kept.
#[pyfunction]
pub(crate) fn data_dir() -> Option<PathBuf> {
    encoder::data_dir()
}

/// Returns the bundle of the default encoder; raises `MissingPartError` if there is none.
#[pyfunction]
pub(crate) fn default_bundle(py: Python<'_>) -> PyResult<PathBuf> {
    detached(py, encoder::default_bundle)
}

/// Adds a folder in which ONNX Runtime is looked for.
#[pyfunction]
pub(crate) fn look_in(dir: PathBuf) {
    encoder::look_in(dir);
}

/// Makes the bundle of the default encoder from its weights, and returns its folder.
#[pyfunction]
pub(crate) fn make_default_bundle(
    py: Python<'_>,
    weights: PathBuf,
    to: PathBuf,
) -> PyResult<PathBuf> {
    watched(py, None, |_| {
        let made = mopqdb::bundle::make_default_bundle(&weights, &to)?;
        Ok(made.dir().to_path_buf())
    })
}
