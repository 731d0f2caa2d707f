//! Writing vectors in any of the formats that can be read.

use super::VectorFormat;
use super::npy::{Element, NpyWriter};
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Writes vectors of one width, row by row.
#[derive(Debug)]
pub struct VectorWriter {
    dim: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Npy(NpyWriter),
    Plain {
        path: PathBuf,
        out: BufWriter<File>,
        widths: bool,
        rows: u64,
    },
}

impl VectorWriter {
    /// Creates the file, in the format that its extension names.
    pub fn create(path: &Path, dim: usize) -> Result<Self> {
        let name = path.display().to_string();
        let format = VectorFormat::of(path)
            .ok_or_else(|| Error::invalid(&name, "does not end in .npy, .fvecs or .fbin"))?;
        if dim == 0 || dim > super::MAX_DIM {
            return Err(Error::invalid(
                &name,
                format!("vectors of {dim} values can't be written"),
            ));
        }
        if format == VectorFormat::Npy {
            let npy = NpyWriter::create(path, Element::F32, &[dim])?;
            return Ok(Self {
                dim,
                kind: Kind::Npy(npy),
            });
        }
        let file = File::create(path).map_err(Error::io("creating", path))?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let widths = format == VectorFormat::Fvecs;
        if !widths {
            out.write_all(&[0; 8]).map_err(Error::io("writing", path))?;
        }
        let kind = Kind::Plain {
            path: path.to_owned(),
            out,
            widths,
            rows: 0,
        };
        Ok(Self { dim, kind })
    }

    /// Writes complete rows.
    pub fn write(&mut self, values: &[f32]) -> Result<()> {
        assert_eq!(
            values.len() % self.dim,
            0,
            "the values must form complete rows"
        );
        match &mut self.kind {
            Kind::Npy(npy) => npy.write_f32(values),
            Kind::Plain {
                path,
                out,
                widths,
                rows,
            } => {
                for row in values.chunks_exact(self.dim) {
                    if *widths {
                        out.write_all(&(self.dim as u32).to_le_bytes())
                            .map_err(Error::io("writing", &*path))?;
                    }
                    let bytes: Vec<u8> = row.iter().flat_map(|value| value.to_le_bytes()).collect();
                    out.write_all(&bytes)
                        .map_err(Error::io("writing", &*path))?;
                    *rows += 1;
                }
                Ok(())
            }
        }
    }

    /// Fills in the header, syncs, and returns the number of rows.
    pub fn finish(self) -> Result<u64> {
        match self.kind {
            Kind::Npy(npy) => npy.finish(),
            Kind::Plain {
                path,
                mut out,
                widths,
                rows,
            } => {
                if !widths {
                    let count = u32::try_from(rows).map_err(|_| {
                        Error::invalid(
                            path.display().to_string(),
                            format!(
                                "{rows} rows are more than .fbin can count; write .npy or .fvecs"
                            ),
                        )
                    })?;
                    out.seek(SeekFrom::Start(0))
                        .map_err(Error::io("writing", &path))?;
                    let mut front = count.to_le_bytes().to_vec();
                    front.extend_from_slice(&(self.dim as u32).to_le_bytes());
                    out.write_all(&front).map_err(Error::io("writing", &path))?;
                }
                let file = out
                    .into_inner()
                    .map_err(|error| Error::io("writing", &path)(error.into_error()))?;
                file.sync_all().map_err(Error::io("syncing", &path))?;
                Ok(rows)
            }
        }
    }
}
