//! 64 lanes of a byte in one AVX-512 register, 16 sums in another; VBMI looks up 128 entries at once.

use super::avx2;
use super::distance::Sums;
use super::dots::Dots;
use super::filter::Table;
use super::lanes::Lanes;
use super::stream::ask_ahead;
use super::survivors::Survivors;
use half::f16;
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512i);

impl Lanes for Avx512 {
    const LARGE_TABLES: bool = true;

    #[inline(always)]
    unsafe fn all(byte: u8) -> Self {
        // SAFETY: the caller has AVX-512.
        Self(unsafe { _mm512_set1_epi8(byte as i8) })
    }

    #[inline(always)]
    unsafe fn load(bytes: &[u8; 64]) -> Self {
        // SAFETY: the caller has AVX-512; 64 bytes can be read, and this load needs no alignment.
        Self(unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) })
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the caller has AVX-512 BW.
        Self(unsafe { _mm512_adds_epu8(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn nibble(self, shift: u32) -> Self {
        // SAFETY: the caller has AVX-512 BW.
        unsafe {
            let shifted = _mm512_srl_epi16(self.0, _mm_cvtsi32_si128(shift as i32));
            Self(_mm512_and_si512(shifted, _mm512_set1_epi8(15)))
        }
    }

    #[inline(always)]
    unsafe fn shuffle(table: &[u8; 16], index: Self) -> Self {
        // SAFETY: the caller has AVX-512 BW; 16 bytes can be read.
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            Self(_mm512_shuffle_epi8(table, index.0))
        }
    }

    #[inline(always)]
    unsafe fn choose(self, bit: u32, clear: Self, set: Self) -> Self {
        // SAFETY: the caller has AVX-512 BW.
        unsafe {
            let mask = _mm512_test_epi8_mask(self.0, _mm512_set1_epi8((1u8 << bit) as i8));
            Self(_mm512_mask_blend_epi8(mask, clear.0, set.0))
        }
    }

    #[inline(always)]
    unsafe fn below_full(self) -> u64 {
        // SAFETY: the caller has AVX-512 BW.
        unsafe { _mm512_cmpneq_epu8_mask(self.0, _mm512_set1_epi8(-1)) }
    }

    /// Tables stay in registers, so that nothing but codes is read, the two halves in parallel and each in order, at
    /// the speed of memory, which is 2 to 6% faster for two streams than for one.
    #[inline(always)]
    unsafe fn by_seven_bits<const SHIFT: u32, const LINES: usize, const LOOKED_AT: usize>(
        tables: &[Table; LINES],
        lines: [usize; LOOKED_AT],
        start: u8,
        blocks: &[[[u8; 64]; LINES]],
        out: &mut Survivors,
    ) -> bool {
        const { assert!(SHIFT <= 1) };
        // SAFETY: the caller has AVX-512 VBMI; a table has 128 entries and more.
        unsafe {
            // No closures: they would not be compiled for these features.
            let mut kept = [[_mm512_setzero_si512(); 2]; LOOKED_AT];
            for m in 0..LOOKED_AT {
                let table = tables[lines[m] % LINES].0.as_ptr();
                kept[m][0] = _mm512_loadu_si512(table.cast());
                kept[m][1] = _mm512_loadu_si512(table.add(64).cast());
            }
            let start = _mm512_set1_epi8(start as i8);
            let middle = blocks.len() / 2;
            let [mut low, mut high] = out.halves(middle);
            for number in 0..middle {
                low.push(
                    number,
                    left::<SHIFT, _, _>(&kept, lines, start, &blocks[number]),
                );
                let other = &blocks[middle + number];
                high.push(number, left::<SHIFT, _, _>(&kept, lines, start, other));
            }
            if blocks.len() > 2 * middle {
                let last = &blocks[2 * middle];
                high.push(middle, left::<SHIFT, _, _>(&kept, lines, start, last));
            }
            let counts = [low.count, high.count];
            out.join(middle, counts);
        }
        true
    }

    /// Four registers hold 256 entries: `vpermi2b` picks among 128 by the low seven bits of the index, the top
    /// bit picks the half.
    #[inline(always)]
    unsafe fn lookup(table: &[u8; 256], code: Self, bits: u32, shift: u32) -> Self {
        // SAFETY: the caller has AVX-512 VBMI; the table has 256 bytes.
        unsafe {
            let row = |r: usize| _mm512_loadu_si512(table.as_ptr().add(64 * r).cast());
            // Words are shifted, there is no shift of bytes: the upper bits of a byte may come from its neighbour. The
            // permutes ignore index bits beyond their own six or seven, and codes are below 2^(bits + shift).
            let index = match (bits, shift) {
                (_, 0) => code.0,
                (7, 1) => _mm512_srli_epi16::<1>(code.0),
                (6, 2) => _mm512_srli_epi16::<2>(code.0),
                _ => {
                    let shifted = _mm512_srl_epi16(code.0, _mm_cvtsi32_si128(shift as i32));
                    _mm512_and_si512(shifted, _mm512_set1_epi8((255u8 >> shift) as i8))
                }
            };
            Self(match bits {
                4..=6 => _mm512_permutexvar_epi8(index, row(0)),
                7 => _mm512_permutex2var_epi8(row(0), index, row(1)),
                _ => {
                    let low = _mm512_permutex2var_epi8(row(0), index, row(1));
                    let high = _mm512_permutex2var_epi8(row(2), index, row(3));
                    _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), low, high)
                }
            })
        }
    }
}

/// The rows of a block that tables of 128 entries for these lines can't drop.
///
/// # Safety
/// The CPU has AVX-512 VBMI.
#[inline(always)]
unsafe fn left<const SHIFT: u32, const LINES: usize, const LOOKED_AT: usize>(
    tables: &[[__m512i; 2]; LOOKED_AT],
    lines: [usize; LOOKED_AT],
    start: __m512i,
    block: &[[u8; 64]; LINES],
) -> u64 {
    // SAFETY: the caller has AVX-512 VBMI; lines are as long as what is read of them.
    unsafe {
        let mut sum = start;
        for m in 0..LOOKED_AT {
            // All of them are known to the compiler; of some, the remainder is the line itself, and spares a check.
            let line = match LOOKED_AT == LINES {
                true => &block[m],
                false => &block[lines[m] % LINES],
            };
            ask_ahead(line);
            let code = _mm512_loadu_si512(line.as_ptr().cast());
            // As in `lookup`: what a shift brings from the neighbour is in the bit that the permute ignores.
            let index = match SHIFT {
                0 => code,
                _ => _mm512_srli_epi16::<1>(code),
            };
            let deficit = _mm512_permutex2var_epi8(tables[m][0], index, tables[m][1]);
            sum = _mm512_adds_epu8(sum, deficit);
        }
        Avx512(sum).below_full()
    }
}

#[derive(Clone, Copy)]
pub(super) struct Avx512Sums(__m512);

impl Sums for Avx512Sums {
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has AVX-512.
        Self(unsafe { _mm512_setzero_ps() })
    }

    #[inline(always)]
    unsafe fn load(values: &[f32; 16], _first: usize) -> Self {
        // SAFETY: the caller has AVX-512; this load needs no alignment.
        Self(unsafe { _mm512_loadu_ps(values.as_ptr()) })
    }

    #[inline(always)]
    unsafe fn load_halves(values: &[f16; 16], _first: usize) -> Self {
        // SAFETY: as for `load`.
        unsafe {
            let halves = _mm256_loadu_si256(values.as_ptr().cast());
            Self(_mm512_cvtph_ps(halves))
        }
    }

    #[inline(always)]
    unsafe fn load_bytes(values: &[i8; 16], _first: usize) -> Self {
        // SAFETY: as for `load`.
        unsafe {
            let bytes = _mm_loadu_si128(values.as_ptr().cast());
            Self(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)))
        }
    }

    #[inline(always)]
    unsafe fn all(value: f32) -> Self {
        // SAFETY: the caller has AVX-512.
        Self(unsafe { _mm512_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn times(self, other: Self) -> Self {
        // SAFETY: the caller has AVX-512.
        Self(unsafe { _mm512_mul_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn store(self, values: &mut [f32; 16], _first: usize) {
        // SAFETY: as for `load`.
        unsafe { _mm512_storeu_ps(values.as_mut_ptr(), self.0) }
    }

    #[inline(always)]
    unsafe fn minus(self, other: Self) -> Self {
        // SAFETY: the caller has AVX-512.
        Self(unsafe { _mm512_sub_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        // SAFETY: the caller has AVX-512.
        Self(unsafe { _mm512_fmadd_ps(a.0, b.0, self.0) })
    }

    #[inline(always)]
    unsafe fn halves(sums: &[[f32; 16]; 4]) -> [f32; 4] {
        // SAFETY: AVX-512 implies AVX2.
        unsafe { avx2::halves(sums) }
    }
}

/// Sixteen sums of products of bytes, which are widened to 16 bits.
#[derive(Clone, Copy)]
pub(super) struct Avx512Dots(__m512i);

impl Dots for Avx512Dots {
    const WIDTH: usize = 32;
    const OFFSET: i32 = 0;
    type Bytes = __m512i;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has AVX-512.
        Self(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn of_query(bytes: *const i8) -> __m512i {
        // SAFETY: the caller has AVX-512 BW; 32 bytes can be read, and this load needs no alignment.
        unsafe { _mm512_cvtepi8_epi16(_mm256_loadu_si256(bytes.cast())) }
    }

    #[inline(always)]
    unsafe fn of_row(bytes: *const i8) -> __m512i {
        // SAFETY: the caller's promise is ours.
        unsafe { Self::of_query(bytes) }
    }

    #[inline(always)]
    unsafe fn plus_products(self, query: __m512i, row: __m512i) -> Self {
        // SAFETY: the caller has AVX-512 BW.
        unsafe { Self(_mm512_add_epi32(self.0, _mm512_madd_epi16(query, row))) }
    }

    #[inline(always)]
    unsafe fn totals(sums: &[Self; 4]) -> [i32; 4] {
        // SAFETY: the caller has AVX-512.
        unsafe { totals([sums[0].0, sums[1].0, sums[2].0, sums[3].0]) }
    }
}

/// The same where the CPU has VNNI, which multiplies unsigned bytes and signed ones: 128 is added to those of rows, which a flip of
/// their top bit does.
#[derive(Clone, Copy)]
pub(super) struct VnniDots(__m512i);

impl Dots for VnniDots {
    const WIDTH: usize = 64;
    const OFFSET: i32 = 128;
    type Bytes = __m512i;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has AVX-512.
        Self(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn of_query(bytes: *const i8) -> __m512i {
        // SAFETY: the caller has AVX-512; 64 bytes can be read, and this load needs no alignment.
        unsafe { _mm512_loadu_si512(bytes.cast()) }
    }

    #[inline(always)]
    unsafe fn of_row(bytes: *const i8) -> __m512i {
        // SAFETY: as for `of_query`.
        unsafe { _mm512_xor_si512(_mm512_loadu_si512(bytes.cast()), _mm512_set1_epi8(-128)) }
    }

    #[inline(always)]
    unsafe fn plus_products(self, query: __m512i, row: __m512i) -> Self {
        // SAFETY: the caller has AVX-512 VNNI.
        Self(unsafe { _mm512_dpbusd_epi32(self.0, row, query) })
    }

    #[inline(always)]
    unsafe fn totals(sums: &[Self; 4]) -> [i32; 4] {
        // SAFETY: the caller has AVX-512.
        unsafe { totals([sums[0].0, sums[1].0, sums[2].0, sums[3].0]) }
    }
}

/// The sum of all lanes of each.
///
/// # Safety
/// The CPU must have AVX-512.
#[inline(always)]
unsafe fn totals(sums: [__m512i; 4]) -> [i32; 4] {
    // SAFETY: the caller has AVX-512, and with it AVX2.
    unsafe {
        let mut eight = [_mm256_setzero_si256(); 4];
        for n in 0..4 {
            let high = _mm512_extracti64x4_epi64::<1>(sums[n]);
            eight[n] = _mm256_add_epi32(_mm512_castsi512_si256(sums[n]), high);
        }
        avx2::totals(eight)
    }
}
