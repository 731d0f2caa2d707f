//! The operating system: files and maps of files, where things are in a database's directory, locks between processes.
//!
//! A leaf: nothing here knows what is in a file. Everything that the engine writes goes through [`files::Files`].

pub(crate) mod files;
pub(crate) mod layout;
pub(crate) mod lock;
pub(crate) mod mmap;
pub(crate) mod orphans;
pub(crate) mod reserve;
pub(crate) mod usage;
