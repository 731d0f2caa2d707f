//! 64 lanes of a byte in two AVX2 registers; eight sums in one.

use super::distance::Sums;
use super::dots::Dots;
use super::lanes::Lanes;
use half::f16;
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(super) struct Avx2([__m256i; 2]);

impl Lanes for Avx2 {
    #[inline(always)]
    unsafe fn all(byte: u8) -> Self {
        // SAFETY: the caller has AVX2.
        Self([unsafe { _mm256_set1_epi8(byte as i8) }; 2])
    }

    #[inline(always)]
    unsafe fn load(bytes: &[u8; 64]) -> Self {
        let from = bytes.as_ptr().cast::<__m256i>();
        // SAFETY: the caller has AVX2; 64 bytes can be read, and these loads need no alignment.
        unsafe { Self([_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1))]) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.0, other.0);
        // SAFETY: the caller has AVX2.
        unsafe { Self([_mm256_adds_epu8(a, c), _mm256_adds_epu8(b, d)]) }
    }

    #[inline(always)]
    unsafe fn nibble(self, shift: u32) -> Self {
        // Words are shifted, there is no shift of bytes: the mask drops what came from the neighbour.
        // SAFETY: the caller has AVX2.
        unsafe {
            let (count, mask) = (_mm_cvtsi32_si128(shift as i32), _mm256_set1_epi8(15));
            Self(
                self.0
                    .map(|x| _mm256_and_si256(_mm256_srl_epi16(x, count), mask)),
            )
        }
    }

    #[inline(always)]
    unsafe fn shuffle(table: &[u8; 16], index: Self) -> Self {
        // SAFETY: the caller has AVX2; 16 bytes can be read.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            Self(index.0.map(|index| _mm256_shuffle_epi8(table, index)))
        }
    }

    #[inline(always)]
    unsafe fn choose(self, bit: u32, clear: Self, set: Self) -> Self {
        // The blend looks at the top bit of each byte alone.
        // SAFETY: the caller has AVX2.
        unsafe {
            let count = _mm_cvtsi32_si128(7 - bit as i32);
            let top = self.0.map(|x| _mm256_sll_epi16(x, count));
            Self([
                _mm256_blendv_epi8(clear.0[0], set.0[0], top[0]),
                _mm256_blendv_epi8(clear.0[1], set.0[1], top[1]),
            ])
        }
    }

    #[inline(always)]
    unsafe fn below_full(self) -> u64 {
        // SAFETY: the caller has AVX2.
        unsafe {
            let full = _mm256_set1_epi8(-1);
            let [low, high] = self
                .0
                .map(|x| u64::from(_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, full)) as u32));
            !(low | high << 32)
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Avx2Sums(__m256);

impl Sums for Avx2Sums {
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has AVX2.
        Self(unsafe { _mm256_setzero_ps() })
    }

    #[inline(always)]
    unsafe fn load(values: &[f32; 16], first: usize) -> Self {
        debug_assert!(first <= 8);
        // SAFETY: the caller has AVX2; `first` is 0 or 8, and this load needs no alignment.
        Self(unsafe { _mm256_loadu_ps(values.as_ptr().add(first)) })
    }

    #[inline(always)]
    unsafe fn load_halves(values: &[f16; 16], first: usize) -> Self {
        debug_assert!(first <= 8);
        // SAFETY: the caller has F16C; `first` is 0 or 8, and this load needs no alignment.
        unsafe {
            let halves = _mm_loadu_si128(values.as_ptr().add(first).cast());
            Self(_mm256_cvtph_ps(halves))
        }
    }

    #[inline(always)]
    unsafe fn load_bytes(values: &[i8; 16], first: usize) -> Self {
        debug_assert!(first <= 8);
        // SAFETY: the caller has AVX2; `first` is 0 or 8, and this load needs no alignment.
        unsafe {
            let bytes = _mm_loadl_epi64(values.as_ptr().add(first).cast());
            Self(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)))
        }
    }

    #[inline(always)]
    unsafe fn all(value: f32) -> Self {
        // SAFETY: the caller has AVX2.
        Self(unsafe { _mm256_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn times(self, other: Self) -> Self {
        // SAFETY: the caller has AVX2.
        Self(unsafe { _mm256_mul_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn store(self, values: &mut [f32; 16], first: usize) {
        debug_assert!(first <= 8);
        // SAFETY: as for `load`.
        unsafe { _mm256_storeu_ps(values.as_mut_ptr().add(first), self.0) }
    }

    #[inline(always)]
    unsafe fn minus(self, other: Self) -> Self {
        // SAFETY: the caller has AVX2.
        Self(unsafe { _mm256_sub_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        // SAFETY: the caller has FMA.
        Self(unsafe { _mm256_fmadd_ps(a.0, b.0, self.0) })
    }

    #[inline(always)]
    unsafe fn halves(sums: &[[f32; 16]; 4]) -> [f32; 4] {
        // SAFETY: the caller has AVX2.
        unsafe { halves(sums) }
    }
}

/// Sixteen to eight to four within each of the four; then they are turned, so that lane n is the n-th's.
///
/// # Safety
/// The CPU must have AVX2.
#[inline(always)]
pub(super) unsafe fn halves(sums: &[[f32; 16]; 4]) -> [f32; 4] {
    // SAFETY: the caller has AVX2; 16 floats can be read of each, and four written.
    unsafe {
        let four = sums.each_ref().map(|sums| {
            let (low, high) = (sums.as_ptr(), sums.as_ptr().add(8));
            let eight = _mm256_add_ps(_mm256_loadu_ps(low), _mm256_loadu_ps(high));
            _mm_add_ps(
                _mm256_castps256_ps128(eight),
                _mm256_extractf128_ps(eight, 1),
            )
        });
        // Lanes 0 and 1, then 2 and 3, of two each.
        let (ab, cd) = (
            _mm_add_ps(
                _mm_movelh_ps(four[0], four[1]),
                _mm_movehl_ps(four[1], four[0]),
            ),
            _mm_add_ps(
                _mm_movelh_ps(four[2], four[3]),
                _mm_movehl_ps(four[3], four[2]),
            ),
        );
        let one = _mm_add_ps(
            _mm_shuffle_ps(ab, cd, 0b10_00_10_00),
            _mm_shuffle_ps(ab, cd, 0b11_01_11_01),
        );
        let mut out = [0.0; 4];
        _mm_storeu_ps(out.as_mut_ptr(), one);
        out
    }
}

/// Eight sums of products of bytes, which are widened to 16 bits: of unsigned bytes and signed ones, the only bytes that AVX2
/// multiplies, sums of two may not fit 16 bits.
#[derive(Clone, Copy)]
pub(super) struct Avx2Dots(__m256i);

impl Dots for Avx2Dots {
    const WIDTH: usize = 16;
    const OFFSET: i32 = 0;
    type Bytes = __m256i;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has AVX2.
        Self(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    unsafe fn of_query(bytes: *const i8) -> __m256i {
        // SAFETY: the caller has AVX2; 16 bytes can be read, and this load needs no alignment.
        unsafe { _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes.cast())) }
    }

    #[inline(always)]
    unsafe fn of_row(bytes: *const i8) -> __m256i {
        // SAFETY: the caller's promise is ours.
        unsafe { Self::of_query(bytes) }
    }

    #[inline(always)]
    unsafe fn plus_products(self, query: __m256i, row: __m256i) -> Self {
        // SAFETY: the caller has AVX2.
        unsafe { Self(_mm256_add_epi32(self.0, _mm256_madd_epi16(query, row))) }
    }

    #[inline(always)]
    unsafe fn totals(sums: &[Self; 4]) -> [i32; 4] {
        // SAFETY: the caller has AVX2.
        unsafe { totals([sums[0].0, sums[1].0, sums[2].0, sums[3].0]) }
    }
}

/// Returns the sum of all lanes of each.
///
/// # Safety
/// The CPU must have AVX2.
#[inline(always)]
pub(super) unsafe fn totals(sums: [__m256i; 4]) -> [i32; 4] {
    // SAFETY: the caller has AVX2; four numbers can be written.
    unsafe {
        let mut four = [_mm_setzero_si128(); 4];
        for n in 0..4 {
            let high = _mm256_extracti128_si256::<1>(sums[n]);
            four[n] = _mm_add_epi32(_mm256_castsi256_si128(sums[n]), high);
        }
        let (ab, cd) = (
            _mm_hadd_epi32(four[0], four[1]),
            _mm_hadd_epi32(four[2], four[3]),
        );
        let mut out = [0; 4];
        _mm_storeu_si128(out.as_mut_ptr().cast(), _mm_hadd_epi32(ab, cd));
        out
    }
}
