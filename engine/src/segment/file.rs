//! A container with its path, which is added to errors of the format.

use super::names::FileName;
use super::{RowsFile, RowsHash};
use crate::disk::files::Storage;
use crate::disk::mmap::Mapping;
use crate::format::{Check, Container, Decode, FormatError, Kind, Part, Section, Take};
use crate::{Error, Result, SegmentId};
use std::ops::Range;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct SegmentFile {
    path: PathBuf,
    container: Container<Mapping>,
}

impl SegmentFile {
    pub(super) fn open(files: &dyn Storage, path: &Path, kind: Kind) -> Result<Self> {
        let bytes = files.map(path).map_err(Error::io("opening", path))?;
        let container = Container::open(bytes, kind).map_err(|e| e.at(path))?;
        Ok(Self {
            path: path.to_path_buf(),
            container,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn container(&self) -> &Container<Mapping> {
        &self.container
    }

    /// Adds the path of this file to an error of the format.
    #[cold]
    pub(super) fn wrong(&self, error: FormatError) -> Error {
        error.at(&self.path)
    }

    pub(super) fn part(&self, section: Section, check: Check) -> Result<Part> {
        (self.container.part(section, check)).map_err(|e| self.wrong(e))
    }

    /// Returns a section that is checked when it is first read and has this many bytes.
    pub(super) fn sized(&self, section: Section, len: Option<u64>) -> Result<Part> {
        let part = (self.container.touched(section)).map_err(|e| self.wrong(e))?;
        part.expect_len(len).map_err(|e| self.wrong(e))?;
        Ok(part)
    }

    /// Decodes a section that is checked by chunks.
    pub(super) fn decode<T: Decode>(&self, section: Section) -> Result<T> {
        let part = self.part(section, Check::Chunks)?;
        let decode = || {
            let mut fields = Take::new(section.name(), part.offset(), self.container.whole(&part)?);
            let value = T::decode(&mut fields)?;
            fields.end()?;
            Ok(value)
        };
        decode().map_err(|e| self.wrong(e))
    }

    #[inline]
    pub(super) fn checked(&self, part: &Part, range: Range<usize>) -> Result<&[u8]> {
        (self.container.checked(part, range)).map_err(|e| self.wrong(e))
    }

    /// Returns a part of a section as numbers in place. Sections and mappings have the alignment that any of them
    /// needs.
    #[inline]
    pub(super) fn numbers<T: bytemuck::AnyBitPattern>(
        &self,
        part: &Part,
        range: Range<usize>,
    ) -> Result<&[T]> {
        let width = size_of::<T>();
        let bytes = self.checked(part, range.start * width..range.end * width)?;
        Ok(bytemuck::cast_slice(bytes))
    }

    /// Returns `true` if some rows of `width` bytes of a section are probably not in memory, after checking a few.
    pub(super) fn lacks(&self, part: &Part, width: usize, rows: &[u32]) -> bool {
        // Each check is a system call of 0.7 us.
        const ONE_IN: usize = 100;
        let first = part.offset() as usize;
        let some = rows.iter().step_by(ONE_IN);
        let file = self.container.file();
        file.lacks(some.map(|&row| first + row as usize * width))
    }

    /// Begins to read rows of `width` bytes of a section, all at once: those that were never read, or, with `every`,
    /// all. Requires: rows ascend.
    pub(super) fn prefetch(&self, part: &Part, width: usize, rows: &[u32], every: bool) {
        let file = self.container.file();
        let first = part.offset() as usize;
        let span = |row: u32| row as usize * width..(row as usize + 1) * width;
        let is_checked = |row: &u32| self.container.is_checked(part, &span(*row));
        if !every && rows.iter().all(is_checked) {
            return;
        }
        let untouched = |row: &u32| self.container.untouched(part, span(*row));
        file.will_read(rows.iter().map(|row| {
            let [_, sums] = untouched(row);
            sums
        }));
        file.will_read(rows.iter().map(|row| {
            if every {
                first + span(*row).start..first + span(*row).end
            } else {
                let [bytes, _] = untouched(row);
                bytes
            }
        }));
    }

    #[inline]
    pub(super) fn block(&self, part: &Part, range: Range<usize>, sum: u64) -> Result<&[u8]> {
        (self.container.block(part, range, sum)).map_err(|e| self.wrong(e))
    }

    /// Returns an error if the content does not belong to the file's name. Names that are not mopqdb's are not checked.
    pub(super) fn expect_name(&self, holds: FileName) -> Result<()> {
        match FileName::of(&self.path) {
            Some(name) if name != holds => {
                let what = format!("the file has the content of {holds}");
                Err(Error::corrupt(&self.path, Section::Meta.name(), 0, what))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the file was made from these rows, because it must not be read with others.
    pub(super) fn expect_rows(
        &self,
        made_from: (SegmentId, RowsHash, u32),
        rows: &RowsFile,
    ) -> Result<()> {
        let given = (rows.meta().segment, rows.hash(), rows.summary().rows);
        if made_from == given {
            return Ok(());
        }
        let tell =
            |(segment, hash, rows)| format!("{rows} rows of segment {segment} with hash {hash}");
        let what = format!(
            "it was made from {}, not from {}",
            tell(made_from),
            tell(given)
        );
        Err(Error::corrupt(&self.path, Section::Meta.name(), 0, what))
    }

    /// Returns every damaged chunk.
    pub(super) fn damaged_chunks(&self) -> Vec<Error> {
        let mut damage = Vec::new();
        (self.container).check_all(&mut |error| damage.push(self.wrong(error)));
        damage
    }
}
