//! Reading a database in any process, and the queries that readers and writers share.

use crate::admin::backup::Backup;
use crate::admin::stats::Stats;
use crate::admin::verify::{Verified, VerifyOptions};
use crate::columns::Column;
use crate::disk::files::{Disk, Storage};
use crate::disk::layout::Layout;
use crate::error::Result;
use crate::model::Model;
use crate::options::ReadOptions;
use crate::row::{Filter, Hit, Query, QueryOptions, Row};
use crate::snapshot::{RowCursor, Snapshot};
use crate::version::follow::Follower;
use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

/// The queries of a database. [`Database`](crate::Database) and [`Reader`] deref to it.
#[derive(Debug)]
pub struct Handle {
    source: Arc<dyn Source>,
}

/// Provides the newest snapshot to a handle.
pub(crate) trait Source: fmt::Debug + Send + Sync {
    fn layout(&self) -> &Layout;
    fn current(&self) -> Arc<Snapshot>;
}

impl Handle {
    /// Wraps a source. Only the clones of one handle share it; dropping the last one releases what the source
    /// holds.
    pub(crate) fn of(source: Arc<impl Source + 'static>) -> Arc<Self> {
        Arc::new(Self { source })
    }

    /// Returns the directory of the database.
    pub fn dir(&self) -> &Path {
        self.source.layout().dir()
    }

    /// Returns the number of rows.
    pub fn len(&self) -> u64 {
        self.snapshot().rows()
    }

    /// Returns `true` if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `true` if there is a row with this key.
    pub fn contains(&self, key: &str) -> Result<bool> {
        self.snapshot().contains(key)
    }

    /// Returns the rows with these keys, in their order; `None` where there is no such row. All are of one moment.
    pub fn get_many(&self, keys: &[&str]) -> Result<Vec<Option<Row>>> {
        let snapshot = self.snapshot();
        keys.iter().map(|key| snapshot.get(key)).collect()
    }

    /// Returns a cursor over all rows, as they are now, in the order in which they were accepted.
    pub fn rows(&self) -> RowCursor {
        self.snapshot().cursor()
    }

    /// Returns the number of rows that pass a filter.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the filter asks for a column that is not there, or compares one with a value of
    /// another type.
    pub fn count_where(&self, filter: &Filter) -> Result<u64> {
        self.snapshot().count_where(filter)
    }

    /// Returns the columns, in the order in which they came.
    pub fn columns(&self) -> Vec<Column> {
        self.snapshot().columns().to_vec()
    }

    /// Returns the row with this key.
    pub fn get(&self, key: &str) -> Result<Option<Row>> {
        self.snapshot().get(key)
    }

    /// Returns the k best rows for a text or a vector, best first.
    pub fn query<'q>(&self, query: impl Into<Query<'q>>, k: usize) -> Result<Vec<Hit>> {
        self.snapshot().query(query, k)
    }

    /// Returns the best rows for a query, among those that the options' filter lets through.
    pub fn query_with<'q>(
        &self,
        query: impl Into<Query<'q>>,
        options: &QueryOptions,
    ) -> Result<Vec<Hit>> {
        self.snapshot().query_with(query, options)
    }

    /// Returns the best rows for each of several queries, which share one pass over the codes.
    pub fn query_batch(
        &self,
        queries: &[Query<'_>],
        options: &QueryOptions,
    ) -> Result<Vec<Vec<Hit>>> {
        self.snapshot().query_batch(queries, options)
    }

    /// Returns a snapshot of the database. Later writes do not change it.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.source.current()
    }

    /// Returns the active model.
    pub fn model(&self) -> Arc<Model> {
        Arc::clone(self.snapshot().model())
    }

    /// Returns row counts, sizes, segments and drift.
    pub fn stats(&self) -> Result<Stats> {
        Stats::of(self.source.layout(), &self.snapshot())
    }

    /// Checks the database; see [`verify`](crate::verify()).
    pub fn verify(&self, options: &VerifyOptions) -> Result<Verified> {
        crate::verify(self.dir(), options)
    }
}

/// A read-only handle to a database. Takes no lock, and needs no permission to write.
///
/// It sees the database as it was when it was opened or last [refreshed](Self::refresh), including rows that are not in
/// a segment yet. It keeps the files that it needs open. Cheap to clone; clones share one open database.
///
/// Queries are methods of [`Handle`].
#[derive(Debug, Clone)]
pub struct Reader {
    handle: Arc<Handle>,
    follower: Arc<Follower>,
}

impl Reader {
    /// Opens a database for reading.
    pub fn open(dir: impl AsRef<Path>, options: impl Into<ReadOptions>) -> Result<Self> {
        let options = options.into();
        let storage = Arc::new(Disk {
            no_mmap: options.no_mmap,
        });
        Self::open_on(storage, dir.as_ref(), options)
    }

    /// Like [`open`](Self::open), on another [`Storage`]; for tests.
    #[doc(hidden)]
    pub fn open_on(
        storage: Arc<dyn Storage>,
        dir: &Path,
        options: impl Into<ReadOptions>,
    ) -> Result<Self> {
        let follower = Arc::new(Follower::open(storage, dir, options.into())?);
        let handle = Handle::of(Arc::clone(&follower));
        Ok(Self { handle, follower })
    }

    /// Makes what was written since visible. Returns `true` if there was anything new.
    pub fn refresh(&self) -> Result<bool> {
        self.follower.refresh()
    }

    /// Copies the database as it is now to a directory that is missing or empty; see [`backup`](crate::backup()).
    pub fn backup(&self, dest: impl AsRef<Path>) -> Result<Backup> {
        crate::backup(self.dir(), dest)
    }
}

impl Deref for Reader {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Source for Follower {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn current(&self) -> Arc<Snapshot> {
        self.snapshot()
    }
}
