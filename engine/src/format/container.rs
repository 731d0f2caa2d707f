//! Reading a file: its frame is checked when it is opened, its sections when they are touched.

use super::writer::content_hash;
use super::{
    ALIGN, CHUNK, Check, Decode, Footer, FormatError, Header, Kind, Section, SectionEntry, Take,
    aligned, checksum,
};
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The bytes of a file (mapped or in memory), handed out once they are known to be those that were written.
#[derive(Debug)]
pub struct Container<B> {
    bytes: B,
    parts: Vec<Part>,
    /// Where the checksum of chunk 0 is.
    checksums_offset: usize,
    content_hash: u64,
    /// A bit a chunk, set once its checksum was right. The bytes never change, so all that a bit says is that the
    /// work is done: no ordering is needed, and two threads may do it twice.
    checked: Box<[AtomicU64]>,
}

/// A section of an open file: proof that it lies within the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    section: Section,
    check: Check,
    offset: usize,
    len: usize,
    /// Its first checksum, if it is checked by chunks.
    first_chunk: usize,
}

impl Part {
    /// Bytes of the section.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its first byte in the file.
    pub fn offset(&self) -> u64 {
        self.offset as u64
    }

    /// Which section.
    pub fn section(&self) -> Section {
        self.section
    }

    /// Where its checksums are.
    pub fn check(&self) -> Check {
        self.check
    }

    /// An error at a byte of the section.
    pub fn wrong(&self, at: usize, what: impl Into<String>) -> FormatError {
        FormatError::malformed(
            self.section.name(),
            (self.offset + at.min(self.len)) as u64,
            what,
        )
    }

    /// The section has just so many bytes, or else the file contradicts itself.
    pub fn expect_len(&self, len: Option<u64>) -> Result<(), FormatError> {
        if len == Some(self.len as u64) {
            Ok(())
        } else {
            let expected = len.map_or("more than can be".to_owned(), |len| len.to_string());
            Err(self.wrong(0, format!("{} bytes, expected {expected}", self.len)))
        }
    }

    fn chunks(&self) -> usize {
        match self.check {
            Check::Chunks => self.len.div_ceil(CHUNK),
            Check::Blocks => 0,
        }
    }
}

impl<B: Deref<Target = [u8]>> Container<B> {
    /// Checks header, footer, lengths, section table, all checksums of checksums and all padding. Touches the ends of
    /// sections, none of their inner pages.
    pub fn open(bytes: B, kind: Kind) -> Result<Self, FormatError> {
        let file: &[u8] = &bytes;
        Header::read(file, kind)?;
        let footer_offset = (file.len() as u64)
            .checked_sub(Footer::LEN)
            .filter(|&at| at >= Header::LEN && at % ALIGN == 0)
            .ok_or(FormatError::Truncated {
                section: "FOOTER",
                end: (file.len() as u64)
                    .next_multiple_of(ALIGN)
                    .max(Header::LEN + Footer::LEN),
                len: file.len() as u64,
            })?;
        let footer = Footer::decode(&mut Take::new(
            "FOOTER",
            footer_offset,
            &file[footer_offset as usize..],
        ))?;
        check_frame(&footer, footer_offset)?;

        // Everything between the sections and the footer, which check_frame has put within the file.
        let tail = &file[footer.checksums_offset as usize..footer_offset as usize];
        let computed = content_hash(&file[..Header::LEN as usize], tail);
        if computed != footer.content_hash {
            return Err(FormatError::Checksum {
                section: "CHECKSUMS",
                offset: footer.checksums_offset,
                stored: footer.content_hash,
                computed,
            });
        }
        let parts = read_table(file, &footer)?;
        let chunks: usize = parts.iter().map(Part::chunks).sum();
        if chunks as u64 != footer.checksums {
            return Err(FormatError::malformed(
                "CHECKSUMS",
                footer.checksums_offset,
                format!("{} checksums for {chunks} chunks", footer.checksums),
            ));
        }
        Ok(Self {
            parts,
            checksums_offset: footer.checksums_offset as usize,
            content_hash: footer.content_hash,
            checked: (0..chunks.div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
            bytes,
        })
    }

    /// The file.
    pub fn file(&self) -> &B {
        &self.bytes
    }

    /// Bytes of the file.
    pub fn file_len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The first byte of the checksums of chunks, eight bytes each, in the order of the sections.
    pub fn checksums_offset(&self) -> usize {
        self.checksums_offset
    }

    /// The hash that stands for every byte of the file.
    pub fn content_hash(&self) -> u64 {
        self.content_hash
    }

    /// The sections, in file order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// A section that the file must have.
    pub fn part(&self, section: Section, check: Check) -> Result<Part, FormatError> {
        match self.parts.iter().find(|part| part.section == section) {
            Some(part) if part.check == check => Ok(*part),
            Some(part) => Err(part.wrong(
                0,
                format!("is checked by {:?}, expected {check:?}", part.check),
            )),
            None => Err(FormatError::malformed(
                "TABLE",
                0,
                format!("the file has no section {section}"),
            )),
        }
    }

    /// Bytes of a section that is checked by chunks: each chunk touched for the first time is checked now.
    #[inline]
    pub fn chunked(&self, part: &Part, range: Range<usize>) -> Result<&[u8], FormatError> {
        let bytes = self.within(part, &range)?;
        debug_assert_eq!(part.check, Check::Chunks);
        if !bytes.is_empty() {
            for chunk in range.start / CHUNK..=(range.end - 1) / CHUNK {
                let index = part.first_chunk + chunk;
                let word = &self.checked[index / 64];
                let bit = 1 << (index % 64);
                if word.load(Relaxed) & bit == 0 {
                    self.check_chunk(part, chunk)?;
                    word.fetch_or(bit, Relaxed);
                }
            }
        }
        Ok(bytes)
    }

    /// A whole section that is checked by chunks.
    pub fn whole(&self, part: &Part) -> Result<&[u8], FormatError> {
        self.chunked(part, 0..part.len)
    }

    /// A block of a section that is checked by blocks: checked at each call.
    pub fn block(&self, part: &Part, range: Range<usize>, sum: u64) -> Result<&[u8], FormatError> {
        let bytes = self.within(part, &range)?;
        let computed = checksum(bytes);
        if computed != sum {
            return Err(FormatError::Checksum {
                section: part.section.name(),
                offset: (part.offset + range.start) as u64,
                stored: sum,
                computed,
            });
        }
        Ok(bytes)
    }

    /// Checks every chunk again, whether or not it was touched before, and reports those that are damaged.
    pub fn check_chunks(&self, damaged: &mut dyn FnMut(FormatError)) {
        for part in &self.parts {
            for chunk in 0..part.chunks() {
                if let Err(error) = self.check_chunk(part, chunk) {
                    damaged(error);
                }
            }
        }
    }

    #[inline]
    fn within(&self, part: &Part, range: &Range<usize>) -> Result<&[u8], FormatError> {
        // A `Part` lies within its file: read_table has checked it.
        self.bytes[part.offset..part.offset + part.len]
            .get(range.clone())
            .ok_or_else(|| {
                let Range { start, end } = range;
                part.wrong(
                    *start,
                    format!("bytes {start}..{end} of {} are named", part.len),
                )
            })
    }

    #[cold]
    fn check_chunk(&self, part: &Part, chunk: usize) -> Result<(), FormatError> {
        let start = part.offset + chunk * CHUNK;
        let end = (start + CHUNK).min(part.offset + part.len);
        let at = self.checksums_offset + (part.first_chunk + chunk) * 8;
        let stored = self.bytes[at..at + 8].try_into().expect("eight bytes");
        let stored = u64::from_le_bytes(stored);
        let computed = checksum(&self.bytes[start..end]);
        if stored == computed {
            return Ok(());
        }
        Err(FormatError::Checksum {
            section: part.section.name(),
            offset: start as u64,
            stored,
            computed,
        })
    }
}

/// The footer's places follow from one another; nothing else is a file of ours.
fn check_frame(footer: &Footer, footer_offset: u64) -> Result<(), FormatError> {
    let file_len = footer_offset + Footer::LEN;
    if footer.file_len != file_len {
        return Err(FormatError::Truncated {
            section: "FOOTER",
            end: footer.file_len,
            len: file_len,
        });
    }
    let table_offset = (footer.checksums.checked_mul(8))
        .and_then(|len| footer.checksums_offset.checked_add(len))
        .and_then(aligned);
    let table_end = table_offset
        .and_then(|at| at.checked_add(u64::from(footer.sections) * SectionEntry::LEN))
        .and_then(aligned);
    if footer.checksums_offset < Header::LEN
        || !footer.checksums_offset.is_multiple_of(ALIGN)
        || table_offset != Some(footer.table_offset)
        || table_end != Some(footer_offset)
    {
        return Err(FormatError::malformed(
            "FOOTER",
            footer_offset,
            format!("{footer:?} does not describe a file of {file_len} bytes"),
        ));
    }
    Ok(())
}

/// The section table. Each section begins where the one before ended, padded with zeros.
///
/// Requires: `check_frame` passed.
fn read_table(file: &[u8], footer: &Footer) -> Result<Vec<Part>, FormatError> {
    let sections = footer.sections as usize;
    let start = footer.table_offset as usize;
    let table = &file[start..start + sections * SectionEntry::LEN as usize];
    let mut fields = Take::new("TABLE", footer.table_offset, table);
    let mut parts: Vec<Part> = Vec::with_capacity(sections);
    let mut next = Header::LEN;
    let mut first_chunk = 0;
    for _ in 0..sections {
        let entry = SectionEntry::decode(&mut fields)?;
        let SectionEntry {
            section,
            check,
            offset,
            len,
        } = entry;
        let after = offset.checked_add(len).and_then(aligned);
        let after = after.filter(|&after| after <= footer.checksums_offset);
        let (true, Some(after)) = (offset == next, after) else {
            return Err(fields.wrong(format!(
                "{section} at byte {offset} of {len} bytes, expected at {next} and to end before {}",
                footer.checksums_offset
            )));
        };
        if parts.iter().any(|part| part.section == section) {
            return Err(fields.wrong(format!("{section} is there twice")));
        }
        let end = (offset + len) as usize;
        if let Some(zeros) = file[end..after as usize].iter().position(|&b| b != 0) {
            return Err(FormatError::Padding {
                section: section.name(),
                offset: (end + zeros) as u64,
            });
        }
        let part = Part {
            section,
            check,
            offset: offset as usize,
            len: len as usize,
            first_chunk,
        };
        first_chunk += part.chunks();
        next = after;
        parts.push(part);
    }
    if next != footer.checksums_offset {
        return Err(fields.wrong(format!(
            "sections end at byte {next}, checksums begin at {}",
            footer.checksums_offset
        )));
    }
    Ok(parts)
}
