//! A model on disk: a directory of plain files that define how texts become vectors and vectors become codes.
//!
//! ```text
//! manifest.json         what there is and how it is used; name, length and hash of each file; a checksum of itself
//! encoder.onnx          token ids and mask to hidden states (query_encoder.onnx if the towers differ)
//! tokenizer.json        text to token ids
//! tensors.safetensors   the quantizer: codebook, head, rotation, keys, bilinear
//! scorer.safetensors    how candidates are scored: query map, weight of words
//! words.json            term statistics of the rows that it was trained on
//! ```
//!
//! [`BundleWriter`] writes a bundle and [`Bundle::open`] reads it. A bundle may hold an encoder, a quantizer, both, or
//! neither (for precomputed vectors that are searched exactly). It never changes: its [`ModelId`](crate::ModelId) is
//! the hash of everything that determines its results.

#[cfg(feature = "onnx-write")]
mod from_weights;
mod open;
mod scorer;
mod spec;
mod tensors;
mod writer;

#[cfg(test)]
mod tests;

#[cfg(feature = "onnx-write")]
pub use from_weights::{WRITER_VERSION, bundle_from_weights, make_default_bundle};
pub use open::Bundle;
pub use spec::{
    ActivationName, CellsSpec, FileEntry, MANIFEST_FILE, MANIFEST_VERSION, MAX_DIM, Manifest,
    QuantizerSpec, QueryName, SCORER_FILE, STATISTICS_FILE, SelectionName, TENSORS_FILE,
};
pub use writer::BundleWriter;

/// Returns the path of a tiny bundle with a real encoder (two layers of BERT with seeded random weights, 32 dimensions,
/// cosine), for tests and examples. Texts that share words have similar vectors. It is part of this crate's sources.
pub fn tiny_bundle() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/tiny")
}
