//! The inner loop of [`super::float`] in assembly, for builds without optimisation.
//!
//! Programs are developed in unoptimised builds, in which the loop is not vectorised and takes a hundred times as
//! long: learning codes from a thousand rows took minutes. The bits are the same.

use super::columns::LANES;
use std::arch::asm;

/// Returns `true` if the CPU has what [`sums`] needs.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

/// `offset + sum` for four inputs, given as (inputs, 4), and LANES outputs: what `float::sums` does.
///
/// # Safety
/// [`is_available`] has returned `true`.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn sums(
    offsets: &[f32; LANES],
    columns: &[[f32; LANES]],
    x: &[[f32; 4]],
) -> [[f32; LANES]; 4] {
    let mut sums = [*offsets; 4];
    let inputs = columns.len().min(x.len());
    if inputs == 0 {
        return sums;
    }
    // SAFETY: the loop reads `inputs` elements of `columns` and of `x`, which have that many, and reads and writes all
    // of `sums`.
    unsafe {
        asm!(
            "vmovups ymm0, [{sums}]",
            "vmovups ymm1, [{sums} + 32]",
            "vmovups ymm2, [{sums} + 64]",
            "vmovups ymm3, [{sums} + 96]",
            "vmovups ymm4, [{sums} + 128]",
            "vmovups ymm5, [{sums} + 160]",
            "vmovups ymm6, [{sums} + 192]",
            "vmovups ymm7, [{sums} + 224]",
            "2:",
            "vmovups ymm8, [{columns}]",
            "vmovups ymm9, [{columns} + 32]",
            "vbroadcastss ymm10, [{x}]",
            "vfmadd231ps ymm0, ymm10, ymm8",
            "vfmadd231ps ymm1, ymm10, ymm9",
            "vbroadcastss ymm11, [{x} + 4]",
            "vfmadd231ps ymm2, ymm11, ymm8",
            "vfmadd231ps ymm3, ymm11, ymm9",
            "vbroadcastss ymm12, [{x} + 8]",
            "vfmadd231ps ymm4, ymm12, ymm8",
            "vfmadd231ps ymm5, ymm12, ymm9",
            "vbroadcastss ymm13, [{x} + 12]",
            "vfmadd231ps ymm6, ymm13, ymm8",
            "vfmadd231ps ymm7, ymm13, ymm9",
            "add {columns}, 64",
            "add {x}, 16",
            "dec {inputs}",
            "jnz 2b",
            "vmovups [{sums}], ymm0",
            "vmovups [{sums} + 32], ymm1",
            "vmovups [{sums} + 64], ymm2",
            "vmovups [{sums} + 96], ymm3",
            "vmovups [{sums} + 128], ymm4",
            "vmovups [{sums} + 160], ymm5",
            "vmovups [{sums} + 192], ymm6",
            "vmovups [{sums} + 224], ymm7",
            sums = in(reg) sums.as_mut_ptr(),
            columns = inout(reg) columns.as_ptr() => _,
            x = inout(reg) x.as_ptr() => _,
            inputs = inout(reg) inputs => _,
            out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
            out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
            out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
            out("ymm12") _, out("ymm13") _,
            options(nostack),
        );
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::random::Random;

    #[test]
    fn the_bits_are_those_of_the_plain_loop() {
        if !is_available() {
            return;
        }
        let mut random = Random::new(9);
        for inputs in [0, 1, 2, 7, 48, 384] {
            let offsets: [f32; LANES] = std::array::from_fn(|_| random.normal());
            let columns: Vec<[f32; LANES]> = (0..inputs)
                .map(|_| std::array::from_fn(|_| random.normal()))
                .collect();
            let x: Vec<[f32; 4]> = (0..inputs)
                .map(|_| std::array::from_fn(|_| random.normal()))
                .collect();
            // SAFETY: as just found.
            let fused = unsafe { sums(&offsets, &columns, &x) };
            for r in 0..4 {
                for l in 0..LANES {
                    let plain = (columns.iter().zip(&x))
                        .fold(offsets[l], |sum, (c, x)| x[r].mul_add(c[l], sum));
                    assert_eq!(fused[r][l].to_bits(), plain.to_bits(), "{inputs}: {r} {l}");
                }
            }
        }
    }
}
