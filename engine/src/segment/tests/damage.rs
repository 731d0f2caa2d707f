//! Damaged, cut, extended and hostile files: an error each time, never a wrong answer or a panic.

use super::*;
use crate::format::{CHUNK, Check, Decode, Encode, Footer, Header, SectionEntry, Take, checksum};
use crate::quantizer::CellOrder;
use crate::{Error, Result, RowId};
use std::fs;
use std::io::Write;
use xxhash_rust::xxh3::Xxh3;

/// Everything that the readers tell of a file, each as they were asked for it.
type Answers = Vec<Result<String>>;

/// One small file of each kind, and how to ask everything of it.
struct Sample {
    bytes: Vec<u8>,
    path: PathBuf,
    ask: fn(&Path) -> Answers,
    _dir: tempfile::TempDir,
}

impl Sample {
    fn new(write: impl FnOnce(&Path) -> PathBuf, ask: fn(&Path) -> Answers) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = write(dir.path());
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap(); // it is read-only; from here on it is rewritten at will
        let sample = Self {
            bytes,
            path,
            ask,
            _dir: dir,
        };
        assert!(sample.ask(&sample.bytes).iter().all(Result::is_ok));
        sample
    }

    fn all() -> Vec<Self> {
        let texts = |dir: &Path| {
            let row = |i: u64| {
                (
                    Seq(10 + i + i / 2),
                    format!("k{i}"),
                    format!("text {i} ").repeat(i as usize),
                )
            };
            write_texts(dir, &(0..9).map(row).collect::<Vec<_>>()).0
        };
        let vectors = |dir: &Path| {
            let row = |i: u64| (Seq(10 + i + i / 5), format!("k{i}"), vec![i as f32, -1.5]);
            write_vectors(dir, 2, &(0..70).map(row).collect::<Vec<_>>()).0
        };
        vec![
            Self::new(texts, ask_rows),
            Self::new(vectors, ask_rows),
            Self::new(|dir| write_texts(dir, &[]).0, ask_rows),
            Self::new(|dir| write_vecs(dir, 3, 5), ask_vecs),
            Self::new(|dir| write_codes(dir, 70, 3, 4), ask_codes),
            Self::new(|dir| write_ordered(dir, 70), ask_codes),
            Self::new(write_words, ask_words),
            Self::new(|dir| write_deletions(dir, 70).0, ask_deletions),
        ]
    }

    fn ask(&self, bytes: &[u8]) -> Answers {
        // No reader has the file open. Written over, not cut and written: a quarter of the time.
        let mut over = fs::OpenOptions::new();
        over.write(true).create(true).truncate(false);
        let mut file = over.open(&self.path).unwrap();
        file.write_all(bytes).unwrap();
        if file.metadata().unwrap().len() != bytes.len() as u64 {
            file.set_len(bytes.len() as u64).unwrap();
        }
        (self.ask)(&self.path)
    }

    /// An error somewhere, and no answer that differs.
    fn expect_damage(&self, bytes: &[u8], right: &Answers, how: &str) {
        let answers = self.ask(bytes);
        let mut errors = 0;
        for (answer, right) in answers.iter().zip(right) {
            match answer {
                Err(Error::Corrupt(_) | Error::Incompatible { .. }) => errors += 1,
                Err(other) => panic!("{}: {how}: {other}", self.path.display()),
                Ok(answer) => assert_eq!(Some(answer), right.as_ref().ok(), "{how}"),
            }
        }
        assert!(errors > 0, "{}: {how} went unseen", self.path.display());
    }
}

fn ask_rows(path: &Path) -> Answers {
    let file = match RowsFile::open(&DISK, path) {
        Ok(file) => file,
        Err(error) => return vec![Err(error)],
    };
    let mut answers = vec![Ok(format!("{:?} {:?}", file.meta(), file.summary()))];
    let mut say = |answer: Result<String>| answers.push(answer);
    say(file.rows_with_prefix("k1").map(|rows| format!("{rows:?}")));
    for i in [0, 1, 5, 8, 9, 11, 17, 25, 64, 69, 70, 85] {
        say(file.find(&format!("k{i}")).map(|row| format!("{row:?}")));
    }
    let last = file.row_count().saturating_sub(3) as u32;
    for row in (0..file.row_count() as u32)
        .filter(|&row| row < 4 || row >= last || row == 40)
        .map(RowId)
    {
        say(file.seq(row).map(|seq| seq.to_string()));
        say(file.key(row).map(str::to_owned));
        say(file.text(row).map(|text| format!("{text:?}")));
        if file.vector_kind().is_some() {
            say(file.vector(row).map(|vector| format!("{vector:?}")));
        }
    }
    let mut cursor = file.cursor();
    say(std::iter::from_fn(|| {
        cursor
            .next()
            .map(|row| row.map(|row| format!("{row:?}")))
            .transpose()
    })
    .collect());
    say(file
        .verify()
        .into_iter()
        .next()
        .map_or(Ok(String::new()), Err));
    answers
}

fn ask_vecs(path: &Path) -> Answers {
    match VecsFile::open(&DISK, path) {
        Err(error) => vec![Err(error)],
        Ok(file) => vec![
            Ok(format!("{:?}", file.meta())),
            file.vectors(0..file.row_count())
                .map(|vectors| format!("{vectors:?}")),
            file.verify()
                .into_iter()
                .next()
                .map_or(Ok(String::new()), Err),
        ],
    }
}

fn ask_words(path: &Path) -> Answers {
    match WordsFile::open(&DISK, path) {
        Err(error) => vec![Err(error)],
        Ok(file) => {
            let packed = |name| file.bytes(file.packed(name).unwrap());
            let names: Vec<_> = file.names().collect();
            let bytes = names.iter().map(|name| packed(name));
            let bytes = bytes.map(|bytes| bytes.map(|bytes| format!("{bytes:?}")));
            [Ok(format!("{:?} {names:?}", file.meta()))]
                .into_iter()
                .chain(bytes)
                .chain([(file.verify().into_iter().next()).map_or(Ok(String::new()), Err)])
                .collect()
        }
    }
}

fn ask_codes(path: &Path) -> Answers {
    match CodesFile::open(&DISK, path) {
        Err(error) => vec![Err(error)],
        Ok(file) => vec![
            Ok(format!("{:?}", file.meta())),
            file.blocks(0..file.meta().blocks())
                .map(|blocks| format!("{blocks:?}")),
            match file.starts() {
                None => Ok(String::new()),
                Some(starts) => (file.rows_at(0..file.meta().rows as usize))
                    .map(|rows| format!("{:?} {starts:?} {rows:?}", file.cells())),
            },
            file.verify()
                .into_iter()
                .next()
                .map_or(Ok(String::new()), Err),
        ],
    }
}

fn ask_deletions(path: &Path) -> Answers {
    vec![Deletions::read(&DISK, path).map(|deletions| format!("{deletions:?}"))]
}

#[test]
fn every_flipped_bit_is_seen() {
    for sample in Sample::all() {
        let right = sample.ask(&sample.bytes);
        let mut bytes = sample.bytes.clone();
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            sample.expect_damage(&bytes, &right, &format!("bit {bit} flipped"));
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn a_file_cut_at_any_length_is_seen() {
    for sample in Sample::all() {
        for len in 0..sample.bytes.len() {
            let answers = sample.ask(&sample.bytes[..len]);
            assert!(
                matches!(answers[..], [Err(Error::Corrupt(_))]),
                "{} cut at {len}: {answers:?}",
                sample.path.display()
            );
        }
    }
}

#[test]
fn an_extended_file_is_seen() {
    for sample in Sample::all() {
        let footer = sample.bytes[sample.bytes.len() - 64..].to_vec();
        let zeros = [1, 7, 8, 63, 64, 65, 4096].map(|len| vec![0; len]);
        for more in zeros.into_iter().chain([footer, sample.bytes.clone()]) {
            let answers = sample.ask(&[&sample.bytes[..], &more].concat());
            assert!(
                matches!(answers[..], [Err(Error::Corrupt(_))]),
                "{answers:?}"
            );
        }
    }
}

#[test]
fn damage_is_told_with_file_section_and_offset() {
    let sample = &Sample::all()[1];
    let mut bytes = sample.bytes.clone();
    bytes[4096 + 100] ^= 1; // within VECTORS, the first section
    let answers = sample.ask(&bytes);
    let first = answers
        .iter()
        .find_map(|answer| answer.as_ref().err())
        .unwrap();
    let Error::Corrupt(corruption) = first else {
        panic!("{first}");
    };
    assert_eq!(corruption.file, sample.path);
    assert_eq!(
        (corruption.section.as_str(), corruption.offset),
        ("VECTORS", 4096)
    );
    // What does not need the damaged bytes is still answered.
    assert!(answers.iter().filter(|answer| answer.is_ok()).count() > 30);
}

/// Gives a header whose bytes were changed a checksum that agrees.
fn sign_header(bytes: &mut [u8]) {
    let sum = checksum(&bytes[..56]);
    bytes[56..64].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn a_version_from_the_future_is_refused_by_name() {
    for sample in Sample::all() {
        let mut bytes = sample.bytes.clone();
        bytes[12..16].copy_from_slice(&3u32.to_le_bytes());
        sign_header(&mut bytes);
        let answers = sample.ask(&bytes);
        let [Err(Error::Incompatible { path, what })] = &answers[..] else {
            panic!("{answers:?}");
        };
        assert_eq!(path, &sample.path);
        assert!(what.contains("format version 3"), "{what}");
    }
}

#[test]
fn a_file_of_another_kind_is_refused() {
    let samples = Sample::all();
    for sample in &samples {
        for other in samples
            .iter()
            .filter(|other| other.bytes[8..12] != sample.bytes[8..12])
        {
            let answers = sample.ask(&other.bytes);
            let [Err(Error::Incompatible { what, .. })] = &answers[..] else {
                panic!("{answers:?}");
            };
            assert!(what.contains("was expected"), "{what}");
        }
    }
}

#[test]
fn a_file_under_the_name_of_another_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_codes(dir.path(), 10, 1, 2);
    let other = FileName::Codes(SegmentId(8), ShortId::of(&[0; 32])).within(dir.path());
    fs::rename(path, &other).unwrap();
    let refused = CodesFile::open(&DISK, &other).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("has the content of 0000000007"),
        "{refused}"
    );
}

#[test]
fn codes_and_vecs_are_read_with_their_own_rows_only() {
    let dir = tempfile::tempdir().unwrap();
    let rows: Vec<_> = (0..10)
        .map(|i| (Seq(i), format!("{i}"), vec![0.5]))
        .collect();
    let rows = RowsFile::open(&DISK, &write_vectors(dir.path(), 1, &rows).0).unwrap();
    let vecs = VecsFile::open(&DISK, &write_vecs(dir.path(), 10, 1)).unwrap();
    let codes = CodesFile::open(&DISK, &write_codes(dir.path(), 10, 1, 2)).unwrap();
    for refused in [vecs.expect_rows(&rows), codes.expect_rows(&rows)] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, Error::Corrupt(_)), "{refused}");
        assert!(
            refused.to_string().contains("with hash 123456789abcdef0"),
            "{refused}"
        );
    }
    let meta = CodesMeta {
        rows_hash: rows.hash(),
        ..*codes.meta()
    };
    let mut writer = CodesWriter::create(disk(), codes.path(), meta).unwrap();
    writer.push_blocks(&[0; 64]).unwrap();
    writer.finish().unwrap();
    let codes = CodesFile::open(&DISK, codes.path()).unwrap();
    codes.expect_rows(&rows).unwrap();
}

/// Gives a file whose bytes were changed checksums that agree, as one who means harm would; `false` if its frame is
/// too broken for that.
fn sign(bytes: &mut [u8]) -> bool {
    let Some(footer_at) = bytes.len().checked_sub(64) else {
        return false;
    };
    let mut footer = match Footer::decode(&mut Take::new("FOOTER", 0, &bytes[footer_at..])) {
        Ok(footer) => footer,
        Err(_) => return false,
    };
    let table_at = footer.table_offset as usize;
    let mut table = Take::new("TABLE", 0, &bytes[table_at..footer_at]);
    let mut sums = Vec::new();
    for _ in 0..footer.sections {
        let Ok(entry) = SectionEntry::decode(&mut table) else {
            break;
        };
        let section = entry.offset as usize..entry.offset.saturating_add(entry.len) as usize;
        if let (Check::Chunks, Some(section)) = (entry.check, bytes.get(section)) {
            sums.extend(section.chunks(CHUNK).map(checksum));
        }
    }
    let at = footer.checksums_offset as usize;
    for (sum, stored) in sums.iter().zip(bytes[at..table_at].chunks_exact_mut(8)) {
        stored.copy_from_slice(&sum.to_le_bytes());
    }
    let mut hash = Xxh3::new();
    hash.update(&bytes[..Header::LEN as usize]);
    hash.update(&bytes[at..footer_at]);
    footer.content_hash = hash.digest();
    bytes[footer_at..].copy_from_slice(&footer.encoded());
    true
}

#[test]
fn a_hostile_file_is_no_reason_to_panic() {
    for sample in Sample::all() {
        let footer_at = sample.bytes.len() - 64;
        for at in 64..footer_at {
            for value in [
                0,
                1,
                0x7f,
                0xff,
                sample.bytes[at] ^ 1,
                sample.bytes[at].wrapping_add(1),
            ] {
                let mut bytes = sample.bytes.clone();
                bytes[at] = value;
                assert!(sign(&mut bytes));
                // Whatever it says now; the readers stay within bounds.
                for answer in sample.ask(&bytes) {
                    if let Err(error) = answer {
                        assert!(matches!(error, Error::Corrupt(_)), "{error}");
                    }
                }
            }
        }
        // A footer that says anything, well signed.
        for field in (0..56).step_by(4) {
            for value in [0u32, 1, 64, 0x7fff_ffff, 0xffff_ffff] {
                let mut bytes = sample.bytes.clone();
                let at = footer_at + field;
                bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
                let sum = checksum(&bytes[footer_at..footer_at + 56]);
                bytes[footer_at + 56..].copy_from_slice(&sum.to_le_bytes());
                if bytes != sample.bytes {
                    let answers = sample.ask(&bytes);
                    assert!(
                        matches!(answers[..], [Err(Error::Corrupt(_))]),
                        "{field} {value}"
                    );
                }
            }
        }
    }
}

#[test]
fn an_order_that_is_none_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let order = CellOrder::of(&[1, 0, 1, 4], 5);
    for (name, rows) in [("twice", [1, 0, 0, 3]), ("beyond", [1, 0, 2, 4])] {
        let dir = dir.path().join(name);
        fs::create_dir(&dir).unwrap();
        let wrong = CellOrder {
            rows: rows.to_vec(),
            ..order.clone()
        };
        let file = CodesFile::open(&DISK, &write_in_order(&dir, &wrong)).unwrap();
        assert_eq!(file.verify().len(), 1, "{name}");
        let beyond = matches!(file.rows_at(0..4), Err(Error::Corrupt(_)));
        assert_eq!(beyond, name == "beyond");
    }
}
