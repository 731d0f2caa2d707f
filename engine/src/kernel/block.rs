//! The memory layout of codes.

/// Rows in a block of codes: one 512-bit register holds one subspace of all of them.
pub const ROWS_PER_BLOCK: usize = 64;

/// Width of one subspace's code as stored. A block is `[byte of the row][64 rows]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bits {
    /// At most 16 codewords: two subspaces share a byte, the even one in its low nibble.
    Four,
    /// At most 256 codewords: one byte per subspace.
    Eight,
}

impl Bits {
    /// Returns the number of values that a stored code can have.
    pub(crate) fn values(self) -> usize {
        match self {
            Self::Four => 16,
            Self::Eight => 256,
        }
    }
}

/// A lookup table as the kernels see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entries<'a> {
    pub(crate) bits: Bits,
    /// (subspaces, `bits.values()`)
    pub(crate) values: &'a [f32],
}

impl<'a> Entries<'a> {
    pub(crate) fn subspaces(&self) -> usize {
        self.values.len() / self.bits.values()
    }

    pub(crate) fn subspace(&self, subspace: usize) -> &'a [f32] {
        &self.values[subspace * self.bits.values()..][..self.bits.values()]
    }

    pub(crate) fn block_bytes(&self) -> usize {
        ROWS_PER_BLOCK
            * match self.bits {
                Bits::Four => self.subspaces().div_ceil(2),
                Bits::Eight => self.subspaces(),
            }
    }
}
