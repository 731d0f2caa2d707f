//! How figures become pages: Markdown tables, plots, and the text between markers that a command rewrites.

pub mod markdown;
pub mod markers;
pub mod plot;
