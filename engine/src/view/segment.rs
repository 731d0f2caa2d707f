//! A segment's files, open under one model: what queries and housekeeping read.

use crate::disk::files::Storage;
use crate::error::{Error, Result};
use crate::ids::SegmentId;
use crate::model::Model;
use crate::row::RowsKind;
use crate::segment::SegmentRecord;
use crate::segment::columns::ColumnsFile;
use crate::segment::{CodesFile, Deletions, FileName, RowsFile, ShortId, VecsFile};
use crate::stored::StoredRef;
use crate::view::live::Live;
use crate::words::SegmentWords;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The open files of a segment.
#[derive(Debug)]
pub(crate) struct Sealed {
    /// The segment.
    pub id: SegmentId,
    /// What the user gave.
    pub rows: RowsFile,
    /// The encoder's output, where rows are texts.
    pub vecs: Option<VecsFile>,
    /// The codes, where the model has a quantizer.
    pub codes: Option<CodesFile>,
    /// The columns, where a row has a value of one.
    pub(crate) columns: Option<ColumnsFile>,
    /// The word index, where texts are searched by their words; `None` if it is missing too.
    pub(crate) words: Option<SegmentWords>,
}

/// A segment as one snapshot sees it.
#[derive(Debug, Clone)]
pub(crate) struct SegmentView {
    /// Its files.
    pub sealed: Arc<Sealed>,
    /// Its live rows.
    pub live: Live,
}

impl Sealed {
    /// Opens the files of a segment under a model: headers and lengths are checked, data when first touched. `columns` is the
    /// hash of its columns file, if it has one.
    pub(crate) fn open(
        files: &dyn Storage,
        dir: &Path,
        id: SegmentId,
        columns: Option<u64>,
        model: &Model,
    ) -> Result<Self> {
        let rows = RowsFile::open(files, &FileName::Rows(id).within(dir))?;
        let kind = rows.vector_kind();
        let vecs = match model.kind() {
            RowsKind::Vector => {
                let found = kind.map(|kind| (kind.dim.get() as usize, kind.precision));
                let named = (model.dim(), model.precision());
                expect(found == Some(named), rows.path(), || {
                    format!("vectors of {found:?}, the record says {named:?}")
                })?;
                None
            }
            RowsKind::Text => {
                expect(kind.is_none(), rows.path(), || {
                    "vectors, the record says texts".into()
                })?;
                let path = vecs_path(dir, id, model);
                let vecs = VecsFile::open(files, &path)?;
                let meta = vecs.meta();
                vecs.expect_rows(&rows)?;
                expect(meta.encoder == model.encoder_id().0, &path, || {
                    "made by another encoder".into()
                })?;
                expect(meta.precision == model.precision(), &path, || {
                    let (found, named) = (meta.precision, model.precision());
                    format!("vectors as {found}, the record says {named}")
                })?;
                Some(vecs)
            }
        };
        let codes = match model.codes_id() {
            Some(codes_id) => {
                let path =
                    codes_path(dir, id, model).expect("a model with a quantizer has codes files");
                let codes = CodesFile::open(files, &path)?;
                check_codes(&codes, &rows, model).and_then(|()| {
                    expect(codes.meta().codes == codes_id, &path, || {
                        "made by another quantizer".into()
                    })
                })?;
                Some(codes)
            }
            None => None,
        };
        Ok(Self {
            id,
            words: open_words(files, dir, id, model, &rows)?,
            columns: open_columns(files, dir, id, columns, &rows)?,
            rows,
            vecs,
            codes,
        })
    }

    /// Gives back the memory of rows and vectors; codes stay, queries read them.
    fn release(&self) {
        self.rows.release();
        if let Some(vecs) = &self.vecs {
            vecs.release();
        }
        if let Some(columns) = &self.columns {
            columns.release();
        }
    }

    /// Returns the hash of the columns file, if there is one.
    pub(crate) fn columns_hash(&self) -> Option<u64> {
        self.columns.as_ref().map(ColumnsFile::content_hash)
    }

    /// Begins to read the segment once, with at most about this many bytes resident.
    pub(crate) fn read_once(&self, limit: usize) -> ReadOnce<'_> {
        ReadOnce {
            sealed: self,
            limit,
            passed: 0,
        }
    }

    /// Begins to read the stored vectors of rows, all at once. Requires: rows ascend.
    pub(crate) fn prefetch(&self, rows: &[u32]) {
        match &self.vecs {
            Some(vecs) => vecs.prefetch(rows),
            None => self.rows.prefetch(rows),
        }
    }

    /// Returns the stored vectors of a range of rows, checked.
    pub(crate) fn vectors(&self, rows: Range<usize>) -> Result<StoredRef<'_>> {
        match &self.vecs {
            Some(vecs) => vecs.vectors(rows),
            None => self.rows.vectors(rows),
        }
    }
}

/// Reads a segment once through: pages behind it are given back, so that memory does not grow with the segment.
pub(crate) struct ReadOnce<'a> {
    sealed: &'a Sealed,
    limit: usize,
    passed: usize,
}

impl ReadOnce<'_> {
    /// Records that `bytes` bytes were read, and releases pages behind them.
    pub(crate) fn passed(&mut self, bytes: usize) {
        self.passed += bytes;
        if self.passed >= self.limit {
            self.passed = 0;
            self.sealed.release();
        }
    }
}

impl Drop for ReadOnce<'_> {
    fn drop(&mut self) {
        self.sealed.release();
    }
}

/// Returns an error unless the codes belong to these rows and to the model's shape.
pub(crate) fn check_codes(codes: &CodesFile, rows: &RowsFile, model: &Model) -> Result<()> {
    codes.expect_rows(rows)?;
    let meta = codes.meta();
    let shape = model
        .shape()
        .expect("a model whose codes are checked has a quantizer");
    let cells = model.cells();
    expect(codes.cells() == cells, codes.path(), || {
        let tell = |cells: Option<u32>| cells.map_or("no cells".into(), |n| format!("{n} cells"));
        format!("{}, the model has {}", tell(codes.cells()), tell(cells))
    })?;
    expect(meta.shape == shape, codes.path(), || {
        let (m, l) = (meta.shape.subspaces(), meta.shape.codewords());
        format!(
            "{m} x {l}, the model has {} x {}",
            shape.subspaces(),
            shape.codewords()
        )
    })
}

fn expect(holds: bool, path: &Path, what: impl FnOnce() -> String) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(Error::corrupt(path, "meta", 0, what()))
    }
}

/// The files that a model needs of a segment, in addition to those that the record names.
pub(crate) fn derived(id: SegmentId, model: &Model) -> Vec<FileName> {
    let vecs = match model.kind() {
        RowsKind::Text => Some(FileName::Vecs(id, ShortId::of(&model.encoder_id().0))),
        RowsKind::Vector => None,
    };
    let codes = model.codes_id();
    let codes = codes.map(|codes| FileName::Codes(id, ShortId::of(&codes.0)));
    let words = model.words();
    let words = words.map(|words| FileName::Words(id, ShortId::of(&words.id.0)));
    [vecs, codes, words].into_iter().flatten().collect()
}

/// Opens the columns file that a version record names.
fn open_columns(
    storage: &dyn Storage,
    dir: &Path,
    id: SegmentId,
    hash: Option<u64>,
    rows: &RowsFile,
) -> Result<Option<ColumnsFile>> {
    let Some(hash) = hash else {
        return Ok(None);
    };
    let columns = ColumnsFile::open(storage, &FileName::Columns(id).within(dir))?;
    columns.expect_rows(rows)?;
    expect(columns.content_hash() == hash, columns.path(), || {
        "not the file that the version record names".into()
    })?;
    Ok(Some(columns))
}

/// Opens the word index of a segment, if it has one that can be read. A missing one is no damage: the index of another
/// version of the search library has another name.
fn open_words(
    storage: &dyn Storage,
    dir: &Path,
    id: SegmentId,
    model: &Model,
    rows: &RowsFile,
) -> Result<Option<SegmentWords>> {
    let Some(wanted) = model.words() else {
        return Ok(None);
    };
    let path = FileName::Words(id, ShortId::of(&wanted.id.0)).within(dir);
    let words = match SegmentWords::open(storage, &path) {
        Err(e) if e.is_gone() => return Ok(None),
        opened => opened?,
    };
    words.file().expect_rows(rows)?;
    expect(words.serves(&wanted.id), &path, || {
        "made with other settings".into()
    })?;
    Ok(Some(words))
}

/// Returns where a segment's vectors under a model's encoder are.
pub(crate) fn vecs_path(dir: &Path, id: SegmentId, model: &Model) -> PathBuf {
    FileName::Vecs(id, ShortId::of(&model.encoder_id().0)).within(dir)
}

/// Returns where a segment's codes under a model are; none if the model has no quantizer.
pub(crate) fn codes_path(dir: &Path, id: SegmentId, model: &Model) -> Option<PathBuf> {
    Some(FileName::Codes(id, ShortId::of(&model.codes_id()?.0)).within(dir))
}

impl SegmentView {
    /// Opens what a record names.
    pub(crate) fn open(
        files: &dyn Storage,
        dir: &Path,
        record: &SegmentRecord,
        model: &Model,
    ) -> Result<Self> {
        let sealed = Sealed::open(files, dir, record.id, record.columns, model)?;
        Self::with_deletions(files, dir, record, Arc::new(sealed))
    }

    /// Returns an open segment with the deletions that a record names.
    pub(crate) fn with_deletions(
        files: &dyn Storage,
        dir: &Path,
        record: &SegmentRecord,
        sealed: Arc<Sealed>,
    ) -> Result<Self> {
        let rows = sealed.rows.row_count() as u32;
        let agrees = record.rows == rows
            && record.rows_hash == sealed.rows.hash().0
            && record.columns == sealed.columns_hash();
        expect(agrees, sealed.rows.path(), || {
            "not the file that the version record names".into()
        })?;
        let live = match record.deletions {
            None => Live::all(rows),
            Some(version) => {
                let path = FileName::Deletions(record.id, version).within(dir);
                let deletions = Deletions::read(files, &path)?;
                let agrees = deletions.segment() == record.id
                    && deletions.version() == version
                    && deletions.row_count() == rows
                    && deletions.dead() == record.dead;
                expect(agrees, &path, || {
                    "not the deletions that the version record names".into()
                })?;
                Live::without(rows, deletions.words())
            }
        };
        Ok(Self { sealed, live })
    }
}
