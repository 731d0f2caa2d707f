//! A consistent copy of a live database, taken as a reader.
//!
//! The copy is marked as unfinished (see [`creation`](crate::version::creation)) until all of it is durable. Bytes are
//! copied, so damage to one does not affect the other. Models in the copy share equal files, as in a database.

use crate::Model;
use crate::disk::files::{self, Disk, Files, Storage};
use crate::disk::layout::{Layout, RECORDS};
use crate::disk::mmap::Mapping;
use crate::error::{Error, Result};
use crate::ids::ModelId;
use crate::log;
use crate::model::bundle::{MANIFEST_FILE, Manifest};
use crate::model::registry::REGISTERED_FILE;
use crate::options::ReadOptions;
use crate::segment::FileName;
use crate::version;
use crate::version::catalog::Catalog;
use crate::version::creation::{Creation, Making};
use crate::version::manifest;
use crate::version::record::VersionRecord;
use crate::view;
use serde::Serialize;
use std::collections::HashMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Options of a backup.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct BackupOptions {
    /// Whether to leave out the models that are not active, with their codes and vectors, and the records of training.
    pub active_only: bool,
    /// Whether to share immutable files with the database by hard links, if the file system supports them. Such a copy
    /// takes little space and time, and does not protect against a failing disk: both share the same bytes.
    pub link: bool,
}

impl BackupOptions {
    /// Leaves out models that are not active, with their codes and vectors, and the records of training.
    #[must_use]
    pub fn active_only(mut self, active_only: bool) -> Self {
        self.active_only = active_only;
        self
    }

    /// Shares immutable files with the database by hard links.
    #[must_use]
    pub fn link(mut self, link: bool) -> Self {
        self.link = link;
        self
    }
}

/// The result of a backup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Backup {
    /// The number of files in the copy.
    pub files: u64,
    /// The number of bytes written for them.
    pub bytes: u64,
    /// The number of files that are hard links: to a file of the database, or to an equal file in the copy.
    pub linked: u64,
}

/// Copies a database as it is now to a directory that is missing or empty, while others query and write it. The copy is
/// an independent database, with every row and deletion acknowledged before the call, every registered model, and the
/// records of training. `orphans/` and a rebuild in progress are not copied.
///
/// If it fails, or the process is stopped, the next call with this destination starts over; until then the destination
/// is refused by everything that opens a database.
///
/// # Errors
///
/// [`Error::Invalid`] if the destination is in use, or one of the two directories is inside the other.
pub fn backup(dir: impl AsRef<Path>, dest: impl AsRef<Path>) -> Result<Backup> {
    backup_with(dir, dest, &BackupOptions::default())
}

/// Copies a database with these options; see [`backup`].
pub fn backup_with(
    dir: impl AsRef<Path>,
    dest: impl AsRef<Path>,
    options: &BackupOptions,
) -> Result<Backup> {
    backup_on(&Disk::default(), dir.as_ref(), dest.as_ref(), options)
}

/// Like [`backup_with`], on another [`Files`]; for tests.
pub fn backup_on(
    files: &dyn Files,
    dir: &Path,
    dest: &Path,
    options: &BackupOptions,
) -> Result<Backup> {
    let from = Layout::existing(dir)?;
    // Refuse a directory that is not a database before anything is written.
    manifest::newest(files, from.dir())?;
    refuse_overlap(dir, dest)?;
    let to = Layout::new(dest);
    let creation = Creation::begin(files, &to, Making::Copy)?;
    match copy_settled(files, &from, &to, &creation, options) {
        Ok(done) => {
            // The copy is complete and durable. If removing the marker fails, the copy's first writer removes it.
            if let Err(e) = creation.finish(files, &to) {
                tracing::warn!("{}: {e}", to.dir().display());
            }
            Ok(done)
        }
        Err(e) => {
            creation.abandon(files, &to);
            Err(e)
        }
    }
}

/// Refuses a copy inside its own database, which would copy itself, and a database inside its own copy.
fn refuse_overlap(dir: &Path, dest: &Path) -> Result<()> {
    let from = dir.canonicalize().map_err(Error::io("opening", dir))?;
    let to = resolve(dest)?;
    let how = if to == from {
        "is the database itself"
    } else if to.starts_with(&from) {
        "is inside the database"
    } else if from.starts_with(&to) {
        "has the database in it"
    } else {
        return Ok(());
    };
    Err(Error::invalid(format!(
        "{} {how}; choose another directory",
        dest.display()
    )))
}

/// Resolves links and `..` of a path that may not exist yet.
fn resolve(path: &Path) -> Result<PathBuf> {
    let here = Path::new(".");
    let mut resolved = here.canonicalize().map_err(Error::io("opening", here))?;
    for part in path.components() {
        match part {
            Component::ParentDir if !resolved.exists() => {
                return Err(Error::invalid(format!(
                    "{} goes through {}, which does not exist",
                    path.display(),
                    resolved.display()
                )));
            }
            Component::ParentDir => drop(resolved.pop()),
            part => resolved.push(part),
        }
        // Step by step: `..` leaves the directory that a link leads to, not the one that it is in.
        resolved = resolved.canonicalize().unwrap_or(resolved);
    }
    Ok(resolved)
}

/// Copies until no other version was committed in the meantime.
fn copy_settled(
    files: &dyn Files,
    from: &Layout,
    to: &Layout,
    creation: &Creation,
    options: &BackupOptions,
) -> Result<Backup> {
    // The writer may retire files while they are copied. Then what was copied of that version is dropped, and the copy
    // starts over.
    for _ in 0..20 {
        let record = manifest::newest(files, from.dir())?;
        let mut copy = Copying {
            files,
            // Models are read from the disk, since `Bundle` needs paths.
            storage: Arc::new(Disk::default()),
            from,
            to,
            record: &record,
            options,
            done: Backup::default(),
            contents: HashMap::new(),
        };
        match copy.run() {
            Ok(true) => return Ok(copy.done),
            Ok(false) => {}
            Err(e) if is_not_found(&e) && copy.is_outdated()? => {}
            Err(e) => return Err(e),
        }
        creation.restart(files, to)?;
    }
    Err(Error::invalid(
        "the database changed faster than it could be copied; try again",
    ))
}

/// A copy of one version while it is being made.
struct Copying<'c> {
    files: &'c dyn Files,
    storage: Arc<dyn Storage>,
    from: &'c Layout,
    to: &'c Layout,
    record: &'c VersionRecord,
    options: &'c BackupOptions,
    done: Backup,
    /// The files of models in the copy, by their verified sha256.
    contents: HashMap<String, PathBuf>,
}

impl Copying<'_> {
    /// Returns `false` if the writer committed another version and retired a file of this one before it was copied.
    fn run(&mut self) -> Result<bool> {
        for directory in self.to.directories() {
            self.create_dir(&directory)?;
        }
        // Listing the directory does not notice a log that was retired; its rows are then in a segment of a newer
        // version. So the logs are copied first, and count only if the version is still the newest afterwards. Segments
        // are copied by name, so one that is retired before it is copied is an error.
        self.logs()?;
        if self.is_outdated()? {
            return Ok(false);
        }
        let model = version::load::model(
            &self.storage,
            self.from,
            self.record,
            &ReadOptions::default(),
        )?;
        self.models(&model)?;
        if !self.segments(&model)? {
            return Ok(false);
        }
        if !self.options.active_only {
            self.runs()?;
        }
        let place = self.to.catalog();
        let catalog = Catalog::open(&place).map_err(Error::io("creating the catalog", place))?;
        catalog.commit(self.record)?;
        for directory in self.to.directories().iter().rev() {
            self.sync_dir(directory)?;
        }
        // The manifest is written last: an unfinished copy is not a database.
        manifest::publish(self.files, self.to.dir(), self.record)?;
        Ok(true)
    }

    /// Returns `true` if the writer has committed another version.
    fn is_outdated(&self) -> Result<bool> {
        let newest = manifest::newest(self.files, self.from.dir())?;
        Ok(newest.generation != self.record.generation)
    }

    fn logs(&mut self) -> Result<()> {
        for id in version::replay::live_logs(self.files, self.from, self.record)? {
            let path = self.from.logs().join(log::name(id));
            let bytes = self.read(&path)?;
            // Up to the last complete record. What follows is being written and was not acknowledged.
            let whole = log::read(&path, id, &bytes, 0)?.end as usize;
            if whole > 0 {
                self.write(&self.to.logs().join(log::name(id)), &bytes[..whole])?;
            }
        }
        Ok(())
    }

    /// Copies the active model first, then the others.
    fn models(&mut self, active: &Model) -> Result<()> {
        if let Some(id) = active.id() {
            self.model(id)?;
        }
        if self.options.active_only {
            return Ok(());
        }
        for name in self.list(&self.from.models())? {
            let Ok(id) = name.parse::<ModelId>() else {
                continue;
            };
            if active.id() == Some(id) {
                continue;
            }
            match self.model(id) {
                Err(e) if is_damage(&e) && self.from.model(id).is_dir() => {
                    return Err(Error::model(format!(
                        "model {} is damaged ({e}); a backup of the active model alone leaves it out, and pruning drops it",
                        id.short()
                    )));
                }
                // The model was pruned in the meantime.
                Err(e) if is_not_found(&e) => self.forget(id)?,
                done => done?,
            }
        }
        Ok(())
    }

    fn model(&mut self, id: ModelId) -> Result<()> {
        let (here, there) = (self.from.model(id), self.to.model(id));
        let manifest = Manifest::read(self.files, &here)?;
        self.create_dir(&there)?;
        for entry in &manifest.files {
            let (from, to) = (here.join(&entry.name), there.join(&entry.name));
            if let Some(equal) = self.contents.get(&entry.sha256).cloned() {
                self.place(&equal, &to, files::link_or_copy)?;
                continue;
            }
            let written = self.copy(&from, &to)?;
            // A link shares its bytes already. A damaged file has no verified hash, so the next model copies its own.
            let is_sound = |bytes: Mapping| entry.matches(&bytes);
            if written > 0 && self.files.map(&to).is_ok_and(is_sound) {
                self.contents.insert(entry.sha256.clone(), to);
            }
        }
        self.copy(&here.join(MANIFEST_FILE), &there.join(MANIFEST_FILE))?;
        let registered = here.join(REGISTERED_FILE);
        match self.files.read(&registered) {
            Ok(line) => self.write(&there.join(REGISTERED_FILE), &line)?,
            // An earlier version of this program registered the model.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io("reading", registered)(e)),
        }
        self.sync_dir(&there)
    }

    /// Removes what was copied of a model.
    fn forget(&mut self, id: ModelId) -> Result<()> {
        let there = self.to.model(id);
        self.contents.retain(|_, path| !path.starts_with(&there));
        match self.files.remove_dir(&there) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.map_err(Error::io("removing", there)),
        }
    }

    /// Copies the files of the version, then codes and vectors under the other models. Returns `false` if the version
    /// is outdated.
    fn segments(&mut self, model: &Model) -> Result<bool> {
        let (here, there) = (self.from.segments(), self.to.segments());
        let mut derived: HashMap<_, Vec<FileName>> = HashMap::new();
        if !self.options.active_only {
            for name in self.list(&here)? {
                if let Ok(file) = name.parse::<FileName>()
                    && file.component().is_derived()
                {
                    derived.entry(file.segment()).or_default().push(file);
                }
            }
        }
        for segment in &self.record.segments {
            let mut needed = segment.files();
            needed.extend(view::segment::derived(segment.id, model));
            let mut others = derived.remove(&segment.id).unwrap_or_default();
            others.retain(|file| !needed.contains(file));
            for file in &needed {
                self.copy(&file.within(&here), &file.within(&there))?;
            }
            for file in &others {
                match self.copy(&file.within(&here), &file.within(&there)) {
                    Err(e) if is_not_found(&e) && self.is_outdated()? => return Ok(false),
                    // The model was pruned in the meantime.
                    Err(e) if is_not_found(&e) => {}
                    done => drop(done?),
                }
            }
        }
        Ok(true)
    }

    /// Copies the records of training runs. The trainer replaces each file in one step, so each is complete by itself.
    fn runs(&mut self) -> Result<()> {
        let runs = self.from.runs();
        let is_dir =
            |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
        if !is_dir(&runs) {
            return Ok(());
        }
        let mut any = false;
        for run in self.list(&runs)? {
            let (here, there) = (runs.join(&run), self.to.runs().join(&run));
            if !is_dir(&here) {
                continue;
            }
            let before = self.done.files;
            for name in RECORDS {
                let bytes = match self.read(&here.join(name)) {
                    Err(e) if is_not_found(&e) => continue,
                    bytes => bytes?,
                };
                self.create_dir(&there)?;
                self.write(&there.join(name), &bytes)?;
            }
            any |= self.done.files > before;
        }
        if any {
            self.sync_dir(&self.to.runs())?;
        }
        Ok(())
    }

    /// Copies an immutable file, or links it if the options ask for links. Returns the number of bytes written.
    fn copy(&mut self, from: &Path, to: &Path) -> Result<u64> {
        match self.options.link {
            true => self.place(from, to, files::link_or_copy),
            false => self.place(from, to, files::copy),
        }
    }

    fn place(
        &mut self,
        from: &Path,
        to: &Path,
        how: fn(&dyn Files, &Path, &Path) -> io::Result<u64>,
    ) -> Result<u64> {
        let written = how(self.files, from, to).map_err(Error::io("copying", from))?;
        self.done.files += 1;
        self.done.bytes += written;
        let shared = written == 0 && self.files.len(to).is_ok_and(|len| len > 0);
        self.done.linked += u64::from(shared);
        Ok(written)
    }

    fn write(&mut self, path: &Path, bytes: &[u8]) -> Result<()> {
        files::publish(self.files, path, bytes).map_err(Error::io("writing", path))?;
        self.done.files += 1;
        self.done.bytes += bytes.len() as u64;
        Ok(())
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.files.read(path).map_err(Error::io("reading", path))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.files.list(dir).map_err(Error::io("listing", dir))
    }

    fn create_dir(&self, dir: &Path) -> Result<()> {
        let made = self.files.create_dir(dir);
        made.map_err(Error::io("creating", dir))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let synced = self.files.sync_dir(dir);
        synced.map_err(Error::io("syncing", dir))
    }
}

/// Returns `true` if the error means that the source is damaged.
fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Corrupt(_) | Error::Incompatible { .. }) || is_not_found(error)
}

fn is_not_found(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}
