//! Writes rows as `insert` reads them. Needs only the files that hold them: no model, no codes.

use super::not_stopped;
use anyhow::{Context, Result};
use mopqdb::RowsRead;
use mopqdb::Value;
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

pub(super) fn write(db: &Path, dest: &Path, salvage: bool) -> Result<RowsRead> {
    let path = dest.join("rows.jsonl");
    let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut rows = 0;
    let io = |error: std::io::Error| mopqdb::Error::io("writing", &path)(error);
    let read = mopqdb::read_rows(db, salvage, |row| {
        let mut object = match row.value.given() {
            Value::Text(text) => json!({"key": row.key, "text": text}),
            Value::Vector(vector) => json!({"key": row.key, "vector": vector}),
        };
        for (name, value) in row.columns {
            object[name] = value.to_json();
        }
        serde_json::to_writer(&mut out, &object).map_err(|error| io(error.into()))?;
        out.write_all(b"\n").map_err(io)?;
        rows += 1;
        match rows % 4096 == 0 && not_stopped().is_err() {
            true => Err(mopqdb::Error::invalid("stopped; nothing was kept")),
            false => Ok(()),
        }
    })?;
    let file = out.into_inner().map_err(|error| io(error.into_error()))?;
    file.sync_all().map_err(io)?;
    Ok(read)
}
