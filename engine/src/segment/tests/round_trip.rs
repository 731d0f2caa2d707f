//! What was written is what is read.

use super::*;
use crate::{Error, RowId};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn check_rows(path: &Path, summary: &RowsSummary, rows: &[(Seq, String, ValueRef<'_>)]) {
    for no_mmap in [false, true] {
        let file = RowsFile::open(&Disk { no_mmap }, path).unwrap();
        assert_eq!(file.summary(), summary);
        assert_eq!(file.row_count(), rows.len());
        assert_eq!(file.meta().replaces, [SegmentId(2), SegmentId(5)]);
        let damage = file.verify();
        assert!(damage.is_empty(), "{damage:?}");
        let last_of: BTreeMap<&str, usize> = (rows.iter().enumerate())
            .map(|(row, (_, key, _))| (key.as_str(), row))
            .collect();
        let mut cursor = file.cursor();
        for (index, (seq, key, value)) in rows.iter().enumerate() {
            let row = RowId(index as u32);
            let expected = RowRef {
                row,
                seq: *seq,
                key,
                value: *value,
            };
            assert!(cursor.next().unwrap() == Some(expected), "row {row}");
            assert_eq!(file.seq(row).unwrap(), *seq);
            assert_eq!(file.key(row).unwrap(), key);
            let found = file.find(key).unwrap();
            assert_eq!(found, Some(RowId(last_of[key.as_str()] as u32)));
            match value {
                ValueRef::Text(text) => {
                    assert!(
                        file.text(row).unwrap().as_deref() == Some(text),
                        "row {row}"
                    );
                }
                ValueRef::Vector { .. } => assert_eq!(file.vector(row).unwrap(), *value),
            }
            let absent = format!("{key}?");
            assert_eq!(
                file.find(&absent).unwrap().is_some(),
                last_of.contains_key(absent.as_str())
            );
        }
        assert_eq!(cursor.next().unwrap(), None);
    }
}

fn seqs(gaps: impl IntoIterator<Item = u64>) -> Vec<Seq> {
    let next = |seq: &mut u64, gap: u64| {
        *seq += gap;
        Some(Seq(*seq))
    };
    gaps.into_iter().scan(40, next).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn texts_come_back(
        rows in prop::collection::vec((1u64..4, "\\PC{1,20}|[\\x00-\\x7f]{1,4}|[a-c]{1,3}", "\\PC{0,300}|a{0,4000}"), 0..200)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let seqs = seqs(rows.iter().map(|row| row.0));
        let rows: Vec<_> = seqs.into_iter().zip(rows).map(|(seq, (_, key, text))| (seq, key, text)).collect();
        let (path, summary) = write_texts(dir.path(), &rows);
        prop_assert_eq!(summary.seqs, rows.first().map(|first| (first.0, rows[rows.len() - 1].0)));
        let expected: Vec<_> = rows.iter().map(|(seq, key, text)| (*seq, key.clone(), ValueRef::Text(text))).collect();
        check_rows(&path, &summary, &expected);
    }

    #[test]
    fn vectors_come_back(
        dim in 1u32..20,
        keys in prop::collection::vec((prop_oneof![9 => Just(1u64), 1 => 2u64..1000], "[a-z]{1,6}"), 0..300),
        seed: u64,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut next = numbers(seed);
        let seqs = seqs(keys.iter().map(|row| row.0));
        let rows: Vec<_> = seqs.into_iter().zip(keys)
            .map(|(seq, (_, key))| (seq, key, (0..dim).map(|_| next() as f32).collect::<Vec<_>>()))
            .collect();
        let (path, summary) = write_vectors(dir.path(), dim, &rows);
        let expected: Vec<_> = rows.iter().map(|(seq, key, v)| (*seq, key.clone(), given(v))).collect();
        check_rows(&path, &summary, &expected);
    }
}

#[test]
fn long_texts_long_keys_and_every_character_come_back() {
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut next = numbers(1);
    rows.push((
        "a megabyte".into(),
        (0..1 << 20)
            .map(|_| (b' ' + (next() % 90) as u8) as char)
            .collect(),
    ));
    rows.push(("a megabyte of one letter".into(), "x".repeat(1 << 20)));
    rows.push(("no text".into(), String::new()));
    for i in 0..40 {
        rows.push((
            format!("{i:02}").repeat(MAX_KEY / 2)[..MAX_KEY].into(),
            format!("long {i}"),
        ));
    }
    for c in (0..0x11_0000u32)
        .step_by(199)
        .chain(0..256)
        .filter_map(char::from_u32)
    {
        rows.push((format!("{c}"), format!("{c}{c}")));
    }
    let rows: Vec<_> = (rows.into_iter().enumerate())
        .map(|(i, (key, text))| (Seq(1 + i as u64), key, text))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let (path, summary) = write_texts(dir.path(), &rows);
    // 40 keys of 64 KiB are more than a writer keeps in memory, so they went through its second file.
    assert!(summary.key_bytes > 2 << 20);
    let names: Vec<_> = DISK.list(dir.path()).unwrap();
    assert_eq!(names, ["0000000007.rows"], "nothing temporary stays");
    let expected: Vec<_> = rows
        .iter()
        .map(|(s, k, t)| (*s, k.clone(), ValueRef::Text(t)))
        .collect();
    check_rows(&path, &summary, &expected);
}

#[test]
fn a_prefix_finds_its_rows() {
    let rows: Vec<_> = (0..1000)
        .map(|i| (Seq(i), format!("doc/{i}"), vec![i as f32]))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = write_vectors(dir.path(), 1, &rows);
    let file = RowsFile::open(&DISK, &path).unwrap();
    let expected: Vec<_> = (0..1000)
        .filter(|i| format!("doc/{i}").starts_with("doc/99"))
        .map(RowId)
        .collect();
    assert_eq!(file.rows_with_prefix("doc/99").unwrap(), expected);
    assert_eq!(file.rows_with_prefix("").unwrap().len(), 1000);
    assert_eq!(file.rows_with_prefix("Doc").unwrap(), []);
}

#[test]
fn vectors_of_many_chunks_come_back_in_ranges() {
    let dim = 96;
    let rows: Vec<_> = (0..3000u64)
        .map(|i| {
            (
                Seq(i * 2),
                format!("{i}"),
                (0..dim).map(|d| (i * 1000 + d) as f32).collect(),
            )
        })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = write_vectors(dir.path(), dim as u32, &rows);
    let file = RowsFile::open(&DISK, &path).unwrap();
    for range in [0..3000, 170..172, 2999..3000, 5..5, 3000..3000] {
        let expected: Vec<f32> = rows[range.clone()]
            .iter()
            .flat_map(|row| row.2.clone())
            .collect();
        assert_eq!(file.vectors(range).unwrap(), StoredRef::F32(&expected));
    }
    let StoredRef::F32(all) = file.vectors(0..3000).unwrap() else {
        panic!("written as f32");
    };
    assert_eq!(all.as_ptr() as usize % 64, 0);
}

#[test]
fn vectors_of_every_precision_come_back_from_rows_and_from_vecs() {
    let mut next = numbers(9);
    let (rows, dim) = (700, 24);
    let values: Vec<f32> = (0..rows * dim).map(|_| next() as f32 / 1e9 - 1.0).collect();
    for precision in Precision::ALL {
        let stored = precision.round(&values, dim, false);
        let stored = stored.as_ref();
        let dir = tempfile::tempdir().unwrap();
        let path = FileName::Rows(SEGMENT).within(dir.path());
        let about = about(kind(dim as u32, precision));
        let mut writer = RowsWriter::create(disk(), &path, about).unwrap();
        for row in 0..rows {
            let value = ValueRef::Vector {
                stored: stored.rows(row..row + 1, dim),
                norm: (row % 3 > 0).then_some(row as f64 + 0.1),
            };
            writer
                .push(Seq(row as u64), &row.to_string(), value)
                .unwrap();
        }
        let summary = writer.finish().unwrap();
        assert_eq!(summary.value_bytes, stored.bytes() as u64);
        let file = RowsFile::open(&DISK, &path).unwrap();
        assert!(file.verify().is_empty());
        assert_eq!(file.vectors(0..rows).unwrap(), stored);
        for row in [0, 1, 698] {
            let norm = (row % 3 > 0).then_some(row as f64 + 0.1);
            assert_eq!(file.norm(RowId(row as u32)).unwrap(), norm);
        }

        let encoder = [3; 32];
        let path = FileName::Vecs(SEGMENT, ShortId::of(&encoder)).within(dir.path());
        let meta = VecsMeta {
            segment: SEGMENT,
            rows_hash: RowsHash(5),
            encoder,
            rows: rows as u32,
            dim: dim as u32,
            precision,
        };
        let mut writer = VecsWriter::create(disk(), &path, meta).unwrap();
        writer.push(stored.rows(0..650, dim)).unwrap();
        writer.push(stored.rows(650..rows, dim)).unwrap();
        writer.finish().unwrap();
        let file = VecsFile::open(&DISK, &path).unwrap();
        assert_eq!(file.meta(), &meta);
        assert_eq!(file.vectors(0..rows).unwrap(), stored);
        assert!(file.verify().is_empty());
    }
}

#[test]
fn vecs_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = VecsFile::open(&DISK, &write_vecs(dir.path(), 100, 5)).unwrap();
    assert_eq!((file.row_count(), file.dim()), (100, 5));
    let expected: Vec<f16> = (50..60).map(|x| f16::from_f32(x as f32)).collect();
    assert_eq!(file.vectors(10..12).unwrap(), StoredRef::F16(&expected));
    assert!(file.verify().is_empty());
}

#[test]
fn codes_come_back_in_blocks() {
    for (rows, subspaces, codewords, block_bytes) in [
        (1000, 8, 256, 512),
        (64, 8, 16, 256),
        (65, 5, 16, 192),
        (1, 1, 17, 64),
        (0, 3, 2, 128),
        (20_000, 16, 256, 1024),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let file =
            CodesFile::open(&DISK, &write_codes(dir.path(), rows, subspaces, codewords)).unwrap();
        let meta = file.meta();
        assert_eq!((meta.rows, meta.shape.block_bytes()), (rows, block_bytes));
        let all = file.blocks(0..meta.blocks()).unwrap();
        assert_eq!(all.len(), rows.div_ceil(64) as usize * block_bytes);
        for block in 0..meta.blocks() {
            let bytes = file.blocks(block..block + 1).unwrap();
            assert!(
                bytes
                    .iter()
                    .enumerate()
                    .all(|(i, &b)| b == (block * 31 + i) as u8)
            );
            assert_eq!(bytes.as_ptr() as usize % 64, 0);
        }
        assert!(file.verify().is_empty());
    }
}

#[test]
fn codes_come_back_in_the_order_of_cells() {
    for rows in [1, 63, 64, 65, 40_000] {
        let dir = tempfile::tempdir().unwrap();
        let file = CodesFile::open(&DISK, &write_ordered(dir.path(), rows)).unwrap();
        assert!(file.verify().is_empty());
        assert_eq!(file.cells(), Some(12));
        let starts = file.starts().unwrap();
        let (mut seen, mut code) = (0, [0; 2]);
        for entry in 0..starts.len() {
            let positions = starts.positions(entry);
            let in_cell = file.rows_at(positions.clone()).unwrap();
            assert!(in_cell.is_sorted());
            for (position, &row) in positions.zip(in_cell) {
                assert_eq!(3 * row % 10, starts.cell(entry));
                let block = file.blocks(position / 64..position / 64 + 1).unwrap();
                file.meta()
                    .shape
                    .unpack_row(block, position % 64, &mut code);
                assert_eq!(u32::from(code[0]) | u32::from(code[1]) << 8, row);
                seen += 1;
            }
        }
        assert_eq!(seen, rows);
        // A full scan reads the codes alone, two bytes per row here; the file has four more for the order.
        if rows == 40_000 {
            assert!(file.file_len() < 40_000 * 61 / 10, "{}", file.file_len());
        }
    }
}

#[test]
fn deletions_come_back() {
    for rows in [0, 1, 63, 64, 65, 1000] {
        let dir = tempfile::tempdir().unwrap();
        let (path, written) = write_deletions(dir.path(), rows);
        let read = Deletions::read(&DISK, &path).unwrap();
        assert_eq!(read, written);
        let dead: Vec<_> = (0..rows).filter(|row| row % 3 == 1).map(RowId).collect();
        assert_eq!(read.iter().collect::<Vec<_>>(), dead);
        assert_eq!(read.dead() as usize, dead.len());
    }
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = FileName::Rows(SEGMENT).within(dir.path());
    let mut writer = RowsWriter::create(disk(), &path, about(None)).unwrap();
    let key = "k".repeat(MAX_KEY);
    for i in 0..100 {
        writer.push(Seq(i), &key, ValueRef::Text("text")).unwrap();
    }
    assert_eq!(DISK.list(dir.path()).unwrap().len(), 2);
    drop(writer);
    assert_eq!(DISK.list(dir.path()).unwrap(), [""; 0]);
}

#[test]
fn keys_and_texts_out_of_bounds_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = FileName::Rows(SEGMENT).within(dir.path());
    let mut writer = RowsWriter::create(disk(), &path, about(None)).unwrap();
    for key in ["".to_owned(), "k".repeat(MAX_KEY + 1)] {
        let refused = writer.push(Seq(1), &key, ValueRef::Text("text"));
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    let text = "t".repeat(MAX_TEXT + 1);
    let refused = writer.push(Seq(1), "key", ValueRef::Text(&text));
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert_eq!(writer.row_count(), 0);
    let whole = ValueRef::Text(&text[1..]);
    writer.push(Seq(1), "key", whole).unwrap();
}

#[test]
fn a_value_of_another_kind_or_width_is_refused_and_leaves_nothing() {
    let (text, vector) = (ValueRef::Text("text"), given(&[1.0, 2.0]));
    let halves = ValueRef::Vector {
        stored: StoredRef::F16(&[f16::ONE; 2]),
        norm: None,
    };
    for (kind, fits, others) in [
        (None, text, vec![vector]),
        (
            kind(2, Precision::F32),
            vector,
            vec![text, given(&[1.0]), halves],
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = FileName::Rows(SEGMENT).within(dir.path());
        let mut writer = RowsWriter::create(disk(), &path, about(kind)).unwrap();
        for other in others {
            let refused = writer.push(Seq(1), "other", other);
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        }
        writer.push(Seq(1), "key", fits).unwrap();
        let summary = writer.finish().unwrap();
        check_rows(&path, &summary, &[(Seq(1), "key".into(), fits)]);
    }
}

#[test]
#[should_panic(expected = "rows ascend by Seq")]
fn a_seq_that_does_not_ascend_is_our_own_bug() {
    let dir = tempfile::tempdir().unwrap();
    write_vectors(
        dir.path(),
        1,
        &[
            (Seq(5), "a".into(), vec![0.]),
            (Seq(5), "b".into(), vec![0.]),
        ],
    );
}

#[cfg(unix)]
#[test]
fn a_finished_file_is_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_codes(dir.path(), 10, 1, 2);
    assert!(std::fs::metadata(path).unwrap().permissions().readonly());
}
