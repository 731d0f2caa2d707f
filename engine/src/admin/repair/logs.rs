//! Repairs logs: corrects flipped bits, and keeps the batches before and after damage.

use super::segments::Found;
use super::{Base, Repair};
use crate::columns::Column;
use crate::disk::files::list;
use crate::disk::orphans::orphan;
use crate::error::{Error, Result};
use crate::ids::{LogId, Seq};
use crate::log::{self, Batch, LogWriter};

/// What the logs say, for a version that must be made.
pub(super) struct Logs {
    /// The first log with rows that are in no segment.
    pub(super) first: LogId,
    /// The smallest `Seq` in these logs is at least this.
    pub(super) first_seq: Seq,
    /// Changes in earlier logs. They end older rows with the same keys.
    pub(super) tombstones: Vec<(String, Seq)>,
    /// The columns that they name, in their order; without a record only.
    pub(super) columns: Vec<Column>,
}

impl Repair<'_> {
    /// Reads every log. With a record, logs before its first one are moved to `orphans/`, since their rows are in
    /// segments.
    pub(super) fn check_logs(&mut self, base: &Base, found: &Found) -> Result<Logs> {
        let dir = self.layout.logs();
        let mut ids: Vec<LogId> = (list(&*self.disk, &dir)?.iter())
            .filter_map(|name| log::parse_name(name))
            .collect();
        ids.sort_unstable();
        let sealed_to = (found.segments.iter())
            .filter_map(|segment| segment.rows.summary().seqs)
            .map(|(_, last)| last)
            .max();
        let mut logs = Logs {
            first: LogId(ids.last().map_or(1, |id| id.0 + 1)),
            first_seq: Seq(sealed_to.map_or(1, |seq| seq.0 + 1)),
            tombstones: Vec::new(),
            columns: Vec::new(),
        };
        if let Some(record) = &base.record {
            logs.first = record.first_log;
            logs.first_seq = record.first_seq;
        }
        for id in ids {
            if base.record.is_some() && id < logs.first {
                orphan(&*self.disk, &self.layout, &dir.join(log::name(id)))?;
                self.done(format!(
                    "log {id} is older than this version; it was moved to orphans"
                ));
                continue;
            }
            let batches = self.sound_log(id)?;
            if base.record.is_some() {
                continue;
            }
            let named = batches.iter().flat_map(|batch| &batch.columns.named);
            logs.columns.extend(named.cloned());
            // A log whose `Seq`s are all in a segment's range was sealed: its current rows are in that segment, and its
            // deletions are applied again.
            let end = batches.iter().map(Batch::end).max();
            if end.is_some_and(|end| Some(Seq(end.0 - 1)) > sealed_to) {
                logs.first = logs.first.min(id);
            }
            if logs.first <= id {
                continue;
            }
            for batch in &batches {
                for (seq, change) in (batch.first.0..).map(Seq).zip(&batch.changes) {
                    // A row that was inserted again ends the older ones too.
                    logs.tombstones.push((change.key().to_string(), seq));
                }
            }
        }
        Ok(logs)
    }

    /// Returns the batches of a log. A damaged log is written again.
    fn sound_log(&mut self, id: LogId) -> Result<Vec<Batch>> {
        let path = self.layout.logs().join(log::name(id));
        let bytes = self.disk.read(&path).map_err(Error::io("reading", &path))?;
        let damage = match log::read(&path, id, &bytes, 0) {
            Ok(contents) => return Ok(contents.batches),
            Err(damage @ Error::Corrupt(_)) => damage,
            Err(e) => return Err(e),
        };
        let remains = log::salvage(id, &bytes);
        if !remains.damaged.is_empty() || (remains.corrected == 0 && remains.rest > 0) {
            let missing = missing_changes(&remains.batches);
            let what = format!(
                "log {id} is damaged: {} batches can be read, {missing} are lost: {damage}",
                remains.batches.len()
            );
            if !self.lose(what, Vec::new()) {
                return Ok(remains.batches);
            }
        } else {
            self.done(format!(
                "log {id} was written again, with all of its {} batches: {damage}",
                remains.batches.len()
            ));
        }
        orphan(&*self.disk, &self.layout, &path)?;
        let mut writer = LogWriter::create(&*self.disk, &self.layout.logs(), id)?;
        for batch in &remains.batches {
            writer.append(batch)?;
        }
        writer.end()?;
        Ok(remains.batches)
    }
}

/// Returns how many changes lie between the batches that are there, in words.
fn missing_changes(batches: &[Batch]) -> String {
    let mut missing = 0;
    for pair in batches.windows(2) {
        missing += pair[1].first.0.saturating_sub(pair[0].end().0);
    }
    match missing {
        0 => "others".into(),
        1 => "1 change or more".into(),
        n => format!("{n} changes or more"),
    }
}
