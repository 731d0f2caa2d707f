//! A consistent copy of a live database, taken as a reader.

use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::files::{self, Disk, Files};
use crate::layout::Layout;
use crate::log;
use crate::manifest;
use crate::recover;
use crate::sealed::{codes_path, vecs_path};
use crate::segment::FileName;
use crate::version::{RowsKind, VersionRecord};
use crate::{Bundle, Options};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};

/// What was copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Backup {
    /// Files.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Copies a database as it is now to a directory that is missing or empty, while others query and write it. The copy is
/// a database of its own: everything acknowledged before the call is in it.
pub fn backup(dir: impl AsRef<Path>, dest: impl AsRef<Path>) -> Result<Backup> {
    backup_on(&Disk::default(), dir.as_ref(), dest.as_ref())
}

/// The same on another [`Files`]: for tests.
pub fn backup_on(disk: &dyn Files, dir: &Path, dest: &Path) -> Result<Backup> {
    let from = Layout::existing(dir)?;
    let to = Layout::new(dest);
    if to.dir().exists()
        && !disk
            .list(to.dir())
            .map_err(Error::io("listing", to.dir()))?
            .is_empty()
    {
        return Err(Error::invalid(format!(
            "{} is not empty; choose another directory",
            to.dir().display()
        )));
    }
    // The writer may retire files under our hands: what was copied of that version is dropped, and we begin again.
    for _ in 0..20 {
        let record = manifest::newest(disk, from.dir())?;
        match copy(disk, &from, &to, &record) {
            Ok(Some(done)) => return Ok(done),
            Ok(None) => {}
            Err(Error::Io { source, .. })
                if source.kind() == io::ErrorKind::NotFound
                    && manifest::newest(disk, from.dir())?.generation != record.generation => {}
            Err(e) => return Err(e),
        }
        disk.remove_dir(to.dir())
            .map_err(Error::io("removing", to.dir()))?;
    }
    Err(Error::invalid(
        "the database changed faster than it could be copied; try again",
    ))
}

/// None if the writer has moved on to another version before its logs were copied.
fn copy(
    disk: &dyn Files,
    from: &Layout,
    to: &Layout,
    record: &VersionRecord,
) -> Result<Option<Backup>> {
    let mut done = Backup::default();
    for directory in to.directories() {
        disk.create_dir(&directory)
            .map_err(Error::io("creating", &directory))?;
    }
    // A log that is retired is missed by nobody who lists what is there. Its rows are then in a segment of a newer version:
    // so the logs come first, and are believed if the version is still the newest. Its segments have names, and one that
    // is retired before it is copied is missed.
    for id in recover::live_logs(disk, from, record)? {
        let path = from.logs().join(log::name(id));
        let bytes = disk.read(&path).map_err(Error::io("reading", &path))?;
        // Up to the last whole record: what follows is being written, and was acknowledged to nobody.
        let whole = log::read(&path, id, &bytes, 0)?.end as usize;
        if whole == 0 {
            continue;
        }
        let target = to.logs().join(log::name(id));
        files::publish(disk, &target, &bytes[..whole]).map_err(Error::io("writing", &target))?;
        done.files += 1;
        done.bytes += whole as u64;
    }
    if manifest::newest(disk, from.dir())?.generation != record.generation {
        return Ok(None);
    }
    let model = recover::model(from, record, &Options::default())?;
    if let Some(bundle) = model.bundle() {
        copy_bundle(disk, bundle, &to.model(bundle.model_id()), &mut done)?;
    }
    let (here, there) = (from.segments(), to.segments());
    for segment in &record.segments {
        let mut paths = vec![FileName::Rows(segment.id).within(&here)];
        paths
            .extend((model.rows() == RowsKind::Text).then(|| vecs_path(&here, segment.id, &model)));
        paths.extend(codes_path(&here, segment.id, &model));
        paths.extend(
            segment
                .deletions
                .map(|version| FileName::Deletions(segment.id, version).within(&here)),
        );
        for path in paths {
            let name = path.file_name().expect("a file of a segment has a name");
            copy_file(&path, &there.join(name), &mut done)?;
        }
    }
    let catalog = Catalog::open(&to.catalog()).map_err(|why| Error::Io {
        doing: "creating the catalog",
        path: to.catalog(),
        source: io::Error::other(why),
    })?;
    catalog.commit(record)?;
    for directory in to.directories().iter().rev() {
        disk.sync_dir(directory)
            .map_err(Error::io("syncing", directory))?;
    }
    // The manifest comes last: a copy cut short is no database.
    manifest::publish(disk, to.dir(), record)?;
    Ok(Some(done))
}

fn copy_bundle(disk: &dyn Files, bundle: &Bundle, home: &PathBuf, done: &mut Backup) -> Result<()> {
    disk.create_dir(home).map_err(Error::io("creating", home))?;
    let names = bundle
        .manifest()
        .files
        .iter()
        .map(|file| file.name.as_str());
    for name in names.chain([crate::bundle::MANIFEST_FILE]) {
        copy_file(&bundle.dir().join(name), &home.join(name), done)?;
    }
    disk.sync_dir(home).map_err(Error::io("syncing", home))
}

fn copy_file(from: &Path, to: &Path, done: &mut Backup) -> Result<()> {
    files::plain(from).map_err(Error::io("copying", from))?;
    done.bytes += std::fs::copy(from, to).map_err(Error::io("copying", from))?;
    done.files += 1;
    std::fs::File::open(to)
        .and_then(|file| file.sync_all())
        .map_err(Error::io("syncing", to))
}
