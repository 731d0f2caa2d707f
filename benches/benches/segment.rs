//! How fast the files of a segment are written, opened and looked up. Rows are checked before anything is timed.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use mopqdb::testing::disk::{Disk, Files};
use mopqdb::testing::segment::{FileName, RowsFile, RowsMeta, RowsSummary, RowsWriter, VectorKind};
use mopqdb::{Generation, Metric, Precision, RowId, SegmentId, Seq, StoredRef, ValueRef};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DIM: usize = 128;
const ROWS: u32 = 200_000;

fn about(vectors: Option<VectorKind>) -> RowsMeta {
    RowsMeta {
        segment: SegmentId(1),
        version: Generation(1),
        vectors,
        metric: Metric::Ip,
        replaces: Vec::new(),
    }
}

fn path(dir: &Path) -> PathBuf {
    FileName::Rows(SegmentId(1)).within(dir)
}

fn key(row: u32) -> String {
    format!("document/{row:08}")
}

/// Returns about sixty words that differ from row to row, as in real texts.
fn text(row: u32) -> String {
    let word = |i: u32| (row.wrapping_mul(2_654_435_761).rotate_left(i) % 5_000) ^ i;
    (0..60).map(|i| format!("w{} ", word(i))).collect()
}

fn write_vectors(dir: &Path, keys: &[String], vectors: &[f32]) -> RowsSummary {
    let files: Arc<dyn Files> = Arc::new(Disk::default());
    let kind = VectorKind {
        dim: NonZeroU32::new(DIM as u32).unwrap(),
        precision: Precision::F32,
    };
    let mut writer = RowsWriter::create(files, &path(dir), about(Some(kind))).unwrap();
    for (i, (key, vector)) in keys.iter().zip(vectors.chunks_exact(DIM)).enumerate() {
        let vector = ValueRef::Vector {
            stored: StoredRef::F32(vector),
            norm: None,
        };
        writer.push(Seq(i as u64), key, vector).unwrap();
    }
    writer.finish().unwrap()
}

fn write_texts(dir: &Path, keys: &[String], texts: &[String]) -> RowsSummary {
    let files: Arc<dyn Files> = Arc::new(Disk::default());
    let mut writer = RowsWriter::create(files, &path(dir), about(None)).unwrap();
    for (i, (key, text)) in keys.iter().zip(texts).enumerate() {
        let text = ValueRef::Text(text);
        writer.push(Seq(i as u64), key, text).unwrap();
    }
    writer.finish().unwrap()
}

fn vectors(c: &mut Criterion) {
    let keys: Vec<String> = (0..ROWS).map(key).collect();
    let vectors: Vec<f32> = (0..ROWS as usize * DIM).map(|i| i as f32).collect();
    let dir = tempfile::tempdir().unwrap();
    let summary = write_vectors(dir.path(), &keys, &vectors);
    let disk = Disk::default();
    let file = RowsFile::open(&disk, &path(dir.path())).unwrap();
    assert!(file.verify().is_empty());
    let stored = file.vectors(0..ROWS as usize).unwrap();
    assert_eq!(stored, StoredRef::F32(&vectors));

    let mut group = c.benchmark_group("segment/vectors");
    group.sample_size(10);
    group.throughput(Throughput::Bytes(summary.file_bytes));
    group.bench_function("write, 200,000 rows of 128", |b| {
        b.iter_batched(
            || tempfile::tempdir().unwrap(),
            |dir| {
                write_vectors(dir.path(), &keys, &vectors);
                dir
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("open and check all", |b| {
        b.iter(|| {
            let file = RowsFile::open(&disk, &path(dir.path())).unwrap();
            black_box(file.vectors(0..ROWS as usize).unwrap().len())
        });
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function("open", |b| {
        b.iter(|| RowsFile::open(&disk, &path(dir.path())).unwrap());
    });
    let mut row = 0;
    let mut next = || {
        row = (row + 77_777) % ROWS;
        row
    };
    group.bench_function("find a key", |b| {
        b.iter(|| file.find(&keys[next() as usize]).unwrap().unwrap());
    });
    group.bench_function("find no key", |b| {
        b.iter(|| file.find(&keys[next() as usize][1..]).unwrap());
    });
    group.bench_function("key of a row", |b| {
        b.iter(|| file.key(RowId(next())).unwrap().len());
    });
    group.bench_function("seq of a row", |b| {
        b.iter(|| file.seq(RowId(next())).unwrap());
    });
    group.throughput(Throughput::Elements(u64::from(ROWS)));
    group.bench_function("rows with a prefix", |b| {
        b.iter(|| file.rows_with_prefix("document/0001").unwrap().len());
    });
    group.finish();
}

fn texts(c: &mut Criterion) {
    let rows = 50_000;
    let keys: Vec<String> = (0..rows).map(key).collect();
    let texts: Vec<String> = (0..rows).map(text).collect();
    let dir = tempfile::tempdir().unwrap();
    let summary = write_texts(dir.path(), &keys, &texts);
    let disk = Disk::default();
    let file = RowsFile::open(&disk, &path(dir.path())).unwrap();
    assert!(file.verify().is_empty());
    println!(
        "texts of {} bytes in a file of {}",
        summary.value_bytes, summary.file_bytes
    );

    let mut group = c.benchmark_group("segment/texts");
    group.sample_size(10);
    group.throughput(Throughput::Bytes(summary.value_bytes));
    group.bench_function("write, 50,000 rows", |b| {
        b.iter_batched(
            || tempfile::tempdir().unwrap(),
            |dir| {
                write_texts(dir.path(), &keys, &texts);
                dir
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("read in order", |b| {
        b.iter(|| {
            let mut cursor = file.cursor();
            let mut bytes = 0;
            while let Some(row) = cursor.next().unwrap() {
                bytes += row.key.len();
            }
            bytes
        });
    });
    let mut row = 0;
    group.throughput(Throughput::Elements(1));
    group.bench_function("text of a row", |b| {
        b.iter(|| {
            row = (row + 7_777) % rows;
            file.text(RowId(row)).unwrap()
        });
    });
    group.finish();
}

criterion_group!(benches, vectors, texts);
criterion_main!(benches);
