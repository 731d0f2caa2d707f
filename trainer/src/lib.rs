//! Trains the quantizers of mopqdb from pairs of queries and keys: MoPQ and every baseline of its paper.
//!
//! The modules in the order of a run:
//!
//! 1. [`program`] is the command `mopqdb-train`: it reads flags, opens the folder of the run and registers the model.
//! 2. [`config`] has every number that changes what is learned; [`data`] is what a run learns from.
//! 3. [`train`] is the loop. In a step each replica embeds its slice of the batch with a [`model`], an objective of
//!    [`methods`] contrasts queries with keys over the [`devices`], and Adam takes the step. After an epoch the model
//!    is measured by the engine's own scan ([`mopqdb::eval::Keys`]).
//! 4. `export` makes the engine's quantizer of what was learned, `joint` an encoder that learned too.

pub mod config;
pub mod data;
pub mod devices;
pub mod methods;
pub mod model;
pub mod program;
pub mod random;
pub mod scorer;
pub mod train;

mod export;
mod joint;

#[cfg(test)]
mod testing;
