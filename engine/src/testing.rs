//! Internals for tests and fuzz targets: parsers without a public type, and control over the order of
//! threads. Not a public API.

/// Files, maps and locks.
pub mod disk {
    pub use crate::disk::files::*;
    pub use crate::disk::lock::*;
    pub use crate::disk::mmap::*;
}

/// The container of files.
pub mod format {
    pub use crate::format::*;
}

/// The loops.
pub mod kernel {
    pub use crate::kernel::*;
}

/// The exact top k.
pub mod scan {
    pub use crate::scan::*;
}

/// The files of segments.
pub mod segment {
    pub use crate::segment::*;
}

pub use crate::admin::backup::backup_on;
pub use crate::admin::models::register_model_on;
pub use crate::admin::prune::prune_on;
pub use crate::admin::repair::repair_on;
pub use crate::threads::turns::take_turns;

use crate::columns::{
    ColumnSource, ColumnType, ColumnValue, Columns, Expr, KeyRead, LoggedColumns, Schema,
};
use crate::disk::files::Disk;
use crate::error::Result;
use crate::format::{Encode, Take};
use crate::ids::{LogId, RowId, SegmentId};
use crate::segment::RowsHash;
use crate::segment::columns::{ColumnsFile, ColumnsMeta, write_columns};
use crate::version::VersionRecord;
use crate::words::{
    self, Indexed, RunWords, Scorer, SegmentWords, Settings, Terms, Tokenizer, WordsWriter,
};
use std::path::Path;
use std::sync::Arc;

/// Searches a words file for a query, with default settings. Returns how many rows were found.
pub fn words(path: &Path, query: &str) -> Result<usize> {
    let words = SegmentWords::open(&Disk { no_mmap: true }, path)?;
    let terms = Terms::of(&Tokenizer::new(Settings::default()), query);
    let scorer = Scorer::new(&words.count(&terms, None)?);
    let found = words::best([(&words as &dyn Indexed, None)], &terms, &scorer, 10)?;
    Ok(found.len())
}

/// Indexes texts in memory and in a file, and searches both.
///
/// # Panics
/// If they do not give the same rows and the same bits of every score.
pub fn words_agree(dir: &Path, settings: Settings, texts: &[&str], query: &str) -> Result<usize> {
    let path = dir.join("words");
    let rows = u32::try_from(texts.len()).expect("few texts");
    let files = Arc::new(Disk::default());
    let mut writer = WordsWriter::create(files, &path, settings, SegmentId(1), RowsHash(0), rows);
    for text in texts {
        writer.push(Some(text))?;
    }
    writer.finish()?;
    let sealed = SegmentWords::open(&Disk { no_mmap: true }, &path)?;
    let tokenizer = Tokenizer::new(settings);
    let run = RunWords::of(&tokenizer, texts.iter().copied());
    let terms = Terms::of(&tokenizer, query);
    // Every third row is dead.
    let live: Vec<u64> = (0..texts.len().div_ceil(64))
        .map(|word| {
            (0..64)
                .filter(|bit| (word * 64 + bit) % 3 > 0)
                .fold(0, |all, bit| all | 1 << bit)
        })
        .collect();
    let ask = |words: &dyn Indexed| -> Result<_> {
        let counts = words.count(&terms, Some(&live))?;
        let scorer = Scorer::new(&counts);
        let found = words::best([(words, Some(&live[..]))], &terms, &scorer, 10)?;
        let all: Vec<u32> = (0..rows).collect();
        let mut scores = vec![0.0; texts.len()];
        words.score(&terms, &scorer, &all, &mut scores)?;
        for one in &found {
            assert_eq!(
                one.score.to_bits(),
                scores[one.row as usize].to_bits(),
                "{one:?}"
            );
        }
        let bits: Vec<u32> = scores.iter().map(|score: &f32| score.to_bits()).collect();
        Ok((counts, found, bits))
    };
    let (from_file, from_memory) = (ask(&sealed)?, ask(&run)?);
    assert_eq!(from_file, from_memory, "{query:?} in {texts:?}");
    Ok(from_file.1.len())
}

/// Parses a version record, as both witnesses hold it. Returns `true` if the bytes are a valid
/// record.
pub fn record(bytes: &[u8]) -> bool {
    match VersionRecord::decode(bytes) {
        Ok(record) => {
            let again = VersionRecord::decode(&record.encode());
            assert_eq!(again.as_ref(), Ok(&record), "a record comes back as it was");
            true
        }
        Err(_) => false,
    }
}

/// Reads a log. Returns the number of batches.
pub fn log(id: u64, bytes: &[u8], from: u64) -> Result<usize> {
    let contents = crate::log::read(Path::new("fuzzed.log"), LogId(id), bytes, from)?;
    assert!(contents.end <= bytes.len() as u64 || contents.batches.is_empty());
    Ok(contents.batches.len())
}

/// Some rows with a column of each type, named after it.
fn columns() -> (Schema, LoggedColumns) {
    let mut schema = Schema::default();
    let mut draft = Columns::default();
    for row in 0..100_i64 {
        let values: [ColumnValue; 6] = [
            (row % 3 == 0).into(),
            (row * 1000 - 5000).into(),
            (row as f64 / 4.0).into(),
            ["de", "en", "\u{e4}"][row as usize % 3].into(),
            vec!["x", "y", "z"][..row as usize % 4].to_vec().into(),
            ColumnValue::Timestamp(row * 1_000_003),
        ];
        let named = ColumnType::ALL
            .map(ColumnType::name)
            .into_iter()
            .zip(&values);
        let given = (named.enumerate()).filter(|(at, _)| !(row as usize + at).is_multiple_of(5));
        let pushed = draft.push(given.map(|(_, (name, value))| (name, value.as_ref())));
        pushed.expect("values that can be stored");
    }
    let logged = draft.bind(&schema).expect("the schema has no columns yet");
    let merged = schema.merge(&logged.named);
    merged.expect("the schema has no columns yet");
    (schema, logged)
}

/// No row has a key.
struct NoKeys;

impl KeyRead for NoKeys {
    fn find(&self, _: &str) -> Result<Option<usize>> {
        Ok(None)
    }

    fn for_each(&self, _: &str, _: &mut dyn FnMut(usize, &str)) -> Result<()> {
        Ok(())
    }
}

/// Reads a filter, and asks it and its opposite of some rows. Whether it is one.
pub fn filter(text: &str) -> bool {
    let (schema, logged) = columns();
    let mask = |text: &str| {
        let bound = Expr::parse(text)?.bind(&schema)?;
        bound.mask(&logged.batch, &NoKeys)
    };
    let Ok(passed) = mask(text) else {
        return false;
    };
    let bits = |words: &[u64]| -> u32 { words.iter().map(|word| word.count_ones()).sum() };
    // With more around it, it may be too long or too deep.
    if let (Ok(others), Ok(known)) = (
        mask(&format!("NOT ({text})")),
        mask(&format!("({text}) IS NOT NULL")),
    ) {
        assert_eq!(bits(&passed) + bits(&others), bits(&known), "{text}");
        let both = passed.iter().zip(&others).map(|(a, b)| a & b);
        assert_eq!(both.max(), Some(0), "{text}");
    }
    true
}

/// Reads what a batch has of columns. Whether it is that.
pub fn logged_columns(bytes: &[u8], rows: usize) -> bool {
    let decode = |bytes: &[u8]| LoggedColumns::decode(&mut Take::new("COLUMNS", 0, bytes), rows);
    match decode(bytes) {
        Ok(logged) => {
            let again = decode(&logged.encoded());
            assert_eq!(
                again.as_ref(),
                Ok(&logged),
                "columns come back as they were"
            );
            true
        }
        Err(_) => false,
    }
}

/// Asks everything of a columns file.
pub fn columns_file(path: &Path) -> Result<()> {
    let (schema, _) = columns();
    let file = ColumnsFile::open(&Disk { no_mmap: true }, path)?;
    let found = file.schema();
    let whole = file.verify().is_empty();
    for text in [
        "bool",
        "int > 0 OR float BETWEEN 1 AND 2",
        "string IN ('de', 'x') OR string LIKE '%n'",
        "strings HAS 'x'",
        "timestamp < '1970-01-01T00:00:01Z'",
        "string > 'e' AND int IS NULL",
    ] {
        let parsed = Expr::parse(text)?;
        for schema in [&schema, &found] {
            if let Ok(bound) = parsed.bind(schema) {
                let mask = bound.mask(&file, &NoKeys);
                // By another schema its columns may be what they can't be.
                assert!(
                    mask.is_ok() || !whole || schema != &found,
                    "{text}: {mask:?}"
                );
            }
        }
    }
    for column in found.columns() {
        let salvaged = file.salvage(column.id);
        let (data, lost) = salvaged.expect("the file has the column");
        assert!(lost.is_empty() || !whole, "{column:?}");
        if let Some(row) = file.rows().checked_sub(1) {
            let read = file.value(column.id, RowId(row as u32));
            assert!(read.is_ok_and(|read| read == data.value(row)) || !whole);
        }
    }
    Ok(())
}

/// Writes a columns file, for those who damage it. Returns the same columns as a batch has them.
pub fn write_columns_file(path: &Path) -> Result<Vec<u8>> {
    let (schema, logged) = columns();
    let about = ColumnsMeta {
        segment: SegmentId(1),
        rows_hash: RowsHash(0),
        rows: logged.batch.rows() as u32,
        next_column: schema.next_id(),
    };
    let sources: [(&dyn ColumnSource, _); 1] = [(&logged.batch, None)];
    write_columns(Arc::new(Disk::default()), path, about, &schema, &sources)?;
    Ok(logged.encoded())
}
