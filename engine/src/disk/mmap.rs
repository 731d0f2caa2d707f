//! An immutable file as memory: mapped, or read into aligned memory if mapping is not wanted.
//!
//! The only place outside the kernels with `unsafe`: a mapping is only as immutable as its file, and the compiler
//! cannot know that no one writes to the file.
#![expect(
    unsafe_code,
    reason = "mapping a file is unsafe: another process could change it"
)]

use memmap2::{Mmap, MmapMut, MmapOptions};
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The bytes of an immutable file, at an address that is a multiple of 64.
#[derive(Debug)]
pub struct Mapping(Kind);

#[derive(Debug)]
enum Kind {
    Mapped {
        map: Mmap,
        /// How many more times [`Mapping::lacks`] answers `true` without looking.
        sure: AtomicU32,
    },
    Read {
        lines: Vec<Line>,
        len: usize,
    },
}

/// The page size that [`Mapping::will_read`] assumes when it joins neighbouring ranges.
const PAGE: usize = 4096;

/// A cache line, so that a `Vec` of them has the alignment that sections need.
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
        // SAFETY: mopqdb never writes to, truncates or reuses a file once it has its name (files are created under a
        // temporary name and renamed; retired ones are unlinked, which leaves mappings intact). Users of mapped files
        // must ensure that no other program does so, or set `Options::no_mmap`.
        let map = unsafe { Mmap::map(file)? };
        Ok(Self(Kind::Mapped {
            map,
            sure: AtomicU32::new(0),
        }))
    }

    /// Returns a copy of bytes that are already in memory.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let len = bytes.len();
        let mut lines = vec![Line([0; 64]); len.div_ceil(64)];
        bytemuck::cast_slice_mut(&mut lines)[..len].copy_from_slice(bytes);
        Self(Kind::Read { lines, len })
    }

    /// Releases the memory of its pages. The next access reads them from the file again, mostly from the page cache.
    pub fn release(&self) {
        #[cfg(unix)]
        if let Kind::Mapped { map, .. } = &self.0 {
            // SAFETY: `map` makes shared, read-only mappings of files that do not change, so a page that was dropped
            // comes back with the same bytes. Failing to drop it costs only memory.
            let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        }
    }

    /// Starts reading ascending ranges, all at once, without waiting. A later access waits only for its own page. Empty
    /// ranges are skipped; failing to read ahead costs only time.
    ///
    /// # Panics
    /// If a range is not within the file.
    pub fn will_read(&self, ranges: impl IntoIterator<Item = Range<usize>>) {
        let ask = |range: Range<usize>| {
            assert!(range.end <= self.len(), "{range:?} of {}", self.len());
            #[cfg(unix)]
            if let Kind::Mapped { map, .. } = &self.0
                && !range.is_empty()
            {
                let _ = map.advise_range(memmap2::Advice::WillNeed, range.start, range.len());
            }
        };
        let mut joined: Range<usize> = 0..0;
        for range in ranges {
            if range.is_empty() {
                continue;
            }
            // It begins in the page in which the previous range ends, or in the next.
            if joined.end > 0 && range.start / PAGE <= joined.end.div_ceil(PAGE) {
                joined.end = joined.end.max(range.end);
            } else {
                ask(std::mem::replace(&mut joined, range));
            }
        }
        ask(joined);
    }

    /// Returns `true` if some of these bytes are probably not in memory. Looks only at the bytes that the caller names.
    /// After it finds some missing, it answers `true` without looking for a while. Returns `false` if the system does
    /// not tell: Linux tells only the owner of the file and those who may write to it.
    ///
    /// # Panics
    /// If a byte is not within the file.
    pub fn lacks(&self, bytes: impl IntoIterator<Item = usize>) -> bool {
        const SURE: u32 = 64;
        let Kind::Mapped { sure, .. } = &self.0 else {
            return false;
        };
        // The count is only a hint, so no ordering is needed.
        let times = sure.load(Relaxed);
        if times > 0 {
            sure.store(times - 1, Relaxed);
            return true;
        }
        let lacks = (bytes.into_iter()).any(|byte| self.is_resident(byte) == Some(false));
        if lacks {
            sure.store(SURE, Relaxed);
        }
        lacks
    }

    /// Returns whether the page of a byte is in memory, if the system tells.
    #[cfg(target_os = "linux")]
    fn is_resident(&self, byte: usize) -> Option<bool> {
        let first = &self[byte];
        // SAFETY: `sysconf` only asks about the system.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
        let start = std::ptr::from_ref(first).map_addr(|at| at - at % page);
        let mut state = 0;
        // SAFETY: one byte is written, for one page, which is mapped since it contains a byte of the file.
        let failed = unsafe { libc::mincore(start.cast_mut().cast(), 1, &raw mut state) };
        (failed == 0).then_some(state & 1 == 1)
    }

    #[cfg(not(target_os = "linux"))]
    fn is_resident(&self, _: usize) -> Option<bool> {
        None
    }

    /// Reads a file into aligned memory, from its beginning.
    pub fn read(file: &File) -> io::Result<Self> {
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let mut lines = vec![Line([0; 64]); len.div_ceil(64)];
        let bytes = &mut bytemuck::cast_slice_mut(&mut lines)[..len];
        // Read at a position if the system supports it: handles of one file share its cursor.
        #[cfg(unix)]
        std::os::unix::fs::FileExt::read_exact_at(file, bytes, 0)?;
        #[cfg(not(unix))]
        {
            use io::{Read, Seek, SeekFrom};
            let mut file = file.try_clone()?;
            file.seek(SeekFrom::Start(0))?;
            file.read_exact(bytes)?;
        }
        Ok(Self(Kind::Read { lines, len }))
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kind::Mapped { map, .. } => map,
            Kind::Read { lines, len } => &bytemuck::cast_slice(lines)[..*len],
        }
    }
}

/// The bytes of a file, to be changed in memory only: pages that are written to are copied, and the file stays as it
/// is.
#[derive(Debug)]
pub struct PrivateCopy(Option<MmapMut>);

impl PrivateCopy {
    /// Maps a file.
    pub fn of(file: &File) -> io::Result<Self> {
        if file.metadata()?.len() == 0 {
            return Ok(Self(None));
        }
        // SAFETY: as in `Mapping::map`, no one writes to a file that has its name; our own writes go to private pages.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(pages: usize) -> File {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..pages * PAGE).map(|at| (at / PAGE) as u8).collect();
        file.write_all(&bytes).unwrap();
        file.sync_all().unwrap();
        file
    }

    #[test]
    fn will_read_accepts_any_ranges_within_any_mapping() {
        let file = file(64);
        for mapping in [
            Mapping::map(&file).unwrap(),
            Mapping::copy_of(&[7; 64 * PAGE]),
        ] {
            mapping.will_read([]);
            mapping.will_read([
                0..0,
                5..5,
                1..2,
                1..9000,
                8000..PAGE * 5,
                PAGE * 63..PAGE * 64,
            ]);
            assert!(!mapping.lacks([]));
        }
        Mapping::copy_of(&[]).will_read(std::iter::once(0..0));
    }

    #[test]
    #[should_panic(expected = "of 262144")]
    fn a_range_past_the_end_is_refused() {
        Mapping::map(&file(64))
            .unwrap()
            .will_read([0..1, PAGE * 63..PAGE * 64 + 1]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn will_read_brings_only_the_named_ranges_to_memory() {
        use std::os::fd::AsRawFd;
        let file = file(4096);
        let drop_pages = |file: &File| {
            // SAFETY: advice about a file that is open.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) }
        };
        let mapping = Mapping::map(&file).unwrap();
        assert_eq!(drop_pages(&file), 0);
        let resident = |page: usize| mapping.is_resident(page * PAGE + 17).unwrap();
        if resident(2000) {
            // File systems in memory behave this way.
            eprintln!("this file system keeps its pages in memory: nothing to test");
            return;
        }
        let wanted = [3, 1000, 1001, 4095];
        mapping.will_read(wanted.map(|page| page * PAGE + 100..page * PAGE + 200));
        let begun = std::time::Instant::now();
        while !wanted.into_iter().all(resident) {
            assert!(begun.elapsed().as_secs() < 60, "the pages were not read");
            std::thread::yield_now();
        }
        assert!(![2, 4, 999, 1002, 2000, 4094].into_iter().any(resident));
        // They were in memory already: touching them reads nothing else.
        assert!(
            wanted
                .into_iter()
                .all(|page| mapping[page * PAGE] == page as u8)
        );
        assert!(![2, 4, 999, 1002, 2000, 4094].into_iter().any(resident));
        assert!(!mapping.lacks(wanted.map(|page| page * PAGE)));
        assert!(mapping.lacks([3 * PAGE, 2000 * PAGE]));
        assert!(mapping.lacks([3 * PAGE]), "for a while");
    }
}
