//! Creating a database, and opening it for writing.

use super::Store;
use super::commit::Committer;
use super::group::Queue;
use super::locks::{Locks, Opening};
use super::sealer::Bell;
use crate::columns::Schema;
use crate::disk::files::Files;
use crate::disk::layout::Layout;
use crate::disk::lock::FileLock;
use crate::error::{Error, Result};
use crate::ids::DatabaseId;
use crate::model::Model;
use crate::model::bundle::Bundle;
use crate::model::encoder::default_bundle;
use crate::model::registry;
use crate::options::{CreateOptions, NewRows, Options};
use crate::threads;
use crate::version::catalog::Catalog;
use crate::version::creation::{self, Creation, Making};
use crate::version::publish::Versions;
use crate::version::{VersionRecord, manifest, recover};
use crate::words::Choice;
use std::fmt::Display;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

impl Store {
    /// Makes a new, empty database in a directory that is missing or empty, and opens it.
    pub(crate) fn create(
        files: Arc<dyn Files>,
        dir: &Path,
        new: &CreateOptions,
        options: Options,
    ) -> Result<Self> {
        threads::count(options.threads)?;
        let layout = Layout::new(dir);
        let model = new_model(new)?;
        let schema = new_schema(new)?;
        let creation = Creation::begin(&*files, &layout, Making::Database)?;
        let warnings = Vec::from_iter(creation.restarted.then(|| {
            "an earlier creation of this database was not finished; it was started over".into()
        }));
        if let Err(e) = fill(&*files, &layout, &model, schema) {
            creation.abandon(&*files, &layout);
            return Err(e);
        }
        let lock = creation.finish(&*files, &layout)?;
        let options = match &new.rows {
            NewRows::Encoded { encoder, .. } => options.encoder(Arc::clone(&encoder.0)),
            _ => options,
        };
        Self::recover(files, layout, lock, options, warnings)
    }

    /// Opens a database for writing.
    pub(crate) fn open(files: Arc<dyn Files>, dir: &Path, options: Options) -> Result<Self> {
        let layout = Layout::existing(dir)?;
        creation::refuse_unfinished(&*files, dir)?;
        if !layout.segments().is_dir() {
            return Err(Error::not_a_database(dir));
        }
        let lock = FileLock::acquire(&layout.lock())?;
        // A creation that was stopped after its last step. From here on there may be rows.
        creation::remove_marker(&*files, &layout)?;
        Self::recover(files, layout, lock, options, Vec::new())
    }

    fn recover(
        files: Arc<dyn Files>,
        layout: Layout,
        lock: FileLock,
        options: Options,
        mut warnings: Vec<String>,
    ) -> Result<Self> {
        let found = recover::open(&files, &layout, &options, &mut warnings)?;
        let (first_seq, rows_stored) = (found.record.first_seq, found.record.rows_stored());
        let model = Arc::clone(found.snapshot.model());
        let store = Self {
            versions: Versions::new(found.snapshot),
            queue: Mutex::new(Queue::new(found.replayed.next_seq, model)),
            commit: Mutex::new(Committer::new(
                found.catalog,
                found.record,
                &found.replayed,
                found.next_segment,
                Arc::clone(&found.reserve),
            )),
            locks: Locks::default(),
            bell: Bell::default(),
            reserve: found.reserve,
            in_place: AtomicBool::new(found.replayed.in_place),
            files,
            layout,
            options,
            warnings,
            _lock: lock,
        };
        if let Some(carried) = found.replayed.carried {
            store.commit_carried(&Opening, carried, first_seq)?;
        }
        store.reserve.restore_if_it_fits(rows_stored);
        Ok(store)
    }
}

/// Makes everything that an empty database has; its manifest comes last.
fn fill(files: &dyn Files, layout: &Layout, model: &Model, schema: Schema) -> Result<()> {
    for directory in layout.directories() {
        files
            .create_dir(&directory)
            .map_err(Error::io("creating", &directory))?;
    }
    if let Some(bundle) = model.bundle() {
        registry::register(files, layout, bundle)?;
    }
    let catalog = Catalog::open(&layout.catalog())
        .map_err(Error::io("creating the catalog", layout.catalog()))?;
    let record = VersionRecord::first(model, DatabaseId::random()?, schema);
    catalog.commit(&record)?;
    for directory in layout.directories().iter().rev() {
        files
            .sync_dir(directory)
            .map_err(Error::io("syncing", directory))?;
    }
    manifest::publish(files, layout.dir(), &record)
}

/// Returns the columns that a new database starts with.
fn new_schema(new: &CreateOptions) -> Result<Schema> {
    let mut schema = Schema::default();
    for (name, kind) in &new.columns {
        schema.introduce(name, *kind)?;
    }
    Ok(schema)
}

/// Returns the model that a new database starts with.
fn new_model(new: &CreateOptions) -> Result<Model> {
    let model = match &new.rows {
        NewRows::Vectors { dim, metric } => {
            if !(1..=65_536).contains(dim) {
                return Err(Error::invalid(format!(
                    "vectors of {dim} values; 1 to 65536 can be stored"
                )));
            }
            Model::none(*dim, *metric)
        }
        NewRows::Text => Model::open(Bundle::open(default_bundle()?)?, 0)?,
        NewRows::Bundle { path, dim, metric } => {
            let model = Model::open(Bundle::open(path)?, 0)?;
            expect_same("vectors of", *dim, model.dim())?;
            expect_same("the metric", *metric, model.metric())?;
            model
        }
        NewRows::Encoded { encoder, metric } => {
            let (name, dim) = (encoder.0.name(), encoder.0.dim());
            let bundle = Bundle::of_plugged_encoder(name, dim, *metric)?;
            Model::open(bundle, 0)?.plug(Some(encoder))?
        }
    };
    let model = model.with_words(Some(match new.words {
        Some(settings) => Choice::On(settings),
        None => Choice::Off,
    }));
    Ok(match new.store {
        Some(precision) => model.stored_as(precision),
        None => model,
    })
}

/// Refuses a bundle that is not what was asked for.
fn expect_same<T: PartialEq + Display>(what: &str, wanted: Option<T>, has: T) -> Result<()> {
    match wanted {
        Some(wanted) if wanted != has => Err(Error::invalid(format!(
            "the bundle has {what} {has}, not {wanted}"
        ))),
        _ => Ok(()),
    }
}
