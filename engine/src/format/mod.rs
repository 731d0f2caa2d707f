#![doc = include_str!("../../FORMAT.md")]
//!
//! # In this module
//!
//! [`ContainerWriter`] streams the sections of a file and [`Container`] reads them, each byte checked before it is
//! handed out. [`Encode`] and [`Decode`] are the way from fields to bytes and back. Errors are [`FormatError`]s, which
//! know the place in the file but not the file's name; `segment` adds that.

mod codec;
mod container;
mod correct;
mod error;
mod frame;
mod writer;

pub use codec::{Decode, Encode, Put, Take};
pub use container::{Container, Part};
pub use correct::Corrector;
pub use error::FormatError;
pub use frame::{Check, Footer, Header, Kind, Section, SectionEntry};
pub use writer::{ContainerWriter, Written};

#[cfg(target_endian = "big")]
compile_error!("mapped sections are read as little-endian numbers in place");

/// The version of the format that this program writes. It reads this one and those before it.
pub const VERSION: u32 = 2;

/// Sections begin at multiples of this: a cache line, and the widest load of the kernels.
pub const ALIGN: u64 = 64;

/// How much of a section one checksum covers (the last chunk of a section may be shorter).
pub const CHUNK: usize = 64 * 1024;

/// The same for sections whose rows are read one by one. They begin at multiples of it, so that a page of the section is
/// one of the operating system's.
pub const PAGE: usize = 4096;

/// Returns the checksum of everything: xxh3, 64 bits, no seed.
#[inline]
pub fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// The next multiple of [`ALIGN`], or `None` past the end of the numbers.
fn aligned(offset: u64) -> Option<u64> {
    offset.checked_next_multiple_of(ALIGN)
}
