//! The `mopqdb-train` program.
fn main() {}
