//! A cache of masks: segments never change, so the rows that pass a filter stay the same.

use super::expr::BoundExpr;
use crate::error::Result;
use crate::ids::SegmentId;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The default limit for the bytes of all masks.
pub(crate) const DEFAULT_MASK_BYTES: usize = 64 << 20;
/// The bytes of an entry in addition to its bits and its filter: two nodes of maps.
const ENTRY_BYTES: usize = 192;

type Key = (SegmentId, BoundExpr);

/// The most recently used masks, up to a number of bytes.
#[derive(Debug)]
pub(crate) struct MaskCache(Mutex<Entries>);

#[derive(Debug)]
struct Entries {
    limit: usize,
    bytes: usize,
    masks: HashMap<Key, Entry>,
    /// The keys, ordered by last use.
    used: BTreeMap<u64, Key>,
    /// The time of the next use.
    next: u64,
}

#[derive(Debug)]
struct Entry {
    mask: Arc<[u64]>,
    used: u64,
    bytes: usize,
}

impl Default for MaskCache {
    fn default() -> Self {
        Self::new(DEFAULT_MASK_BYTES)
    }
}

impl MaskCache {
    /// Creates a cache of this many bytes. With 0 it keeps nothing.
    pub(crate) fn new(limit: usize) -> Self {
        Self(Mutex::new(Entries {
            limit,
            bytes: 0,
            masks: HashMap::new(),
            used: BTreeMap::new(),
            next: 0,
        }))
    }

    /// Returns the rows of a segment that pass a filter, and whether they were in the cache. Otherwise they are
    /// computed without the lock, by each thread that asks.
    ///
    /// # Errors
    /// Those of `make`, whose result is then not kept.
    pub(crate) fn get_or_make(
        &self,
        segment: SegmentId,
        filter: &BoundExpr,
        make: impl FnOnce() -> Result<Vec<u64>>,
    ) -> Result<(Arc<[u64]>, bool)> {
        let key = (segment, filter.clone());
        if let Some(mask) = self.entries().get(&key) {
            return Ok((mask, true));
        }
        let mask: Arc<[u64]> = make()?.into();
        self.entries().put(key, mask.clone());
        Ok((mask, false))
    }

    /// Removes the masks of a segment that no longer exists.
    pub(crate) fn forget(&self, segment: SegmentId) {
        self.entries().remove(|(of, _)| *of == segment);
    }

    /// Returns the size of the cache in bytes.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.entries().bytes
    }

    /// Returns the number of masks.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries().masks.len()
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        // A panic leaves at most its count of bytes wrong, by less than one entry.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn get(&mut self, key: &Key) -> Option<Arc<[u64]>> {
        let entry = self.masks.get_mut(key)?;
        let key = self.used.remove(&entry.used)?;
        entry.used = self.next;
        self.used.insert(self.next, key);
        self.next += 1;
        Some(entry.mask.clone())
    }

    fn put(&mut self, key: Key, mask: Arc<[u64]>) {
        let bytes = mask.len() * 8 + key.1.bytes() + ENTRY_BYTES;
        // Another thread was faster, or the mask is too large to keep.
        if bytes > self.limit || self.masks.contains_key(&key) {
            return;
        }
        let used = self.next;
        self.next += 1;
        self.bytes += bytes;
        self.used.insert(used, key.clone());
        self.masks.insert(key, Entry { mask, used, bytes });
        self.shrink();
    }

    /// Removes the least recently used masks.
    fn shrink(&mut self) {
        while self.bytes > self.limit {
            let Some((_, key)) = self.used.pop_first() else {
                break;
            };
            let dropped = self.masks.remove(&key);
            self.bytes -= dropped.map_or(0, |entry| entry.bytes);
        }
    }

    fn remove(&mut self, is: impl Fn(&Key) -> bool) {
        let Self {
            masks, used, bytes, ..
        } = self;
        masks.retain(|key, entry| {
            let goes = is(key);
            if goes {
                used.remove(&entry.used);
                *bytes -= entry.bytes;
            }
            !goes
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::expr::Expr;
    use crate::columns::schema::Schema;
    use crate::columns::value::ColumnType;

    fn filter(text: &str) -> BoundExpr {
        let mut schema = Schema::default();
        schema.introduce("a", ColumnType::Int).unwrap();
        Expr::parse(text).unwrap().bind(&schema).unwrap()
    }

    /// Returns `true` if the mask was in the cache.
    fn ask(cache: &MaskCache, segment: u64, text: &str) -> bool {
        let make = || Ok(vec![segment; 100]);
        let (mask, known) = cache
            .get_or_make(SegmentId(segment), &filter(text), make)
            .unwrap();
        assert_eq!(&*mask, &[segment; 100]);
        known
    }

    #[test]
    fn masks_are_cached_by_segment_and_meaning_of_the_filter() {
        let cache = MaskCache::default();
        assert!(!ask(&cache, 1, "a > 5"));
        assert!(ask(&cache, 1, "NOT (a <= 5)"));
        assert!(!ask(&cache, 2, "a > 5"));
        assert!(!ask(&cache, 1, "a >= 5"));
        assert_eq!(cache.len(), 3);
        cache.forget(SegmentId(1));
        assert!(!ask(&cache, 1, "a > 5"));
        assert!(ask(&cache, 2, "a > 5"));
        assert_eq!(cache.len(), 2);
    }

    #[test]
    fn the_cache_is_bounded_and_removes_the_least_recently_used() {
        let one = MaskCache::default();
        ask(&one, 0, "a = 1");
        let size = one.bytes();
        assert!(size > 800, "{size} bytes");
        let cache = MaskCache::new(size * 10);
        for segment in 0..10 {
            assert!(!ask(&cache, segment, "a = 1"));
        }
        assert_eq!((cache.len(), cache.bytes()), (10, size * 10));
        assert!(ask(&cache, 0, "a = 1"));
        assert!(!ask(&cache, 10, "a = 1"));
        assert!(ask(&cache, 0, "a = 1"), "used last");
        assert!(!ask(&cache, 1, "a = 1"), "not used for the longest time");
        assert_eq!(cache.len(), 10);
        let cache = MaskCache::new(size - 1);
        assert!(!ask(&cache, 1, "a = 1"));
        assert!(!ask(&cache, 1, "a = 1"), "too large to be kept");
    }

    #[test]
    fn errors_are_not_cached_and_threads_share_the_cache() {
        let cache = MaskCache::default();
        let failed = cache.get_or_make(SegmentId(1), &filter("a = 1"), || {
            Err(crate::Error::invalid("no"))
        });
        assert!(failed.is_err());
        assert_eq!((cache.len(), cache.bytes()), (0, 0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for segment in 0..50 {
                        ask(&cache, segment, "a = 1");
                    }
                });
            }
        });
        assert_eq!(cache.len(), 50);
    }
}
