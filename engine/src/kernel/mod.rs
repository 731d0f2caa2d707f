//! The loops that touch every code and every vector, for each instruction set. A leaf: it knows nothing of files,
//! ids or deletions.
//!
//! A [`Kernel`] in hand proves that this CPU runs it. Every kernel gives the same bits as the plain twins in
//! `scalar`; the tests run over all that are available.

#![expect(
    unsafe_code,
    reason = "calls into code compiled for CPU features that a Kernel proves"
)]

mod block;
mod columns;
mod distance;
mod float;
mod level;
pub(crate) mod pool;
pub(crate) mod random;
mod scalar;

pub(crate) use block::Entries;
pub use block::{Bits, ROWS_PER_BLOCK};
pub(crate) use columns::Columns;
pub use level::Kernel;
