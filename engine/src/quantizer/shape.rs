//! The shape of a code and how 64 rows of codes are laid out in a block.

use crate::error::{Error, Result};
pub use crate::kernel::{Bits, ROWS_PER_BLOCK};

/// Subspaces and codewords of a code, checked: 1 to 256 subspaces of 2 to 256 codewords.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CodeShape {
    subspaces: u16,
    codewords: u16,
}

impl CodeShape {
    /// Returns a shape, or an error if a number is out of range.
    pub fn new(subspaces: usize, codewords: usize) -> Result<Self> {
        if !(1..=256).contains(&subspaces) {
            return Err(Error::invalid(format!(
                "{subspaces} subspaces; a code has 1 to 256"
            )));
        }
        if !(2..=256).contains(&codewords) {
            return Err(Error::invalid(format!(
                "{codewords} codewords a subspace; a codebook has 2 to 256"
            )));
        }
        Ok(Self {
            subspaces: subspaces as u16,
            codewords: codewords as u16,
        })
    }

    /// Returns the codes per row (M in the papers).
    pub fn subspaces(&self) -> usize {
        usize::from(self.subspaces)
    }

    /// Returns the codewords per subspace (L in the papers).
    pub fn codewords(&self) -> usize {
        usize::from(self.codewords)
    }

    /// Returns the stored width of one code.
    pub fn bits(&self) -> Bits {
        if self.codewords <= 16 {
            Bits::Four
        } else {
            Bits::Eight
        }
    }

    /// Returns the bytes per row.
    pub fn row_bytes(&self) -> usize {
        match self.bits() {
            Bits::Four => self.subspaces().div_ceil(2),
            Bits::Eight => self.subspaces(),
        }
    }

    /// Returns the number of bytes of a block of [`ROWS_PER_BLOCK`] rows.
    pub fn block_bytes(&self) -> usize {
        ROWS_PER_BLOCK * self.row_bytes()
    }

    /// Returns the number of blocks that hold `rows` rows; the last may be partly filled.
    pub fn blocks(&self, rows: usize) -> usize {
        rows.div_ceil(ROWS_PER_BLOCK)
    }

    /// Packs row-major codes (rows, subspaces) into blocks `[block][byte of the row][64 rows]`, appended to
    /// `out`. The last block is filled up with code 0.
    ///
    /// # Panics
    /// If `codes` is not a whole number of rows. Codes must be below `codewords`.
    pub fn pack(&self, codes: &[u8], out: &mut Vec<u8>) {
        let subspaces = self.subspaces();
        assert!(
            codes.len().is_multiple_of(subspaces),
            "{} codes are no whole number of rows of {subspaces}",
            codes.len()
        );
        debug_assert!(codes.iter().all(|&c| usize::from(c) < self.codewords()));
        let block_bytes = self.block_bytes();
        out.reserve(self.blocks(codes.len() / subspaces) * block_bytes);
        for rows in codes.chunks(ROWS_PER_BLOCK * subspaces) {
            let start = out.len();
            out.resize(start + block_bytes, 0);
            let block = &mut out[start..];
            for (row, code) in rows.chunks_exact(subspaces).enumerate() {
                match self.bits() {
                    Bits::Eight => {
                        for (m, &c) in code.iter().enumerate() {
                            block[m * ROWS_PER_BLOCK + row] = c;
                        }
                    }
                    Bits::Four => {
                        for (m, &c) in code.iter().enumerate() {
                            block[m / 2 * ROWS_PER_BLOCK + row] |= (c & 15) << (m % 2 * 4);
                        }
                    }
                }
            }
        }
    }

    /// Reads one row's codes out of its block. `out` has `subspaces` elements.
    pub fn unpack_row(&self, block: &[u8], row_in_block: usize, out: &mut [u8]) {
        assert_eq!(block.len(), self.block_bytes(), "one whole block");
        assert!(row_in_block < ROWS_PER_BLOCK, "a row of the block");
        assert_eq!(out.len(), self.subspaces(), "a place a subspace");
        match self.bits() {
            Bits::Eight => {
                for (m, c) in out.iter_mut().enumerate() {
                    *c = block[m * ROWS_PER_BLOCK + row_in_block];
                }
            }
            Bits::Four => {
                for (m, c) in out.iter_mut().enumerate() {
                    *c = block[m / 2 * ROWS_PER_BLOCK + row_in_block] >> (m % 2 * 4) & 15;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_is_unpacked_for_every_width_and_partial_block() {
        for (subspaces, codewords) in [
            (1, 2),
            (3, 16),
            (4, 16),
            (1, 17),
            (8, 256),
            (256, 128),
            (255, 7),
        ] {
            let shape = CodeShape::new(subspaces, codewords).unwrap();
            for rows in [0, 1, 63, 64, 65, 200] {
                let codes: Vec<u8> = (0..rows * subspaces)
                    .map(|i| (i.wrapping_mul(2_654_435_761) >> 7) as u8 % codewords.min(255) as u8)
                    .collect();
                let mut blocks = vec![9];
                shape.pack(&codes, &mut blocks);
                assert_eq!(blocks[0], 9, "appends");
                assert_eq!(blocks.len() - 1, shape.blocks(rows) * shape.block_bytes());
                let mut row_codes = vec![0; subspaces];
                for (row, expected) in codes.chunks_exact(subspaces).enumerate() {
                    let block =
                        &blocks[1 + row / 64 * shape.block_bytes()..][..shape.block_bytes()];
                    shape.unpack_row(block, row % 64, &mut row_codes);
                    assert_eq!(row_codes, expected, "{shape:?} row {row} of {rows}");
                }
            }
        }
    }

    #[test]
    fn shapes_out_of_range_are_refused() {
        for (subspaces, codewords) in [(0, 256), (257, 256), (8, 1), (8, 0), (8, 257)] {
            assert!(CodeShape::new(subspaces, codewords).is_err());
        }
    }
}
