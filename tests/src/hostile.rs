//! The functions that fuzzing calls, one per target, with arbitrary bytes. Each returns, or fails with a panic; an
//! error of the engine is a valid result. Plain `cargo test` runs the corpus through the same functions.

mod kernels;
mod lines;
mod words;

pub use kernels::kernels;
pub use lines::lines;
pub use words::words;

use crate::header_sum;
use mopqdb::testing::disk::Disk;
use mopqdb::testing::format::{Check, ContainerWriter, Kind, Section};
use mopqdb::testing::segment::{CodesFile, Deletions, RowsFile, VecsFile, WordsFile};
use mopqdb::{Bundle, CreateOptions, Database, Metric, Options, Row};
use mopqdb_formats::vectors::{VectorFormat, VectorReader};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A target: its name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets. Each has a program in `fuzz/` and a folder in `fuzz/corpus/`.
pub const TARGETS: [Target; 12] = [
    ("segment", segment),
    ("record", record),
    ("log", log),
    ("deletions", deletions),
    ("bundle", bundle),
    ("vectors", vectors),
    ("lines", lines),
    ("kernels", kernels),
    ("filter", filter),
    ("columns", columns),
    ("words", words),
    ("operations", operations),
];

/// Returns a directory for this process, in memory if possible.
fn scratch() -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() {
        memory.into()
    } else {
        std::env::temp_dir()
    };
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    base.join(format!("mopqdb-fuzz-{}-{next}", std::process::id()))
}

/// A file with these bytes, which is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn dir() -> Self {
        let dir = scratch();
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Files of rows, vecs, codes and words: everything in them is read.
pub fn segment(bytes: &[u8]) {
    let dir = Scratch::dir();
    let path = dir.file("0000000001.rows", bytes);
    let disk = Disk { no_mmap: true };
    if let Ok(rows) = RowsFile::open(&disk, &path) {
        let _ = rows.find("key");
        let _ = rows.rows_with_prefix("k");
        let mut cursor = rows.cursor();
        while let Ok(Some(row)) = cursor.next() {
            let (key, at) = (row.key.to_owned(), row.row);
            if let Ok(Some(found)) = rows.find(&key) {
                assert!((found.0 as usize) < rows.row_count());
            }
            let _ = rows.seq(at);
            let _ = rows.text(at);
            if rows.vector_kind().is_some() {
                let _ = rows.vector(at);
            }
        }
        let _ = rows.verify();
    }
    if let Ok(vecs) = VecsFile::open(&disk, &path) {
        let _ = vecs.vectors(0..vecs.row_count());
        let _ = vecs.verify();
    }
    if let Ok(codes) = CodesFile::open(&disk, &path) {
        let _ = codes.blocks(0..codes.row_count().div_ceil(64));
        let _ = codes.verify();
    }
    // The name is of no kind, since a name of another kind would be refused before anything is read.
    let path = dir.file("words", bytes);
    if let Ok(words) = WordsFile::open(&disk, &path) {
        for name in words.names() {
            let range = words.packed(name).expect("the list contains it");
            let _ = words.bytes(range);
        }
        let _ = words.verify();
    }
    let _ = mopqdb::testing::words(&path, "what is it");
}

/// A version record: the bytes as they are, and as a body under a header with valid checksums.
pub fn record(bytes: &[u8]) {
    mopqdb::testing::record(bytes);
    let mut whole = b"MOPQVER\0".to_vec();
    whole.extend(1u32.to_le_bytes());
    whole.extend([0; 4]);
    whole.extend((bytes.len() as u64).to_le_bytes());
    whole.extend(header_sum(0, bytes).to_le_bytes());
    whole.extend(1u64.to_le_bytes());
    whole.extend([0; 16]);
    whole.extend(header_sum(0, &whole).to_le_bytes());
    whole.extend(bytes);
    mopqdb::testing::record(&whole);
}

/// A log: the bytes as they are, and as the payload of a record with valid checksums.
pub fn log(bytes: &[u8]) {
    // Use the id in its header.
    let id = bytes
        .get(16..24)
        .map_or(1, |id| u64::from_le_bytes(id.try_into().unwrap()));
    let _ = mopqdb::testing::log(id, bytes, 0);
    let from = bytes.first().map_or(0, |&b| u64::from(b) * 8);
    let _ = mopqdb::testing::log(id, bytes, from);
    let mut whole = b"MOPQLOG\0".to_vec();
    whole.extend(1u32.to_le_bytes());
    whole.extend([0; 4]);
    whole.extend(1u64.to_le_bytes());
    whole.extend([0; 32]);
    whole.extend(header_sum(1, &whole).to_le_bytes());
    let mut header = (bytes.len() as u32).to_le_bytes().to_vec();
    header.extend(1u32.to_le_bytes());
    header.extend(64u64.to_le_bytes());
    header.extend(64u64.to_le_bytes());
    let sum = header_sum(1, &[&header[..], bytes].concat());
    whole.extend(header);
    whole.extend(sum.to_le_bytes());
    whole.extend(bytes);
    whole.resize(whole.len().next_multiple_of(8), 0);
    let _ = mopqdb::testing::log(1, &whole, 0);
}

/// A file of deletions.
pub fn deletions(bytes: &[u8]) {
    let dir = Scratch::dir();
    let path = dir.file("x.del", bytes);
    let disk = Disk { no_mmap: true };
    if let Ok(deletions) = Deletions::read(&disk, &path) {
        assert_eq!(deletions.iter().count(), deletions.dead() as usize);
    }
    let _ = Deletions::verify(&disk, &path);
}

/// The text of a filter.
pub fn filter(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        mopqdb::testing::filter(text);
    }
}

/// The columns of a batch in the log, after a byte with the number of rows; a columns file as it is; and the two
/// sections of one, in a frame with valid checksums, after the length of the first section in two bytes.
pub fn columns(bytes: &[u8]) {
    if let Some((&rows, logged)) = bytes.split_first() {
        mopqdb::testing::logged_columns(logged, rows.into());
    }
    let dir = Scratch::dir();
    let _ = mopqdb::testing::columns_file(&dir.file("0000000001.cols", bytes));
    let Some((len, sections)) = bytes.split_first_chunk() else {
        return;
    };
    let len = usize::from(u16::from_le_bytes(*len));
    if let Some((meta, values)) = sections.split_at_checked(len) {
        let whole = framed_columns(meta, values);
        // The name is of no kind, since META may name any segment.
        let _ = mopqdb::testing::columns_file(&dir.file("framed", &whole));
    }
}

/// Returns a columns file with these sections.
fn framed_columns(meta: &[u8], values: &[u8]) -> Vec<u8> {
    let write = || {
        let mut writer = ContainerWriter::new(Vec::new(), Kind::Columns)?;
        writer.section(Section::Columns, Check::Pages, values)?;
        writer.section(Section::Meta, Check::Chunks, meta)?;
        writer.finish()
    };
    let (bytes, _): (Vec<u8>, _) = write().unwrap_or_else(|e: std::io::Error| panic!("{e}"));
    bytes
}

/// A bundle: the manifest, a line with only `---`, the tensors.
pub fn bundle(bytes: &[u8]) {
    let mark = b"\n---\n";
    let at = bytes.windows(mark.len()).position(|w| w == mark);
    let (manifest, tensors) = match at {
        Some(at) => (&bytes[..at], &bytes[at + mark.len()..]),
        None => (bytes, &[][..]),
    };
    let dir = Scratch::dir();
    dir.file("manifest.json", manifest);
    dir.file("tensors.safetensors", tensors);
    if let Ok(bundle) = Bundle::open(&dir.0)
        && let Ok(Some(quantizer)) = bundle.quantizer()
    {
        let vector = vec![0.5; quantizer.input_dim()];
        let mut codes = vec![0; quantizer.shape().subspaces()];
        if quantizer.quantize(&vector, &mut codes).is_ok()
            && let Ok(table) = quantizer.table(&vector)
        {
            let _ = table.score(&codes);
        }
    }
}

/// Files of vectors: the first byte selects the format.
pub fn vectors(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else {
        return;
    };
    let kinds = [VectorFormat::Npy, VectorFormat::Fvecs, VectorFormat::Fbin];
    let format = kinds[kind as usize % kinds.len()];
    let dir = Scratch::dir();
    let path = dir.file("x", bytes);
    if let Ok(mut reader) = VectorReader::open_as(&path, format) {
        let mut out = Vec::new();
        // A file can't have more rows than bytes.
        for _ in 0..=bytes.len() {
            out.clear();
            match reader.read_rows(3, &mut out) {
                Ok(rows) if rows > 0 => assert_eq!(out.len(), rows * reader.dim()),
                _ => break,
            }
        }
    }
}

/// Random operations on a small database, compared with a map. Each operation takes two bytes.
pub fn operations(bytes: &[u8]) {
    let dir = Scratch::dir();
    let path = dir.0.join("db");
    let options = || {
        Options::default()
            .threads(1)
            .seal_rows(6)
            .seal_in_background(false)
            .auto_compact(false)
            .maintenance(Duration::from_secs(3600))
    };
    let new = CreateOptions::vectors(1, Metric::Ip);
    let mut db = Some(Database::create(&path, &new, options()).unwrap());
    let mut map: BTreeMap<String, f32> = BTreeMap::new();
    for pair in bytes.chunks_exact(2).take(64) {
        let open = db.as_ref().expect("open between operations");
        let key = format!("k{}", pair[1] % 16);
        match pair[0] % 8 {
            0..4 => {
                let value = f32::from(pair[0]) + f32::from(pair[1] / 16);
                open.insert(&[Row::vector(key.clone(), [value])]).unwrap();
                map.insert(key, value);
            }
            4 => {
                let deleted = open.delete(&[&key]).unwrap();
                assert_eq!(deleted, u64::from(map.remove(&key).is_some()));
            }
            5 => drop(open.seal().unwrap()),
            6 => drop(open.compact().unwrap()),
            _ => {
                drop(db.take());
                db = Some(Database::open(&path, options()).unwrap());
            }
        }
    }
    let open = db.as_ref().expect("open between operations");
    let hits = open.query(&[1.0], 100).unwrap();
    let found: BTreeMap<String, f32> = (hits.iter())
        .map(|hit| (hit.key.clone(), hit.score))
        .collect();
    assert_eq!(hits.len(), found.len(), "each key occurs once");
    assert_eq!(found, map);
}
