//! Writes rows as `insert` reads them. Without a filter this needs only the files that hold rows: no model, no codes.

use super::not_stopped;
use crate::commands::get;
use anyhow::{Context, Result};
use mopqdb::{Row, RowCursor, RowsRead};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes all rows of a database. With `salvage`, what can't be read is left out and listed.
pub(super) fn write(db: &Path, dest: &Path, salvage: bool) -> Result<RowsRead> {
    let mut out = RowsOut::create(dest)?;
    let read = mopqdb::read_rows(db, salvage, |read| {
        let mut row = Row::new(read.key, read.value.given());
        row.columns = read.columns;
        out.write(&row)?;
        match out.rows % 4096 == 0 && not_stopped().is_err() {
            true => Err(mopqdb::Error::invalid("stopped; nothing was kept")),
            false => Ok(()),
        }
    })?;
    out.finish()?;
    Ok(read)
}

/// Writes the rows of a cursor, and returns their number.
pub(super) fn write_rows(rows: RowCursor, dest: &Path) -> Result<u64> {
    let mut out = RowsOut::create(dest)?;
    for row in rows {
        out.write(&row?)?;
        if out.rows % 4096 == 0 {
            not_stopped()?;
        }
    }
    Ok(out.finish()?)
}

/// The new file of rows.
struct RowsOut {
    path: PathBuf,
    out: BufWriter<File>,
    rows: u64,
}

impl RowsOut {
    fn create(dest: &Path) -> Result<Self> {
        let path = dest.join("rows.jsonl");
        let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self {
            path,
            out: BufWriter::with_capacity(1 << 20, file),
            rows: 0,
        })
    }

    fn write(&mut self, row: &Row) -> mopqdb::Result<()> {
        let io = |error: std::io::Error| mopqdb::Error::io("writing", &self.path)(error);
        serde_json::to_writer(&mut self.out, &get::object(row))
            .map_err(|error| io(error.into()))?;
        self.out.write_all(b"\n").map_err(io)?;
        self.rows += 1;
        Ok(())
    }

    /// Makes the file durable, and returns the number of rows.
    fn finish(self) -> mopqdb::Result<u64> {
        let io = |error: std::io::Error| mopqdb::Error::io("writing", &self.path)(error);
        let file = (self.out.into_inner()).map_err(|error| io(error.into_error()))?;
        file.sync_all().map_err(io)?;
        Ok(self.rows)
    }
}
