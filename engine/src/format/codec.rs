//! Encoding and decoding fields: little-endian, fixed widths, no `usize`.

use super::FormatError;

/// Encodes a type's fields in the order of FORMAT.md.
pub trait Encode {
    /// Appends the bytes.
    fn encode(&self, out: &mut Vec<u8>);

    /// Returns the encoded bytes.
    fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }
}

/// Decodes what [`Encode`] encoded.
pub trait Decode: Sized {
    /// Takes the fields, in the order of FORMAT.md.
    fn decode(fields: &mut Take<'_>) -> Result<Self, FormatError>;
}

/// Appends integers in little-endian order.
pub trait Put {
    /// Appends (`put_u32`) or takes (`u32`) a `u32`.
    fn put_u32(&mut self, value: u32);
    /// Appends (`put_u64`) or takes (`u64`) a `u64`.
    fn put_u64(&mut self, value: u64);
}

impl Put for Vec<u8> {
    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }
}

/// Takes numbers from the front of bytes, and tracks the position in the file.
#[derive(Debug, Clone)]
pub struct Take<'a> {
    section: &'static str,
    offset: u64,
    bytes: &'a [u8],
}

impl<'a> Take<'a> {
    /// Returns the bytes of a section that begins at `offset` in its file.
    pub fn new(section: &'static str, offset: u64, bytes: &'a [u8]) -> Self {
        Self {
            section,
            offset,
            bytes,
        }
    }

    /// Takes `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], FormatError> {
        let Some((taken, rest)) = self.bytes.split_at_checked(len) else {
            return Err(self.wrong(format!(
                "{len} bytes expected, but {} are left",
                self.bytes.len()
            )));
        };
        self.bytes = rest;
        self.offset += len as u64;
        Ok(taken)
    }

    /// Takes an array of bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        Ok(self.bytes(N)?.try_into().expect("N bytes were taken"))
    }

    /// Appends (`put_u32`) or takes (`u32`) a `u32`.
    pub fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Appends (`put_u64`) or takes (`u64`) a `u64`.
    pub fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Takes four reserved bytes, which must be zero.
    pub fn zero_u32(&mut self) -> Result<(), FormatError> {
        match self.u32()? {
            0 => Ok(()),
            found => Err(self.wrong(format!("{found} where this version has zero"))),
        }
    }

    /// Returns the position of the next byte in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the number of remaining bytes.
    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    /// Returns an error at the current offset.
    pub fn wrong(&self, what: impl Into<String>) -> FormatError {
        FormatError::malformed(self.section, self.offset, what)
    }

    /// Returns an error if any bytes are left.
    pub fn end(self) -> Result<(), FormatError> {
        if self.bytes.is_empty() {
            Ok(())
        } else {
            Err(self.wrong(format!("{} bytes too many", self.bytes.len())))
        }
    }
}
