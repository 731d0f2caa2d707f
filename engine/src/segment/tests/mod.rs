//! What the files of a segment promise, whole and damaged.

mod damage;
mod faults;
mod fixtures;
mod round_trip;

use super::*;
use crate::disk::files::Disk;
use crate::disk::files::{Files, Storage};
use crate::quantizer::{CellOrder, CodeShape};
use crate::row::{MAX_KEY, MAX_TEXT, ValueRef};
use crate::stored::{Precision, StoredRef};
use crate::{CodesId, Generation, Metric, SegmentId, Seq, WordsId};
use half::f16;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DISK: Disk = Disk { no_mmap: false };
const SEGMENT: SegmentId = SegmentId(7);

fn disk() -> Arc<dyn Files> {
    Arc::new(DISK)
}

fn kind(dim: u32, precision: Precision) -> Option<VectorKind> {
    let dim = NonZeroU32::new(dim)?;
    Some(VectorKind { dim, precision })
}

fn about(vectors: Option<VectorKind>) -> RowsMeta {
    RowsMeta {
        segment: SEGMENT,
        version: Generation(3),
        vectors,
        metric: Metric::Cosine,
        replaces: vec![SegmentId(2), SegmentId(5)],
    }
}

/// Every other numbers of a small generator, for values that need not be good.
fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        state >> 33
    }
}

fn write_texts(dir: &Path, rows: &[(Seq, String, String)]) -> (PathBuf, RowsSummary) {
    let path = FileName::Rows(SEGMENT).within(dir);
    let mut writer = RowsWriter::create(disk(), &path, about(None)).unwrap();
    for (seq, key, text) in rows {
        writer.push(*seq, key, ValueRef::Text(text)).unwrap();
    }
    (path.clone(), writer.finish().unwrap())
}

/// A vector with a norm that follows from it.
fn given(vector: &[f32]) -> ValueRef<'_> {
    ValueRef::Vector {
        stored: StoredRef::F32(vector),
        norm: Some(f64::from(vector[0]) + 0.5),
    }
}

fn write_vectors(dir: &Path, dim: u32, rows: &[(Seq, String, Vec<f32>)]) -> (PathBuf, RowsSummary) {
    let path = FileName::Rows(SEGMENT).within(dir);
    let about = about(kind(dim, Precision::F32));
    let mut writer = RowsWriter::create(disk(), &path, about).unwrap();
    for (seq, key, vector) in rows {
        writer.push(*seq, key, given(vector)).unwrap();
    }
    (path.clone(), writer.finish().unwrap())
}

fn write_vecs(dir: &Path, rows: u32, dim: u32) -> PathBuf {
    let encoder = std::array::from_fn(|i| i as u8 + 100);
    let path = FileName::Vecs(SEGMENT, ShortId::of(&encoder)).within(dir);
    let meta = VecsMeta {
        segment: SEGMENT,
        rows_hash: RowsHash(0x1234_5678_9abc_def0),
        encoder,
        rows,
        dim,
        precision: Precision::F16,
    };
    let mut writer = VecsWriter::create(disk(), &path, meta).unwrap();
    for row in 0..rows {
        let vector: Vec<f16> = (0..dim)
            .map(|i| f16::from_f32((row * dim + i) as f32))
            .collect();
        writer.push(StoredRef::F16(&vector)).unwrap();
    }
    writer.finish().unwrap();
    path
}

fn write_codes(dir: &Path, rows: u32, subspaces: usize, codewords: usize) -> PathBuf {
    let codes = CodesId(std::array::from_fn(|i| i as u8));
    let path = FileName::Codes(SEGMENT, ShortId::of(&codes.0)).within(dir);
    let meta = CodesMeta {
        segment: SEGMENT,
        rows_hash: RowsHash(0x1234_5678_9abc_def0),
        codes,
        rows,
        shape: CodeShape::new(subspaces, codewords).unwrap(),
    };
    let mut writer = CodesWriter::create(disk(), &path, meta).unwrap();
    for block in 0..meta.blocks() {
        let bytes: Vec<u8> = (0..meta.shape.block_bytes())
            .map(|i| (block * 31 + i) as u8)
            .collect();
        writer.push_blocks(&bytes).unwrap();
    }
    writer.finish().unwrap();
    path
}

/// Codes that are ordered by cell: row n is in cell 3 n % 10 of 12.
fn write_ordered(dir: &Path, rows: u32) -> PathBuf {
    let cells: Vec<u32> = (0..rows).map(|row| 3 * row % 10).collect();
    write_in_order(dir, &CellOrder::of(&cells, 12))
}

fn write_in_order(dir: &Path, order: &CellOrder) -> PathBuf {
    let codes = CodesId(std::array::from_fn(|i| i as u8));
    let path = FileName::Codes(SEGMENT, ShortId::of(&codes.0)).within(dir);
    let meta = CodesMeta {
        segment: SEGMENT,
        rows_hash: RowsHash(0x1234_5678_9abc_def0),
        codes,
        rows: order.rows.len() as u32,
        shape: CodeShape::new(2, 256).unwrap(),
    };
    let codes: Vec<u8> = (order.rows.iter())
        .flat_map(|&row| [row as u8, (row >> 8) as u8])
        .collect();
    let mut blocks = Vec::new();
    meta.shape.pack(&codes, &mut blocks);
    let mut writer = CodesWriter::create(disk(), &path, meta).unwrap();
    writer.push_blocks(&blocks).unwrap();
    writer.finish_ordered(order).unwrap();
    path
}

fn write_words(dir: &Path) -> PathBuf {
    let words = WordsId(std::array::from_fn(|i| i as u8));
    let path = FileName::Words(SEGMENT, ShortId::of(&words.0)).within(dir);
    let mut packer = WordsPacker::create(disk(), &path).unwrap();
    for (name, bytes) in [("a.idx", &[1, 2, 3][..]), ("empty", &[]), ("meta", b"{}")] {
        packer.begin(name);
        packer.write(bytes).unwrap();
    }
    let meta = WordsMeta {
        segment: SEGMENT,
        rows_hash: RowsHash(0x1234_5678_9abc_def0),
        words,
        rows: 3,
        index_version: 7,
    };
    packer.finish(&meta).unwrap();
    path
}

fn write_deletions(dir: &Path, rows: u32) -> (PathBuf, Deletions) {
    let mut deletions = Deletions::none(SEGMENT, Generation(9), rows);
    for row in (0..rows).filter(|row| row % 3 == 1) {
        assert!(deletions.insert(crate::RowId(row)));
    }
    let path = deletions.name().within(dir);
    deletions.write(disk(), &path).unwrap();
    (path, deletions)
}
