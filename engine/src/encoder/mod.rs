//! Text in, vector out.
//!
//! An [`Encoder`] turns texts into the vectors that are stored and compared; a [bundle](crate::bundle) says how, in an
//! [`EncoderSpec`]. The head of a learned quantizer is no part of it: the vectors here are those before the head.
//! [`OnnxEncoder`] runs a model with ONNX Runtime, which is loaded when first used; [`locate_onnxruntime`] says where
//! it is looked for.

mod options;
mod spec;

#[cfg(feature = "onnx")]
mod onnx;
#[cfg(feature = "onnx-write")]
pub mod write;

pub use options::EncoderOptions;
pub use spec::{EncoderSpec, Inputs, MAX_TOKENS, Pooling, Side};

#[cfg(feature = "onnx")]
pub use onnx::{
    EncoderFiles, Export, Findings, GraphInfo, GraphSource, OnnxEncoder, Port, SideTokenizer,
    inspect, locate_onnxruntime, wrap,
};

use crate::error::Result;
use half::f16;
use std::path::PathBuf;

/// Turns texts into vectors, row-major, [`dim`](Self::dim) numbers a text, in the order of the texts.
///
/// The same text gives the same vector up to the rounding of the runtime, which depends on the other texts of its
/// batch; callers store the result [rounded to f16](round_to_f16) and compute codes from what they stored.
pub trait Encoder: Send + Sync {
    /// The width of the vectors.
    fn dim(&self) -> usize;

    /// Encodes what is searched.
    fn encode_keys(&self, texts: &[&str]) -> Result<Vec<f32>>;

    /// Encodes what is searched for.
    fn encode_queries(&self, texts: &[&str]) -> Result<Vec<f32>>;
}

/// Rounds each value to f16 and back, as stored vectors are. What is too large for f16 becomes infinite, for the
/// caller to refuse.
pub fn round_to_f16(vectors: &mut [f32]) {
    for value in vectors {
        *value = f16::from_f32(*value).to_f32();
    }
}

/// Where `mopqdb setup` puts the encoder library and the default bundle: `MOPQDB_HOME`, or `mopqdb` in the user's data
/// directory. None if the user has no home.
pub fn data_dir() -> Option<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("MOPQDB_HOME")
        .or_else(|| {
            set("XDG_DATA_HOME")
                .filter(|dir| dir.is_absolute())
                .map(|dir| dir.join("mopqdb"))
        })
        .or_else(|| set("HOME").map(|home| home.join(".local/share/mopqdb")))
}

/// The folders that may hold what the set-up fetched, in order: beside the program, the `.native` of the checkout that
/// the program was built in, the user's data directory.
pub fn native_dirs() -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    let program = std::env::current_exe()
        .ok()
        .and_then(|exe| exe.canonicalize().ok());
    if let Some(program) = &program {
        dirs.extend(program.parent().map(PathBuf::from));
        // target/debug/deps/test -> the checkout is a few folders up; a stranger's `.native` has no such parts.
        dirs.extend(
            program
                .ancestors()
                .skip(2)
                .take(6)
                .map(|dir| dir.join(".native")),
        );
    }
    dirs.extend(data_dir());
    dirs.retain(|dir| dir.is_dir());
    dirs
}

/// The default encoder's bundle, all-MiniLM-L6-v2, where the set-up made it.
pub fn default_bundle() -> Result<PathBuf> {
    let found = native_dirs()
        .into_iter()
        .map(|dir| dir.join("bundles/default"))
        .find(|dir| dir.is_dir());
    found.ok_or_else(|| crate::error::Error::Missing {
        what: "the default encoder is not installed".into(),
        remedy: "run `mopqdb setup` (in a checkout: `make setup`), or name a bundle of your own"
            .into(),
    })
}
