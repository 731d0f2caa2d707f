//! Correcting flipped bits: a checksum that does not match also tells which single bit would make it match.
//!
//! Memory and disks flip single bits far more often than they scramble a chunk. A 64-bit checksum over 64 KiB has
//! 524,288 candidates for one flipped bit, so a match by chance has a probability below 2^-44. Trying all of them takes
//! seconds, so only `repair` does it.
//! seconds, which is why only `repair` does it.

use super::writer::content_hash;
use super::{
    ALIGN, CHUNK, Check, Container, Decode, Encode, Footer, Header, Kind, PAGE, Section,
    SectionEntry, Take, checksum,
};

/// The maximum number of bytes to hash per file, which takes some minutes. Damage beyond that is not corrected.
const BUDGET: u64 = 1 << 40;

/// Corrects flipped bits in the bytes of one file.
#[derive(Debug)]
pub struct Corrector {
    /// Bytes that may still be hashed.
    budget: u64,
    /// The number of places that were corrected.
    pub corrected: u32,
}

impl Default for Corrector {
    fn default() -> Self {
        Self {
            budget: BUDGET,
            corrected: 0,
        }
    }
}

impl Corrector {
    /// Makes `bytes` match `sum` by flipping one bit. Returns `true` if they match now; otherwise they are unchanged.
    pub fn correct(&mut self, bytes: &mut [u8], sum: u64) -> bool {
        self.search(bytes, &|bytes| checksum(bytes) == sum)
    }

    /// Flips one bit so that `holds` returns `true`. Returns `true` if one was found; otherwise the bytes are
    /// unchanged.
    pub fn search(&mut self, bytes: &mut [u8], holds: &dyn Fn(&[u8]) -> bool) -> bool {
        if holds(bytes) {
            return true;
        }
        let cost = (bytes.len() as u64).saturating_mul(bytes.len() as u64 * 8);
        if cost > self.budget {
            return false;
        }
        self.budget -= cost;
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            if holds(bytes) {
                self.corrected += 1;
                return true;
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        false
    }

    /// Corrects header, footer, section table and checksums. Returns the length of the file, of which bytes at the end
    /// may have been cut off; `None` if the frame stays damaged.
    pub fn frame(&mut self, file: &mut [u8], kind: Kind) -> Option<usize> {
        let len = self.footer(file)?;
        let file = &mut file[..len];
        let at = len - Footer::LEN as usize;
        let footer = Footer::decode(&mut Take::new("FOOTER", at as u64, &file[at..])).ok()?;
        let version = footer.version;
        let header = Header { kind, version }.encoded();
        if file[..header.len()] != header {
            // A header contains only the kind and the version.
            file[..header.len()].copy_from_slice(&header);
            self.corrected += 1;
        }
        let start = usize::try_from(footer.checksums_offset).ok()?;
        let table = usize::try_from(footer.table_offset).ok()?;
        if start < header.len() || table < start || at < table {
            return None;
        }
        let sums_end = usize::try_from(footer.checksums).ok()?.checked_mul(8)?;
        let padding = file.get_mut(start.checked_add(sums_end)?..table)?;
        if padding.iter().any(|&byte| byte != 0) {
            padding.fill(0);
            self.corrected += 1;
        }
        let matches = |file: &[u8]| {
            content_hash(&file[..Header::LEN as usize], &file[start..at]) == footer.content_hash
        };
        if !matches(file) && !self.checksums(file, &footer, &matches) {
            // Try the bits of the section table. Its hash covers the checksums too.
            let cost = ((at - start) as u64).saturating_mul((at - table) as u64 * 8);
            if cost > self.budget {
                return None;
            }
            self.budget -= cost;
            let bit = (table * 8..at * 8).find(|&bit| {
                file[bit / 8] ^= 1 << (bit % 8);
                let found = matches(file);
                if !found {
                    file[bit / 8] ^= 1 << (bit % 8);
                }
                found
            });
            bit?;
            self.corrected += 1;
        }
        self.padding(file, &footer)?;
        Some(len)
    }

    /// Clears the padding between the sections, which is zero in every file.
    fn padding(&mut self, file: &mut [u8], footer: &Footer) -> Option<()> {
        let mut end = Header::LEN as usize;
        let entries = sections(file, footer)?;
        let starts = entries.iter().map(|entry| entry.offset as usize);
        let starts = starts.chain([footer.checksums_offset as usize]);
        let ends = entries.iter().map(|entry| entry.offset + entry.len);
        for (start, next) in starts.zip(ends.chain([0])) {
            let padding = file.get_mut(end..start)?;
            if padding.iter().any(|&byte| byte != 0) {
                padding.fill(0);
                self.corrected += 1;
            }
            end = next as usize;
        }
        Some(())
    }

    /// Finds the footer, which is at the end of the file unless something was appended.
    fn footer(&mut self, file: &mut [u8]) -> Option<usize> {
        let whole = |file: &[u8], at: usize| {
            let bytes = file.get(at..at + Footer::LEN as usize)?;
            let footer = Footer::decode(&mut Take::new("FOOTER", at as u64, bytes)).ok()?;
            (footer.file_len == at as u64 + Footer::LEN).then_some(())
        };
        let last = file.len().checked_sub(Footer::LEN as usize)?;
        let mut at = last / ALIGN as usize * ALIGN as usize;
        loop {
            if whole(file, at).is_some() {
                self.corrected += u32::from(at != last);
                return Some(at + Footer::LEN as usize);
            }
            match at.checked_sub(ALIGN as usize) {
                Some(before) if before >= Header::LEN as usize => at = before,
                _ => break,
            }
        }
        let found = last.is_multiple_of(ALIGN as usize)
            && self.search(&mut file[last..], &|bytes| {
                let end = last as u64 + Footer::LEN;
                let footer = Footer::decode(&mut Take::new("FOOTER", last as u64, bytes));
                footer.is_ok_and(|footer| footer.file_len == end)
            });
        found.then_some(file.len())
    }

    /// Replaces checksums that do not match their chunks, if that makes the whole frame match: then the checksums
    /// were damaged, not the chunks.
    fn checksums(
        &mut self,
        file: &mut [u8],
        footer: &Footer,
        matches: &dyn Fn(&[u8]) -> bool,
    ) -> bool {
        let Some(chunks) = chunks(file, footer) else {
            return false;
        };
        let start = footer.checksums_offset as usize;
        let before = file[start..start + chunks.len() * 8].to_vec();
        let mut changed = 0;
        for (index, (from, to)) in chunks.into_iter().enumerate() {
            let sum = checksum(&file[from..to]).to_le_bytes();
            let stored = &mut file[start + index * 8..][..8];
            changed += u32::from(*stored != sum);
            stored.copy_from_slice(&sum);
        }
        if matches(file) {
            self.corrected += changed;
            return true;
        }
        file[start..start + before.len()].copy_from_slice(&before);
        false
    }

    /// Corrects the sections that are checked by chunks, and then those that are checked by pages, whose checksums are
    /// in one of the former. Requires: the frame is intact.
    pub fn chunks(&mut self, file: &mut [u8], kind: Kind) {
        let Ok(container) = Container::open(&*file, kind) else {
            return;
        };
        let units = |check: Check, unit: usize| -> Vec<_> {
            (container.parts().iter())
                .filter(|part| part.check() == check)
                .flat_map(|part| {
                    let (from, end) = (part.offset() as usize, part.offset() as usize + part.len());
                    (from..end)
                        .step_by(unit)
                        .map(move |at| at..(at + unit).min(end))
                })
                .collect()
        };
        let (chunks, pages) = (units(Check::Chunks, CHUNK), units(Check::Pages, PAGE));
        let chunk_sums = container.checksums_offset();
        let page_sums = container.touched(Section::PageSums);
        let page_sums = page_sums.map_or(0, |part| part.offset() as usize);
        drop(container);
        for (units, sums) in [(chunks, chunk_sums), (pages, page_sums)] {
            for (index, unit) in units.into_iter().enumerate() {
                let sum = &file[sums + index * 8..][..8];
                let sum = u64::from_le_bytes(sum.try_into().expect("eight bytes"));
                self.correct(&mut file[unit], sum);
            }
        }
    }
}

/// Returns the section table of a file, unchecked; `None` if it makes no sense.
fn sections(file: &[u8], footer: &Footer) -> Option<Vec<SectionEntry>> {
    let table = footer.table_offset as usize;
    let len = footer.sections as usize * SectionEntry::LEN as usize;
    let mut fields = Take::new("TABLE", 0, file.get(table..table.checked_add(len)?)?);
    let mut entries = Vec::new();
    for _ in 0..footer.sections {
        let entry = SectionEntry::decode(&mut fields).ok()?;
        if entry.offset.checked_add(entry.len)? > footer.checksums_offset {
            return None;
        }
        entries.push(entry);
    }
    Some(entries)
}

/// Returns the beginning and end of each chunk of a file.
fn chunks(file: &[u8], footer: &Footer) -> Option<Vec<(usize, usize)>> {
    let mut chunks = Vec::new();
    for entry in sections(file, footer)? {
        if entry.check == Check::Chunks {
            let (from, end) = (entry.offset as usize, (entry.offset + entry.len) as usize);
            chunks.extend(
                (from..end)
                    .step_by(CHUNK)
                    .map(|at| (at, (at + CHUNK).min(end))),
            );
        }
    }
    (chunks.len() as u64 == footer.checksums).then_some(chunks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{ContainerWriter, Section};

    fn sample() -> Vec<u8> {
        let words: Vec<u8> = (0..300).map(|n| (n * 7) as u8).collect();
        let mut writer = ContainerWriter::new(Vec::new(), Kind::Deletions).unwrap();
        for (section, bytes) in [(Section::Meta, &b"meta"[..]), (Section::Dead, &words)] {
            writer.section(section, Check::Chunks, bytes).unwrap();
        }
        writer.finish().unwrap().0
    }

    fn corrected(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let mut corrector = Corrector::default();
        let len = corrector.frame(&mut bytes, Kind::Deletions)?;
        bytes.truncate(len);
        corrector.chunks(&mut bytes, Kind::Deletions);
        Some(bytes)
    }

    #[test]
    fn every_flipped_bit_of_a_file_is_corrected() {
        let whole = sample();
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(corrected(damaged), Some(whole.clone()), "bit {bit}");
        }
    }

    #[test]
    fn one_flipped_bit_each_in_frame_and_data_is_corrected() {
        let whole = sample();
        let table = whole.len() - 64 - 40;
        let mut damaged = whole.clone();
        for at in [3, 70, 130, whole.len() - 1] {
            damaged[at] ^= 4;
        }
        assert_eq!(corrected(damaged.clone()), Some(whole.clone()));
        damaged[table] ^= 4;
        assert_eq!(corrected(damaged), Some(whole.clone()));
    }

    #[test]
    fn appended_bytes_are_cut_off_and_missing_bytes_are_not_recovered() {
        let whole = sample();
        let mut extended = whole.clone();
        extended.resize(whole.len() + 1000, 0);
        assert_eq!(corrected(extended), Some(whole.clone()));
        for len in 0..whole.len() {
            assert_eq!(corrected(whole[..len].to_vec()), None, "cut at {len}");
        }
        let mut scrambled = whole.clone();
        scrambled[130..140].fill(0xaa);
        assert_eq!(corrected(scrambled.clone()), Some(scrambled));
    }
}
