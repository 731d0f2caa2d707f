//! Renaming files to the names that their contents require, and correcting flipped bits.

use super::Repair;
use crate::disk::files::list;
use crate::disk::files::relocate;
use crate::disk::orphans::orphan;
use crate::error::{Error, Result};
use crate::format::Kind;
use crate::ids::SegmentId;
use crate::log;
use crate::metric::Metric;
use crate::segment::columns::ColumnsFile;
use crate::segment::{Deletions, FileName, RowsFile, RowsHash, correct};
use crate::stored::Precision;
use crate::version::VersionRecord;
use crate::version::manifest;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// A rows file that could be opened, and the damage in it.
pub(super) struct OpenRows {
    pub(super) rows: RowsFile,
    pub(super) damage: Vec<Error>,
}

/// Facts about rows files that only a record holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    metric: Metric,
    store: Option<Precision>,
}

impl Known {
    pub(super) fn of(record: Option<&VersionRecord>) -> Self {
        Self {
            metric: record.map_or(Metric::Cosine, |record| record.metric),
            store: record.map(VersionRecord::precision),
        }
    }
}

impl Repair<'_> {
    /// Moves anything that has the name of a file but is not one, such as a directory, to `orphans/`.
    pub(super) fn clear_the_way(&mut self) -> Result<()> {
        let root = self.layout.dir().to_path_buf();
        for dir in [root.clone(), self.layout.segments(), self.layout.logs()] {
            for name in list(&*self.disk, &dir)? {
                let ours = match dir == root {
                    true => manifest::parse_name(&name).is_some(),
                    false => name.parse::<FileName>().is_ok() || log::parse_name(&name).is_some(),
                };
                let path = dir.join(&name);
                if ours && !path.is_file() {
                    orphan(&*self.disk, &self.layout, &path)?;
                    self.done(format!("{name} was not a file and was moved to orphans"));
                }
            }
        }
        Ok(())
    }

    /// Moves the files of segments in `orphans/` back to `segments/`, where their names are free.
    pub(super) fn take_back(&mut self) -> Result<()> {
        let (orphans, segments) = (self.layout.orphans(), self.layout.segments());
        if !orphans.is_dir() {
            return Ok(());
        }
        let taken = list(&*self.disk, &segments)?;
        for name in list(&*self.disk, &orphans)? {
            let Some(file) = original_name(&name) else {
                continue;
            };
            // A segment with that number exists: the orphan was an input of the compaction that made it.
            let there = taken
                .iter()
                .filter_map(|name| name.parse::<FileName>().ok())
                .any(|other| other.segment() == file.segment());
            let to = file.within(&segments);
            if !there && !to.exists() {
                self.relocate(&orphans.join(&name), &to)?;
                self.done(format!("{file} was moved back from orphans"));
            }
        }
        Ok(())
    }

    /// Renames files of rows and deletions that have another file's name to the name that their content requires.
    pub(super) fn straighten(&mut self) -> Result<()> {
        let dir = self.layout.segments();
        let mut misnamed: BTreeMap<FileName, PathBuf> = BTreeMap::new();
        for name in list(&*self.disk, &dir)? {
            let Ok(file) = name.parse::<FileName>() else {
                continue;
            };
            let path = dir.join(&name);
            let holds = match file {
                FileName::Rows(_) => {
                    RowsFile::identify(&*self.disk, &path).map(|(id, _)| FileName::Rows(id))
                }
                FileName::Deletions(..) => Deletions::identify(&*self.disk, &path)
                    .map(|(id, version)| FileName::Deletions(id, version)),
                FileName::Columns(_) => {
                    ColumnsFile::identify(&*self.disk, &path).map(FileName::Columns)
                }
                // These are computed again if they are not what they should be.
                FileName::Codes(..) | FileName::Vecs(..) | FileName::Words(..) => None,
            };
            if let Some(holds) = holds
                && holds != file
            {
                let aside = orphan(&*self.disk, &self.layout, &path)?;
                self.done(format!(
                    "{name} had the content of {holds} and was moved to orphans"
                ));
                misnamed.insert(holds, aside);
            }
        }
        for (file, aside) in misnamed {
            let to = file.within(&dir);
            if !to.exists() {
                self.relocate(&aside, &to)?;
                self.done(format!("{file} had a wrong name and was renamed"));
            }
        }
        Ok(())
    }

    /// Opens the rows file of a segment: the one with this hash, if a hash is given. A missing file is looked for in
    /// `orphans/`; a damaged one is corrected as far as possible.
    pub(super) fn open_rows(
        &mut self,
        id: SegmentId,
        hash: Option<u64>,
        known: Known,
    ) -> Result<Result<OpenRows, Error>> {
        let dir = self.layout.segments();
        let path = FileName::Rows(id).within(&dir);
        let mut opened = self.try_rows(&path, hash)?;
        if opened.is_err()
            && let Some(aside) = self.in_orphans(id, hash)?
        {
            if path.exists() {
                orphan(&*self.disk, &self.layout, &path)?;
            }
            self.relocate(&aside, &path)?;
            self.done(format!(
                "the rows of segment {id} were found in orphans and moved back"
            ));
            opened = self.try_rows(&path, hash)?;
        }
        let damaged = match &opened {
            Ok(open) => !open.damage.is_empty(),
            Err(Error::Corrupt(_)) => path.is_file(),
            Err(_) => false,
        };
        if damaged && self.correct(&path, Kind::Rows)? {
            opened = self.try_rows(&path, hash)?;
        }
        if opened.is_err() && path.is_file() {
            let rows = RowsFile::open_damaged(&*self.disk, &path, known.metric, known.store);
            if let Ok(rows) = rows
                && hash.is_none_or(|hash| rows.hash().0 == hash)
            {
                let damage = rows.verify();
                opened = Ok(OpenRows { rows, damage });
            }
        }
        Ok(opened)
    }

    /// The outer error ends the repair: the file exists and can't be read.
    fn try_rows(&self, path: &Path, hash: Option<u64>) -> Result<Result<OpenRows, Error>> {
        let rows = match RowsFile::open(&*self.disk, path) {
            Ok(rows) => rows,
            Err(e) if is_damage(&e) => return Ok(Err(e)),
            Err(e) => return Err(e),
        };
        if hash.is_some_and(|hash| rows.hash().0 != hash) {
            let what = "this is not the file that the version record names";
            return Ok(Err(Error::corrupt(path, "meta", 0, what)));
        }
        let damage = rows.verify();
        Ok(Ok(OpenRows { rows, damage }))
    }

    /// Returns a rows file of this segment from the orphans. Without the option `restore`, only one that a record names
    /// by its hash is taken.
    fn in_orphans(&self, id: SegmentId, hash: Option<u64>) -> Result<Option<PathBuf>> {
        let (Some(hash), true) = (hash, self.layout.orphans().is_dir()) else {
            return Ok(None);
        };
        let dir = self.layout.orphans();
        let names = list(&*self.disk, &dir)?;
        Ok(names
            .iter()
            .filter(|name| name.contains(".rows"))
            .map(|name| dir.join(name))
            .find(|path| {
                let found = RowsFile::identify(&*self.disk, path);
                found == Some((id, RowsHash(hash)))
            }))
    }

    /// Corrects flipped bits of a file. The damaged file moves to `orphans/`. Returns `true` if any were found.
    pub(super) fn correct(&mut self, path: &Path, kind: Kind) -> Result<bool> {
        let orphans = self.layout.orphans();
        self.disk
            .create_dir(&orphans)
            .map_err(Error::io("creating", &orphans))?;
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(".corrected");
        let copy = orphans.join(name);
        let corrected = correct(&*self.disk, path, kind, &copy)?;
        if corrected == 0 {
            return Ok(false);
        }
        orphan(&*self.disk, &self.layout, path)?;
        self.relocate(&copy, path)?;
        let places = if corrected == 1 { "place" } else { "places" };
        self.done(format!(
            "{}: flipped bits were corrected in {corrected} {places}; the damaged file is kept in orphans",
            path.display()
        ));
        Ok(true)
    }

    pub(super) fn relocate(&self, from: &Path, to: &Path) -> Result<()> {
        relocate(&*self.disk, from, to).map_err(Error::io("moving", from))?;
        for path in [from, to] {
            let dir = path.parent().unwrap_or(Path::new("."));
            self.disk.sync_dir(dir).map_err(Error::io("syncing", dir))?;
        }
        Ok(())
    }
}

/// Returns `true` if an error means that bytes are wrong or missing, as opposed to unreadable at the moment.
pub(super) fn is_damage(error: &Error) -> bool {
    match error {
        Error::Corrupt(_) => true,
        Error::Io { source, .. } => matches!(
            source.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory
        ),
        _ => false,
    }
}

/// Returns the name that a file in `orphans/` had. A number is appended there if the name was already taken.
fn original_name(name: &str) -> Option<FileName> {
    if let Ok(file) = name.parse() {
        return Some(file);
    }
    let (name, number) = name.rsplit_once('.')?;
    number.parse::<u32>().ok()?;
    name.parse().ok()
}
