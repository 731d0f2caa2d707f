//! What the benches share: data, clocks, and the checked answer.

pub mod beside;
pub mod chart;
pub mod clock;
pub mod compare;
pub mod data;
pub mod report;
pub mod set;
