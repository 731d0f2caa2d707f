//! numpy's `.npy`: magic, version, length of the header, a dictionary, values. Used by reader and writer.

use super::MAX_DIM;
use super::header::{self, Header};
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The longest header that is read. A header for two dimensions takes about 80 bytes.
const MAX_HEADER: usize = 64 << 10;
/// The length of headers that are written: space for twenty digits per dimension, and a multiple of 64 as numpy
/// requires.
const HEADER_BYTES: usize = 192;

/// The type of an array's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// Half precision.
    F16,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// Bytes, such as codes.
    U8,
    /// Numbers of 32 bits without a sign.
    U32,
}

impl Element {
    /// Returns the number of bytes per value.
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F16 => 2,
            Self::F32 | Self::U32 => 4,
            Self::F64 => 8,
        }
    }

    fn descr(self) -> &'static str {
        match self {
            Self::U8 => "|u1",
            Self::U32 => "<u4",
            Self::F16 => "<f2",
            Self::F32 => "<f4",
            Self::F64 => "<f8",
        }
    }
}

/// What the beginning of a file of vectors says.
pub(super) struct Front {
    pub(super) element: Element,
    pub(super) rows: u64,
    pub(super) dim: usize,
    /// The number of bytes before the first value.
    pub(super) bytes: u64,
}

/// Reads everything before the values.
pub(super) fn read_front(name: &str, source: &mut dyn Read) -> Result<Front> {
    let mut start = [0; 8];
    fill(name, source, &mut start)?;
    if &start[..6] != MAGIC {
        return Err(Error::invalid(
            name,
            "is not a numpy file: it does not begin with \\x93NUMPY",
        ));
    }
    let (length, prefix) = match start[6] {
        1 => {
            let mut two = [0; 2];
            fill(name, source, &mut two)?;
            (usize::from(u16::from_le_bytes(two)), 10)
        }
        2 | 3 => {
            let mut four = [0; 4];
            fill(name, source, &mut four)?;
            (u32::from_le_bytes(four) as usize, 12)
        }
        other => {
            return Err(Error::invalid(
                name,
                format!("has numpy format version {other}; versions 1, 2 and 3 are supported"),
            ));
        }
    };
    if length > MAX_HEADER {
        return Err(Error::invalid(
            name,
            format!("has a numpy header of {length} bytes; at most {MAX_HEADER} are supported"),
        ));
    }
    let mut text = vec![0; length];
    fill(name, source, &mut text)?;
    let text = std::str::from_utf8(&text)
        .map_err(|_| Error::invalid(name, "has a numpy header that is not text"))?;
    let header = header::parse(text).map_err(|what| Error::invalid(name, what))?;
    front(&header, (prefix + length) as u64).map_err(|what| Error::invalid(name, what))
}

/// Checks a header and returns what reading needs. The error is a phrase that follows the file's name.
fn front(header: &Header, bytes: u64) -> Result<Front, String> {
    let element = match header.descr.as_str() {
        "<f2" => Element::F16,
        "<f4" => Element::F32,
        "<f8" => Element::F64,
        other => {
            return Err(format!(
                "holds values of type {other:?}; save it as float32: np.save(FILE, a.astype('<f4'))"
            ));
        }
    };
    let (rows, dim) = match header.shape[..] {
        [dim] => (1, dim),
        [rows, dim] => (rows, dim),
        _ => {
            return Err(format!(
                "has {} dimensions; an array of vectors has the shape (rows, dim)",
                header.shape.len()
            ));
        }
    };
    if dim == 0 || dim > MAX_DIM as u64 {
        return Err(format!(
            "holds vectors of {dim} values; 1 to {MAX_DIM} are supported"
        ));
    }
    if header.fortran_order && rows > 1 && dim > 1 {
        return Err(
            "is in Fortran order, column by column; save it by rows: np.save(FILE, np.ascontiguousarray(a))"
                .into(),
        );
    }
    Ok(Front {
        element,
        rows,
        dim: dim as usize,
        bytes,
    })
}

/// Fills `buffer`, or returns an error if the file ends.
pub(super) fn fill(name: &str, source: &mut dyn Read, buffer: &mut [u8]) -> Result<()> {
    source
        .read_exact(buffer)
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Error::invalid(name, "ends inside its header"),
            _ => Error::io("reading", name)(error),
        })
}

/// Writes an array row by row. The number of rows is filled in at the end.
#[derive(Debug)]
pub struct NpyWriter {
    path: PathBuf,
    out: BufWriter<File>,
    element: Element,
    row_shape: Vec<usize>,
    values: u64,
}

impl NpyWriter {
    /// Creates a file for an array of shape (any number of rows, `row_shape`...).
    pub fn create(path: &Path, element: Element, row_shape: &[usize]) -> Result<Self> {
        assert!(
            row_shape.len() <= 7 && row_shape.iter().all(|&n| n > 0),
            "a row must have values"
        );
        let file = File::create(path).map_err(Error::io("creating", path))?;
        let mut writer = Self {
            path: path.to_owned(),
            out: BufWriter::with_capacity(1 << 20, file),
            element,
            row_shape: row_shape.to_vec(),
            values: 0,
        };
        writer.put(&[0; HEADER_BYTES])?;
        Ok(writer)
    }

    /// Appends values of an [`Element::F32`] array.
    pub fn write_f32(&mut self, values: &[f32]) -> Result<()> {
        assert_eq!(self.element, Element::F32, "the array was created for f32");
        self.values += values.len() as u64;
        for part in values.chunks(4096) {
            let bytes: Vec<u8> = part.iter().flat_map(|value| value.to_le_bytes()).collect();
            self.put(&bytes)?;
        }
        Ok(())
    }

    /// Appends values of an [`Element::U8`] array.
    pub fn write_u8(&mut self, values: &[u8]) -> Result<()> {
        assert_eq!(self.element, Element::U8, "the array was created for bytes");
        self.values += values.len() as u64;
        self.put(values)
    }

    /// Values of an [`Element::U32`] array.
    pub fn write_u32(&mut self, values: &[u32]) -> Result<()> {
        assert_eq!(self.element, Element::U32, "the array was created for u32");
        self.values += values.len() as u64;
        for part in values.chunks(4096) {
            let bytes: Vec<u8> = part.iter().flat_map(|value| value.to_le_bytes()).collect();
            self.put(&bytes)?;
        }
        Ok(())
    }

    /// Writes the header, syncs, and returns the number of rows.
    pub fn finish(mut self) -> Result<u64> {
        let a_row = self.row_shape.iter().product::<usize>() as u64;
        assert_eq!(self.values % a_row, 0, "the values must form complete rows");
        let rows = self.values / a_row;
        let shape: String = std::iter::once(rows)
            .chain(self.row_shape.iter().map(|&n| n as u64))
            .map(|n| format!("{n}, "))
            .collect();
        let dictionary = format!(
            "{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
            self.element.descr(),
            shape.trim_end()
        );
        let length = HEADER_BYTES - 10;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&[1, 0]);
        header.extend_from_slice(&(length as u16).to_le_bytes());
        header.extend_from_slice(dictionary.as_bytes());
        assert!(
            header.len() < HEADER_BYTES,
            "eight dimensions of 20 digits fit"
        );
        header.resize(HEADER_BYTES - 1, b' ');
        header.push(b'\n');

        let path = self.path.clone();
        self.out
            .seek(SeekFrom::Start(0))
            .map_err(Error::io("writing", &path))?;
        self.put(&header)?;
        let file = self
            .out
            .into_inner()
            .map_err(|error| Error::io("writing", &path)(error.into_error()))?;
        file.sync_all().map_err(Error::io("syncing", &path))?;
        Ok(rows)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out
            .write_all(bytes)
            .map_err(Error::io("writing", &self.path))
    }
}
