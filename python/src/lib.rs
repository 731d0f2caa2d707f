//! The engine as the Python module `mopqdb._native`.
//!
//! The classes that users see are written in Python, in `python/mopqdb`; they check nothing that the engine checks. Here
//! arguments become Rust values, every call of the engine runs without the GIL, and its errors become exceptions.
//!
//! No thread may wait for the engine while it holds the GIL: encoders and the log call back into Python, from any thread.

mod call;
mod columns;
mod encoder;
mod errors;
mod evaluate;
mod handle;
mod hit;
mod input;
mod log;
mod open;
mod query;
mod row;
mod scan;
mod setup;
mod table;
mod testing;
mod write;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::handle::Handle;
    #[pymodule_export]
    use super::hit::Hit;
    #[pymodule_export]
    use super::open::{create, is_vacant, open};
    #[pymodule_export]
    use super::row::Row;
    #[pymodule_export]
    use super::scan::{Batch, Scan};
    #[pymodule_export]
    use super::setup::{data_dir, default_bundle, look_in, make_default_bundle};
    #[pymodule_export]
    use super::table::Table;
    #[pymodule_export]
    use super::testing::{_panic, _time_queries};
    use super::{log, setup};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        log::forward();
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("SETUP_SCRIPT", setup::SCRIPT)?;
        module.add("CHECKOUT", setup::CHECKOUT)?;
        module.add("MAX_K", mopqdb::MAX_K)
    }
}
