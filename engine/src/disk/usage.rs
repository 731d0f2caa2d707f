//! Disk usage, counting files with several names once.

use crate::disk::files::{Disk, Storage};
use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::path::{Path, PathBuf};

/// Returns the files below a directory, or the single file, with their sizes. If a file has several names, only the
/// first in order has its size, the others have 0. Symbolic links are not followed.
pub(crate) fn tree(path: &Path) -> Vec<(PathBuf, u64)> {
    let mut seen = HashSet::new();
    let once = |(path, found): (PathBuf, Metadata)| match identity(&found) {
        Some((file, _)) if !seen.insert(file) => (path, 0),
        _ => (path, found.len()),
    };
    walk(path).into_iter().map(once).collect()
}

/// Returns the bytes that removing these files and directories frees: those of files without another name.
pub(crate) fn freed(paths: &[PathBuf]) -> u64 {
    let mut names = HashMap::new();
    let mut bytes = 0;
    for (_, found) in paths.iter().flat_map(|path| walk(path)) {
        let Some((file, links)) = identity(&found) else {
            bytes += found.len();
            continue;
        };
        let count = names.entry(file).or_insert(0);
        *count += 1;
        bytes += if *count == links { found.len() } else { 0 };
    }
    bytes
}

fn walk(path: &Path) -> Vec<(PathBuf, Metadata)> {
    // A file that was removed in the meantime takes no space.
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => {
            let names = Disk::default().list(path).unwrap_or_default();
            let paths = names.iter().map(|name| path.join(name));
            paths.flat_map(|path| walk(&path)).collect()
        }
        Ok(found) if found.is_file() => vec![(path.into(), found)],
        _ => Vec::new(),
    }
}

/// Returns what identifies a file under any name, and how many names it has; `None` if the system does not say.
fn identity(found: &Metadata) -> Option<((u64, u64), u64)> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        Some(((found.dev(), found.ino()), found.nlink()))
    }
    #[cfg(not(unix))]
    {
        let _ = found;
        None
    }
}
