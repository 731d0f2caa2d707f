//! The few operations that the integer scan needs, on 64 lanes of a byte; each instruction set provides them.

use super::filter::Table;
use super::survivors::Survivors;

/// 64 unsigned bytes.
///
/// # Safety
/// Every function may be called only where the CPU has the implementor's features, and is inlined into a function
/// compiled for them.
pub(super) trait Lanes: Copy {
    /// Whether a few registers hold a table of 256 entries, so that two blocks gain from sharing its loading.
    const LARGE_TABLES: bool = false;

    /// Returns this byte in all lanes.
    unsafe fn all(byte: u8) -> Self;

    unsafe fn load(bytes: &[u8; 64]) -> Self;

    /// Returns the sum, at most 255.
    unsafe fn add(self, other: Self) -> Self;

    /// `(self >> shift) & 15`
    unsafe fn nibble(self, shift: u32) -> Self;

    /// `table[index]`; indices are below 16.
    unsafe fn shuffle(table: &[u8; 16], index: Self) -> Self;

    /// `set` where that bit of `self` is 1, `clear` where it is 0.
    unsafe fn choose(self, bit: u32, clear: Self, set: Self) -> Self;

    /// Returns a bit for each lane that is below 255.
    unsafe fn below_full(self) -> u64;

    /// Returns the survivors of whole blocks of `LINES` by tables of 128 entries, `table[code >> SHIFT]`, for the lines
    /// of these numbers, with sums that begin at `start`, if this instruction set has a way of its own. Returns whether it
    /// has.
    #[inline(always)]
    unsafe fn by_seven_bits<const SHIFT: u32, const LINES: usize, const LOOKED_AT: usize>(
        _: &[Table; LINES],
        _: [usize; LOOKED_AT],
        _: u8,
        _: &[[[u8; 64]; LINES]],
        _: &mut Survivors,
    ) -> bool {
        false
    }

    /// `table[code >> shift]` for a table of `2^bits` entries, 4 <= bits <= 8: a tree of 16-entry lookups, chosen
    /// among by the code's upper bits. Instruction sets with larger lookups have their own.
    #[inline(always)]
    unsafe fn lookup(table: &[u8; 256], code: Self, bits: u32, shift: u32) -> Self {
        // SAFETY: the caller's promise is ours.
        unsafe {
            let index = code.nibble(shift);
            match bits {
                4 => Self::shuffle(row_of(table, 0), index),
                5 => pair(table, 0, code, index, shift),
                6 => four(table, 0, code, index, shift),
                7 => eight(table, 0, code, index, shift),
                _ => {
                    let (clear, set) = (
                        eight(table, 0, code, index, shift),
                        eight(table, 8, code, index, shift),
                    );
                    code.choose(shift + 7, clear, set)
                }
            }
        }
    }
}

/// Two rows of 16, distinguished by the bit above the index; [`four`] and [`eight`] continue in the same way.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn pair<V: Lanes>(table: &[u8; 256], row: usize, code: V, index: V, shift: u32) -> V {
    // SAFETY: the caller's promise is ours.
    unsafe {
        let (clear, set) = (
            V::shuffle(row_of(table, row), index),
            V::shuffle(row_of(table, row + 1), index),
        );
        code.choose(shift + 4, clear, set)
    }
}

/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn four<V: Lanes>(table: &[u8; 256], row: usize, code: V, index: V, shift: u32) -> V {
    // SAFETY: the caller's promise is ours.
    unsafe {
        let (clear, set) = (
            pair(table, row, code, index, shift),
            pair(table, row + 2, code, index, shift),
        );
        code.choose(shift + 5, clear, set)
    }
}

/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn eight<V: Lanes>(table: &[u8; 256], row: usize, code: V, index: V, shift: u32) -> V {
    // SAFETY: the caller's promise is ours.
    unsafe {
        let (clear, set) = (
            four(table, row, code, index, shift),
            four(table, row + 4, code, index, shift),
        );
        code.choose(shift + 6, clear, set)
    }
}

#[inline(always)]
fn row_of(table: &[u8; 256], row: usize) -> &[u8; 16] {
    table[row * 16..row * 16 + 16].try_into().expect("16 long")
}
