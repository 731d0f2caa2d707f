//! Words compared with the plain formula, with the search library's own scores, and on damaged files.

mod damage;
mod faults;
mod scores;
mod tokens;

use super::*;
use crate::disk::files::{Disk, Files};
use crate::ids::SegmentId;
use crate::segment::{FileName, RowsHash, ShortId};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DISK: Disk = Disk { no_mmap: false };
const SEGMENT: SegmentId = SegmentId(7);

/// Returns the path of a segment's words in a directory.
fn path(dir: &Path, settings: Settings) -> PathBuf {
    FileName::Words(SEGMENT, ShortId::of(&settings.id().0)).within(dir)
}

fn writer(files: Arc<dyn Files>, dir: &Path, settings: Settings, rows: usize) -> WordsWriter {
    let path = path(dir, settings);
    WordsWriter::create(files, &path, settings, SEGMENT, RowsHash(1), rows as u32)
}

/// Writes the words of a segment; `None` is a dead row.
fn write(dir: &Path, settings: Settings, texts: &[Option<&str>]) -> PathBuf {
    let mut words = writer(Arc::new(DISK), dir, settings, texts.len());
    for text in texts {
        words.push(*text).unwrap();
    }
    words.finish().unwrap();
    path(dir, settings)
}

/// Returns the words of a segment, and the directory that contains them.
fn segment(settings: Settings, texts: &[Option<&str>]) -> (tempfile::TempDir, SegmentWords) {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), settings, texts);
    let words = SegmentWords::open(&DISK, &path).unwrap();
    (dir, words)
}

fn all<'t>(texts: &[&'t str]) -> Vec<Option<&'t str>> {
    texts.iter().copied().map(Some).collect()
}

/// A generator of pseudo-random numbers.
struct Seed(u64);

impl Seed {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns words of which some are common and most are rare.
    fn text(&mut self, longest: u64) -> String {
        let words = self.below(longest + 1);
        let word = |seed: &mut Self| {
            let range = [3, 20, 200, 2000][seed.below(4) as usize];
            format!("w{}", seed.below(range))
        };
        let words: Vec<_> = (0..words).map(|_| word(self)).collect();
        words.join(" ")
    }
}
