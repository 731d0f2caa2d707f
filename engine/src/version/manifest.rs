//! The second copy of each committed [`VersionRecord`]: the file `MANIFEST-n`.
//!
//! Readers in other processes use only these files.

use crate::disk::files::{self, Files, Storage};
use crate::error::{Error, Result};
use crate::ids::Generation;
use crate::version::creation;
use crate::version::record::{BadRecord, VersionRecord};
use std::io;
use std::path::{Path, PathBuf};

/// The number of manifests that are kept.
const KEPT: usize = 4;

/// Returns the path of a generation's manifest.
pub(crate) fn path(dir: &Path, generation: Generation) -> PathBuf {
    dir.join(format!("MANIFEST-{:010}", generation.0))
}

/// Returns the generation whose manifest has this name.
pub(crate) fn parse_name(name: &str) -> Option<Generation> {
    let digits = name.strip_prefix("MANIFEST-")?;
    let generation = digits.parse().ok()?;
    (digits == format!("{generation:010}")).then_some(Generation(generation))
}

/// Returns the generations that have a manifest, oldest first.
pub(crate) fn generations(files: &dyn Storage, dir: &Path) -> Result<Vec<Generation>> {
    let names = files.list(dir).map_err(Error::io("listing", dir))?;
    let mut found: Vec<_> = names.iter().filter_map(|name| parse_name(name)).collect();
    found.sort_unstable();
    Ok(found)
}

/// Writes a record's manifest. It is complete and durable when this returns, and never visible before.
pub(crate) fn publish(files: &dyn Files, dir: &Path, record: &VersionRecord) -> Result<()> {
    let path = path(dir, record.generation);
    files::publish(files, &path, &record.encode()).map_err(Error::io("writing", &path))
}

/// The state of a manifest.
#[derive(Debug)]
pub(crate) enum Found {
    /// A valid manifest.
    Record(Box<VersionRecord>),
    /// A damaged manifest, with the reason.
    Damaged(String),
    /// There is no manifest.
    Absent,
}

/// Reads one generation's manifest. A record of a newer version is an error, not damage.
pub(crate) fn read(files: &dyn Storage, dir: &Path, generation: Generation) -> Result<Found> {
    let path = path(dir, generation);
    let bytes = match files.read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found::Absent),
        Err(e) => return Err(Error::io("reading", &path)(e)),
    };
    match VersionRecord::decode(&bytes) {
        Ok(record) if record.generation == generation => Ok(Found::Record(Box::new(record))),
        Ok(record) => Ok(Found::Damaged(format!(
            "it holds generation {}",
            record.generation
        ))),
        Err(BadRecord::Damaged(what)) => Ok(Found::Damaged(what)),
        Err(future @ BadRecord::Future(_)) => Err(Error::Incompatible {
            path,
            what: future.to_string(),
        }),
    }
}

/// Returns the newest record, for a reader, which has no second copy to use.
pub(crate) fn newest(files: &dyn Storage, dir: &Path) -> Result<VersionRecord> {
    let Some(&generation) = generations(files, dir)?.last() else {
        creation::refuse_unfinished(files, dir)?;
        return Err(Error::not_a_database(dir));
    };
    match read(files, dir, generation)? {
        Found::Record(record) => Ok(*record),
        Found::Damaged(what) => Err(damaged(dir, generation, &what)),
        // It was removed between listing and reading, so there is a newer one.
        Found::Absent => newest(files, dir),
    }
}

/// Returns the error for a manifest that a reader needs.
fn damaged(dir: &Path, generation: Generation, what: &str) -> Error {
    let detail = format!(
        "{what}; opening the database for writing restores it from the catalog; if not, repair the database"
    );
    Error::corrupt(path(dir, generation), "record", 0, detail)
}

/// Removes all manifests except the newest few. Files that can't be removed are tried again next time.
pub(crate) fn prune(files: &dyn Files, dir: &Path) {
    let Ok(found) = generations(files, dir) else {
        return;
    };
    for &old in found.iter().rev().skip(KEPT) {
        if let Err(e) = files.remove(&path(dir, old)) {
            tracing::debug!("manifest {old} stays: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::files::Disk;
    use crate::version::record::tests::record;

    #[test]
    fn the_newest_manifest_is_found_and_the_last_four_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        for n in 1..=6 {
            publish(&Disk::default(), dir.path(), &record(n)).unwrap();
            prune(&Disk::default(), dir.path());
        }
        assert_eq!(newest(&Disk::default(), dir.path()).unwrap(), record(6));
        let left = generations(&Disk::default(), dir.path()).unwrap();
        assert_eq!(left, [3, 4, 5, 6].map(Generation));
    }

    #[test]
    fn a_damaged_newest_manifest_is_an_error_and_no_older_one_replaces_it() {
        let dir = tempfile::tempdir().unwrap();
        for n in 1..=2 {
            publish(&Disk::default(), dir.path(), &record(n)).unwrap();
        }
        let newest_path = path(dir.path(), Generation(2));
        let mut bytes = std::fs::read(&newest_path).unwrap();
        bytes[100] ^= 1;
        std::fs::write(&newest_path, bytes).unwrap();
        let error = newest(&Disk::default(), dir.path()).unwrap_err();
        assert!(
            matches!(&error, Error::Corrupt(_)) && error.to_string().contains("repair"),
            "{error}"
        );
    }

    #[test]
    fn a_directory_without_manifests_is_not_a_database() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(
            newest(&Disk::default(), dir.path()),
            Err(Error::Incompatible { .. })
        ));
    }
}
