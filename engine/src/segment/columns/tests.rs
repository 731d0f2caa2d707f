//! Columns files: what they give back, what filters find in them, and what they say when they are damaged.

use super::meta::Meta;
use super::*;
use crate::columns::eval_tests::{Keys, Random, Rows, compare};
use crate::columns::{
    ColumnBatch, ColumnId, ColumnRead, ColumnSource, ColumnType, ColumnValue, Columns, Expr, Schema,
};
use crate::disk::files::{Disk, Files};
use crate::format::{Check, Container, ContainerWriter, Decode, Encode, Kind, PAGE, Section, Take};
use crate::segment::{FileName, RowsHash};
use crate::{Error, Result, RowId, SegmentId};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DISK: Disk = Disk { no_mmap: false };
const SEGMENT: SegmentId = SegmentId(7);

fn about(rows: usize, schema: &Schema) -> ColumnsMeta {
    ColumnsMeta {
        segment: SEGMENT,
        rows_hash: RowsHash(0x1234_5678_9abc_def0),
        rows: rows as u32,
        next_column: schema.next_id(),
    }
}

type Source<'a> = (&'a dyn ColumnSource, Option<&'a [u64]>);

fn write(dir: &Path, rows: usize, schema: &Schema, sources: &[Source<'_>]) -> ColumnsFile {
    let path = FileName::Columns(SEGMENT).within(dir);
    let files: Arc<dyn Files> = Arc::new(DISK);
    let written = write_columns(files, &path, about(rows, schema), schema, sources).unwrap();
    let file = ColumnsFile::open(&DISK, &path).unwrap();
    assert_eq!(file.content_hash(), written.content_hash);
    assert_eq!(std::fs::metadata(file.path()).unwrap().len(), written.bytes);
    assert_eq!(file.schema(), *schema);
    let damage = file.verify();
    assert!(damage.is_empty(), "{damage:?}");
    file
}

/// The values of some rows of a source, row by row.
fn values(source: &dyn ColumnSource, schema: &Schema) -> Vec<Vec<ColumnValue>> {
    let value = |row: usize, id: ColumnId| match source.column(id) {
        None => ColumnValue::Null,
        Some(column) => crate::columns::value(column, row).unwrap().to_value(),
    };
    let ids: Vec<ColumnId> = schema.columns().iter().map(|column| column.id).collect();
    (0..source.rows())
        .map(|row| ids.iter().map(|&id| value(row, id)).collect())
        .collect()
}

#[test]
fn live_rows_of_batches_and_files_come_back_in_order() {
    for seed in 0..40 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let count = [1, 63, 64, 65, 500, 5000][random.below(6)];
        let rows = Rows::random(&mut random, count);
        let middle = random.below(count + 1);
        let batches = [rows.batch(0..middle), rows.batch(middle..count)];
        let live: Vec<Vec<u64>> = batches
            .iter()
            .map(|batch| {
                let mut live = vec![0_u64; batch.rows().div_ceil(64)];
                for row in 0..batch.rows() {
                    live[row / 64] |= u64::from(random.below(4) > 0) << (row % 64);
                }
                live
            })
            .collect();
        let is_alive = |at: usize, row: usize| live[at][row / 64] >> (row % 64) & 1 == 1;
        let kept = |at: usize, first: usize| {
            let rows = &rows;
            let kept = (0..batches[at].rows()).filter(move |&row| is_alive(at, row));
            kept.map(move |row| rows.values[first + row].clone())
        };
        let expected: Vec<_> = kept(0, 0).chain(kept(1, middle)).collect();
        let dir = tempfile::tempdir().unwrap();
        let first = write(
            dir.path(),
            expected.len(),
            &rows.schema,
            &[(&batches[0], Some(&live[0])), (&batches[1], Some(&live[1]))],
        );
        assert_eq!(values(&first, &rows.schema), expected);
        // Compacted with what came later.
        let other = tempfile::tempdir().unwrap();
        let both = write(
            other.path(),
            expected.len() + count,
            &rows.schema,
            &[(&first, None), (&rows.batch(0..count), None)],
        );
        let expected: Vec<_> = expected.into_iter().chain(rows.values.clone()).collect();
        assert_eq!(values(&both, &rows.schema), expected);
        for column in rows.schema.columns() {
            let Some((data, lost)) = both.salvage(column.id) else {
                panic!("{column:?} is in the file");
            };
            assert!(lost.is_empty());
            let last = expected.len() - 1;
            let value = both.value(column.id, RowId(last as u32)).unwrap();
            assert_eq!(data.value(last), value);
        }
    }
}

#[test]
fn filters_of_files_are_what_rows_say_one_by_one() {
    let mut passed = 0;
    for seed in 0..150 {
        println!("seed {seed}");
        let mut random = Random::new(seed + 500);
        let count =
            [1, 64, 100, 300, 4096 + 70, 10_000][random.below(if seed < 140 { 4 } else { 6 })];
        let rows = Rows::random(&mut random, count);
        let batch = rows.batch(0..count);
        let dir = tempfile::tempdir().unwrap();
        let file = write(dir.path(), count, &rows.schema, &[(&batch, None)]);
        passed += compare(&mut random, &rows, &[(&file, 0..count)], 20);
    }
    assert!(passed > 10_000, "{passed} rows passed");
}

/// Rows in which one column has this many strings.
fn many_strings(count: usize, rows: usize) -> Rows {
    let mut schema = Schema::default();
    schema.introduce("s", ColumnType::String).unwrap();
    let value = |row: usize| vec![format!("s{:06}", row * 7919 % count).into()];
    Rows {
        schema,
        keys: (0..rows).map(|row| format!("k{row}")).collect(),
        values: (0..rows).map(value).collect(),
    }
}

#[test]
fn codes_are_as_wide_as_there_are_strings() {
    for (strings, bytes) in [(256, 1), (257, 2), (65_536, 2), (65_537, 4)] {
        let rows = many_strings(strings, strings);
        let dir = tempfile::tempdir().unwrap();
        let batch = rows.batch(0..strings);
        let file = write(dir.path(), strings, &rows.schema, &[(&batch, None)]);
        let codes = file.column(ColumnId(0)).unwrap().codes(0..1).unwrap();
        let width = match codes {
            crate::columns::Codes::U8(_) => 1,
            crate::columns::Codes::U16(_) => 2,
            crate::columns::Codes::U32(_) => 4,
            crate::columns::Codes::Own(..) => 0,
        };
        assert_eq!(width, bytes);
        let last = strings - 1;
        for (text, passes) in [
            ("s = 's000255'", 1),
            ("s IN ('s000000', 's000255', 'x')", 2),
            ("s >= 's000250' AND s < 's000256'", 6),
            ("s LIKE 's0000%'", 100),
            ("s LIKE 's00_00_'", if strings < 1000 { 10 } else { 100 }),
            (&format!("s != 's{last:06}'"), last),
            ("s = 's'", 0),
            ("s > 't' OR s < 's'", 0),
        ] {
            let bound = Expr::parse(text).unwrap().bind(&rows.schema).unwrap();
            let mask = bound.mask(&file, &Keys(&rows.keys)).unwrap();
            let found: u32 = mask.iter().map(|word| word.count_ones()).sum();
            assert_eq!(found as usize, passes, "{text} of {strings}");
        }
    }
}

#[test]
fn columns_that_were_dropped_or_retyped_are_left_behind_or_converted() {
    let mut schema = Schema::default();
    let mut draft = Columns::default();
    for row in 0..5_i64 {
        let values: [ColumnValue; 3] = [row.into(), "x".into(), "2020-01-01".into()];
        draft
            .push(
                ["n", "gone", "at"]
                    .into_iter()
                    .zip(values.iter().map(ColumnValue::as_ref)),
            )
            .unwrap();
    }
    let logged = draft.bind(&schema).unwrap();
    schema.merge(&logged.named).unwrap();
    schema.drop("gone").unwrap();
    schema.retype("n", ColumnType::Float).unwrap();
    schema.retype("at", ColumnType::Timestamp).unwrap();
    schema.introduce("new", ColumnType::Strings).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let nulls = ColumnBatch::nulls(2);
    let file = write(
        dir.path(),
        7,
        &schema,
        &[(&logged.batch, None), (&nulls, None)],
    );
    let value = |name: &str, row| {
        let id = schema.find(name).unwrap().id;
        file.value(id, RowId(row)).unwrap().to_value()
    };
    assert_eq!(value("n", 3), 3.0.into());
    assert_eq!(
        value("at", 0),
        ColumnValue::Timestamp(1_577_836_800_000_000)
    );
    assert_eq!(
        [value("n", 6), value("new", 0)],
        [ColumnValue::Null, ColumnValue::Null]
    );
    let gone = logged
        .named
        .iter()
        .find(|column| column.name == "gone")
        .unwrap();
    assert_eq!(
        file.value(gone.id, RowId(0)).unwrap().to_value(),
        ColumnValue::Null
    );
    let n = schema.find("n").unwrap().id;
    let new = schema.find("new").unwrap().id;
    assert!(file.column(n).is_some());
    assert!(file.column(new).is_none());
    // A value that the type can't hold is damage: it was looked at before the column was retyped.
    schema.retype("n", ColumnType::Int).unwrap();
    let mut bad = ColumnBatch::nulls(1);
    let mut half = crate::columns::ColumnData::new(ColumnType::Float);
    half.push(&ColumnValue::from(0.5).as_ref());
    bad.set(n, half);
    let path = FileName::Columns(SegmentId(8)).within(dir.path());
    let about = ColumnsMeta {
        segment: SegmentId(8),
        ..about(1, &schema)
    };
    let failed = write_columns(Arc::new(DISK), &path, about, &schema, &[(&bad, None)]);
    assert!(failed.unwrap_err().to_string().contains("0.5"));
    assert!(!path.exists());
}

/// A small file with a column of each type, and what is in it.
fn sample() -> (tempfile::TempDir, PathBuf, Schema) {
    let mut schema = Schema::default();
    for (name, kind) in [
        ("flag", ColumnType::Bool),
        ("n", ColumnType::Int),
        ("score", ColumnType::Float),
        ("lang", ColumnType::String),
        ("tags", ColumnType::Strings),
        ("at", ColumnType::Timestamp),
        ("full", ColumnType::Int),
        ("none", ColumnType::Int),
    ] {
        schema.introduce(name, kind).unwrap();
    }
    let mut draft = Columns::default();
    for row in 0..70_i64 {
        let names = ["flag", "n", "score", "lang", "tags", "at", "full"];
        let values: [ColumnValue; 7] = [
            (row % 3 == 0).into(),
            (row * 1000).into(),
            (row as f64 / 4.0).into(),
            ["de", "en", "größer"][row as usize % 3].into(),
            vec!["x", "y", "z"][..row as usize % 4].to_vec().into(),
            ColumnValue::Timestamp(row),
            row.into(),
        ];
        let given = names.into_iter().zip(&values).enumerate();
        let given = given.filter(|(at, _)| *at == 6 || !(row as usize + at).is_multiple_of(5));
        draft
            .push(given.map(|(_, (name, value))| (name, value.as_ref())))
            .unwrap();
    }
    let logged = draft.bind(&schema).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), 70, &schema, &[(&logged.batch, None)]);
    let path = file.path().to_path_buf();
    (dir, path, schema)
}

/// All that a file says.
fn ask(path: &Path, schema: &Schema) -> Vec<Result<String>> {
    let file = match ColumnsFile::open(&Disk { no_mmap: true }, path) {
        Ok(file) => file,
        Err(error) => return vec![Err(error)],
    };
    let mut answers = vec![Ok(format!("{:?} {:?}", file.meta(), file.schema()))];
    for text in [
        "flag",
        "n >= 30000",
        "score < 5",
        "lang = 'en'",
        "lang LIKE '%r'",
        "tags HAS 'y'",
        "at IS NULL",
        "full = 7",
        "none IS NULL",
    ] {
        let bound = Expr::parse(text).unwrap().bind(schema).unwrap();
        let mask = bound.mask(&file, &Keys(&[]));
        answers.push(mask.map(|mask| format!("{mask:?}")));
    }
    for column in schema.columns() {
        for row in [0, 1, 33, 69] {
            let value = file.value(column.id, RowId(row));
            answers.push(value.map(|value| format!("{value:?}")));
        }
        if let Some((data, lost)) = file.salvage(column.id) {
            answers.push(match lost.is_empty() {
                true => Ok(format!("{data:?}")),
                false => Err(Error::corrupt(path, "COLUMNS", 0, "lost")),
            });
        }
    }
    let damage = file.verify();
    answers.push(match damage.into_iter().next() {
        None => Ok("whole".to_owned()),
        Some(error) => Err(error),
    });
    answers
}

#[test]
fn flipped_and_cut_files_are_errors_and_never_other_answers() {
    let (_dir, path, schema) = sample();
    let bytes = fs::read(&path).unwrap();
    let right = ask(&path, &schema);
    assert!(right.iter().all(Result::is_ok), "{right:?}");
    fs::remove_file(&path).unwrap();
    let expect_damage = |bytes: &[u8], how: &str| {
        fs::write(&path, bytes).unwrap();
        let answers = ask(&path, &schema);
        let mut errors = 0;
        for (answer, right) in answers.iter().zip(&right) {
            match answer {
                Err(Error::Corrupt(_) | Error::Incompatible { .. }) => errors += 1,
                Err(other) => panic!("{how}: {other}"),
                Ok(answer) => assert_eq!(Some(answer), right.as_ref().ok(), "{how}"),
            }
        }
        assert!(errors > 0, "{how} went unseen");
    };
    let mut random = Random::new(1);
    // Most of a small file are zeros up to the next page: all bytes that are not, and some of those that are.
    let flips = (0..bytes.len()).filter(|&at| bytes[at] != 0 || at % 97 == 0);
    for at in flips.collect::<Vec<_>>() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << random.below(8);
        expect_damage(&flipped, &format!("a flip at {at}"));
    }
    let cuts = (0..bytes.len()).filter(|at| at % 101 == 0 || bytes.len() - at < 80);
    for len in cuts.collect::<Vec<_>>() {
        expect_damage(&bytes[..len], &format!("a cut at {len}"));
    }
    expect_damage(&[&bytes[..], &[0; 64]].concat(), "zeros at the end");
}

#[test]
fn damage_of_one_column_is_none_of_another() {
    let (_dir, path, schema) = sample();
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let pages = {
        let container = Container::open(&bytes[..], Kind::Columns).unwrap();
        let part = container.touched(Section::Columns).unwrap();
        let start = part.offset() as usize;
        (start..start + part.len())
            .step_by(PAGE)
            .collect::<Vec<_>>()
    };
    // One of each column that has values.
    assert_eq!(pages.len(), 7);
    for (damaged, &page) in pages.iter().enumerate() {
        let mut flipped = bytes.clone();
        flipped[page] ^= 1;
        fs::write(&path, &flipped).unwrap();
        let file = ColumnsFile::open(&Disk { no_mmap: true }, &path).unwrap();
        assert_eq!(file.verify().len(), 1);
        for (at, column) in schema.columns().iter().enumerate() {
            let is_read = file.value(column.id, RowId(1)).is_ok();
            let (data, lost) = file.salvage(column.id).unwrap();
            assert_eq!(is_read, at != damaged, "{column:?}");
            assert_eq!(lost.len(), if at == damaged { 70 } else { 0 });
            assert_eq!(data.rows(), 70);
        }
    }
}

#[test]
fn a_file_under_another_name_or_of_other_rows_is_refused() {
    let (dir, path, _) = sample();
    let other = FileName::Columns(SegmentId(9)).within(dir.path());
    fs::copy(&path, &other).unwrap();
    let error = ColumnsFile::open(&DISK, &other).unwrap_err().to_string();
    assert!(error.contains("0000000007.cols"), "{error}");
    assert_eq!(ColumnsFile::identify(&DISK, &other), Some(SEGMENT));
}

/// The file with changed sections, its checksums right.
fn rewritten(bytes: &[u8], change: impl FnOnce(&mut Meta, &mut Vec<u8>)) -> Vec<u8> {
    let container = Container::open(bytes, Kind::Columns).unwrap();
    let whole = |section| {
        container
            .whole(&container.touched(section).unwrap())
            .unwrap()
    };
    let mut values = whole(Section::Columns).to_vec();
    let mut meta = Meta::decode(&mut Take::new("META", 0, whole(Section::Meta))).unwrap();
    change(&mut meta, &mut values);
    let mut writer = ContainerWriter::new(Vec::new(), Kind::Columns).unwrap();
    writer
        .section(Section::Columns, Check::Pages, &values)
        .unwrap();
    writer
        .section(Section::Meta, Check::Chunks, &meta.encoded())
        .unwrap();
    writer.finish().unwrap().0
}

#[test]
fn files_that_contradict_themselves_are_found() {
    let (_dir, path, schema) = sample();
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, rewritten(&bytes, |_, _| {})).unwrap();
    assert!(ask(&path, &schema).iter().all(Result::is_ok));
    type Change = fn(&mut Meta, &mut Vec<u8>);
    let changes: [(&str, Change); 16] = [
        ("rows", |meta, _| meta.about.rows += 64),
        ("next", |meta, _| meta.about.next_column = 3),
        ("order", |meta, _| meta.entries.swap(0, 1)),
        ("type", |meta, _| {
            meta.entries[0].column.kind = ColumnType::Int
        }),
        ("nulls", |meta, _| meta.entries[1].nulls += 1),
        ("more nulls than rows", |meta, _| {
            meta.entries[1].nulls = u32::MAX
        }),
        ("codes", |meta, _| meta.entries[3].code_bytes = 2),
        ("strings", |meta, _| meta.entries[3].strings = u32::MAX),
        ("items", |meta, _| meta.entries[4].items = u64::MAX / 2),
        ("offset", |meta, _| meta.entries[2].offset += 64),
        ("end", |_, values| values.extend([0; 64])),
        // Behind the bits and the strings of its column.
        ("a code", |meta, values| {
            let layout = meta.entries[3].layout(70).unwrap();
            values[layout.values.start + 1] = 9;
        }),
        ("an order of strings", |meta, values| {
            let layout = meta.entries[3].layout(70).unwrap();
            values[layout.string_bytes.start] = b'z';
        }),
        ("no string", |meta, values| {
            let layout = meta.entries[3].layout(70).unwrap();
            values[layout.string_bytes.end - 1] = 0xff;
        }),
        ("a zone", |meta, values| {
            let layout = meta.entries[1].layout(70).unwrap();
            values[layout.zones.start] ^= 1;
        }),
        ("a list", |meta, values| {
            let layout = meta.entries[4].layout(70).unwrap();
            values[layout.offsets.start + 8..][..8].fill(0xff);
        }),
    ];
    for (what, change) in changes {
        fs::write(&path, rewritten(&bytes, change)).unwrap();
        let answers = ask(&path, &schema);
        let is_found = answers
            .iter()
            .any(|answer| matches!(answer, Err(Error::Corrupt(_))));
        assert!(is_found, "{what} went unseen");
    }
}

/// Microseconds of the first mask of a file that was just opened, and of the fastest of some more.
#[test]
#[ignore = "a measurement: a million rows"]
fn masks_of_a_million_rows() {
    const ROWS: usize = 1_000_000;
    let mut schema = Schema::default();
    let mut draft = Columns::default();
    let mut random = Random::new(1);
    let strings = |random: &mut Random, count: usize| -> Vec<ColumnValue> {
        let string = |_| format!("value {:06}", random.below(count)).into();
        (0..ROWS).map(string).collect()
    };
    let few = strings(&mut random, 100);
    let many = strings(&mut random, 100_000);
    draft.set_typed("few", ColumnType::String, few).unwrap();
    draft.set_typed("many", ColumnType::String, many).unwrap();
    let years = (0..ROWS).map(|_| ColumnValue::from(1900 + random.below(200) as i64));
    draft.set_typed("year", ColumnType::Int, years).unwrap();
    let ascending = (0..ROWS).map(|row| ColumnValue::from(row as i64));
    draft.set_typed("row", ColumnType::Int, ascending).unwrap();
    let scores = (0..ROWS).map(|_| ColumnValue::from(random.below(1000) as f64 / 8.0));
    draft.set_typed("score", ColumnType::Float, scores).unwrap();
    let tags = (0..ROWS).map(|_| {
        let count = random.below(5);
        let tag = |_| format!("tag {}", random.below(1000));
        ColumnValue::from((0..count).map(tag).collect::<Vec<_>>())
    });
    draft.set_typed("tags", ColumnType::Strings, tags).unwrap();
    let logged = draft.bind(&schema).unwrap();
    schema.merge(&logged.named).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let started = std::time::Instant::now();
    let file = write(dir.path(), ROWS, &schema, &[(&logged.batch, None)]);
    println!("written and verified in {:?}", started.elapsed());
    for text in [
        "few = 'value 000042'",
        "few IN ('value 000042', 'value 000050', 'value 000099')",
        "few LIKE 'value 00001%'",
        "few LIKE '%42'",
        "many = 'value 042042'",
        "many LIKE 'value 04%'",
        "many LIKE '%42%'",
        "year BETWEEN 1990 AND 2009",
        "year IN (1990, 2000, 2010, 2020)",
        "row BETWEEN 500000 AND 600000",
        "score >= 100",
        "tags HAS 'tag 42'",
        "tags HAS 'tag 42' OR tags HAS 'tag 43'",
        "year >= 1950 AND few != 'value 000001' AND many > 'value 05' AND tags HAS 'tag 42'",
    ] {
        let bound = Expr::parse(text).unwrap().bind(&schema).unwrap();
        let mask = |source: &dyn ColumnSource| {
            let started = std::time::Instant::now();
            let mask = bound.mask(source, &Keys(&[])).unwrap();
            let passed: u32 = mask.iter().map(|word| word.count_ones()).sum();
            (started.elapsed().as_micros(), passed)
        };
        // Opened again: its pages are checked when they are first touched.
        let file = ColumnsFile::open(&DISK, file.path()).unwrap();
        let (first, passed) = mask(&file);
        let best = (0..15).map(|_| mask(&file).0).min().unwrap();
        let batch = (0..3).map(|_| mask(&logged.batch).0).min().unwrap();
        println!(
            "{first:>7} us first, {best:>6} us then, {batch:>7} us in memory, {passed:>7} rows: {text}"
        );
    }
}
