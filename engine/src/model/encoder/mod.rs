//! Encoders: text to vector.
//!
//! An [`Encoder`] turns texts into the vectors that are stored and compared, as the [`EncoderSpec`] in a
//! [bundle](crate::model::bundle) says. The head of a learned quantizer is not part of it: these are the vectors before
//! the head. [`OnnxEncoder`] runs a model with ONNX Runtime, which is loaded on first use; [`locate_onnxruntime`] says
//! where it is looked for.

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
use crate::watch::Watch;
use half::f16;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Turns texts into vectors, row-major, [`dim`](Self::dim) values per text, in the order of the texts.
///
/// The same text always has the same vector, up to rounding errors that depend on the other texts in its batch. Callers
/// store the result [rounded to f16](round_to_f16), and compute codes from what they stored.
pub trait Encoder: Send + Sync {
    /// Returns a name for the encoder and its version. A database created with a program's own encoder stores the name,
    /// and accepts no vectors of another encoder.
    fn name(&self) -> String;

    /// Returns the width of the vectors.
    fn dim(&self) -> usize;

    /// Encodes keys, which are the texts that are stored.
    fn encode_keys(&self, texts: &[&str]) -> Result<Vec<f32>>;

    /// Encodes queries, which some models encode differently from keys.
    fn encode_queries(&self, texts: &[&str]) -> Result<Vec<f32>>;

    /// Encodes keys as [`encode_keys`](Self::encode_keys) does, and ends with [`Error::Cancelled`](crate::Error::Cancelled)
    /// soon after `watch` is stopped. By default it looks before the texts are encoded, and after.
    fn encode_keys_watched(&self, texts: &[&str], watch: &Watch) -> Result<Vec<f32>> {
        watch.check()?;
        let vectors = self.encode_keys(texts)?;
        watch.check()?;
        Ok(vectors)
    }
}

/// An encoder that the program supplies.
#[derive(Clone)]
pub(crate) struct PluggedEncoder(pub(crate) Arc<dyn Encoder>);

impl std::fmt::Debug for PluggedEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PluggedEncoder")
            .field(&self.0.name())
            .finish()
    }
}

/// Rounds each value to f16 and back, as stored vectors are. A value too large for f16 becomes infinite; the caller
/// must refuse it.
pub fn round_to_f16(vectors: &mut [f32]) {
    for value in vectors {
        *value = f16::from_f32(*value).to_f32();
    }
}

/// Returns the directory where `mopqdb setup` puts the encoder library and the default bundle: `MOPQDB_HOME`, or
/// `mopqdb` in the user's data directory. Returns `None` if the user has no home directory.
pub fn data_dir() -> Option<PathBuf> {
    named_dir().or_else(user_dir)
}

/// Returns the folder that the user named for all native parts.
fn named_dir() -> Option<PathBuf> {
    variable("MOPQDB_HOME")
}

fn user_dir() -> Option<PathBuf> {
    let absolute = |name| variable(name).filter(|dir| dir.is_absolute());
    absolute("XDG_DATA_HOME")
        .map(|dir| dir.join("mopqdb"))
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share/mopqdb")))
}

/// Folders that [`look_in`] added, the last one first.
static ADDED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Adds a folder in which ONNX Runtime is looked for, before those of [`native_dirs`]: for a program that comes with the
/// library, or knows a package that does. The variable `MOPQDB_ONNXRUNTIME` still goes before it.
pub fn look_in(dir: impl Into<PathBuf>) {
    let dir = dir.into();
    let mut added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    added.retain(|other| *other != dir);
    added.insert(0, dir);
}

/// Returns the folders that [`look_in`] added.
#[cfg(feature = "onnx")]
fn added_dirs() -> Vec<PathBuf> {
    let added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    added.clone()
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// Returns the folders that may hold the files that `mopqdb setup` downloaded, in the order in which they are searched:
/// the program's own folder, the `.native` of the checkout that a debug build was made in, the user's data directory.
/// If `MOPQDB_HOME` is set, it comes first and replaces the last two.
///
/// Code is loaded from these folders, so none is guessed: other users may be able to write to a folder above the
/// program.
pub fn native_dirs() -> Vec<PathBuf> {
    let program = std::env::current_exe()
        .and_then(|exe| exe.canonicalize())
        .ok();
    let mut dirs = Places {
        named: named_dir(),
        program: program.as_deref().and_then(Path::parent),
        checkout: CHECKOUT.map(Path::new),
        user: user_dir(),
    }
    .in_order();
    dirs.retain(|dir| dir.is_dir());
    dirs
}

/// Only set in debug builds. A release build may run anywhere, and has no checkout.
#[cfg(debug_assertions)]
const CHECKOUT: Option<&str> = Some(concat!(env!("CARGO_MANIFEST_DIR"), "/../.native"));
#[cfg(not(debug_assertions))]
const CHECKOUT: Option<&str> = None;

/// The candidates of [`native_dirs`].
struct Places<'a> {
    /// The folder in `MOPQDB_HOME`, which replaces the checkout and the user's data directory.
    named: Option<PathBuf>,
    program: Option<&'a Path>,
    checkout: Option<&'a Path>,
    user: Option<PathBuf>,
}

impl Places<'_> {
    fn in_order(self) -> Vec<PathBuf> {
        let unnamed = self.named.is_none();
        let (checkout, user) = (
            self.checkout.filter(|_| unnamed),
            self.user.filter(|_| unnamed),
        );
        let program = self.program.filter(|dir| !anybody_may_write(dir));
        let found = [self.named, program.map(Into::into)].into_iter();
        let found = found.chain([checkout.map(Into::into), user]);
        // Absolute, because the loader looks up relative names elsewhere.
        found
            .flatten()
            .filter_map(|dir| std::path::absolute(dir).ok())
            .collect()
    }
}

/// Returns `true` for a folder such as `/tmp`, where a library next to the program may belong to another user.
fn anybody_may_write(dir: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::metadata(dir).is_ok_and(|meta| meta.permissions().mode() & 0o002 != 0)
    }
    #[cfg(not(unix))]
    {
        let _ = dir;
        false
    }
}

/// Returns the path of the default encoder's bundle, all-MiniLM-L6-v2, which `mopqdb setup` makes.
pub fn default_bundle() -> Result<PathBuf> {
    let found = native_dirs()
        .into_iter()
        .map(|dir| dir.join("bundles/default"))
        .find(|dir| dir.is_dir());
    found.ok_or_else(|| crate::error::Error::Missing {
        what: "the default encoder is not installed".into(),
        remedy: "set MOPQDB_HOME to the directory that contains it, or name a bundle of your own"
            .into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_parts_are_looked_for_only_in_the_folders_listed_here() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("a/b/bin");
        std::fs::create_dir_all(&program).unwrap();
        let (checkout, user) = (dir.path().join("checkout"), dir.path().join("user"));
        let places = |named: Option<&Path>, checkout: Option<&Path>| {
            Places {
                named: named.map(Into::into),
                program: Some(&program),
                checkout: checkout.map(Path::to_path_buf).as_deref(),
                user: Some(user.clone()),
            }
            .in_order()
        };
        let all = places(None, Some(&checkout));
        assert_eq!(all, [program.clone(), checkout.clone(), user.clone()]);
        // A release build.
        assert_eq!(places(None, None), [program.clone(), user.clone()]);
        let named = dir.path().join("named");
        let both = [named.clone(), program.clone()];
        assert_eq!(places(Some(&named), Some(&checkout)), both);
    }

    #[test]
    fn a_release_build_has_no_checkout() {
        assert_eq!(CHECKOUT.is_some(), cfg!(debug_assertions));
    }

    #[cfg(unix)]
    #[test]
    fn a_program_in_a_world_writable_folder_loads_nothing_from_it() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let found = || {
            Places {
                named: None,
                program: Some(dir.path()),
                checkout: None,
                user: None,
            }
            .in_order()
        };
        assert_eq!(found(), [dir.path()]);
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o1777)).unwrap();
        assert!(found().is_empty());
    }
}
