//! Strings in a block: the end of each, then their bytes.

use crate::format::Put;

/// Collects strings for a block.
#[derive(Debug, Default)]
pub(super) struct Strings {
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl Strings {
    /// Appends a string. Requires: the strings of a block together are shorter than 4 GiB.
    #[inline]
    pub(super) fn push(&mut self, string: &str) {
        self.bytes.extend_from_slice(string.as_bytes());
        let end = u32::try_from(self.bytes.len()).expect("a block is cut before it has 4 GiB");
        self.ends.push(end);
    }

    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// Returns the number of bytes of the block so far.
    pub(super) fn len(&self) -> usize {
        self.ends.len() * 4 + self.bytes.len()
    }

    /// Appends the block to `out` and starts the next.
    pub(super) fn take(&mut self, out: &mut Vec<u8>) {
        out.reserve(self.len());
        self.ends.iter().for_each(|&end| out.put_u32(end));
        out.extend_from_slice(&self.bytes);
        self.ends.clear();
        self.bytes.clear();
    }
}

/// Returns the bytes of one string in a block of `count`, or what is wrong with it.
#[inline]
pub(super) fn bytes_at(block: &[u8], count: usize, index: usize) -> Result<&[u8], String> {
    let end_of = |index: usize| {
        let end = block.get(index * 4..index * 4 + 4)?;
        Some(u32::from_le_bytes(end.try_into().ok()?) as usize)
    };
    let find = || {
        let bytes = block.get(count * 4..)?;
        let start = if index == 0 { 0 } else { end_of(index - 1)? };
        let end = end_of(index)?;
        // The last string ends with the block, so that no byte is unused.
        if index + 1 == count && end != bytes.len() {
            return None;
        }
        bytes.get(start..end)
    };
    find().ok_or_else(|| {
        format!(
            "string {index} of {count} is not within its block of {} bytes",
            block.len()
        )
    })
}

/// Returns one string in a block of `count`, or what is wrong with it.
#[inline]
pub(super) fn at(block: &[u8], count: usize, index: usize) -> Result<&str, String> {
    let bytes = bytes_at(block, count, index)?;
    std::str::from_utf8(bytes).map_err(|e| format!("string {index} of {count}: {e}"))
}
