//! What the benches share: data, clocks, and the checked answer.
