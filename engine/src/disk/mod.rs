//! The operating system: files and memory maps, the layout of a database's directory, locks between processes.
//!
//! Nothing here knows the contents of a file. Everything that the engine writes goes through [`files::Files`].

pub(crate) mod files;
pub(crate) mod layout;
pub(crate) mod lock;
pub(crate) mod mmap;
pub(crate) mod orphans;
pub(crate) mod reserve;
pub(crate) mod usage;
