//! The database, for the one process that writes it.

use crate::admin::backup::{Backup, BackupOptions, backup_on};
use crate::admin::models::{models, register_model_on};
use crate::columns::{ColumnType, ColumnValue};
use crate::disk::files::{Disk, Files};
use crate::disk::layout::Layout;
use crate::error::Result;
use crate::ids::ModelId;
use crate::model::bundle::Bundle;
use crate::model::registry::ModelInfo;
use crate::options::{CreateOptions, Options};
use crate::reader::{Handle, Source};
use crate::rebuild::learn::{LearnOptions, learn};
use crate::rebuild::maintenance::Maintenance;
use crate::rebuild::{self, AutoQuantized, RebuildOptions, Rebuilt};
use crate::row::{Filter, Inserted, Row, RowBatch, Serving};
use crate::snapshot::Snapshot;
use crate::version::creation;
use crate::watch::Watch;
use crate::write::{Compacted, Store};
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

/// A handle to a database for reading and writing. Cheap to clone; clones share one open database.
///
/// One process at a time can have it; any number of other processes can read with a [`Reader`](crate::Reader). When
/// the last clone is dropped, the log is closed and the lock released. Queries are methods of
/// [`Handle`](crate::Handle).
///
/// ```
/// use mopqdb::{CreateOptions, Database, Metric, Options, Row};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("colours.db");
/// let db = Database::create(&path, &CreateOptions::vectors(3, Metric::Cosine), Options::default())?;
/// db.insert(&[
///     Row::vector("red", [1.0, 0.0, 0.0]),
///     Row::vector("orange", [0.9, 0.4, 0.0]),
///     Row::vector("blue", [0.0, 0.0, 1.0]),
/// ])?;
/// let hits = db.query(&[1.0, 0.1, 0.0], 2)?;
/// assert_eq!(hits[0].key, "red");
/// assert_eq!(hits[1].key, "orange");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Database {
    /// Dropped first: its thread is joined before the store can close.
    maintenance: Arc<Maintenance>,
    handle: Arc<Handle>,
    pub(crate) store: Arc<Store>,
}

impl Database {
    /// Creates an empty database in a directory that is missing or empty.
    ///
    /// If it fails, or the process is stopped, the next call with this directory starts over.
    pub fn create(dir: impl AsRef<Path>, new: &CreateOptions, options: Options) -> Result<Self> {
        let files = disk(&options);
        Self::create_on(files, dir.as_ref(), new, options)
    }

    /// Like [`create`](Self::create), on another [`Files`]; for tests.
    #[doc(hidden)]
    pub fn create_on(
        files: Arc<dyn Files>,
        dir: &Path,
        new: &CreateOptions,
        options: Options,
    ) -> Result<Self> {
        Self::start(Store::create(files, dir, new, options)?)
    }

    /// Opens a database for writing, or creates it if there is none.
    ///
    /// ```
    /// use mopqdb::{CreateOptions, Database, Metric, Options};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("colours.db");
    /// let new = CreateOptions::vectors(3, Metric::Cosine);
    /// for _ in 0..2 {
    ///     let db = Database::open_or_create(&path, &new, Options::default())?;
    ///     assert!(db.is_empty());
    ///     db.close()?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_or_create(
        dir: impl AsRef<Path>,
        new: &CreateOptions,
        options: Options,
    ) -> Result<Self> {
        match Self::is_vacant(&dir)? {
            true => Self::create(dir, new, options),
            false => Self::open(dir, options),
        }
    }

    /// Returns `true` if [`create`](Self::create) can make a database here: the directory is missing or empty, or
    /// holds nothing but an earlier creation that was not finished.
    pub fn is_vacant(dir: impl AsRef<Path>) -> Result<bool> {
        creation::is_vacant(&Disk::default(), &Layout::new(dir.as_ref()))
    }

    /// Opens a database for writing.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        let files = disk(&options);
        Self::open_on(files, dir.as_ref(), options)
    }

    /// Like [`open`](Self::open), on another [`Files`]; for tests.
    #[doc(hidden)]
    pub fn open_on(files: Arc<dyn Files>, dir: &Path, options: Options) -> Result<Self> {
        Self::start(Store::open(files, dir, options)?)
    }

    /// Starts the threads of a store.
    fn start(store: Store) -> Result<Self> {
        let store = Arc::new(store);
        let maintenance = Arc::new(Maintenance::start(&store)?);
        Ok(Self {
            maintenance,
            handle: Handle::of(Arc::clone(&store)),
            store,
        })
    }

    /// Returns the version of the format that the database is in. The first change brings it to
    /// [`FORMAT`](crate::FORMAT), after which older programs refuse it.
    pub fn format(&self) -> u32 {
        self.store.format()
    }

    /// Returns what opening had to repair, in words for the user; empty when all was in order.
    pub fn warnings(&self) -> &[String] {
        &self.store.warnings
    }

    /// Inserts rows. A row with an existing key replaces the old row; an identical row changes nothing and is not
    /// encoded again. If a key occurs several times in one call, the last row counts.
    ///
    /// When this returns the rows are durable and later queries see them. The call is atomic: after a crash all of its
    /// rows are there, or none. If it returns an error nothing was changed, except for
    /// [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown).
    pub fn insert(&self, rows: &[Row]) -> Result<Inserted> {
        self.insert_batch(rows.into())
    }

    /// Inserts rows that are given in columns, as [`insert`](Self::insert) does.
    pub fn insert_batch(&self, rows: RowBatch<'_>) -> Result<Inserted> {
        self.insert_watched(rows, &Watch::new())
    }

    /// Inserts rows as [`insert`](Self::insert) does, unless `watch` stops it before they are written: then nothing is
    /// changed. Texts are encoded before.
    pub fn insert_watched(&self, rows: RowBatch<'_>, watch: &Watch) -> Result<Inserted> {
        self.store.insert(rows, watch)
    }

    /// Learns a quantizer from the rows themselves, PQ or OPQ, and registers it as a model. Queries are answered by it
    /// after a [`rebuild`](Self::rebuild).
    pub fn learn(&self, options: &LearnOptions) -> Result<ModelId> {
        let learned = learn(&self.snapshot(), options)?;
        let draft = learned.draft(self.dir(), serde_json::Value::Null)?;
        draft.register()
    }

    /// Returns the models of the database, oldest first; see [`models`](crate::models).
    pub fn models(&self) -> Result<Vec<ModelInfo>> {
        models(self.dir())
    }

    /// Adds a bundle to the models of the database; see [`register_model`](crate::register_model).
    pub fn register(&self, bundle: &Bundle) -> Result<ModelId> {
        register_model_on(&*self.store.files, self.dir(), bundle)
    }

    /// Deletes the rows with these keys and returns their number. Durable and atomic as [`insert`](Self::insert).
    pub fn delete(&self, keys: &[&str]) -> Result<u64> {
        self.store.delete(keys)
    }

    /// Deletes the rows whose key begins with `prefix`, in batches in the order in which the rows were accepted; returns
    /// how many there were. The empty prefix means every row. Rows that others insert meanwhile under new keys stay.
    ///
    /// Each batch is durable and atomic as in [`delete`](Self::delete). After an error or a crash the oldest of the rows
    /// are deleted and the others are there; the same call again deletes those. `watch` counts deleted rows, after each
    /// batch.
    pub fn delete_prefix(&self, prefix: &str, watch: &Watch) -> Result<u64> {
        self.delete_where(&Filter::Prefix(prefix.into()), watch)
    }

    /// Deletes the rows that pass a filter, as [`delete_prefix`](Self::delete_prefix) does. A row that is replaced meanwhile is
    /// deleted if the new one passes too.
    pub fn delete_where(&self, filter: &Filter, watch: &Watch) -> Result<u64> {
        self.store.delete_where(filter, watch)
    }

    /// Sets values of columns of the rows that pass a filter, in batches in the order in which the rows were accepted; returns
    /// how many rows had other values. Texts and vectors stay, and nothing is encoded. The rows are replaced as by
    /// [`insert`](Self::insert), so they come last from then on. A null takes a value away.
    ///
    /// Each batch is durable and atomic as in `insert`. After an error or a crash the oldest of the rows are changed and the
    /// others are as before; the same call again changes those. `watch` counts the rows that were looked at, after each batch.
    ///
    /// ```
    /// use mopqdb::{CreateOptions, Database, Filter, Metric, Options, Row, Watch};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("papers.db");
    /// let db = Database::create(&path, &CreateOptions::vectors(1, Metric::Ip), Options::default())?;
    /// db.insert(&[Row::vector("a", [1.0]).set("year", 2020), Row::vector("b", [2.0])])?;
    /// let unknown = Filter::sql("year IS NULL")?;
    /// db.update_where(&unknown, &[("year", 1999.into())], &Watch::default())?;
    /// assert_eq!(db.count_where(&unknown)?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if a column can't have the value that is set.
    pub fn update_where(
        &self,
        filter: &Filter,
        values: &[(&str, ColumnValue)],
        watch: &Watch,
    ) -> Result<u64> {
        self.store.update_where(filter, values, watch)
    }

    /// Removes a column and its values. A column of the same name that comes later is another one.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if there is none of this name.
    pub fn drop_column(&self, name: &str) -> Result<()> {
        self.store.drop_column(name)
    }

    /// Gives a column another type, if that type can hold each of its values exactly: int and float, a string and what can be
    /// written as one, a string and a list with that string.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if there is none of this name, or names a row whose value would be lost.
    pub fn retype_column(&self, name: &str, to: ColumnType) -> Result<()> {
        self.store.retype_column(name, to)
    }

    /// Seals the rows that are only in the log into a segment. Returns `true` if there were any. This happens
    /// automatically as the log grows.
    pub fn seal(&self) -> Result<bool> {
        self.store.seal()
    }

    /// Makes a segment as [`seal`](Self::seal) does, if the log has grown large. Returns `true` if it did.
    ///
    /// For a process that has written what it had to: all processes that open the database from then on read the log row
    /// by row, and hold its rows in memory, until another writer seals it.
    pub fn seal_if_large(&self) -> Result<bool> {
        self.store.seal_if_large()
    }

    /// Merges segments and drops deleted and replaced rows, freeing their space. Queries continue; snapshots taken
    /// before stay valid.
    pub fn compact(&self) -> Result<Compacted> {
        self.store.compact()
    }

    /// Copies the database as it is now to a directory that is missing or empty; see [`backup`](crate::backup()).
    pub fn backup(&self, dest: impl AsRef<Path>) -> Result<Backup> {
        self.backup_with(dest, &BackupOptions::default())
    }

    /// Copies what the options ask for; see [`backup_with`](crate::backup_with).
    pub fn backup_with(&self, dest: impl AsRef<Path>, options: &BackupOptions) -> Result<Backup> {
        backup_on(&*self.store.files, self.dir(), dest.as_ref(), options)
    }

    /// Switches to another model, from within the process that has the database open.
    pub fn rebuild(&self, options: &RebuildOptions) -> Result<Rebuilt> {
        rebuild::rebuild_store(&self.store, options)
    }

    /// Stores how many candidates queries under the active model take if their options do not set a number, usually as
    /// chosen by [`tune`](crate::eval::tune). The setting is kept with the database, for this model only.
    pub fn serve(&self, serving: Serving) -> Result<()> {
        self.store.serve(serving)
    }

    /// Learns codes from the database's own rows, if there are at least `least_rows` rows and no quantizer was ever
    /// registered, and switches to them if queries then find at least
    /// [`AUTO_QUANTIZE_RECALL`](crate::AUTO_QUANTIZE_RECALL) of the exact nearest ten rows: measured by codes and
    /// stored vectors, over rows that were not learned from.
    ///
    /// The learned model is registered either way, so the same rows are not tried twice. Takes about as long as training
    /// and rebuilding together. `watch` counts the steps of training, then queries, then rows.
    pub fn auto_quantize(&self, least_rows: u64, watch: &Watch) -> Result<AutoQuantized> {
        rebuild::quantize_if_due(&self.store, least_rows, watch)
    }

    /// Closes the log and releases the lock, if this is the last handle. The same happens on drop, where an error
    /// can only be logged.
    pub fn close(self) -> Result<()> {
        let Self {
            maintenance,
            handle,
            store,
        } = self;
        drop((maintenance, handle));
        match Arc::into_inner(store) {
            Some(store) => store.close(),
            None => Ok(()),
        }
    }
}

impl Deref for Database {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Source for Store {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn current(&self) -> Arc<Snapshot> {
        self.current()
    }
}

fn disk(options: &Options) -> Arc<dyn Files> {
    Arc::new(Disk {
        no_mmap: options.no_mmap,
    })
}
