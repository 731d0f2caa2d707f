//! What the tests of the whole program share.

pub mod doc_comments;
pub mod faulty;
pub mod hostile;
pub mod mounted;
pub mod quota;
pub mod recording;
pub mod support;
pub mod watched;

/// Returns the checksum of a header, for tests that change one and make it valid again. Logs use their id as the seed.
pub fn header_sum(seed: u64, bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed)
}
