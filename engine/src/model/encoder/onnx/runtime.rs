//! Finding and loading ONNX Runtime, once per process, when an encoder is first used.

use crate::error::{Error, Result};
use crate::model::encoder::{added_dirs, native_dirs};
use ort::environment::Environment;
use ort::logging::LogLevel;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The environment variable that names the library to use. It takes precedence over all other places.
const VARIABLE: &str = "MOPQDB_ONNXRUNTIME";

const REMEDY: &str = "set MOPQDB_HOME to the directory that contains it, or name the library (libonnxruntime.so, 1.24 or newer) in \
                      MOPQDB_ONNXRUNTIME";

/// One environment serves every session of the process, because ort allows only one.
static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);

/// Returns the path of the library that would be loaded: the one in `MOPQDB_ONNXRUNTIME`, else one in a folder that the
/// program [added](crate::encoder::look_in), else one in [`native_dirs`], else the system's.
pub fn locate_onnxruntime() -> Result<PathBuf> {
    candidates()?.into_iter().next().ok_or_else(missing)
}

fn missing() -> Error {
    Error::Missing {
        what: "the ONNX Runtime library, which encodes texts, is not installed".into(),
        remedy: REMEDY.into(),
    }
}

/// Returns every library that could be loaded, best first. If the variable is set, no other place is tried.
fn candidates() -> Result<Vec<PathBuf>> {
    if let Some(named) = env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        return named_library(&named).map(|path| vec![path]);
    }
    let mut places = added_dirs();
    for dir in native_dirs() {
        places.push(dir.join("onnxruntime"));
        places.push(dir);
    }
    // The places where the loader would look, and where distributions and people put it.
    let paths = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    places.extend(env::split_paths(&paths).filter(|dir| dir.is_absolute()));
    let system = [
        "/usr/local/lib",
        "/usr/lib",
        "/usr/lib64",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
    ];
    places.extend(system.map(PathBuf::from));
    places.extend(["/opt/homebrew/lib", "/opt/onnxruntime/lib"].map(PathBuf::from));
    Ok(places.iter().filter_map(|dir| library_in(dir)).collect())
}

fn named_library(named: &OsStr) -> Result<PathBuf> {
    let path = PathBuf::from(named);
    let found = if path.is_dir() {
        library_in(&path)
    } else {
        path.is_file().then(|| path.clone())
    };
    // Use an absolute path: ort resolves relative ones against the program's directory.
    found
        .and_then(|path| path.canonicalize().ok())
        .ok_or_else(|| Error::Missing {
            what: format!(
                "{VARIABLE} is set to {}, which is not a library",
                path.display()
            ),
            remedy: "set it to the library's file or its folder, or unset it".into(),
        })
}

/// Returns the newest library of that name in a folder: `libonnxruntime.so`, `libonnxruntime.so.1.31.1`,
/// `libonnxruntime.dylib`, `onnxruntime.dll`.
fn library_in(dir: &Path) -> Option<PathBuf> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| {
            let versioned = name
                .strip_prefix("libonnxruntime.so")
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            let dylib = name.starts_with("libonnxruntime.") && name.ends_with(".dylib");
            versioned || dylib || name == "onnxruntime.dll"
        })
        .collect();
    // Version numbers are compared as numbers: 1.9 is older than 1.31.
    names.sort_by_key(|name| {
        name.split('.')
            .map(|part| part.parse::<u32>().unwrap_or(0))
            .collect::<Vec<_>>()
    });
    names.pop().map(|name| dir.join(name))
}

/// Returns the environment, which is created on first use. A failure is not remembered: once the library is installed,
/// the next call finds it.
pub(super) fn environment() -> Result<Environment> {
    let mut shared = ENVIRONMENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(environment) = &*shared {
        return Ok(environment.clone());
    }
    let mut refused = None;
    for path in candidates()? {
        // ort panics if the library lacks symbols. The file is at fault then, not the caller.
        let loaded = std::panic::catch_unwind(|| load(&path))
            .unwrap_or_else(|_| Err("it is not ONNX Runtime".into()));
        match loaded {
            Ok(environment) => {
                tracing::debug!(library = %path.display(), "loaded ONNX Runtime");
                *shared = Some(environment.clone());
                return Ok(environment);
            }
            Err(why) => {
                tracing::debug!(library = %path.display(), why, "not loaded");
                refused.get_or_insert(Error::Missing {
                    what: format!("{} can't be loaded: {why}", path.display()),
                    remedy: REMEDY.into(),
                });
            }
        }
    }
    Err(refused.unwrap_or_else(missing))
}

fn load(path: &Path) -> std::result::Result<Environment, String> {
    let builder = ort::init_from(path).map_err(|error| error.to_string())?;
    // ONNX Runtime would write to stderr; its log is redirected to tracing.
    let logger = Arc::new(
        |level: LogLevel, category: &str, _: &str, _: &str, message: &str| match level {
            LogLevel::Error | LogLevel::Fatal => {
                tracing::debug!(category, "onnxruntime: {message}")
            }
            _ => tracing::trace!(category, "onnxruntime: {message}"),
        },
    );
    let environment = builder
        .with_telemetry(false)
        .with_logger(logger)
        .build()
        .map_err(|error| error.to_string())?;
    environment.set_log_level(LogLevel::Error);
    Ok(environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_library_in_a_folder_is_used() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(library_in(dir.path()), None);
        assert_eq!(library_in(&dir.path().join("nowhere")), None);
        for name in [
            "libonnxruntime.so.1.9.0",
            "libonnxruntime_providers_shared.so",
            "libonnxruntime.so.1.31.1",
            "x",
        ] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(
            library_in(dir.path()),
            Some(dir.path().join("libonnxruntime.so.1.31.1"))
        );
    }

    #[test]
    fn a_variable_with_a_missing_path_is_an_error_with_a_remedy() {
        let error = named_library(OsStr::new("/nowhere/libonnxruntime.so")).unwrap_err();
        assert!(matches!(error, Error::Missing { .. }));
        assert!(
            error.to_string().contains("/nowhere/libonnxruntime.so"),
            "{error}"
        );
    }

    #[test]
    fn a_file_that_is_not_a_library_is_an_error_not_a_panic() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libonnxruntime.so");
        fs::write(&path, "not a library").unwrap();
        assert!(load(&path).is_err());
    }
}
