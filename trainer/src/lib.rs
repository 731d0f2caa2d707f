//! Trains the quantizers of mopqdb from pairs of queries and keys: MoPQ and every baseline of its paper.
//!
//! The reading order is that of a run: [`config`] says what to do, [`data`] and [`corpus`] what from; [`train`] is the
//! loop. In a step a [`replica`] embeds its slice of the batch with a [`model`], an objective of [`methods`] contrasts
//! queries with keys through [`sampling`] over the [`devices`], and [`adam`] takes the step. [`evaluate`] measures with
//! the engine's own scan, and [`export`] hands the result over.

pub mod adam;
pub mod checkpoint;
pub mod clock;
pub mod config;
pub mod corpus;
pub mod data;
pub mod devices;
pub mod embeddings;
pub mod evaluate;
pub mod export;
pub mod flags;
pub mod joint;
pub mod loss;
pub mod methods;
pub mod model;
pub mod plot;
pub mod program;
pub mod progress;
pub mod random;
pub mod replica;
pub mod run;
pub mod sampling;
pub mod start;
pub mod train;

#[cfg(test)]
mod testing;
