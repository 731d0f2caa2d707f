//! The index from a key to its row: a [`KeyIndex`] in the sections KEY_BUCKETS and KEY_ENTRIES.
//!
//! A lookup reads two positions, one bucket, and the keys of the rows with the same 32-bit hash, of which there is
//! rarely more than one.

use super::keys::Keys;
use crate::format::{Check, Part, Section};
use crate::segment::file::SegmentFile;
use crate::segment::key_index::{KeyHash, KeyIndex, buckets};
use crate::segment::output::Output;
use crate::{Result, RowId};

/// Collects hashes: eight bytes per row.
#[derive(Debug, Default)]
pub(super) struct IndexWriter {
    entries: Vec<u64>,
}

impl IndexWriter {
    #[inline]
    pub(super) fn push(&mut self, key: &str) {
        let row = self.entries.len() as u32;
        self.entries.push(KeyHash::of(key).entry(row));
    }

    /// Writes KEY_BUCKETS and KEY_ENTRIES.
    pub(super) fn finish(self, output: &mut Output) -> Result<()> {
        let index = KeyIndex::of(self.entries);
        let starts: &[u8] = bytemuck::cast_slice(index.starts());
        output.section(Section::KeyBuckets, Check::Chunks, starts)?;
        let entries: &[u8] = bytemuck::cast_slice(index.entries());
        output.section(Section::KeyEntries, Check::Chunks, entries)
    }
}

/// The key index of a file.
#[derive(Debug)]
pub(super) struct Index {
    starts: Part,
    entries: Part,
    rows: u32,
}

impl Index {
    pub(super) fn open(file: &SegmentFile, rows: u32) -> Result<Self> {
        let starts = (u64::from(buckets(rows)) + 1) * 4;
        Ok(Self {
            starts: file.sized(Section::KeyBuckets, Some(starts))?,
            entries: file.sized(Section::KeyEntries, Some(u64::from(rows) * 8))?,
            rows,
        })
    }

    /// Returns the last row of a key.
    pub(super) fn find(
        &self,
        file: &SegmentFile,
        keys: &Keys,
        hash: KeyHash,
        key: &str,
    ) -> Result<Option<RowId>> {
        let bucket = hash.bucket(buckets(self.rows));
        // Later rows come later in a bucket, and the last one counts.
        for &entry in self.bucket(file, bucket)?.iter().rev() {
            let (found, row) = self.entry(file, entry)?;
            if found == hash {
                let block = keys.block_of(file, row)?;
                if keys.in_block(file, block, row.0)? == key {
                    return Ok(Some(row));
                }
            }
        }
        Ok(None)
    }

    fn bucket<'a>(&self, file: &'a SegmentFile, bucket: usize) -> Result<&'a [u64]> {
        let range: &[u32] = file.numbers(&self.starts, bucket..bucket + 2)?;
        let (start, end) = (range[0], range[1]);
        if start > end || end > self.rows {
            let what = format!("bucket {bucket} is {start}..{end} of {} entries", self.rows);
            return Err(file.wrong(self.starts.wrong(bucket * 4, what)));
        }
        file.numbers(&self.entries, start as usize..end as usize)
    }

    fn entry(&self, file: &SegmentFile, entry: u64) -> Result<(KeyHash, RowId)> {
        let (hash, row) = KeyHash::parts(entry);
        if row.0 >= self.rows {
            let what = format!("an entry for row {} of {}", row.0, self.rows);
            return Err(file.wrong(self.entries.wrong(0, what)));
        }
        Ok((hash, row))
    }

    /// Checks that every entry is in its bucket and in order, and that the buckets contain all entries. (Looking up the
    /// keys checks that each entry is that of its row's key.)
    pub(super) fn verify(&self, file: &SegmentFile) -> Result<()> {
        let mut last = None;
        let mut count = 0;
        for bucket in 0..buckets(self.rows) as usize {
            for &entry in self.bucket(file, bucket)? {
                let (hash, _) = self.entry(file, entry)?;
                if hash.bucket(buckets(self.rows)) != bucket || last >= Some(entry) {
                    let what = format!("entry {entry:016x} is out of place");
                    return Err(file.wrong(self.entries.wrong(count * 8, what)));
                }
                last = Some(entry);
                count += 1;
            }
        }
        if count != self.rows as usize {
            let what = format!("buckets contain {count} of {} entries", self.rows);
            return Err(file.wrong(self.starts.wrong(0, what)));
        }
        Ok(())
    }
}
