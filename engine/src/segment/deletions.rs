//! The dead rows of one segment as of one version.

use super::file::SegmentFile;
use super::names::FileName;
use super::output::Output;
#[cfg(any(test, feature = "testing"))]
use crate::Error;
use crate::disk::files::{Files, Storage};
use crate::format::{Check, Decode, Encode, FormatError, Kind, Put, Section, Take, Written};
use crate::{Generation, Result, RowId, SegmentId};
use std::path::Path;
use std::sync::Arc;

/// The dead rows of one segment in one version: one bit per row, set if it is dead.
///
/// Kept in memory while its segment is open, and written as one small file by each version that changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletions {
    segment: SegmentId,
    version: Generation,
    rows: u32,
    dead: u32,
    /// Bits past the last row are clear.
    words: Vec<u64>,
}

impl Deletions {
    /// Returns an empty set of dead rows.
    pub fn none(segment: SegmentId, version: Generation, rows: u32) -> Self {
        Self {
            segment,
            version,
            rows,
            dead: 0,
            words: vec![0; rows.div_ceil(64) as usize],
        }
    }

    /// Returns the segment.
    pub fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Returns the first version in which all of these rows are dead.
    pub fn version(&self) -> Generation {
        self.version
    }

    /// Returns the number of rows of the segment, dead ones included.
    pub fn row_count(&self) -> u32 {
        self.rows
    }

    /// Returns the number of dead rows.
    pub fn dead(&self) -> u32 {
        self.dead
    }

    /// Returns one word for each 64 rows; a set bit is a dead row.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Returns `true` if a row is dead.
    pub fn contains(&self, row: RowId) -> bool {
        assert!(row.0 < self.rows, "row {row} of {}", self.rows);
        self.words[row.0 as usize / 64] >> (row.0 % 64) & 1 == 1
    }

    /// Marks a row dead. Returns `true` if it was live.
    pub fn insert(&mut self, row: RowId) -> bool {
        let was_alive = !self.contains(row);
        self.words[row.0 as usize / 64] |= 1 << (row.0 % 64);
        self.dead += u32::from(was_alive);
        was_alive
    }

    /// Returns the dead rows, in order.
    pub fn iter(&self) -> impl Iterator<Item = RowId> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let next = |left: &u64| Some(left & left.wrapping_sub(1)).filter(|&left| left != 0);
            std::iter::successors(Some(word).filter(|&word| word != 0), next)
                .map(move |left| RowId(index as u32 * 64 + left.trailing_zeros()))
        })
    }

    /// Returns the name of the file.
    pub fn name(&self) -> FileName {
        FileName::Deletions(self.segment, self.version)
    }

    /// Writes and syncs the file and renames it to its final name; the caller syncs the directory.
    pub fn write(&self, files: Arc<dyn Files>, path: &Path) -> Result<Written> {
        let mut output = Output::create(files, path, Kind::Deletions)?;
        let meta = Meta {
            segment: self.segment,
            version: self.version,
            rows: self.rows,
            dead: self.dead,
        };
        output.section(Section::Meta, Check::Chunks, &meta.encoded())?;
        let words: &[u8] = bytemuck::cast_slice(&self.words);
        output.section(Section::Dead, Check::Chunks, words)?;
        output.finish()
    }

    /// Returns the segment and the version of a file, according to its content; `None` if it is damaged.
    pub fn identify(files: &dyn Storage, path: &Path) -> Option<(SegmentId, Generation)> {
        let file = SegmentFile::open(files, path, Kind::Deletions).ok()?;
        let meta: Meta = file.decode(Section::Meta).ok()?;
        Some((meta.segment, meta.version))
    }

    /// Reads a file and checks all of it.
    pub fn read(files: &dyn Storage, path: &Path) -> Result<Self> {
        let file = SegmentFile::open(files, path, Kind::Deletions)?;
        let meta: Meta = file.decode(Section::Meta)?;
        let words = u64::from(meta.rows.div_ceil(64));
        let part = file.sized(Section::Dead, Some(words * 8))?;
        let deletions = Self {
            segment: meta.segment,
            version: meta.version,
            rows: meta.rows,
            dead: meta.dead,
            words: file.numbers(&part, 0..words as usize)?.to_vec(),
        };
        file.expect_name(deletions.name())?;
        let counted: u64 = (deletions.words.iter())
            .map(|word| u64::from(word.count_ones()))
            .sum();
        let past_the_end = match meta.rows % 64 {
            0 => 0,
            used => deletions.words.last().map_or(0, |last| last >> used),
        };
        if counted != u64::from(meta.dead) || past_the_end != 0 {
            let what = format!(
                "{counted} bits are set for {} dead of {} rows",
                meta.dead, meta.rows
            );
            return Err(file.wrong(part.wrong(0, what)));
        }
        Ok(deletions)
    }

    #[cfg(any(test, feature = "testing"))]
    /// Reads a file again from disk and returns what is damaged.
    pub fn verify(files: &dyn Storage, path: &Path) -> Vec<Error> {
        Self::read(files, path).err().into_iter().collect()
    }
}

struct Meta {
    segment: SegmentId,
    version: Generation,
    rows: u32,
    dead: u32,
}

impl Encode for Meta {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.segment.0);
        out.put_u64(self.version.0);
        out.put_u32(self.rows);
        out.put_u32(self.dead);
    }
}

impl Decode for Meta {
    fn decode(fields: &mut Take<'_>) -> Result<Self, FormatError> {
        Ok(Self {
            segment: SegmentId(fields.u64()?),
            version: Generation(fields.u64()?),
            rows: fields.u32()?,
            dead: fields.u32()?,
        })
    }
}
