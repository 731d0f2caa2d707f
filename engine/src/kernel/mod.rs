//! The loops that touch every code and every vector, for each instruction set. A leaf: it knows nothing of files,
//! ids or deletions.
//!
//! A [`Kernel`] in hand proves that this CPU runs it. Every kernel gives the same bits as the plain twins in
//! `scalar`; the tests run over all that are available.

#![expect(
    unsafe_code,
    reason = "calls into code compiled for CPU features that a Kernel proves"
)]

mod adc;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_nearest;
mod block;
mod bytes;
mod columns;
mod deficits;
mod distance;
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "other kernels use the plain twin")
)]
mod dots;
mod filter;
#[cfg(test)]
mod filter_tests;
mod float;
#[cfg(all(any(unoptimised, test), target_arch = "x86_64", not(miri)))]
mod fused;
mod instructions;
mod lanes;
mod looks;
pub(crate) mod pool;
mod portable;
pub(crate) mod random;
mod rows;
mod scalar;
mod stream;
mod survivors;

pub(crate) use block::Entries;
pub use block::{Bits, ROWS_PER_BLOCK};
#[cfg(feature = "testing")]
pub use bytes::quantize_i8;
pub use bytes::{MAX_BYTES_DIM, Queries, quantize_i8_into, unit_scale};
pub(crate) use columns::Columns;
pub(crate) use filter::{Filter, Verdict};
pub use instructions::Kernel;
pub use rows::{Places, Rows};
pub(crate) use stream::prefetch;
pub(crate) use survivors::Survivors;
