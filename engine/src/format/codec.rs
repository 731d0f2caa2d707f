//! From fields to bytes and back: little-endian, fixed widths, no `usize`.

use super::FormatError;

/// Writes its fields, in the order of FORMAT.md.
pub trait Encode {
    /// Appends the bytes.
    fn encode(&self, out: &mut Vec<u8>);

    /// The bytes alone.
    fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }
}

/// Reads what [`Encode`] wrote.
pub trait Decode: Sized {
    /// Takes the fields, in the order of FORMAT.md.
    fn decode(fields: &mut Take<'_>) -> Result<Self, FormatError>;
}

/// Appends numbers to bytes.
pub trait Put {
    /// Four bytes.
    fn put_u32(&mut self, value: u32);
    /// Eight bytes.
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

/// Takes numbers from the front of bytes, and knows where in the file it is.
#[derive(Debug, Clone)]
pub struct Take<'a> {
    section: &'static str,
    offset: u64,
    bytes: &'a [u8],
}

impl<'a> Take<'a> {
    /// The bytes of a section that begins at `offset` in its file.
    pub fn new(section: &'static str, offset: u64, bytes: &'a [u8]) -> Self {
        Self {
            section,
            offset,
            bytes,
        }
    }

    /// So many bytes.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], FormatError> {
        let Some((taken, rest)) = self.bytes.split_at_checked(len) else {
            return Err(self.wrong(format!("{len} bytes expected, {} left", self.bytes.len())));
        };
        self.bytes = rest;
        self.offset += len as u64;
        Ok(taken)
    }

    /// An array of bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        Ok(self.bytes(N)?.try_into().expect("N bytes were taken"))
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Four bytes that a later version may give a meaning, and which are zero in this one.
    pub fn zero_u32(&mut self) -> Result<(), FormatError> {
        match self.u32()? {
            0 => Ok(()),
            found => Err(self.wrong(format!("{found} where this version has zero"))),
        }
    }

    /// The place in the file of the next byte.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    /// An error at the place reached.
    pub fn wrong(&self, what: impl Into<String>) -> FormatError {
        FormatError::malformed(self.section, self.offset, what)
    }

    /// All bytes must have been taken.
    pub fn end(self) -> Result<(), FormatError> {
        if self.bytes.is_empty() {
            Ok(())
        } else {
            Err(self.wrong(format!("{} bytes too many", self.bytes.len())))
        }
    }
}
