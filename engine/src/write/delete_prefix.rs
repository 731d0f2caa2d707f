//! Deleting every row whose key begins alike: in batches, each of them atomic, in the order of `Seq`.

use super::Store;
use crate::error::{Error, Result};
use crate::watch::Watch;

/// Keys deleted together: one write to the log, one sync.
const BATCH: usize = 4096;
/// Bytes of keys deleted together, so that long keys do not make large batches.
const BATCH_BYTES: usize = 4 << 20;

impl Store {
    /// Deletes the rows that a snapshot taken now holds. Returns how many there were.
    pub(crate) fn delete_prefix(&self, prefix: &str, watch: &Watch) -> Result<u64> {
        let snapshot = self.current();
        let mut total = 0;
        snapshot.for_each_key(prefix, |_| {
            total += 1;
            Ok(())
        })?;
        let mut batch = Batch {
            store: self,
            watch,
            keys: Vec::new(),
            bytes: 0,
            deleted: 0,
            total,
        };
        snapshot.for_each_key(prefix, |key| batch.add(key))?;
        if !batch.keys.is_empty() {
            batch.delete()?;
        }
        Ok(batch.deleted)
    }
}

/// Keys on their way out.
struct Batch<'a> {
    store: &'a Store,
    watch: &'a Watch,
    keys: Vec<String>,
    bytes: usize,
    deleted: u64,
    total: u64,
}

impl Batch<'_> {
    fn add(&mut self, key: &str) -> Result<()> {
        self.bytes += key.len();
        self.keys.push(key.to_owned());
        match self.keys.len() >= BATCH || self.bytes >= BATCH_BYTES {
            true => self.delete(),
            false => Ok(()),
        }
    }

    fn delete(&mut self) -> Result<()> {
        if self.watch.is_stopped() {
            return Err(Error::Cancelled(
                "not all rows were deleted; the same call again deletes the others",
            ));
        }
        let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        self.deleted += self.store.delete(&keys)?;
        self.keys.clear();
        self.bytes = 0;
        self.watch.report(self.deleted, self.total);
        Ok(())
    }
}
