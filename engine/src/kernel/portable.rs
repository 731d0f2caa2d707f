//! 64 lanes by `wide`: NEON on aarch64, SSE on x86-64, plain arrays elsewhere.

use super::lanes::Lanes;
use wide::u8x16;

#[derive(Clone, Copy)]
pub(super) struct Portable([u8x16; 4]);

/// Whether `wide` has a real 16-entry lookup here; where it has none, f32 sums are faster than this filter.
pub(super) const FAST: bool = cfg!(any(target_feature = "ssse3", target_arch = "aarch64"));

impl Lanes for Portable {
    #[inline(always)]
    unsafe fn all(byte: u8) -> Self {
        Self([u8x16::splat(byte); 4])
    }

    #[inline(always)]
    unsafe fn load(bytes: &[u8; 64]) -> Self {
        let quarter =
            |q: usize| u8x16::new(bytes[q * 16..q * 16 + 16].try_into().expect("16 long"));
        Self([quarter(0), quarter(1), quarter(2), quarter(3)])
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|q| {
            self.0[q].saturating_add(other.0[q])
        }))
    }

    #[inline(always)]
    unsafe fn nibble(self, shift: u32) -> Self {
        Self(
            self.0
                .map(|x| x.unbounded_shr_scalar(shift) & u8x16::splat(15)),
        )
    }

    #[inline(always)]
    unsafe fn shuffle(table: &[u8; 16], index: Self) -> Self {
        let table = u8x16::new(*table);
        Self(index.0.map(|index| table.shuffle(index)))
    }

    #[inline(always)]
    unsafe fn choose(self, bit: u32, clear: Self, set: Self) -> Self {
        let bit = u8x16::splat(1 << bit);
        Self(std::array::from_fn(|q| {
            (self.0[q] & bit)
                .simd_eq(bit)
                .bitselect(set.0[q], clear.0[q])
        }))
    }

    #[inline(always)]
    unsafe fn below_full(self) -> u64 {
        let full = u8x16::splat(255);
        let word = |q: usize| u64::from(self.0[q].simd_eq(full).to_bitmask()) << (16 * q);
        !(word(0) | word(1) | word(2) | word(3))
    }
}
