//! The frame of every file: header, section table, footer.

use super::{ALIGN, CHUNK, Decode, Encode, FormatError, PAGE, Put, Take, VERSION, checksum};
use std::fmt;

const MAGIC: [u8; 8] = *b"\x89MOPQ\r\n\x1a";
const END: [u8; 8] = *b"\x89MOPQEND";

/// The kind of a file: four letters in its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Keys, texts or vectors of a segment.
    Rows,
    /// One encoder's output for the texts of a segment.
    Vecs,
    /// The codes of a segment under one model.
    Codes,
    /// The dead rows of a segment.
    Deletions,
    /// The columns of a segment.
    Columns,
    /// The word index of the texts of a segment.
    Words,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Rows,
        Self::Vecs,
        Self::Codes,
        Self::Deletions,
        Self::Columns,
        Self::Words,
    ];

    /// Returns the letters in the header.
    pub fn letters(self) -> [u8; 4] {
        match self {
            Self::Rows => *b"ROWS",
            Self::Vecs => *b"VECS",
            Self::Codes => *b"CODE",
            Self::Deletions => *b"DELS",
            Self::Columns => *b"COLS",
            Self::Words => *b"WORD",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.letters().escape_ascii().fmt(f)
    }
}

/// A section of a file, identified by its number in the section table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Section {
    /// Ids, counts and shapes.
    Meta = 1,
    /// The `Seq`s of rows, as runs.
    Seqs = 2,
    /// Keys, in blocks.
    Keys = 3,
    /// Positions and checksums of the blocks of keys.
    KeyBlocks = 4,
    /// Positions of the buckets of the key index.
    KeyBuckets = 5,
    /// The key index: hashes and rows.
    KeyEntries = 6,
    /// Vectors, row-major.
    Vectors = 7,
    /// Texts, in compressed blocks.
    Texts = 8,
    /// Positions, rows, sizes and checksums of the blocks of texts.
    TextBlocks = 9,
    /// Packed codes.
    Codes = 10,
    /// Distortion of the codes. Only in files of version 1, and never read.
    Stats = 11,
    /// One bit per dead row.
    Dead = 12,
    /// The checksums of pages.
    PageSums = 13,
    /// The scale of each row of quantized bytes.
    Scales = 14,
    /// The length that each row had before it was normalised.
    Norms = 15,
    /// The values of columns, one column behind the other.
    Columns = 16,
    /// The files of a word index, one after the other.
    Index = 20,
    /// The names and lengths of the files of a word index.
    IndexFiles = 21,
    /// Where the cells of ordered codes begin.
    Cells = 22,
    /// The row of each of these codes.
    Order = 23,
}

impl Section {
    const ALL: [Self; 20] = [
        Self::Meta,
        Self::Seqs,
        Self::Keys,
        Self::KeyBlocks,
        Self::KeyBuckets,
        Self::KeyEntries,
        Self::Vectors,
        Self::Texts,
        Self::TextBlocks,
        Self::Codes,
        Self::Stats,
        Self::Dead,
        Self::PageSums,
        Self::Scales,
        Self::Norms,
        Self::Columns,
        Self::Index,
        Self::IndexFiles,
        Self::Cells,
        Self::Order,
    ];

    /// Returns the first version of the format that has this section.
    fn since(self) -> u32 {
        match self {
            Self::PageSums
            | Self::Scales
            | Self::Norms
            | Self::Columns
            | Self::Index
            | Self::IndexFiles
            | Self::Cells
            | Self::Order => 2,
            _ => 1,
        }
    }

    /// Returns the name in FORMAT.md and in errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Meta => "META",
            Self::Seqs => "SEQS",
            Self::Keys => "KEYS",
            Self::KeyBlocks => "KEY_BLOCKS",
            Self::KeyBuckets => "KEY_BUCKETS",
            Self::KeyEntries => "KEY_ENTRIES",
            Self::Vectors => "VECTORS",
            Self::Texts => "TEXTS",
            Self::TextBlocks => "TEXT_BLOCKS",
            Self::Codes => "CODES",
            Self::Stats => "STATS",
            Self::Dead => "DEAD",
            Self::PageSums => "PAGE_SUMS",
            Self::Scales => "SCALES",
            Self::Norms => "NORMS",
            Self::Columns => "COLUMNS",
            Self::Index => "INDEX",
            Self::IndexFiles => "INDEX_FILES",
            Self::Cells => "CELLS",
            Self::Order => "ORDER",
        }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a section is checked, which determines the position of its checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Check {
    /// By checksums in CHECKSUMS, one per 64 KiB, when a chunk is first read.
    Chunks = 1,
    /// By checksums in another section, next to the positions of the blocks, at each read.
    Blocks = 2,
    /// By checksums in PAGE_SUMS, one per 4 KiB, when a page is first read.
    Pages = 3,
}

impl Check {
    /// Returns the alignment of sections that are checked in this way.
    pub(super) fn align(self) -> u64 {
        match self {
            Self::Chunks | Self::Blocks => ALIGN,
            Self::Pages => PAGE as u64,
        }
    }

    /// Returns how many bytes of a section one checksum covers; `None` for blocks, which differ in size.
    pub(super) fn unit(self) -> Option<usize> {
        match self {
            Self::Chunks => Some(CHUNK),
            Self::Pages => Some(PAGE),
            Self::Blocks => None,
        }
    }
}

/// The first 64 bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the file holds.
    pub kind: Kind,
    /// The version of the format in which it is written.
    pub version: u32,
}

impl Header {
    /// The length on disk in bytes.
    pub const LEN: u64 = 64;

    /// Returns the header at the beginning of `file`, which must be of this kind.
    pub fn read(file: &[u8], kind: Kind) -> Result<Self, FormatError> {
        if file.len() < Self::LEN as usize {
            return Err(FormatError::Truncated {
                section: "HEADER",
                end: Self::LEN,
                len: file.len() as u64,
            });
        }
        let header = Self::decode(&mut Take::new("HEADER", 0, &file[..Self::LEN as usize]))?;
        if header.kind != kind {
            return Err(FormatError::Kind {
                found: header.kind.letters(),
                expected: kind,
            });
        }
        Ok(header)
    }
}

impl Encode for Header {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.kind.letters());
        out.put_u32(self.version);
        out.extend_from_slice(&[0; 40]);
        let sum = checksum(&out[start..]);
        out.put_u64(sum);
    }
}

impl Decode for Header {
    /// Decodes magic, checksum, version and kind, in this order and at these positions in every version, so that a
    /// newer version can be distinguished from a damaged file.
    fn decode(fields: &mut Take<'_>) -> Result<Self, FormatError> {
        let bytes: [u8; 64] = fields.array()?;
        let mut fields = Take::new("HEADER", 0, &bytes);
        if fields.array()? != MAGIC {
            return Err(FormatError::NotOurs);
        }
        let letters = fields.array()?;
        let version = fields.u32()?;
        let rest: [u8; 40] = fields.array()?;
        let stored = fields.u64()?;
        let computed = checksum(&bytes[..56]);
        if stored != computed {
            return Err(FormatError::Checksum {
                section: "HEADER",
                offset: 0,
                stored,
                computed,
            });
        }
        if version == 0 || version > VERSION {
            return Err(FormatError::Version { found: version });
        }
        if rest != [0; 40] {
            return Err(FormatError::Padding {
                section: "HEADER",
                offset: 16,
            });
        }
        let Some(kind) = Kind::ALL.into_iter().find(|k| k.letters() == letters) else {
            return Err(FormatError::malformed(
                "HEADER",
                8,
                format!("unknown kind {}", letters.escape_ascii()),
            ));
        };
        Ok(Self { kind, version })
    }
}

/// An entry of the section table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionEntry {
    /// The section.
    pub section: Section,
    /// How the section is checked.
    pub check: Check,
    /// The position of its first byte in the file.
    pub offset: u64,
    /// Its length in bytes, without padding.
    pub len: u64,
}

impl SectionEntry {
    /// The length on disk in bytes.
    pub const LEN: u64 = 24;

    /// Returns the first version of the format that can have such an entry.
    pub(super) fn since(&self) -> u32 {
        match self.check {
            Check::Pages => 2,
            Check::Chunks | Check::Blocks => self.section.since(),
        }
    }
}

impl Encode for SectionEntry {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.section as u32);
        out.put_u32(self.check as u32);
        out.put_u64(self.offset);
        out.put_u64(self.len);
    }
}

impl Decode for SectionEntry {
    fn decode(fields: &mut Take<'_>) -> Result<Self, FormatError> {
        let section = fields.u32()?;
        let Some(section) = Section::ALL.into_iter().find(|s| *s as u32 == section) else {
            return Err(fields.wrong(format!("there is no section {section}")));
        };
        let check = match fields.u32()? {
            1 => Check::Chunks,
            2 => Check::Blocks,
            3 => Check::Pages,
            other => {
                return Err(fields.wrong(format!("{other} is not a known way to check a section")));
            }
        };
        Ok(Self {
            section,
            check,
            offset: fields.u64()?,
            len: fields.u64()?,
        })
    }
}

/// The last 64 bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// The position of CHECKSUMS.
    pub checksums_offset: u64,
    /// The number of checksums.
    pub checksums: u64,
    /// The position of the section table.
    pub table_offset: u64,
    /// The number of sections.
    pub sections: u32,
    /// The version of the format, as in the header.
    pub version: u32,
    /// The hash over header, CHECKSUMS and table, and so, through the checksums, over every byte.
    pub content_hash: u64,
    /// The length of the file in bytes.
    pub file_len: u64,
}

impl Footer {
    /// The length on disk in bytes.
    pub const LEN: u64 = 64;
}

impl Encode for Footer {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u64(self.checksums_offset);
        out.put_u64(self.checksums);
        out.put_u64(self.table_offset);
        out.put_u32(self.sections);
        out.put_u32(self.version);
        out.put_u64(self.content_hash);
        out.put_u64(self.file_len);
        out.extend_from_slice(&END);
        let sum = checksum(&out[start..]);
        out.put_u64(sum);
    }
}

impl Decode for Footer {
    fn decode(fields: &mut Take<'_>) -> Result<Self, FormatError> {
        let at = fields.clone();
        let bytes: [u8; 64] = fields.array()?;
        let mut fields = Take::new("FOOTER", at.offset(), &bytes);
        let checksums_offset = fields.u64()?;
        let checksums = fields.u64()?;
        let table_offset = fields.u64()?;
        let sections = fields.u32()?;
        let version = fields.u32()?;
        let content_hash = fields.u64()?;
        let file_len = fields.u64()?;
        let end: [u8; 8] = fields.array()?;
        let stored = fields.u64()?;
        let computed = checksum(&bytes[..56]);
        if stored != computed {
            return Err(FormatError::Checksum {
                section: "FOOTER",
                offset: at.offset(),
                stored,
                computed,
            });
        }
        if end != END || version == 0 || version > VERSION {
            return Err(at.wrong(format!("a footer of version {version}")));
        }
        Ok(Self {
            checksums_offset,
            checksums,
            table_offset,
            sections,
            version,
            content_hash,
            file_len,
        })
    }
}
