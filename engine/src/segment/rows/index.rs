//! From a key to its row: entries of (hash, row) in order, and where each bucket of them begins.
//!
//! A bucket has some eight entries, a cache line; a look-up reads two numbers of KEY_BUCKETS, one bucket of
//! KEY_ENTRIES, and then the keys of those rows whose 32 bits of hash agree, which are seldom others than the one
//! looked for.

use super::keys::Keys;
use crate::format::{Check, Part, Put, Section, checksum};
use crate::segment::file::SegmentFile;
use crate::segment::output::Output;
use crate::{Result, RowId};

const ENTRIES_PER_BUCKET: u32 = 8;

/// The hash of a key, for look-ups in several segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(u32);

impl KeyHash {
    /// The upper half of its xxh3.
    #[inline]
    pub fn of(key: &str) -> Self {
        Self((checksum(key.as_bytes()) >> 32) as u32)
    }

    /// Ascends with the hash, so that buckets of sorted entries are ranges.
    fn bucket(self, buckets: u32) -> usize {
        ((u64::from(self.0) * u64::from(buckets)) >> 32) as usize
    }
}

fn buckets(rows: u32) -> u32 {
    rows.div_ceil(ENTRIES_PER_BUCKET).max(1)
}

/// Gathers hashes: eight bytes a row.
#[derive(Debug, Default)]
pub(super) struct IndexWriter {
    /// Hash in the upper half, row in the lower: in the order of the file once sorted.
    entries: Vec<u64>,
}

impl IndexWriter {
    #[inline]
    pub(super) fn push(&mut self, key: &str) {
        let row = self.entries.len() as u64;
        self.entries.push(u64::from(KeyHash::of(key).0) << 32 | row);
    }

    /// Writes KEY_BUCKETS and KEY_ENTRIES.
    pub(super) fn finish(mut self, output: &mut Output) -> Result<()> {
        self.entries.sort_unstable();
        let buckets = buckets(self.entries.len() as u32);
        let mut starts = Vec::with_capacity((buckets as usize + 1) * 4);
        let mut begun = 0;
        for (index, entry) in self.entries.iter().enumerate() {
            let bucket = KeyHash((entry >> 32) as u32).bucket(buckets);
            while begun <= bucket {
                starts.put_u32(index as u32);
                begun += 1;
            }
        }
        while begun <= buckets as usize {
            starts.put_u32(self.entries.len() as u32);
            begun += 1;
        }
        output.section(Section::KeyBuckets, Check::Chunks, &starts)?;
        let entries: &[u8] = bytemuck::cast_slice(&self.entries);
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

    /// The last row of a key.
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
        let (hash, row) = (KeyHash((entry >> 32) as u32), entry as u32);
        if row >= self.rows {
            let what = format!("an entry for row {row} of {}", self.rows);
            return Err(file.wrong(self.entries.wrong(0, what)));
        }
        Ok((hash, RowId(row)))
    }

    /// Every entry is in its bucket and in order, and the buckets hold all of them. (That each is the entry of its
    /// row's key is seen by finding the keys.)
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
            let what = format!("buckets hold {count} of {} entries", self.rows);
            return Err(file.wrong(self.starts.wrong(0, what)));
        }
        Ok(())
    }
}
