//! Recovery when a database is opened for writing: finds the newest version, replays the logs, and cleans up.

use crate::columns::MaskCache;
use crate::disk::files::{Files, Storage, list};
use crate::disk::layout::Layout;
use crate::disk::reserve::Reserve;
use crate::error::Result;
use crate::ids::SegmentId;
use crate::options::Options;
use crate::scan::Scanner;
use crate::segment::FileName;
use crate::snapshot::Snapshot;
use crate::version::catalog::Catalog;
use crate::version::replay::{self, Replayed};
use crate::version::{VersionRecord, clean, load, witnesses};
use std::sync::Arc;

/// The result of recovery.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) catalog: Catalog,
    pub(crate) record: VersionRecord,
    /// The segments that the record names, with the rows of the logs.
    pub(crate) snapshot: Snapshot,
    pub(crate) replayed: Replayed,
    pub(crate) next_segment: SegmentId,
    pub(crate) reserve: Arc<Reserve>,
}

/// Finds the newest version, opens its segments, replays its logs, and removes what a crash left. Adds a message for
/// the user to `warnings` for everything that had to be repaired.
///
/// Requires: the writer's lock is held.
pub(crate) fn open(
    files: &Arc<dyn Files>,
    layout: &Layout,
    options: &Options,
    warnings: &mut Vec<String>,
) -> Result<Recovered> {
    let reserve = Arc::new(Reserve::find(files, layout));
    let storage: Arc<dyn Storage> = files.clone();
    let files = &**files;
    let witnesses = witnesses::witnesses(files, layout, &reserve, warnings)?;
    let record = &witnesses.record;
    let model = load::model(&storage, layout, record, &options.for_reading())?;
    let scanner = Arc::new(Scanner::new(options.threads)?);
    let masks = Arc::new(MaskCache::new(options.filter_memory));
    let mut snapshot = load::snapshot(files, layout, record, model, (scanner, masks), None)?;
    let replayed = replay::replay_logs(files, layout, record, &reserve, &mut snapshot, warnings)?;
    clean::clean(files, layout, &reserve, &witnesses, &snapshot, warnings)?;
    let next_segment = next_segment(files, layout, record)?;
    Ok(Recovered {
        catalog: witnesses.catalog,
        record: witnesses.record,
        snapshot,
        replayed,
        next_segment,
        reserve,
    })
}

/// Returns the id of the next segment: above all that any file has.
fn next_segment(files: &dyn Storage, layout: &Layout, record: &VersionRecord) -> Result<SegmentId> {
    let names = list(files, &layout.segments())?;
    let mut used = record.next_segment.0;
    let mut take = |names: Vec<String>| {
        let files = names
            .iter()
            .filter_map(|name| name.parse::<FileName>().ok());
        used = files.map(|file| file.segment().0 + 1).fold(used, u64::max);
    };
    take(names);
    // A rebuild may have staged codes for a segment that a crash removed: do not reuse its id.
    let staging = layout.staging();
    if staging.is_dir() {
        for model in list(files, &staging)? {
            let dir = staging.join(model);
            if dir.is_dir() {
                take(list(files, &dir)?);
            }
        }
    }
    Ok(SegmentId(used))
}
