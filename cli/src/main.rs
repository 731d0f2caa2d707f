//! The `mopqdb` program.
fn main() {}
