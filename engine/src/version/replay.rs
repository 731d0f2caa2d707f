//! Replaying logs: rows and deletions that are not in a segment yet.

use crate::disk::files::{self, Files, Storage, list};
use crate::disk::layout::Layout;
use crate::disk::reserve::Reserve;
use crate::error::{Error, Result};
use crate::ids::{LogId, Seq};
use crate::log::{self, Batch, Change, LogContents, LogWriter};
use crate::row::RowsKind;
use crate::snapshot::Snapshot;
use crate::version::VersionRecord;
use crate::view::tail::Run;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// Returns the live logs of a record, oldest first.
pub(crate) fn live_logs(
    files: &dyn Storage,
    layout: &Layout,
    record: &VersionRecord,
) -> Result<Vec<LogId>> {
    let names = list(files, &layout.logs())?;
    let mut logs: Vec<_> = names
        .iter()
        .filter_map(|name| log::parse_name(name))
        .collect();
    logs.retain(|&id| id >= record.first_log);
    logs.sort_unstable();
    Ok(logs)
}

/// Applies the batches of a log to a snapshot, starting at `next`, which advances past them. Returns the applied
/// batches.
///
/// Batches ascend by `Seq`, also from log to log, with one exception: a log to which recovery copied other logs repeats
/// their batches, and coexists with them until a version names it alone. A crash may happen, or a reader may read, in
/// between; batches that were applied already are then skipped.
pub(crate) fn apply_log(
    path: &Path,
    contents: LogContents,
    snapshot: &mut Snapshot,
    next: &mut Seq,
) -> Result<Vec<Batch>> {
    let mut applied = contents.batches;
    applied.retain(|batch| {
        let new = batch.first >= *next;
        *next = (*next).max(batch.end());
        new
    });
    for batch in &applied {
        check_batch(path, batch, snapshot)?;
        if snapshot.schema.lacks(&batch.columns.named) {
            let merged = Arc::make_mut(&mut snapshot.schema).merge(&batch.columns.named);
            merged.map_err(|why| Error::corrupt(path, "record", 0, why))?;
        }
        replay(snapshot, batch)?;
    }
    Ok(applied)
}

/// Applies a batch to a snapshot under construction, as the writer did.
fn replay(next: &mut Snapshot, batch: &Batch) -> Result<()> {
    // The `Seq` of a row that a segment holds already (its log was not retired yet) is not above the segment's.
    for (seq, change, _) in batch.iter() {
        // This ends older rows of the key, never newer ones.
        if let Some(place) = next.find(change.key())?
            && next.seq(place)? < seq
        {
            next.kill(place);
        }
    }
    let codes = next.model.quantize(&batch.vectors.as_ref().widen())?;
    next.tail.push(Run::new(batch, codes, next.model.shape()));
    Ok(())
}

/// Checks that a batch has vectors of this version's encoder: no other vectors are ever quantized.
fn check_batch(path: &Path, batch: &Batch, snapshot: &Snapshot) -> Result<()> {
    let model = &snapshot.model;
    if batch.encoder != model.encoder_id() {
        let detail = format!(
            "a batch of encoder {}, but this version has {}",
            batch.encoder.short(),
            model.encoder_id().short()
        );
        return Err(Error::corrupt(path, "record", 0, detail));
    }
    let texts = model.kind() == RowsKind::Text;
    for (_, change, vector) in batch.iter() {
        if let (Change::Put { key, text, .. }, Some(vector)) = (change, vector) {
            let agrees = (vector.len(), vector.precision()) == (model.dim(), model.precision());
            if !agrees || text.is_some() != texts {
                let detail = format!("the row {key:?} is not of this database's kind");
                return Err(Error::corrupt(path, "record", 0, detail));
            }
        }
    }
    Ok(())
}

/// The result of replaying logs.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) next_seq: Seq,
    pub(crate) next_log: LogId,
    /// The total size of the live logs in bytes.
    pub(crate) bytes: u64,
    /// The log to which all batches were copied, and which a new version must name.
    pub(crate) carried: Option<LogId>,
    /// Whether there were batches to copy but no space for them.
    pub(crate) in_place: bool,
}

/// Replays the live logs into a snapshot, for the writer. A torn tail is moved to `orphans/` and reported. If any log
/// was not closed properly, all batches are copied to a new log, which is closed, so that later damage to them is
/// recognised as damage. On a full disk the logs stay as they are, torn tails included, and only batches that may not
/// be durable are copied.
///
/// # Errors
/// [`Error::Io`] if there is no space even for those.
pub(crate) fn replay_logs(
    files: &dyn Files,
    layout: &Layout,
    record: &VersionRecord,
    reserve: &Reserve,
    snapshot: &mut Snapshot,
    warnings: &mut Vec<String>,
) -> Result<Replayed> {
    let logs = live_logs(files, layout, record)?;
    let mut next_seq = record.first_seq;
    let mut bytes = 0;
    let mut open_end = false;
    let mut batches = Vec::new();
    let mut torn_tails = Vec::new();
    let (mut proven, mut unproven) = (HashSet::new(), HashSet::new());
    for &id in &logs {
        let path = layout.logs().join(log::name(id));
        let raw = files.read(&path).map_err(Error::io("reading", &path))?;
        let contents = log::read(&path, id, &raw, 0)?;
        if let Some(torn) = &contents.torn {
            torn_tails.push((id, raw[torn.offset as usize..].to_vec()));
        }
        bytes += raw.len() as u64;
        open_end |= !contents.ended;
        let (synced, last) =
            (contents.batches).split_at(contents.batches.len() - contents.unproven);
        proven.extend(synced.iter().map(|batch| batch.first));
        unproven.extend(last.iter().map(|batch| batch.first));
        batches.extend(apply_log(&path, contents, snapshot, &mut next_seq)?);
    }
    let mut next_log = LogId(
        logs.last()
            .map_or(record.first_log.0, |id| id.0 + 1)
            .max(record.first_log.0),
    );
    let mut carried = None;
    let mut in_place = false;
    if open_end {
        let id = next_log;
        next_log = LogId(id.0 + 1);
        // The version that will name the new log may need the reserve for its commit, so the reserve is not used here.
        let outcome = reserve.restore(record.rows_stored()).and_then(|()| {
            put_aside(files, layout, &torn_tails, warnings)?;
            carry_over(files, layout, id, &batches)
        });
        match outcome {
            Ok(new) => {
                bytes = new;
                carried = Some(id);
            }
            Err(e) if e.is_full() => {
                in_place = !batches.is_empty();
                // A power cut could remove batches that were never synced after a query has returned them. There is
                // rarely more than one such batch.
                batches.retain(|batch| {
                    unproven.contains(&batch.first) && !proven.contains(&batch.first)
                });
                if !batches.is_empty() {
                    bytes += reserve.spend(|| {
                        let id = next_log;
                        next_log = LogId(id.0 + 1);
                        carry_over(files, layout, id, &batches)
                    })?;
                }
                warnings.push(format!(
                    "the disk is full ({e}), so the logs were not cleaned up; delete rows and compact, or free some space: \
                     no rows are inserted until there is space"
                ));
            }
            Err(e) => return Err(e),
        }
    }
    Ok(Replayed {
        next_seq,
        next_log,
        bytes,
        carried,
        in_place,
    })
}

/// Copies torn tails of logs to `orphans/`. If that fails, it leaves no partial copy there.
fn put_aside(
    files: &dyn Files,
    layout: &Layout,
    tails: &[(LogId, Vec<u8>)],
    warnings: &mut Vec<String>,
) -> Result<()> {
    if tails.is_empty() {
        return Ok(());
    }
    let orphans = layout.orphans();
    let aside = |id: LogId| orphans.join(format!("{}.torn", log::name(id)));
    let copy = || {
        files
            .create_dir(&orphans)
            .map_err(Error::io("creating", &orphans))?;
        for (id, bytes) in tails {
            let path = aside(*id);
            files::publish(files, &path, bytes).map_err(Error::io("writing", &path))?;
        }
        Ok(())
    };
    if let Err(e) = copy() {
        for (id, _) in tails {
            let _ = files.remove(&aside(*id));
        }
        return Err(e);
    }
    for (id, bytes) in tails {
        warnings.push(format!(
            "the last {} bytes of {} were a write that was never finished or acknowledged; they were moved to {}",
            bytes.len(),
            layout.logs().join(log::name(*id)).display(),
            aside(*id).display()
        ));
    }
    Ok(())
}

/// Writes all batches to a new log and closes it. Returns its length. If that fails, the log is removed. If it can't be
/// removed, its batches are found twice and applied once.
fn carry_over(files: &dyn Files, layout: &Layout, id: LogId, batches: &[Batch]) -> Result<u64> {
    let mut log = LogWriter::create(files, &layout.logs(), id)?;
    let write = || {
        for batch in batches {
            log.append(batch)?;
        }
        let bytes = log.bytes();
        log.end()?;
        Ok(bytes)
    };
    let outcome = write();
    if outcome.is_err() {
        let _ = files.remove(&layout.logs().join(log::name(id)));
    }
    outcome
}
