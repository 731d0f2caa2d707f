//! The operating system: files and maps of files, where things are in a database's directory, locks between processes.
//!
//! A leaf: nothing here knows what is in a file. Everything that the engine writes goes through [`files::Files`].

pub mod files;
pub(crate) mod layout;
pub mod lock;
pub mod mmap;
pub(crate) mod orphans;
pub(crate) mod reserve;
pub(crate) mod usage;
