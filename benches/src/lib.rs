//! What the benches share: data, clocks, and the checked answer.

pub mod clock;
pub mod data;
pub mod machine;
pub mod set;
pub mod versus;
