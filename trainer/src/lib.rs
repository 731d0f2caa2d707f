//! Trains the quantizers of mopqdb from pairs of queries and keys: MoPQ and every baseline of its paper.
//!
//! The reading order is that of a step: [`config`] says what to do, a [`replica`] embeds its slice of the batch with a
//! [`model`], an objective of [`methods`] contrasts queries with keys through [`sampling`] over the [`devices`], and
//! [`adam`] takes the step.

pub mod adam;
pub mod config;
pub mod devices;
pub mod loss;
pub mod methods;
pub mod model;
pub mod random;
pub mod replica;
pub mod sampling;

#[cfg(test)]
mod testing;
