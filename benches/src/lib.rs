//! What the benches share: data, clocks, and the checked answer.

pub mod chart;
pub mod clock;
pub mod data;
