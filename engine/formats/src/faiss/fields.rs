//! The fields of Faiss's format: little-endian, one after another.

use super::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file that is written field by field.
#[derive(Debug)]
pub(super) struct Fields {
    path: PathBuf,
    out: BufWriter<File>,
}

impl Fields {
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(Error::io("creating", path))?;
        Ok(Self {
            path: path.to_owned(),
            out: BufWriter::with_capacity(1 << 20, file),
        })
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.out.write_all(bytes);
        written.map_err(Error::io("writing", &self.path))
    }

    /// Writes a small number, which Faiss stores as an `int`.
    pub(super) fn i32(&mut self, value: usize) -> Result<()> {
        let value = i32::try_from(value).expect("widths and counts are far below 2^31");
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> Result<()> {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn floats(&mut self, values: &[f32]) -> Result<()> {
        for some in values.chunks(4096) {
            let bytes: Vec<u8> = some.iter().flat_map(|value| value.to_le_bytes()).collect();
            self.bytes(&bytes)?;
        }
        Ok(())
    }

    /// Writes values, preceded by their number.
    pub(super) fn vector(&mut self, values: &[f32]) -> Result<()> {
        self.u64(values.len() as u64)?;
        self.floats(values)
    }

    pub(super) fn finish(self) -> Result<()> {
        let file = self.out.into_inner();
        let file = file.map_err(|error| Error::io("writing", &self.path)(error.into_error()))?;
        file.sync_all().map_err(Error::io("syncing", &self.path))
    }
}
