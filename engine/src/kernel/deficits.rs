//! The entries of a filter's tables: loops that each instruction set compiles for itself.

/// Entries that are looked at together.
const LANES: usize = 16;

/// Returns the largest entry, and the largest magnitude of one.
#[inline(always)]
pub(super) fn extent(entries: &[f32]) -> (f32, f32) {
    let (mut tops, mut sizes) = ([f32::NEG_INFINITY; LANES], [0.0f32; LANES]);
    let (groups, rest) = entries.as_chunks::<LANES>();
    for group in groups {
        for l in 0..LANES {
            tops[l] = larger(group[l], tops[l]);
            sizes[l] = larger(group[l].abs(), sizes[l]);
        }
    }
    for (l, entry) in rest.iter().enumerate() {
        tops[l] = larger(*entry, tops[l]);
        sizes[l] = larger(entry.abs(), sizes[l]);
    }
    let of = |lanes: [f32; LANES]| lanes.into_iter().reduce(larger).expect("lanes");
    (of(tops), of(sizes))
}

/// As `max` of numbers that are not NaN, which is one instruction.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// `floor((top - entry) * inverse)`, at most 255. No entry is above the top.
#[inline(always)]
pub(super) fn deficits(entries: &[f32], top: f32, inverse: f64, out: &mut [u8]) {
    for (deficit, &entry) in out.iter_mut().zip(entries) {
        let quotient = (f64::from(top) - f64::from(entry)) * inverse;
        let most = if quotient < 255.0 { quotient } else { 255.0 };
        // SAFETY: it is between 0 and 255: not below, since no entry is above the top and the inverse is not negative.
        *deficit = unsafe { most.to_int_unchecked::<i32>() } as u8;
    }
}

/// The same in f32, of twice as many entries at a time. Requires: `top` less any entry is finite.
#[inline(always)]
pub(super) fn coarse(entries: &[f32], top: f32, inverse: f32, out: &mut [u8]) {
    for (deficit, &entry) in out.iter_mut().zip(entries) {
        let quotient = (top - entry) * inverse;
        let most = if quotient < 255.0 { quotient } else { 255.0 };
        // SAFETY: as above.
        *deficit = unsafe { most.to_int_unchecked::<i32>() } as u8;
    }
}

/// The least of each `size` neighbours, 2, 4, 8 or 16.
#[inline(always)]
pub(super) fn least(of: &[u8; 256], size: usize, out: &mut [u8; 256]) {
    match size {
        2 => least_of::<2>(of, out),
        4 => least_of::<4>(of, out),
        8 => least_of::<8>(of, out),
        _ => least_of::<16>(of, out),
    }
}

#[inline(always)]
fn least_of<const SIZE: usize>(of: &[u8; 256], out: &mut [u8; 256]) {
    for (least, codes) in out.iter_mut().zip(of.as_chunks::<SIZE>().0) {
        *least = codes.iter().copied().fold(255, u8::min);
    }
}
