//! Writing the files of a segment from rows in `Seq` order.

use crate::columns::{Column, ColumnSource, Schema};
use crate::disk::files::Files;
use crate::error::Result;
use crate::ids::{Generation, SegmentId, Seq};
use crate::model::Model;
use crate::quantizer::{CellOrder, CodeShape, ROWS_PER_BLOCK, RowCodes};
use crate::row::{RowsKind, ValueRef};
use crate::segment::columns::{self, ColumnsMeta};
use crate::segment::{
    CodesMeta, CodesWriter, FileName, RowsHash, RowsMeta, RowsSummary, RowsWriter, ShortId,
    VecsMeta, VecsWriter, VectorKind,
};
use crate::stored::StoredRef;
use crate::view::segment::{codes_path, vecs_path};
use crate::words::WordsWriter;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

/// Takes a row.
pub(crate) type TakeRow<'a> = &'a mut dyn FnMut(Seq, &str, ValueRef<'_>) -> Result<()>;
/// Takes stored vectors of texts, several complete rows.
pub(crate) type TakeVectors<'a> = &'a mut dyn FnMut(StoredRef<'_>) -> Result<()>;
/// Takes codes, row-major, some whole rows.
pub(crate) type TakeCodes<'a> = &'a mut dyn FnMut(&[u8]) -> Result<()>;

/// Takes row, cell and codes.
pub(crate) type TakePlaced<'a> = &'a mut dyn FnMut(u32, u32, &[u8]) -> Result<()>;

/// Rows that become a segment. Every iteration has the same order, ascending by `Seq`.
pub(crate) trait Rows {
    /// Calls `take` with every row.
    fn each_row(&self, take: TakeRow<'_>) -> Result<()>;
    /// Stored vectors of texts, some whole rows at a time.
    fn each_vector(&self, take: TakeVectors<'_>) -> Result<()>;
}

/// Rows whose codes are known.
pub(crate) trait CodedRows: Rows {
    /// Codes under the model, row-major, some whole rows at a time.
    fn each_code(&self, take: TakeCodes<'_>) -> Result<()>;
    /// Rows, cells and codes under a model with cells, in any order.
    fn each_placed(&self, take: TakePlaced<'_>) -> Result<()>;
    /// The columns, and which rows of them: the rows follow one behind the other.
    fn columns(&self) -> Vec<(&dyn ColumnSource, Option<&[u64]>)>;
}

/// Which segment is being written.
#[derive(Debug, Clone)]
pub(crate) struct NewSegment {
    pub(crate) id: SegmentId,
    /// The generation that will first name it.
    pub(crate) generation: Generation,
    /// The inputs of a compaction.
    pub(crate) replaces: Vec<SegmentId>,
}

/// Writes the files of a segment; each is synced and has its name, the directory is the caller's to sync. Returns the hash of
/// its columns file, if a row has a value of a column.
pub(crate) fn write_segment(
    files: &Arc<dyn Files>,
    dir: &Path,
    new: &NewSegment,
    (model, schema): (&Model, &Schema),
    source: &dyn CodedRows,
) -> Result<Option<u64>> {
    let summary = write_rows(files, dir, new, model, source)?;
    let columns = write_columns(files, dir, new.id, &summary, schema, &source.columns())?;
    if model.quantizer().is_some() {
        let mut sink = CodesSink::create(files, dir, new.id, summary.hash, summary.rows, model)?;
        match model.cells() {
            None => source.each_code(&mut |codes| sink.push(codes, &[]))?,
            Some(_) => source.each_placed(&mut |row, cell, codes| {
                sink.place(row, cell, codes);
                Ok(())
            })?,
        }
        sink.finish()?;
    }
    if let Some(words) = model.words() {
        let path = FileName::Words(new.id, ShortId::of(&words.id.0)).within(dir);
        let mut writer = WordsWriter::create(
            Arc::clone(files),
            &path,
            words.settings,
            new.id,
            summary.hash,
            summary.rows,
        );
        source.each_row(&mut |_, _, value| writer.push(value.text()))?;
        writer.finish()?;
    }
    Ok(columns)
}

/// Writes the columns file of a segment, if a row has a value of a column. Returns its hash.
pub(crate) fn write_columns(
    files: &Arc<dyn Files>,
    dir: &Path,
    id: SegmentId,
    rows: &RowsSummary,
    schema: &Schema,
    sources: &[(&dyn ColumnSource, Option<&[u64]>)],
) -> Result<Option<u64>> {
    let has_values = |column: &Column| {
        let mut sources = sources.iter();
        sources.any(|(source, _)| source.column(column.id).is_some())
    };
    if !schema.columns().iter().any(has_values) {
        return Ok(None);
    }
    let about = ColumnsMeta {
        segment: id,
        rows_hash: rows.hash,
        rows: rows.rows,
        next_column: schema.next_id(),
    };
    let path = FileName::Columns(id).within(dir);
    let written = columns::write_columns(Arc::clone(files), &path, about, schema, sources)?;
    Ok(Some(written.content_hash))
}

/// Writes the rows file and, for texts, the vecs file.
pub(crate) fn write_rows(
    files: &Arc<dyn Files>,
    dir: &Path,
    new: &NewSegment,
    model: &Model,
    source: &dyn Rows,
) -> Result<RowsSummary> {
    let path = FileName::Rows(new.id).within(dir);
    let vectors = match model.kind() {
        RowsKind::Text => None,
        RowsKind::Vector => Some(VectorKind {
            dim: NonZeroU32::new(model.dim() as u32).expect("vectors have dimensions"),
            precision: model.precision(),
        }),
    };
    let meta = RowsMeta {
        segment: new.id,
        version: new.generation,
        vectors,
        metric: model.metric(),
        replaces: new.replaces.clone(),
    };
    let mut writer = RowsWriter::create(Arc::clone(files), &path, meta)?;
    source.each_row(&mut |seq, key, value| writer.push(seq, key, value))?;
    let summary = writer.finish()?;
    if model.kind() == RowsKind::Text {
        let meta = VecsMeta {
            segment: new.id,
            rows_hash: summary.hash,
            encoder: model.encoder_id().0,
            rows: summary.rows,
            dim: model.dim() as u32,
            precision: model.precision(),
        };
        let mut writer =
            VecsWriter::create(Arc::clone(files), &vecs_path(dir, new.id, model), meta)?;
        source.each_vector(&mut |vectors| writer.push(vectors))?;
        writer.finish()?;
    }
    Ok(summary)
}

/// Writes a codes file from row-major codes.
pub(crate) struct CodesSink {
    writer: CodesWriter,
    shape: CodeShape,
    /// Codes of an unfinished block of 64 rows.
    rest: Vec<u8>,
    packed: Vec<u8>,
    /// Codes of all rows, which are ordered in the end, where the model has this many cells: as many bytes as they have on
    /// disk. A row in no cell is yet to come.
    cells: Option<u32>,
    held: RowCodes,
    rows: u32,
}

impl CodesSink {
    /// Begins the codes file of a segment under a model with a quantizer, in this directory.
    pub(crate) fn create(
        files: &Arc<dyn Files>,
        dir: &Path,
        segment: SegmentId,
        rows_hash: RowsHash,
        rows: u32,
        model: &Model,
    ) -> Result<Self> {
        let shape = model.shape();
        let shape = shape.expect("only a model with a quantizer has codes");
        let meta = CodesMeta {
            segment,
            rows_hash,
            codes: model
                .codes_id()
                .expect("a model with a quantizer has codes"),
            rows,
            shape,
        };
        let path =
            codes_path(dir, segment, model).expect("a model with a quantizer has codes files");
        Ok(Self {
            writer: CodesWriter::create(Arc::clone(files), &path, meta)?,
            shape,
            rest: Vec::new(),
            packed: Vec::new(),
            cells: model.cells(),
            held: RowCodes::default(),
            rows,
        })
    }

    /// Takes the codes of the next rows; and their cells, where the model has cells.
    pub(crate) fn push(&mut self, codes: &[u8], cells: &[u32]) -> Result<()> {
        if self.cells.is_some() {
            self.held.codes.extend_from_slice(codes);
            self.held.cells.extend_from_slice(cells);
            return Ok(());
        }
        self.rest.extend_from_slice(codes);
        let block = ROWS_PER_BLOCK * self.shape.subspaces();
        self.write_blocks(self.rest.len() / block * block)
    }

    /// Takes cell and codes of a row.
    ///
    /// Requires: the model has cells.
    pub(crate) fn place(&mut self, row: u32, cell: u32, codes: &[u8]) {
        let (at, width) = (row as usize, codes.len());
        if self.held.cells.is_empty() {
            let rows = self.rows as usize;
            self.held.codes.resize(rows * width, 0);
            self.held.cells.resize(rows, u32::MAX);
        }
        self.held.cells[at] = cell;
        self.held.codes[at * width..][..width].copy_from_slice(codes);
    }

    fn write_blocks(&mut self, codes: usize) -> Result<()> {
        if codes > 0 {
            self.packed.clear();
            self.shape.pack(&self.rest[..codes], &mut self.packed);
            self.rest.drain(..codes);
            self.writer.push_blocks(&self.packed)?;
        }
        Ok(())
    }

    /// Syncs the file and gives it its name.
    pub(crate) fn finish(mut self) -> Result<()> {
        let Some(cells) = self.cells else {
            self.write_blocks(self.rest.len())?;
            self.writer.finish()?;
            return Ok(());
        };
        /// Rows that are put in order at a time.
        const ROWS: usize = 1024 * ROWS_PER_BLOCK;
        let held = std::mem::take(&mut self.held);
        assert!(
            held.cells.iter().all(|&cell| cell < cells),
            "every row has a cell"
        );
        let order = CellOrder::of(&held.cells, cells);
        for rows in order.rows.chunks(ROWS) {
            self.rest = held.gather(rows, self.shape.subspaces());
            self.write_blocks(self.rest.len())?;
        }
        self.writer.finish_ordered(&order)?;
        Ok(())
    }
}
