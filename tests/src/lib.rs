//! What tests of the whole program share.

pub mod doc_comments;
pub mod faulty;
pub mod hostile;
pub mod mounted;
pub mod quota;
pub mod recording;
pub mod support;
pub mod watched;

/// The checksum of a header, for tests that change one and make it right again. Logs seed it with their id.
pub fn header_sum(seed: u64, bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed)
}
