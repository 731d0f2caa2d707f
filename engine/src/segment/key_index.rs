//! An index from the hash of a key to rows: sorted entries of (hash, row), and the position of each bucket of them.
//!
//! A bucket has about eight entries, a cache line: a lookup reads two positions and one bucket. Segments keep the two
//! arrays in sections, runs of the tail in memory.

use crate::ids::RowId;
use xxhash_rust::xxh3::xxh3_64;

const ENTRIES_PER_BUCKET: u32 = 8;

/// The hash of a key, for lookups in several segments and runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(u32);

impl KeyHash {
    /// Returns the upper half of its xxh3.
    #[inline]
    pub fn of(key: &str) -> Self {
        Self((xxh3_64(key.as_bytes()) >> 32) as u32)
    }

    /// Returns the bucket, which ascends with the hash, so that buckets of sorted entries are ranges.
    #[inline]
    pub(crate) fn bucket(self, buckets: u32) -> usize {
        ((u64::from(self.0) * u64::from(buckets)) >> 32) as usize
    }

    /// Returns an entry: the hash in the upper half, the row in the lower. Sorted entries are ordered by hash, then by
    /// row.
    #[inline]
    pub(crate) fn entry(self, row: u32) -> u64 {
        u64::from(self.0) << 32 | u64::from(row)
    }

    /// Returns the hash and the row of an entry.
    #[inline]
    pub(crate) fn parts(entry: u64) -> (Self, RowId) {
        (Self((entry >> 32) as u32), RowId(entry as u32))
    }
}

/// Returns the number of buckets for this many rows.
pub(crate) fn buckets(rows: u32) -> u32 {
    rows.div_ceil(ENTRIES_PER_BUCKET).max(1)
}

/// The index of some rows, in memory.
#[derive(Debug, Default)]
pub(crate) struct KeyIndex {
    entries: Vec<u64>,
    /// The position of each bucket, and the end of the last.
    starts: Vec<u32>,
}

impl KeyIndex {
    /// Creates an index of entries in any order.
    pub(crate) fn of(mut entries: Vec<u64>) -> Self {
        entries.sort_unstable();
        Self::sorted(entries)
    }

    /// Merges two neighbours: the rows of `newer` follow the rows of `older`, of which there are `rows`.
    pub(crate) fn merged(older: &Self, newer: &Self, rows: u32) -> Self {
        let mut entries = Vec::with_capacity(older.entries.len() + newer.entries.len());
        let mut rest = &older.entries[..];
        for entry in newer.entries.iter().map(|entry| entry + u64::from(rows)) {
            let before = rest.iter().take_while(|&&old| old < entry).count();
            entries.extend_from_slice(&rest[..before]);
            entries.push(entry);
            rest = &rest[before..];
        }
        entries.extend_from_slice(rest);
        Self::sorted(entries)
    }

    fn sorted(entries: Vec<u64>) -> Self {
        let buckets = buckets(entries.len() as u32);
        let mut starts = Vec::with_capacity(buckets as usize + 1);
        for (index, &entry) in entries.iter().enumerate() {
            let bucket = KeyHash::parts(entry).0.bucket(buckets);
            while starts.len() <= bucket {
                starts.push(index as u32);
            }
        }
        starts.resize(buckets as usize + 1, entries.len() as u32);
        Self { entries, starts }
    }

    /// Returns the rows whose keys have this hash, the last first, because the last of several rows with one key
    /// counts.
    pub(crate) fn rows_of(&self, hash: KeyHash) -> impl Iterator<Item = RowId> {
        let bucket = hash.bucket(buckets(self.entries.len() as u32));
        let range = match self.starts.get(bucket..bucket + 2) {
            Some(&[start, end]) => start as usize..end as usize,
            _ => 0..0,
        };
        let entries = self.entries[range].iter().rev();
        entries.filter_map(move |&entry| {
            let (found, row) = KeyHash::parts(entry);
            (found == hash).then_some(row)
        })
    }

    /// Returns the entries, sorted.
    pub(crate) fn entries(&self) -> &[u64] {
        &self.entries
    }

    /// Returns the position of each bucket, and the end of the last one.
    pub(crate) fn starts(&self) -> &[u32] {
        &self.starts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(keys: &[String]) -> KeyIndex {
        let entries = keys
            .iter()
            .zip(0..)
            .map(|(k, row)| KeyHash::of(k).entry(row));
        KeyIndex::of(entries.collect())
    }

    #[test]
    fn every_key_is_found_and_no_other_in_built_and_merged_indexes() {
        let keys: Vec<String> = (0..3000).map(|n| format!("key {n}")).collect();
        for cut in [0, 1, 7, 1000, 2999, 3000] {
            let (older, newer) = keys.split_at(cut);
            let merged = KeyIndex::merged(&index(older), &index(newer), cut as u32);
            assert_eq!(merged.entries(), index(&keys).entries());
            assert_eq!(merged.starts(), index(&keys).starts());
            for (row, key) in keys.iter().enumerate() {
                let mut found = merged.rows_of(KeyHash::of(key));
                assert!(found.any(|found| found.0 as usize == row), "{key}");
            }
        }
        let found = (3000..9000).flat_map(|n| {
            let hash = KeyHash::of(&format!("key {n}"));
            index(&keys).rows_of(hash).collect::<Vec<_>>()
        });
        assert!(found.count() < 3, "32-bit hashes agree only by chance");
    }

    #[test]
    fn the_last_row_with_a_hash_comes_first() {
        let keys = vec!["a".to_string(), "b".into(), "a".into()];
        let found: Vec<_> = index(&keys).rows_of(KeyHash::of("a")).collect();
        assert_eq!(found, [RowId(2), RowId(0)]);
        let none = index(&[]).rows_of(KeyHash::of("a")).count();
        assert_eq!(none, 0);
    }
}
