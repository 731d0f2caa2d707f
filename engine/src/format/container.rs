//! Reading a file: its frame is checked when it is opened, its sections when they are first read.

use super::writer::content_hash;
use super::{
    ALIGN, Check, Decode, Footer, FormatError, Header, Kind, Section, SectionEntry, Take, aligned,
    checksum,
};
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The bytes of a file (mapped or in memory). They are returned only after their checksum was verified.
#[derive(Debug)]
pub struct Container<B> {
    bytes: B,
    version: u32,
    parts: Vec<Part>,
    /// The position of the checksum of chunk 0.
    checksums_offset: usize,
    content_hash: u64,
    /// The checksums of pages, if sections are checked by pages.
    page_sums: Option<Part>,
    /// One bit per chunk, then one per page, set once its checksum was found to be right. The bytes never change, so a
    /// bit only says that the work is done: no ordering is needed, and two threads may do it twice.
    checked: Box<[AtomicU64]>,
    /// The bit of page 0.
    first_page_bit: usize,
}

/// A section of an open file: proof that it lies within the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    section: Section,
    check: Check,
    offset: usize,
    len: usize,
    /// The index of its first checksum among those of chunks, or of pages.
    first_sum: usize,
}

impl Part {
    /// Returns the number of bytes of the section.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the position of its first byte in the file.
    pub fn offset(&self) -> u64 {
        self.offset as u64
    }

    #[cfg(any(test, feature = "testing"))]
    /// Returns the section.
    pub fn section(&self) -> Section {
        self.section
    }

    /// Returns how the section is checked.
    pub fn check(&self) -> Check {
        self.check
    }

    /// Returns an error at a byte of the section.
    pub fn wrong(&self, at: usize, what: impl Into<String>) -> FormatError {
        FormatError::malformed(
            self.section.name(),
            (self.offset + at.min(self.len)) as u64,
            what,
        )
    }

    /// Returns an error unless the section has this length.
    pub fn expect_len(&self, len: Option<u64>) -> Result<(), FormatError> {
        if len == Some(self.len as u64) {
            Ok(())
        } else {
            let expected = len.map_or("more than can be".to_owned(), |len| len.to_string());
            Err(self.wrong(0, format!("{} bytes, expected {expected}", self.len)))
        }
    }

    /// Returns the number of its checksums, of chunks or of pages.
    fn sums(&self) -> usize {
        self.check.unit().map_or(0, |unit| self.len.div_ceil(unit))
    }
}

/// Returns the number of checksums of all sections that are checked in this way.
fn sums(parts: &[Part], check: Check) -> usize {
    let parts = parts.iter().filter(|part| part.check == check);
    parts.map(Part::sums).sum()
}

impl<B: Deref<Target = [u8]>> Container<B> {
    /// Opens a file: checks header, footer, lengths, section table, all checksums of checksums and all padding. Reads
    /// the ends of sections, but none of their inner pages.
    pub fn open(bytes: B, kind: Kind) -> Result<Self, FormatError> {
        let file: &[u8] = &bytes;
        let header = Header::read(file, kind)?;
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
        if footer.version != header.version {
            let (after, before) = (footer.version, header.version);
            let what = format!("a footer of version {after} after a header of version {before}");
            return Err(FormatError::malformed("FOOTER", footer_offset, what));
        }
        check_frame(&footer, footer_offset)?;

        // Everything between the sections and the footer, which `check_frame` has checked to be within the file.
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
        let chunks = sums(&parts, Check::Chunks);
        if chunks as u64 != footer.checksums {
            return Err(FormatError::malformed(
                "CHECKSUMS",
                footer.checksums_offset,
                format!("{} checksums for {chunks} chunks", footer.checksums),
            ));
        }
        let pages = sums(&parts, Check::Pages);
        let page_sums = page_sums(&parts, pages)?;
        Ok(Self {
            version: header.version,
            parts,
            checksums_offset: footer.checksums_offset as usize,
            content_hash: footer.content_hash,
            page_sums,
            checked: (0..(chunks + pages).div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
            first_page_bit: chunks,
            bytes,
        })
    }

    /// Returns the file.
    pub fn file(&self) -> &B {
        &self.bytes
    }

    /// Returns the number of bytes of the file.
    pub fn file_len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns the position of the checksums of chunks. They are eight bytes each, in the order of the sections.
    pub fn checksums_offset(&self) -> usize {
        self.checksums_offset
    }

    /// Returns the version of the format that the file is written in.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the hash that covers every byte of the file.
    pub fn content_hash(&self) -> u64 {
        self.content_hash
    }

    /// Returns the sections, in file order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns a section that the file must have.
    pub fn part(&self, section: Section, check: Check) -> Result<Part, FormatError> {
        let part = self.find(section)?;
        if part.check != check {
            let what = format!("is checked by {:?}, expected {check:?}", part.check);
            return Err(part.wrong(0, what));
        }
        Ok(part)
    }

    /// Returns a section that the file must have and that is checked when it is first read: by chunks or by pages.
    pub fn touched(&self, section: Section) -> Result<Part, FormatError> {
        let part = self.find(section)?;
        match part.check {
            Check::Chunks | Check::Pages => Ok(part),
            Check::Blocks => Err(part.wrong(0, "is checked by blocks")),
        }
    }

    /// Returns `true` if the file has this section.
    pub(crate) fn has(&self, section: Section) -> bool {
        self.parts.iter().any(|part| part.section == section)
    }

    fn find(&self, section: Section) -> Result<Part, FormatError> {
        let part = self.parts.iter().find(|part| part.section == section);
        part.copied().ok_or_else(|| {
            FormatError::malformed("TABLE", 0, format!("the file has no section {section}"))
        })
    }

    /// Returns bytes of a section that is checked by chunks or by pages. Bytes that are read for the first time are
    /// checked.
    ///
    /// # Panics
    /// If the section is checked by blocks.
    #[inline]
    pub fn checked(&self, part: &Part, range: Range<usize>) -> Result<&[u8], FormatError> {
        let bytes = self.within(part, &range)?;
        let (unit, first_bit) = self.bits(part).expect("blocks are read by `block`");
        if !bytes.is_empty() {
            for at in range.start / unit..=(range.end - 1) / unit {
                let bit = first_bit + at;
                let word = &self.checked[bit / 64];
                let bit = 1 << (bit % 64);
                if word.load(Relaxed) & bit == 0 {
                    self.check(part, at)?;
                    word.fetch_or(bit, Relaxed);
                }
            }
        }
        Ok(bytes)
    }

    /// Returns `true` if everything in a range of a section was checked before, so reading it checks nothing.
    #[inline]
    pub fn is_checked(&self, part: &Part, range: &Range<usize>) -> bool {
        let Some((unit, first_bit)) = self.bits(part) else {
            return false;
        };
        (range.start / unit..range.end.min(part.len).div_ceil(unit)).all(|at| {
            let bit = first_bit + at;
            self.checked[bit / 64].load(Relaxed) & 1 << (bit % 64) != 0
        })
    }

    /// Returns the bytes of the file that reading a range of a section reads for the first time: the chunks or pages of
    /// the range, if one of them was not checked before, and their checksums, if these were not. Both are empty for a
    /// section that is checked by blocks.
    pub fn untouched(&self, part: &Part, range: Range<usize>) -> [Range<usize>; 2] {
        let Some((unit, _)) = self.bits(part) else {
            return [0..0, 0..0];
        };
        if self.is_checked(part, &range) {
            return [0..0, 0..0];
        }
        let units = range.start / unit..range.end.min(part.len).div_ceil(unit);
        let bytes = units.start * unit..(units.end * unit).min(part.len);
        let sums = match (part.check, self.page_sums) {
            (Check::Pages, Some(sums)) => {
                let range = (part.first_sum + units.start) * 8..(part.first_sum + units.end) * 8;
                self.untouched(&sums, range)[0].clone()
            }
            _ => 0..0,
        };
        [part.offset + bytes.start..part.offset + bytes.end, sums]
    }

    /// Returns how much of a section one checksum covers, and the bit of the first; `None` if it is checked by blocks.
    #[inline]
    fn bits(&self, part: &Part) -> Option<(usize, usize)> {
        match part.check {
            Check::Chunks => Some((super::CHUNK, part.first_sum)),
            Check::Pages => Some((super::PAGE, self.first_page_bit + part.first_sum)),
            Check::Blocks => None,
        }
    }

    /// Returns all of a section that is checked by chunks or by pages.
    pub fn whole(&self, part: &Part) -> Result<&[u8], FormatError> {
        self.checked(part, 0..part.len)
    }

    /// Returns a block of a section that is checked by blocks, after checking it. It is checked at each call.
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

    /// Checks every chunk and page again and reports the damaged ones.
    pub fn check_all(&self, damaged: &mut dyn FnMut(FormatError)) {
        for part in &self.parts {
            for at in 0..part.sums() {
                if let Err(error) = self.check(part, at) {
                    damaged(error);
                }
            }
        }
    }

    #[inline]
    fn within(&self, part: &Part, range: &Range<usize>) -> Result<&[u8], FormatError> {
        // A `Part` lies within its file, as `read_table` has checked.
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

    /// Checks a chunk or a page, given its number within the section.
    #[cold]
    fn check(&self, part: &Part, at: usize) -> Result<(), FormatError> {
        let unit = part.check.unit().expect("blocks are read by `block`");
        let start = part.offset + at * unit;
        let end = (start + unit).min(part.offset + part.len);
        let stored = self.sum(part, at)?;
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

    /// Returns the checksum of a chunk or a page, which is itself checked.
    fn sum(&self, part: &Part, at: usize) -> Result<u64, FormatError> {
        let at = (part.first_sum + at) * 8;
        let bytes = match part.check {
            Check::Pages => {
                let sums = self.page_sums.expect("open found the checksums of pages");
                self.checked(&sums, at..at + 8)?
            }
            Check::Chunks | Check::Blocks => &self.bytes[self.checksums_offset + at..][..8],
        };
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }
}

/// Returns the section with the checksums of this many pages.
fn page_sums(parts: &[Part], pages: usize) -> Result<Option<Part>, FormatError> {
    let sums = parts.iter().find(|part| part.section == Section::PageSums);
    match sums {
        None if pages == 0 => Ok(None),
        Some(sums) if sums.check == Check::Chunks => {
            sums.expect_len((pages as u64).checked_mul(8))?;
            Ok(Some(*sums))
        }
        _ => {
            let what = format!("the checksums of {pages} pages are missing");
            Err(FormatError::malformed("TABLE", 0, what))
        }
    }
}

/// Checks that the offsets in the footer are consistent.
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

/// Reads the section table. Each section begins where the previous one ended, padded with zeros.
///
/// Requires: `check_frame` passed.
fn read_table(file: &[u8], footer: &Footer) -> Result<Vec<Part>, FormatError> {
    let sections = footer.sections as usize;
    let start = footer.table_offset as usize;
    let table = &file[start..start + sections * SectionEntry::LEN as usize];
    let mut fields = Take::new("TABLE", footer.table_offset, table);
    let mut parts: Vec<Part> = Vec::with_capacity(sections);
    let mut next = Header::LEN;
    let (mut chunks, mut pages) = (0, 0);
    for _ in 0..sections {
        let entry = SectionEntry::decode(&mut fields)?;
        if entry.since() > footer.version {
            let (section, version) = (entry.section, footer.version);
            let what = format!("{section} in a file of version {version}");
            return Err(fields.wrong(what));
        }
        // Sections that are checked by pages begin at a page boundary.
        let begin = next.checked_next_multiple_of(entry.check.align());
        let SectionEntry {
            section,
            check,
            offset,
            len,
        } = entry;
        let after = offset.checked_add(len).and_then(aligned);
        let after = after.filter(|&after| after <= footer.checksums_offset);
        let (true, Some(after)) = (Some(offset) == begin, after) else {
            return Err(fields.wrong(format!(
                "{section} at byte {offset} of {len} bytes, expected from {next} on and to end before {}",
                footer.checksums_offset
            )));
        };
        if let Some(zeros) = file[next as usize..offset as usize]
            .iter()
            .position(|&b| b != 0)
        {
            return Err(FormatError::Padding {
                section: section.name(),
                offset: next + zeros as u64,
            });
        }
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
        let count = match check {
            Check::Pages => &mut pages,
            Check::Chunks | Check::Blocks => &mut chunks,
        };
        let part = Part {
            section,
            check,
            offset: offset as usize,
            len: len as usize,
            first_sum: *count,
        };
        *count += part.sums();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::writer::ContainerWriter;
    use crate::format::{CHUNK, PAGE};

    #[test]
    fn untouched_returns_bytes_and_checksums_until_they_are_read() {
        let pages = CHUNK / 8 + 10;
        let mut file = Vec::new();
        let mut writer = ContainerWriter::new(&mut file, Kind::Vecs).unwrap();
        let chunks = vec![1; 2 * CHUNK + 5];
        writer
            .section(Section::Meta, Check::Chunks, &chunks)
            .unwrap();
        let vectors = vec![7; pages * PAGE - 100];
        writer
            .section(Section::Vectors, Check::Pages, &vectors)
            .unwrap();
        writer.finish().unwrap();
        let container = Container::open(&file[..], Kind::Vecs).unwrap();

        let meta = container.touched(Section::Meta).unwrap();
        let at =
            |part: &Part, range: Range<usize>| part.offset + range.start..part.offset + range.end;
        let first = container.untouched(&meta, CHUNK - 1..CHUNK + 1);
        assert_eq!(first, [at(&meta, 0..2 * CHUNK), 0..0]);
        let last = container.untouched(&meta, 2 * CHUNK..2 * CHUNK + 5);
        assert_eq!(last, [at(&meta, 2 * CHUNK..2 * CHUNK + 5), 0..0]);
        container.checked(&meta, 0..1).unwrap();
        assert_eq!(container.untouched(&meta, 7..CHUNK), [0..0, 0..0]);

        // The checksums of pages are a section of two chunks.
        let vectors = container.touched(Section::Vectors).unwrap();
        let sums = container.touched(Section::PageSums).unwrap();
        let row = |page: usize| page * PAGE + PAGE - 3..page * PAGE + PAGE + 3;
        let whole = |page: usize| at(&vectors, page * PAGE..(page + 2) * PAGE);
        let first_sums = at(&sums, 0..CHUNK);
        let all_sums = at(&sums, 0..sums.len);
        assert_eq!(
            container.untouched(&vectors, row(4)),
            [whole(4), first_sums]
        );
        let across = CHUNK / 8 - 1;
        assert_eq!(
            container.untouched(&vectors, row(across)),
            [whole(across), all_sums]
        );
        container.checked(&vectors, row(4)).unwrap();
        assert_eq!(container.untouched(&vectors, row(4)), [0..0, 0..0]);
        // The next page is new, but its checksum was read with the others.
        assert_eq!(container.untouched(&vectors, row(5)), [whole(5), 0..0]);
        let end = pages * PAGE - 101..pages * PAGE - 100;
        let last_page = at(&vectors, (pages - 1) * PAGE..pages * PAGE - 100);
        let last_sums = at(&sums, CHUNK..sums.len);
        assert_eq!(container.untouched(&vectors, end), [last_page, last_sums]);
    }
}
