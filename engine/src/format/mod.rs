#![doc = include_str!("../../FORMAT.md")]
//!
//! # In this module
//!
//! [`ContainerWriter`] streams the sections of a file and [`Container`] reads them; each byte is checked before it is
//! returned. [`Encode`] and [`Decode`] convert fields to bytes and back. Errors are [`FormatError`]s, which know the
//! place in the file but not the file's name; `segment` adds the name.

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

/// The version of the format that this program writes. It reads this version and all earlier ones.
pub const VERSION: u32 = 2;

/// Sections begin at multiples of this: a cache line, and the widest load of the kernels.
pub const ALIGN: u64 = 64;

/// How many bytes of a section one checksum covers (the last chunk of a section may be shorter).
pub const CHUNK: usize = 64 * 1024;

/// How many bytes one checksum covers in sections whose rows are read one by one. These sections begin at a multiple of
/// it, so that a page of the section is a page of the operating system.
pub const PAGE: usize = 4096;

/// Returns the checksum used everywhere: xxh3, 64 bits, no seed.
#[inline]
pub fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// Returns the next multiple of [`ALIGN`], or `None` if it does not fit a `u64`.
fn aligned(offset: u64) -> Option<u64> {
    offset.checked_next_multiple_of(ALIGN)
}
