//! The columns of segments: what the user gave, so a value that can't be read becomes null only if that loss is accepted.

use super::files::is_damage;
use super::segments::{Found, FoundSegment};
use super::{Base, Repair};
use crate::columns::{Column, ColumnBatch, ColumnData, ColumnId, ColumnRead as _, Schema};
use crate::disk::files::list;
use crate::disk::orphans::orphan;
use crate::error::{Error, Result};
use crate::format::Kind;
use crate::ids::{RowId, SegmentId, Seq};
use crate::segment::columns::ColumnsFile;
use crate::segment::{FileName, RowsFile, RowsSummary};
use crate::write::write_columns;
use std::path::{Path, PathBuf};

/// The columns of a segment as they are on disk.
#[derive(Default)]
pub(super) struct FoundColumns {
    /// The file, if it could be opened.
    file: Option<ColumnsFile>,
    /// What is damaged, if anything is.
    damage: Option<Error>,
    /// The file has another hash than the record says.
    is_other: bool,
}

impl FoundColumns {
    /// Returns the hash of the file that the segment continues with.
    pub(super) fn hash(&self) -> Option<u64> {
        self.file.as_ref().map(ColumnsFile::content_hash)
    }

    /// Returns the values of a column as far as they can be read, and the rows whose value is lost.
    fn salvage(&self, id: ColumnId) -> Option<(ColumnData, Vec<RowId>)> {
        self.file.as_ref()?.salvage(id)
    }
}

impl Base {
    /// Returns what an older record says of the columns file of a segment, if it names the segment.
    pub(super) fn columns_of(&self, id: SegmentId, rows: &RowsFile) -> Option<Option<u64>> {
        let segments = self.hint.iter().flat_map(|record| &record.segments);
        let mut named = segments.filter(|named| (named.id, named.rows_hash) == (id, rows.hash().0));
        named.next().map(|named| named.columns)
    }
}

impl Repair<'_> {
    /// Finds the columns file of a segment: one that belongs to these rows. With a record, `named` is the hash that it has; none if it
    /// has no columns.
    pub(super) fn find_columns(
        &mut self,
        id: SegmentId,
        rows: &RowsFile,
        named: Option<Option<u64>>,
    ) -> Result<FoundColumns> {
        let path = FileName::Columns(id).within(&self.layout.segments());
        if named == Some(None) || named.is_none() && !path.exists() {
            return Ok(FoundColumns::default());
        }
        let mut found = self.try_columns(&path, rows)?;
        if found.file.is_none()
            && let Some(aside) = self.columns_in_orphans(id, rows)?
        {
            if path.exists() {
                orphan(&*self.disk, &self.layout, &path)?;
            }
            self.relocate(&aside, &path)?;
            self.done(format!(
                "the columns of segment {id} were found in orphans and brought back"
            ));
            found = self.try_columns(&path, rows)?;
        }
        if found.damage.is_some() && path.is_file() && self.correct(&path, Kind::Columns)? {
            found = self.try_columns(&path, rows)?;
        }
        found.is_other = named.is_some_and(|named| found.hash() != named);
        Ok(found)
    }

    fn try_columns(&self, path: &Path, rows: &RowsFile) -> Result<FoundColumns> {
        let opened = ColumnsFile::open(&*self.disk, path);
        let opened = opened.and_then(|file| file.expect_rows(rows).map(|()| file));
        Ok(match opened {
            Ok(file) => FoundColumns {
                damage: file.verify().into_iter().next(),
                file: Some(file),
                is_other: false,
            },
            Err(e) if is_damage(&e) => FoundColumns {
                file: None,
                damage: Some(e),
                is_other: false,
            },
            Err(e) => return Err(e),
        })
    }

    /// A columns file of these rows among the orphans.
    fn columns_in_orphans(&self, id: SegmentId, rows: &RowsFile) -> Result<Option<PathBuf>> {
        let dir = self.layout.orphans();
        if !dir.is_dir() {
            return Ok(None);
        }
        let named = |name: &String| name.contains(".cols");
        let names = list(&*self.disk, &dir)?.into_iter().filter(named);
        let of_rows = |path: &PathBuf| {
            let file = ColumnsFile::open_as(&*self.disk, path, id);
            file.is_ok_and(|file| file.expect_rows(rows).is_ok() && file.verify().is_empty())
        };
        Ok(names.map(|name| dir.join(name)).find(of_rows))
    }

    /// Reports the values of live rows that can't be read.
    pub(super) fn count_lost_values(&mut self, segment: &FoundSegment) -> Result<()> {
        let Some(why) = &segment.columns.damage else {
            return Ok(());
        };
        let mut rows: Vec<RowId> = match &segment.columns.file {
            None => segment.live.iter().collect(),
            Some(file) => {
                let schema = file.schema();
                let columns = schema.columns().iter();
                let salvaged = columns.filter_map(|column| file.salvage(column.id));
                let lost = salvaged.flat_map(|(_, lost)| lost);
                lost.filter(|&row| segment.live.contains(row)).collect()
            }
        };
        rows.sort_unstable();
        rows.dedup();
        if rows.is_empty() {
            return Ok(());
        }
        let what = format!(
            "segment {}: values of columns of {} of {} live rows can't be read, and become null: {why}",
            segment.id,
            rows.len(),
            segment.live.alive()
        );
        // Rows whose keys can't be read are counted by those who read these.
        let keys = rows.iter().filter_map(|&row| segment.rows.key(row).ok());
        let keys = keys.map(str::to_owned).collect();
        self.lose(what, keys);
        Ok(())
    }

    /// Writes the columns of a segment again without what can't be read, and lets the version have the file that is there.
    pub(super) fn make_columns_sound(
        &mut self,
        segment: &mut FoundSegment,
        schema: &Schema,
        found: &mut Found,
    ) -> Result<()> {
        if segment.columns.damage.is_none() && !segment.columns.is_other {
            return Ok(());
        }
        if let Some(why) = &segment.columns.damage {
            let rows = segment.rows.row_count();
            let order = (0..rows as u32).map(|row| (Seq(0), 0, RowId(row)));
            let batch = gather(schema, &[&segment.columns], order);
            let path = FileName::Columns(segment.id).within(&self.layout.segments());
            let done = format!(
                "the columns of segment {} were written again with what can be read: {why}",
                segment.id
            );
            segment.columns = FoundColumns::default();
            if path.exists() {
                orphan(&*self.disk, &self.layout, &path)?;
            }
            let summary = segment.rows.summary();
            self.write_columns(segment.id, schema, summary, &batch)?;
            if path.exists() {
                segment.columns = self.try_columns(&path, &segment.rows)?;
            }
            self.done(done);
        } else {
            self.done(format!(
                "segment {}: its columns file is not the one that the version names, but it belongs to these rows",
                segment.id
            ));
        }
        segment.columns.is_other = false;
        if let Some(named) = &mut segment.named {
            named.columns = segment.columns.hash();
        }
        found.new_list = true;
        Ok(())
    }

    pub(super) fn write_columns(
        &self,
        id: SegmentId,
        schema: &Schema,
        rows: &RowsSummary,
        batch: &ColumnBatch,
    ) -> Result<()> {
        let dir = self.layout.segments();
        write_columns(&self.disk, &dir, id, rows, schema, &[(batch, None)])?;
        self.disk.sync_dir(&dir).map_err(Error::io("syncing", &dir))
    }

    /// The columns of the database: those of the record; without one, those that an older record, files and logs tell of.
    pub(super) fn schema(&mut self, base: &Base, found: &Found, logged: &[Column]) -> Schema {
        if let Some(record) = &base.record {
            return record.columns.clone();
        }
        let hint = base.hint.iter().flat_map(|record| record.columns.columns());
        let mut told: Vec<Column> = hint.cloned().collect();
        let files = found.segments.iter();
        for file in files.filter_map(|segment| segment.columns.file.as_ref()) {
            told.extend_from_slice(file.schema().columns());
        }
        told.extend_from_slice(logged);
        let schema = Schema::told(told);
        if !schema.is_new() {
            self.done(format!(
                "the columns were taken from files and logs: {}",
                schema.list()
            ));
        }
        schema
    }
}

/// The values of some rows of several segments as far as they can be read, in this order.
pub(super) fn gather(
    schema: &Schema,
    inputs: &[&FoundColumns],
    order: impl Iterator<Item = (Seq, u32, RowId)> + Clone,
) -> ColumnBatch {
    let mut batch = ColumnBatch::nulls(order.clone().count());
    for column in schema.columns() {
        let salvaged = inputs.iter().map(|input| input.salvage(column.id));
        let salvaged: Vec<Option<(ColumnData, _)>> = salvaged.collect();
        let mut data = ColumnData::new(column.kind);
        for (_, input, row) in order.clone() {
            let value = salvaged[input as usize].as_ref();
            let value = value.map(|(data, _)| data.value(row.0 as usize).to_value());
            match value.and_then(|value| value.convert(column.kind)) {
                Some(value) => data.push(&value.as_ref()),
                None => data.push_nulls(1),
            }
        }
        debug_assert_eq!(data.rows(), batch.rows());
        batch.set(column.id, data);
    }
    batch
}
