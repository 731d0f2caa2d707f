//! A first quantizer that a database trains by itself, where its options ask for one.

use super::{RebuildOptions, rebuild_store};
use crate::error::{Error, Result};
use crate::ids::ModelId;
use crate::learn::{LearnOptions, learn};
use crate::model::registry;
use crate::watch::Watch;
use crate::write::Store;
use serde_json::Value;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What became of training a first quantizer.
pub(crate) enum First {
    /// Not asked for, or too few rows.
    NotDue,
    /// The database has one already. If rows are searched exactly all the same, somebody chose that.
    Had,
    /// It was trained and switched to.
    Trained(ModelId),
}

/// Trains opq and switches to it, where the options ask for it and it is due.
pub(crate) fn quantize_if_due(store: &Store, stop: &Arc<AtomicBool>) -> Result<First> {
    let snapshot = store.current();
    let due = store
        .options
        .auto_quantize
        .is_some_and(|rows| snapshot.rows() >= rows.max(1));
    if !due {
        return Ok(First::NotDue);
    }
    let model = snapshot.model();
    let registered = registry::listed(&store.layout, model.model_id(), model.encoder_id())?;
    if registered.iter().any(|(_, model)| model.shape.is_some()) {
        return Ok(First::Had);
    }
    let mut options = LearnOptions::automatic(snapshot.model().dim());
    options.pq.threads = store.options.threads;
    options.pq.watch = Watch::new().stop_when(Arc::clone(stop));
    options.memory_limit = store.options.memory_limit;
    let learned = learn(&snapshot, &options)?;
    drop(snapshot);
    let scratch = store.layout.runs().join("auto");
    let files = &*store.files;
    let remove = || match files.remove_dir(&scratch) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("removing", &scratch)(e)),
        _ => Ok(()),
    };
    remove()?;
    let bundle = learned.write_on(files, &scratch, Value::Null)?;
    let id = registry::register(files, &store.layout, &bundle)?;
    remove()?;
    rebuild_store(
        store,
        &RebuildOptions {
            model: Some(id),
            threads: store.options.threads,
            memory_limit: store.options.memory_limit,
            watch: Watch::new().stop_when(Arc::clone(stop)),
            ..RebuildOptions::default()
        },
    )?;
    Ok(First::Trained(id))
}
