//! The word index of the texts of a segment: the files of the search library, packed into one file.
//!
//! Only the module `words` interprets the files. Here they are names and bytes, and every byte has a checksum.

use super::file::SegmentFile;
use super::names::{FileName, ShortId};
use super::output::Output;
use super::{RowsFile, RowsHash};
use crate::disk::files::{Files, Storage};
use crate::format::{Check, Decode, Encode, FormatError, Kind, Part, Put, Section, Take, Written};
use crate::{Error, Result, SegmentId, WordsId};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The metadata of a words file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WordsMeta {
    /// The segment.
    pub segment: SegmentId,
    /// The rows file whose texts were indexed.
    pub rows_hash: RowsHash,
    /// How texts become terms.
    pub words: WordsId,
    /// The number of rows, equal to that of the rows file.
    pub rows: u32,
    /// The version of the search library's files.
    pub index_version: u32,
}

impl WordsMeta {
    fn name(&self) -> FileName {
        FileName::Words(self.segment, ShortId::of(&self.words.0))
    }
}

impl Encode for WordsMeta {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.segment.0);
        out.put_u64(self.rows_hash.0);
        out.extend_from_slice(&self.words.0);
        out.put_u32(self.rows);
        out.put_u32(self.index_version);
    }
}

impl Decode for WordsMeta {
    fn decode(fields: &mut Take<'_>) -> Result<Self, FormatError> {
        Ok(Self {
            segment: SegmentId(fields.u64()?),
            rows_hash: RowsHash(fields.u64()?),
            words: WordsId(fields.array()?),
            rows: fields.u32()?,
            index_version: fields.u32()?,
        })
    }
}

/// The packed files, in the order of INDEX.
#[derive(Debug, Default)]
struct Packed(Vec<(String, Range<usize>)>);

impl Decode for Packed {
    fn decode(fields: &mut Take<'_>) -> Result<Self, FormatError> {
        let mut files = Vec::new();
        let mut end = 0_usize;
        while fields.left() > 0 {
            let (len, name_len) = (fields.u64()?, fields.u32()?);
            let Ok(name) = str::from_utf8(fields.bytes(name_len as usize)?) else {
                return Err(fields.wrong("a name that is not UTF-8"));
            };
            let begin = end;
            end = usize::try_from(len)
                .ok()
                .and_then(|len| begin.checked_add(len))
                .ok_or_else(|| fields.wrong(format!("{name:?} has {len} bytes")))?;
            files.push((name.to_owned(), begin..end));
        }
        Ok(Self(files))
    }
}

/// Packs the files of a word index into a words file.
pub struct WordsPacker {
    output: Output,
    /// INDEX_FILES, without the current file.
    table: Vec<u8>,
    /// The name of the current file, and its position.
    open: Option<(String, u64)>,
}

impl WordsPacker {
    /// Begins a file. `path` is its final path.
    pub fn create(files: Arc<dyn Files>, path: &Path) -> Result<Self> {
        let mut output = Output::create(files, path, Kind::Words)?;
        output.begin(Section::Index, Check::Chunks)?;
        Ok(Self {
            output,
            table: Vec::new(),
            open: None,
        })
    }

    /// Ends the previous packed file and begins the next one.
    pub fn begin(&mut self, name: &str) {
        self.end();
        self.open = Some((name.to_owned(), self.output.section_len()));
    }

    /// Appends to the current packed file.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        assert!(
            self.open.is_some(),
            "a file must be begun before it is written"
        );
        self.output.write(bytes)
    }

    fn end(&mut self) {
        if let Some((name, begin)) = self.open.take() {
            self.table.put_u64(self.output.section_len() - begin);
            self.table.put_u32(name.len() as u32);
            self.table.extend_from_slice(name.as_bytes());
        }
    }

    /// Syncs the words file and renames it to its final name; the caller syncs the directory.
    pub fn finish(mut self, meta: &WordsMeta) -> Result<Written> {
        self.end();
        (self.output).section(Section::IndexFiles, Check::Chunks, &self.table)?;
        (self.output).section(Section::Meta, Check::Chunks, &meta.encoded())?;
        self.output.finish()
    }
}

/// The word index of the texts of a segment.
#[derive(Debug)]
pub struct WordsFile {
    file: SegmentFile,
    meta: WordsMeta,
    index: Part,
    packed: Packed,
}

impl WordsFile {
    /// Opens a file, checking its frame and lengths.
    pub fn open(files: &dyn Storage, path: &Path) -> Result<Self> {
        let file = SegmentFile::open(files, path, Kind::Words)?;
        let meta: WordsMeta = file.decode(Section::Meta)?;
        file.expect_name(meta.name())?;
        let packed: Packed = file.decode(Section::IndexFiles)?;
        let len = packed.0.last().map_or(0, |(_, range)| range.end as u64);
        let index = file.part(Section::Index, Check::Chunks)?;
        (index.expect_len(Some(len))).map_err(|error| file.wrong(error))?;
        Ok(Self {
            file,
            meta,
            index,
            packed,
        })
    }

    /// Returns the metadata.
    pub fn meta(&self) -> &WordsMeta {
        &self.meta
    }

    /// Checks that the file was made from these rows.
    pub fn expect_rows(&self, rows: &RowsFile) -> Result<()> {
        let meta = &self.meta;
        (self.file).expect_rows((meta.segment, meta.rows_hash, meta.rows), rows)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns its bytes on disk.
    pub fn file_len(&self) -> u64 {
        self.file.container().file_len()
    }

    /// Returns the number of rows.
    pub fn row_count(&self) -> usize {
        self.meta.rows as usize
    }

    /// Returns the names of the packed files, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.packed.0.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the range of the packed file with this name.
    pub fn packed(&self, name: &str) -> Option<Range<usize>> {
        let mut packed = self.packed.0.iter();
        packed
            .find(|(own, _)| own == name)
            .map(|(_, range)| range.clone())
    }

    /// Returns bytes of the packed files, checked.
    pub fn bytes(&self, range: Range<usize>) -> Result<&[u8]> {
        self.file.checked(&self.index, range)
    }

    /// Returns an error about the packed files.
    pub fn wrong(&self, what: impl Into<String>) -> Error {
        self.file.wrong(self.index.wrong(0, what))
    }

    /// Reads everything and returns what is damaged.
    pub fn verify(&self) -> Vec<Error> {
        self.file.damaged_chunks()
    }
}
