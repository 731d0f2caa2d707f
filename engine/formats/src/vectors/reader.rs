//! Reading vectors, a few rows at a time.

use super::npy::{self, Element};
use super::{MAX_DIM, VectorFormat};
use crate::error::{Error, Result};
use half::f16;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// The number of bytes read at once, up to one row more.
const CHUNK: usize = 1 << 20;

/// Reads a file of vectors from its start to its end.
pub struct VectorReader {
    name: String,
    source: Box<dyn Read + Send>,
    format: VectorFormat,
    element: Element,
    dim: usize,
    /// The number of bytes before the first row.
    front: u64,
    /// The number of rows in the header; `.fvecs` has no header.
    declared: Option<u64>,
    read: u64,
    /// Whether the width of the first row of an `.fvecs` file was read already.
    width_read: bool,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for VectorReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VectorReader")
            .field("name", &self.name)
            .field("format", &self.format)
            .field("dim", &self.dim)
            .field("rows", &self.declared)
            .finish_non_exhaustive()
    }
}

impl VectorReader {
    /// Opens a file whose extension names the format.
    pub fn open(path: &Path) -> Result<Self> {
        let format = VectorFormat::of(path).ok_or_else(|| {
            Error::invalid(
                path.display().to_string(),
                "does not end in .npy, .fvecs or .fbin",
            )
        })?;
        Self::open_as(path, format)
    }

    /// Opens a file in a given format.
    pub fn open_as(path: &Path, format: VectorFormat) -> Result<Self> {
        let file = File::open(path).map_err(Error::io("opening", path))?;
        let metadata = file.metadata().map_err(Error::io("opening", path))?;
        // A pipe has no length to compare with; its end is found when it is reached.
        let length = metadata.is_file().then_some(metadata.len());
        let source = BufReader::with_capacity(256 << 10, file);
        let reader = Self::from_reader(path.display().to_string(), Box::new(source), format)?;
        length.map_or(Ok(()), |length| reader.check_length(length))?;
        Ok(reader)
    }

    /// Reads from any source; `name` is used in messages.
    pub fn from_reader(
        name: impl Into<String>,
        mut source: Box<dyn Read + Send>,
        format: VectorFormat,
    ) -> Result<Self> {
        let mut reader = Self {
            element: Element::F32,
            dim: 0,
            front: 0,
            declared: None,
            read: 0,
            width_read: false,
            bytes: Vec::new(),
            name: name.into(),
            source: Box::new(std::io::empty()),
            format,
        };
        reader.front = match format {
            VectorFormat::Npy => {
                let front = npy::read_front(&reader.name, &mut source)?;
                reader.element = front.element;
                reader.dim = front.dim;
                reader.declared = Some(front.rows);
                front.bytes
            }
            VectorFormat::Fbin => {
                let mut front = [0; 8];
                npy::fill(&reader.name, &mut source, &mut front)?;
                let (rows, dim) = front.split_at(4);
                reader.declared = Some(u64::from(u32_le(rows)));
                reader.dim = reader.check_dim(u64::from(u32_le(dim)))?;
                8
            }
            VectorFormat::Fvecs => {
                let mut width = [0; 4];
                npy::fill(&reader.name, &mut source, &mut width)?;
                reader.dim = reader.check_dim(u64::from(u32_le(&width)))?;
                reader.width_read = true;
                0
            }
        };
        reader.source = source;
        Ok(reader)
    }

    /// Returns the number of values per vector.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Returns the number of vectors, if the file states it.
    pub fn rows(&self) -> Option<u64> {
        self.declared
    }

    /// Compares the length of the whole file with its number of rows, before any row is read.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Invalid`] if bytes are missing or left over.
    pub fn check_length(&self, length: u64) -> Result<()> {
        let row = self.row_bytes() as u64;
        match self.declared {
            None if !length.is_multiple_of(row) => Err(Error::invalid(
                &self.name,
                format!(
                    "{length} bytes are not complete rows of {row} bytes ({} values)",
                    self.dim
                ),
            )),
            None => Ok(()),
            Some(rows) => {
                let expected = u128::from(rows) * u128::from(row) + u128::from(self.front);
                if expected == u128::from(length) {
                    return Ok(());
                }
                Err(Error::invalid(
                    &self.name,
                    format!(
                        "should have {expected} bytes for {rows} rows of {} values, but has {length}; is the copy complete?",
                        self.dim
                    ),
                ))
            }
        }
    }

    /// Appends up to `max` vectors to `out` and returns their number; 0 at the end.
    pub fn read_rows(&mut self, max: usize, out: &mut Vec<f32>) -> Result<usize> {
        let wanted = match self.declared {
            Some(rows) => usize::try_from(rows - self.read).unwrap_or(max).min(max),
            None => max,
        };
        let mut done = 0;
        while done < wanted {
            let some = (CHUNK / self.row_bytes()).clamp(1, wanted - done);
            let got = self.read_some(some, out)?;
            done += got;
            self.read += got as u64;
            if got < some {
                break;
            }
        }
        if self.declared.is_some_and(|rows| rows == self.read) {
            self.expect_end()?;
        }
        Ok(done)
    }

    fn row_bytes(&self) -> usize {
        let width = if self.format == VectorFormat::Fvecs {
            4
        } else {
            0
        };
        width + self.dim * self.element.bytes()
    }

    fn read_some(&mut self, rows: usize, out: &mut Vec<f32>) -> Result<usize> {
        let row_bytes = self.row_bytes();
        self.bytes.resize(rows * row_bytes, 0);
        // The first row's width was already read; put it back in front.
        let mut filled = 0;
        if std::mem::take(&mut self.width_read) {
            self.bytes[..4].copy_from_slice(&(self.dim as u32).to_le_bytes());
            filled = 4;
        }
        while filled < self.bytes.len() {
            match self.source.read(&mut self.bytes[filled..]) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("reading", &self.name)(error)),
            }
        }
        let whole = filled / row_bytes;
        if !filled.is_multiple_of(row_bytes) || (whole < rows && self.declared.is_some()) {
            let row = self.read + whole as u64;
            let of = self
                .declared
                .map(|rows| format!(" of {rows}"))
                .unwrap_or_default();
            return Err(Error::invalid(
                &self.name,
                format!("ends inside row {row}{of}; is the copy complete?"),
            ));
        }
        out.reserve(whole * self.dim);
        for (n, row) in self.bytes[..whole * row_bytes]
            .chunks_exact(row_bytes)
            .enumerate()
        {
            let values = if self.format == VectorFormat::Fvecs {
                let (width, values) = row.split_at(4);
                let width = u32_le(width);
                if width as usize != self.dim {
                    let row = self.read + n as u64;
                    return Err(Error::invalid(
                        &self.name,
                        format!("row {row} has {width} values, but row 0 has {}", self.dim),
                    ));
                }
                values
            } else {
                row
            };
            decode(values, self.element, out);
        }
        Ok(whole)
    }

    fn check_dim(&self, dim: u64) -> Result<usize> {
        if dim == 0 || dim > MAX_DIM as u64 {
            return Err(Error::invalid(
                &self.name,
                format!(
                    "holds vectors of {dim} values; 1 to {MAX_DIM} are supported. Is it a .{} file?",
                    self.format.name()
                ),
            ));
        }
        Ok(dim as usize)
    }

    fn expect_end(&mut self) -> Result<()> {
        let mut more = [0];
        match self.source.read(&mut more) {
            Ok(0) => Ok(()),
            Ok(_) => Err(Error::invalid(
                &self.name,
                format!(
                    "continues after the {} rows that its header announces",
                    self.read
                ),
            )),
            Err(error) => Err(Error::io("reading", &self.name)(error)),
        }
    }
}

fn u32_le(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

fn decode(bytes: &[u8], element: Element, out: &mut Vec<f32>) {
    let eight = |b: &[u8]| f64::from_le_bytes(b.try_into().expect("eight bytes"));
    let four = |b: &[u8]| f32::from_le_bytes(b.try_into().expect("four bytes"));
    let two = |b: &[u8]| f16::from_le_bytes(b.try_into().expect("two bytes")).to_f32();
    match element {
        Element::F64 => out.extend(bytes.chunks_exact(8).map(|b| eight(b) as f32)),
        Element::F32 => out.extend(bytes.chunks_exact(4).map(four)),
        Element::F16 => out.extend(bytes.chunks_exact(2).map(two)),
        Element::U8 => out.extend(bytes.iter().map(|&b| f32::from(b))),
        Element::U32 => out.extend(bytes.chunks_exact(4).map(|b| u32_le(b) as f32)),
    }
}
