//! Exponentials whose bits don't depend on the platform's libm: codes of a model with ELU, and the soft
//! queries of SPQ, are the same everywhere.

use std::f64::consts::{LN_2, LOG2_E};

/// ln 2 minus its nearest f64.
const LN_2_LOW: f64 = 2.319_046_813_846_299_6e-17;

/// `exp(x) - 1` in f64 by range reduction and a polynomial, each step an IEEE operation; relative error below
/// 1e-14, also near 0.
fn exp_m1(x: f64) -> f64 {
    if x < -745.0 {
        return -1.0;
    }
    if x > 709.0 {
        return f64::INFINITY;
    }
    let n = (x * LOG2_E).round_ties_even();
    let r = (-n).mul_add(LN_2_LOW, (-n).mul_add(LN_2, x)); // |r| <= ln2/2
    // Taylor to r^14: the next term is below (ln2/2)^15/15! = 1e-19.
    let mut sum = 0.0;
    let mut k = 14.0;
    while k > 1.0 {
        sum = (sum + 1.0) * r / k;
        k -= 1.0;
    }
    let fraction = r.mul_add(sum, r); // exp(r) - 1
    if n == 0.0 {
        return fraction;
    }
    let two_to_n = if n < -1022.0 {
        0.0
    } else {
        f64::from_bits(((n as i64 + 1023) as u64) << 52)
    };
    two_to_n.mul_add(fraction, two_to_n - 1.0)
}

/// ELU with alpha 1.
pub(super) fn elu(x: f32) -> f32 {
    if x > 0.0 {
        x
    } else {
        exp_m1(f64::from(x)) as f32
    }
}

/// `exp(x)` for x <= 0.
pub(super) fn exp(x: f64) -> f64 {
    debug_assert!(x <= 0.0);
    exp_m1(x) + 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_platform_to_a_part_in_ten_to_the_thirteen() {
        let mut x = -740.0;
        while x < 5.0 {
            let (ours, theirs) = (exp_m1(x), x.exp_m1());
            assert!(
                (ours - theirs).abs() <= 1e-13 * theirs.abs(),
                "{x}: {ours} {theirs}"
            );
            x += 0.000_977 * (1.0 + f64::abs(x));
        }
        for tiny in [0.0, -1e-40, 1e-30, -1e-9, 1e-5] {
            let (ours, theirs) = (exp_m1(tiny), tiny.exp_m1());
            assert!(
                (ours - theirs).abs() <= 1e-13 * theirs.abs(),
                "{tiny}: {ours} {theirs}"
            );
        }
        assert_eq!(elu(-1e30), -1.0);
        assert_eq!(elu(2.5), 2.5);
    }
}
