//! A segment on disk.

pub mod mmap;
