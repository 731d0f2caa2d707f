//! For the tests of the package: what can't be caused or measured from outside.

use crate::call::detached;
use crate::handle::Handle;
use crate::input::{Count, vector};
use pyo3::prelude::*;
use std::time::Instant;

/// Panics as a bug of the engine would.
#[pyfunction]
pub(crate) fn _panic(py: Python<'_>) -> PyResult<()> {
    detached(py, || panic!("on purpose"))
}

/// Returns the seconds per query of the engine alone.
#[pyfunction]
pub(crate) fn _time_queries(
    py: Python<'_>,
    handle: &Handle,
    asked: &Bound<'_, PyAny>,
    k: Count,
    times: Count,
) -> PyResult<f64> {
    let (open, asked) = (handle.open(py)?, vector(asked)?);
    detached(py, || {
        let begin = Instant::now();
        for _ in 0..times.0 {
            open.snapshot().query(&asked, k.0)?;
        }
        Ok(begin.elapsed().as_secs_f64() / times.0 as f64)
    })
}
