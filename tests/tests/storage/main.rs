//! The storage engine as programs use it.

mod basics;
mod cells;
mod columns;
mod drift;
mod filters;
mod housekeeping;
mod isolation;
mod model;
mod opening;
mod plugged;
mod precision;
mod prefixes;
mod rebuilding;
mod scoring;
mod searching;
mod wording;
