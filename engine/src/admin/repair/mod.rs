//! Repairing a damaged database: nothing that can be read is lost, and every decision is reported.
//!
//! [`files`] gives every file the name that its content requires and corrects flipped bits. [`segments`] decides which
//! segments belong to the database and which of their rows are live. [`rewrite`] makes a sound segment of what remains
//! of a damaged one, [`columns`] a sound columns file, and [`logs`] does the same for logs. [`model`] chooses the model.
//! [`commit`] computes what can be computed, and commits a version if the current one no longer matches the files.
//!
//! No file that holds rows is deleted here: what is not part of the repaired version moves to `orphans/`.

mod columns;
mod commit;
mod files;
mod logs;
mod model;
mod rewrite;
mod segments;

use crate::disk::files::{Disk, Files};
use crate::disk::layout::Layout;
use crate::disk::lock::FileLock;
use crate::disk::reserve::Reserve;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::version;
use crate::version::VersionRecord;
use crate::version::creation;
use crate::version::manifest;
use crate::write::Store;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

/// Options of a repair.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RepairOptions {
    /// Whether to continue without what can't be read. If not, it is listed in [`Repaired::pending`] and stays as it
    /// is.
    pub accept_loss: bool,
    /// Whether to bring back the rows of files in `orphans/`. Rows that were deleted after their file moved there come
    /// back too.
    pub restore: bool,
}

impl RepairOptions {
    /// Continues without what can't be read.
    #[must_use]
    pub fn accept_loss(mut self, accept: bool) -> Self {
        self.accept_loss = accept;
        self
    }

    /// Brings back the rows of files in `orphans/`.
    #[must_use]
    pub fn restore(mut self, restore: bool) -> Self {
        self.restore = restore;
        self
    }
}

/// The result of a repair, in words for the user.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct Repaired {
    /// What was found and repaired; empty if nothing was wrong.
    pub done: Vec<String>,
    /// What can't be recovered. The database works without it.
    pub lost: Vec<String>,
    /// What could only be repaired with a loss, and was left as it is.
    pub pending: Vec<String>,
    /// The keys of lost rows, as far as they are known; with [`pending`](Self::pending), of the rows that would be
    /// lost.
    pub lost_keys: Vec<String>,
    /// The number of live rows now; `None` if something is pending.
    pub rows: Option<u64>,
}

impl Repaired {
    /// Returns `true` if no row and no deletion was lost or is pending.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty() && self.pending.is_empty()
    }
}

/// Repairs a database, even one that can't be opened. Takes the writer's lock.
///
/// Codes are computed again from vectors, and vectors from texts, which needs the encoder. A single flipped bit is
/// corrected. If a file with rows is damaged, all other rows in it are kept; the damaged file moves to `orphans/`.
///
/// [`Error::Locked`] if another process writes, [`Error::Missing`] if texts must be encoded and the encoder's library
/// is missing, [`Error::Io`] if a file cannot be read because of its permissions. Nothing is lost then; run it again.
pub fn repair(dir: impl AsRef<Path>, options: &RepairOptions) -> Result<Repaired> {
    repair_on(Arc::new(Disk::default()), dir.as_ref(), options)
}

/// Like [`repair`], on another [`Files`]; for tests.
pub fn repair_on(disk: Arc<dyn Files>, dir: &Path, options: &RepairOptions) -> Result<Repaired> {
    let layout = Layout::existing(dir)?;
    // An unfinished copy is not a damaged database: the data is complete at its source.
    creation::refuse_unfinished(&*disk, layout.dir())?;
    layout.expect_folders()?;
    let mut repair = Repair {
        reserve: Arc::new(Reserve::find(&disk, &layout)),
        disk,
        layout,
        options,
        report: Repaired::default(),
    };
    {
        let _lock = FileLock::acquire(&repair.layout.lock())?;
        let reserve = Arc::clone(&repair.reserve);
        // A repair that stopped halfway can be run again. What it did before that is reported too.
        reserve.spend(|| repair.run())?;
    }
    let Repair {
        disk,
        layout,
        report,
        ..
    } = repair;
    let mut report = report;
    if !report.pending.is_empty() {
        return Ok(report);
    }
    let options = Options {
        auto_compact: false,
        ..Options::default()
    };
    let store = Store::open(disk, layout.dir(), options)?;
    report.done.extend(store.warnings.iter().cloned());
    report.rows = Some(store.current().rows());
    store.close()?;
    Ok(report)
}

struct Repair<'o> {
    disk: Arc<dyn Files>,
    reserve: Arc<Reserve>,
    layout: Layout,
    options: &'o RepairOptions,
    report: Repaired,
}

/// What is known about the newest version.
struct Base {
    /// The newest record, if a manifest or the catalog has it.
    record: Option<VersionRecord>,
    /// The newest intact record of any age, for what does not change from version to version.
    hint: Option<VersionRecord>,
}

impl Repair<'_> {
    fn run(&mut self) -> Result<()> {
        self.clear_the_way()?;
        let base = self.base()?;
        if self.options.restore {
            self.take_back()?;
        }
        self.straighten()?;
        let found = self.find_segments(&base)?;
        let logs = self.check_logs(&base, &found)?;
        let Some(model) = self.choose_model(&base, &found)? else {
            return Ok(());
        };
        let schema = self.schema(&base, &found, &logs.columns);
        let mut found = self.make_sound(found, &base, (&model, &schema))?;
        self.derive(&found, &model)?;
        self.commit(&base, &mut found, &logs, (&model, schema))
    }

    fn base(&mut self) -> Result<Base> {
        let disk = Arc::clone(&self.disk);
        let (disk, layout) = (&*disk, &self.layout.clone());
        let mut hint = None;
        for &generation in manifest::generations(disk, layout.dir())?.iter().rev() {
            if let manifest::Found::Record(record) = manifest::read(disk, layout.dir(), generation)?
            {
                hint = Some(*record);
                break;
            }
        }
        let record =
            match version::witnesses::witnesses(disk, layout, &self.reserve, &mut self.report.done)
            {
                Ok(witnesses) => match self.newer_than(&witnesses.record)? {
                    None => Some(witnesses.record),
                    Some(newer) => {
                        self.done(newer);
                        None
                    }
                },
                Err(Error::Corrupt(damage)) => {
                    self.report.done.push(damage.to_string());
                    None
                }
                Err(Error::Incompatible { .. }) if hint.is_none() => {
                    let what = "all manifests and the catalog are missing";
                    self.report.done.push(what.into());
                    None
                }
                Err(e) => return Err(e),
            };
        Ok(Base {
            hint: record.clone().or(hint),
            record,
        })
    }

    /// Reports a loss. Returns `true` if the repair may continue without it.
    fn lose(&mut self, what: String, keys: Vec<String>) -> bool {
        self.report.lost_keys.extend(keys);
        if self.options.accept_loss {
            self.report.lost.push(what);
        } else {
            self.report.pending.push(what);
        }
        self.options.accept_loss
    }

    fn done(&mut self, what: impl Into<String>) {
        self.report.done.push(what.into());
    }
}
