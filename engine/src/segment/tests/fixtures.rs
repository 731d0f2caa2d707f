//! Files of every format version, kept as they were written, are read for ever.
//!
//! A change of layout makes these fail: raise the version, write a new directory with `make_fixtures`, keep the old one.

use super::*;
use crate::RowId;
use std::fs;

fn texts() -> Vec<(Seq, String, String)> {
    let row = |i: u64| {
        let text = format!("The text of row {i}. ").repeat(i as usize % 7);
        (Seq(100 + i + i / 30 * 5), format!("text/{i}"), text)
    };
    (0..150).map(row).collect()
}

fn vectors() -> Vec<(Seq, String, Vec<f32>)> {
    let row = |i: u64| {
        (
            Seq(i * i),
            format!("vector/{i}"),
            vec![i as f32, -0.5, 1e-3],
        )
    };
    (0..150).map(row).collect()
}

/// A directory of each sort of rows, since both files are of segment 7.
fn write(dir: &Path) -> [PathBuf; 6] {
    let sub = |name: &str| {
        let sub = dir.join(name);
        fs::create_dir_all(&sub).unwrap();
        sub
    };
    [
        write_texts(&sub("texts"), &texts()).0,
        write_vectors(&sub("vectors"), 3, &vectors()).0,
        write_vecs(&sub("texts"), 150, 4),
        write_codes(&sub("vectors"), 150, 5, 16),
        write_deletions(&sub("vectors"), 150).0,
        write_ordered(&sub("cells"), 150),
    ]
}

fn version(version: u32) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    fixtures.join(format!("format-{version}"))
}

#[test]
#[ignore = "writes the fixtures of a new version of the format, or of a new kind of file"]
fn make_fixtures() {
    let dir = tempfile::tempdir().unwrap();
    for written in write(dir.path()) {
        let kept = version(crate::format::VERSION).join(written.strip_prefix(dir.path()).unwrap());
        // What is there is kept as it is.
        if !kept.exists() {
            fs::create_dir_all(kept.parent().unwrap()).unwrap();
            fs::copy(&written, &kept).unwrap();
        }
    }
}

#[test]
fn files_of_this_version_are_written_as_ever() {
    let dir = tempfile::tempdir().unwrap();
    for written in write(dir.path()) {
        let kept = version(crate::format::VERSION).join(written.strip_prefix(dir.path()).unwrap());
        // Another zstd may compress otherwise; all else is ours.
        if written.parent().unwrap().ends_with("texts") && kept.extension().unwrap() == "rows" {
            continue;
        }
        let (written, bytes) = (fs::read(&written).unwrap(), fs::read(&kept).unwrap());
        assert!(
            written == bytes,
            "{} would be written otherwise",
            kept.display()
        );
    }
}

#[test]
fn files_of_every_version_are_read() {
    read(&version(1), false);
    read(&version(2), true);
    let dir = version(2).join("cells");
    let name = &DISK.list(&dir).unwrap()[0];
    let file = CodesFile::open(&DISK, &dir.join(name)).unwrap();
    assert!(file.verify().is_empty());
    assert_eq!(file.cells(), Some(12));
    let starts = file.starts().unwrap();
    let last = starts.find(9).unwrap();
    assert_eq!(file.rows_at(starts.positions(last)).unwrap()[..2], [3, 13]);
}

/// Reads what [`write`] wrote, with norms of vectors or without.
fn read(dir: &Path, norms: bool) {
    let name = FileName::Rows(SEGMENT);
    let file = RowsFile::open(&DISK, &name.within(&dir.join("texts"))).unwrap();
    assert_eq!(file.meta(), &about(None));
    assert!(file.verify().is_empty());
    for (row, (seq, key, text)) in texts().into_iter().enumerate() {
        let row = RowId(row as u32);
        assert_eq!(file.find(&key).unwrap(), Some(row));
        assert_eq!(file.seq(row).unwrap(), seq);
        assert_eq!(file.text(row).unwrap(), Some(text));
    }
    let file = RowsFile::open(&DISK, &name.within(&dir.join("vectors"))).unwrap();
    assert_eq!(file.meta(), &about(kind(3, Precision::F32)));
    assert!(file.verify().is_empty());
    for (row, (seq, key, vector)) in vectors().into_iter().enumerate() {
        let row = RowId(row as u32);
        assert_eq!(file.find(&key).unwrap(), Some(row));
        assert_eq!(file.seq(row).unwrap(), seq);
        let stored = StoredRef::F32(&vector);
        let norm = norms.then(|| f64::from(vector[0]) + 0.5);
        assert_eq!(file.vector(row).unwrap(), ValueRef::Vector { stored, norm });
    }
    let names = |sub: &str| DISK.list(&dir.join(sub)).unwrap();
    let found = (names("texts")
        .into_iter()
        .map(|name| dir.join("texts").join(name)))
    .chain(
        names("vectors")
            .into_iter()
            .map(|name| dir.join("vectors").join(name)),
    );
    let mut others = 0;
    for path in found {
        others += match FileName::of(&path).expect("a name of ours") {
            FileName::Rows(_) => 0,
            FileName::Vecs(..) => {
                let file = VecsFile::open(&DISK, &path).unwrap();
                assert_eq!(file.vectors(149..150).unwrap().widen()[3], 599.0);
                1
            }
            FileName::Codes(..) => {
                let file = CodesFile::open(&DISK, &path).unwrap();
                assert_eq!(file.blocks(2..3).unwrap()[..3], [62, 63, 64]);
                1
            }
            FileName::Words(..) => unreachable!("the fixtures have no words"),
            FileName::Deletions(..) => {
                assert_eq!(Deletions::read(&DISK, &path).unwrap().dead(), 50);
                1
            }
            FileName::Columns(_) => unreachable!("version 1 has none"),
        };
    }
    assert_eq!(others, 3);
}
