//! Writing a file, section after section, in one pass.

use super::{
    ALIGN, CHUNK, Check, Encode, Footer, Header, Kind, PAGE, Section, SectionEntry, VERSION,
    checksum,
};
use std::io::{self, Write};
use xxhash_rust::xxh3::Xxh3;

/// Writes the sections of a file in order, in one pass, holding one chunk and the checksums so far.
#[derive(Debug)]
pub struct ContainerWriter<W> {
    out: W,
    header: Vec<u8>,
    /// The number of bytes written to `out`.
    at: u64,
    table: Vec<SectionEntry>,
    sums: Vec<u64>,
    page_sums: Vec<u8>,
    /// The bytes of the current section that do not fill a chunk yet.
    chunk: Vec<u8>,
    open: bool,
}

/// The result of writing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The length of the file in bytes.
    pub bytes: u64,
    /// The hash over the whole file, as stored in the footer.
    pub content_hash: u64,
}

impl<W: Write> ContainerWriter<W> {
    /// Starts a file by writing its header.
    pub fn new(mut out: W, kind: Kind) -> io::Result<Self> {
        let version = VERSION;
        let header = Header { kind, version }.encoded();
        out.write_all(&header)?;
        Ok(Self {
            out,
            header,
            at: Header::LEN,
            table: Vec::new(),
            sums: Vec::new(),
            page_sums: Vec::new(),
            chunk: Vec::with_capacity(CHUNK),
            open: false,
        })
    }

    /// Begins a section and ends the previous one.
    pub fn begin(&mut self, section: Section, check: Check) -> io::Result<()> {
        self.end()?;
        assert!(
            self.table.iter().all(|entry| entry.section != section),
            "a file has one section {section}"
        );
        self.pad(check.align())?;
        self.table.push(SectionEntry {
            section,
            check,
            offset: self.at,
            len: 0,
        });
        self.open = true;
        Ok(())
    }

    /// Appends bytes to the current section.
    pub fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        assert!(self.open, "a section is begun before it is written");
        while !bytes.is_empty() {
            if self.chunk.is_empty() && bytes.len() >= CHUNK {
                let (chunk, rest) = bytes.split_at(CHUNK);
                self.put_chunk(chunk)?;
                bytes = rest;
            } else {
                let room = CHUNK - self.chunk.len();
                let (part, rest) = bytes.split_at(room.min(bytes.len()));
                self.chunk.extend_from_slice(part);
                if self.chunk.len() == CHUNK {
                    self.put_pending()?;
                }
                bytes = rest;
            }
        }
        Ok(())
    }

    /// Writes a complete section.
    pub fn section(&mut self, section: Section, check: Check, bytes: &[u8]) -> io::Result<()> {
        self.begin(section, check)?;
        self.write(bytes)
    }

    /// Returns the number of bytes written to the current section so far.
    pub fn section_len(&self) -> u64 {
        let begun = self.table.last().map_or(0, |entry| entry.len);
        begun + self.chunk.len() as u64
    }

    /// Writes checksums, table and footer. The file is complete once `out` is synced.
    pub fn finish(mut self) -> io::Result<(W, Written)> {
        self.end()?;
        if !self.page_sums.is_empty() {
            let sums = std::mem::take(&mut self.page_sums);
            self.section(Section::PageSums, Check::Chunks, &sums)?;
            self.end()?;
        }
        let checksums_offset = self.at;
        let mut tail = Vec::with_capacity(self.sums.len() * 8 + 1024);
        for sum in &self.sums {
            tail.extend_from_slice(&sum.to_le_bytes());
        }
        pad(&mut tail);
        let table_offset = checksums_offset + tail.len() as u64;
        for entry in &self.table {
            entry.encode(&mut tail);
        }
        pad(&mut tail);

        let content_hash = content_hash(&self.header, &tail);
        let bytes = checksums_offset + tail.len() as u64 + Footer::LEN;
        Footer {
            checksums_offset,
            checksums: self.sums.len() as u64,
            table_offset,
            sections: self.table.len() as u32,
            version: VERSION,
            content_hash,
            file_len: bytes,
        }
        .encode(&mut tail);
        self.out.write_all(&tail)?;
        self.out.flush()?;
        let written = Written {
            bytes,
            content_hash,
        };
        Ok((self.out, written))
    }

    fn end(&mut self) -> io::Result<()> {
        if !self.open {
            return Ok(());
        }
        self.put_pending()?;
        self.open = false;
        self.pad(ALIGN)
    }

    /// Writes zeros up to a multiple of `align`.
    fn pad(&mut self, align: u64) -> io::Result<()> {
        let zeros = self.at.next_multiple_of(align) - self.at;
        self.out.write_all(&[0; PAGE][..zeros as usize])?;
        self.at += zeros;
        Ok(())
    }

    fn put_pending(&mut self) -> io::Result<()> {
        if !self.chunk.is_empty() {
            let mut chunk = std::mem::take(&mut self.chunk);
            self.put_chunk(&chunk)?;
            chunk.clear();
            self.chunk = chunk;
        }
        Ok(())
    }

    fn put_chunk(&mut self, chunk: &[u8]) -> io::Result<()> {
        let entry = self.table.last_mut().expect("a section is open");
        match entry.check {
            Check::Chunks => self.sums.push(checksum(chunk)),
            Check::Pages => {
                let sums = chunk.chunks(PAGE).map(|page| checksum(page).to_le_bytes());
                self.page_sums.extend(sums.flatten());
            }
            Check::Blocks => {}
        }
        self.out.write_all(chunk)?;
        entry.len += chunk.len() as u64;
        self.at += chunk.len() as u64;
        Ok(())
    }
}

/// Returns the hash over header and everything between sections and footer.
pub(super) fn content_hash(header: &[u8], tail: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(header);
    hash.update(tail);
    hash.digest()
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(ALIGN as usize), 0);
}
