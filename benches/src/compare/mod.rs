//! `make compare`: ourselves beside peers, on real and synthetic rows, and the pages that show it.
//!
//! A [`case`] is rows, queries and right answers in files. A [peer](peers) is a program that is given a case and prints
//! JSON: ours is `peer.rs`, the others are modules of `benches/peers/search`. When all indexes are [built](builds),
//! [`search`] sweeps each peer's settings, [chooses](sweep) and measures; [`whole`] goes from texts to hits; [`pages`] and [`learning`] write the docs, [`when`] tells of which run.

pub mod builds;
pub mod case;
mod cores;
pub mod embeddings;
pub mod exact;
pub mod excerpt;
pub mod learning;
pub mod losses;
pub mod machine;
pub mod model;
pub mod outcome;
pub mod pages;
pub mod paper;
pub mod peers;
mod provenance;
pub mod search;
pub mod set;
pub mod sweep;
pub mod when;
pub mod whole;
mod whole_page;
