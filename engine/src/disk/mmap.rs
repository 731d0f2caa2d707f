//! An immutable file as memory: mapped, or read into aligned memory where mapping is not wanted.
//!
//! The one place outside the kernels with `unsafe`: a mapping is only as immutable as its file, and the compiler
//! can't see that nobody writes to it.
#![expect(
    unsafe_code,
    reason = "mapping a file is unsafe: another process could change it"
)]

use memmap2::{Mmap, MmapMut, MmapOptions};
use std::fs::File;
use std::io::{self, Read};
use std::ops::{Deref, DerefMut};

/// The bytes of an immutable file, at an address that is a multiple of 64.
#[derive(Debug)]
pub struct Mapping(Kind);

#[derive(Debug)]
enum Kind {
    Mapped(Mmap),
    Read { lines: Vec<Line>, len: usize },
}

/// A cache line, so that a `Vec` of them is aligned as sections want it.
#[derive(Debug, Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl Mapping {
    /// Maps a file.
    pub fn map(file: &File) -> io::Result<Self> {
        if file.metadata()?.len() == 0 {
            return Ok(Self(Kind::Read {
                lines: Vec::new(),
                len: 0,
            }));
        }
        // SAFETY: mopqdb never writes to, truncates or reuses a file once it has its name (files are made under a
        // temporary name and renamed; retired ones are unlinked, which leaves mappings whole). That no other
        // program does so is what a user of mapped files promises; `Options::no_mmap` is for those who can't.
        let map = unsafe { Mmap::map(file)? };
        Ok(Self(Kind::Mapped(map)))
    }

    /// A copy of bytes that are in memory already.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let len = bytes.len();
        let mut lines = vec![Line([0; 64]); len.div_ceil(64)];
        bytemuck::cast_slice_mut(&mut lines)[..len].copy_from_slice(bytes);
        Self(Kind::Read { lines, len })
    }

    /// Gives back the memory of its pages. They come back from the file, mostly from its cache, when next looked at.
    pub fn release(&self) {
        #[cfg(unix)]
        if let Kind::Mapped(map) = &self.0 {
            // SAFETY: `map` makes shared, read-only mappings of files that do not change, so a page that was dropped
            // comes back with the bytes it had. Failing to drop it costs memory only.
            let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        }
    }

    /// Reads a file into aligned memory.
    pub fn read(mut file: &File) -> io::Result<Self> {
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let mut lines = vec![Line([0; 64]); len.div_ceil(64)];
        file.read_exact(&mut bytemuck::cast_slice_mut(&mut lines)[..len])?;
        Ok(Self(Kind::Read { lines, len }))
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kind::Mapped(map) => map,
            Kind::Read { lines, len } => &bytemuck::cast_slice(lines)[..*len],
        }
    }
}

/// The bytes of a file, to be changed in memory only: pages that are written to are copied, the file stays as it is.
#[derive(Debug)]
pub struct PrivateCopy(Option<MmapMut>);

impl PrivateCopy {
    /// Maps a file.
    pub fn of(file: &File) -> io::Result<Self> {
        if file.metadata()?.len() == 0 {
            return Ok(Self(None));
        }
        // SAFETY: as in `Mapping::map`, nobody writes to a file that has its name; our own writes go to private pages.
        let map = unsafe { MmapOptions::new().map_copy(file)? };
        Ok(Self(Some(map)))
    }
}

impl Deref for PrivateCopy {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl DerefMut for PrivateCopy {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}
