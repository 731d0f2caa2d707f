//! Deciding which segments belong to the database, and which of their rows are live.

use super::columns::FoundColumns;
use super::files::{Known, OpenRows, is_damage};
use super::{Base, Repair};
use crate::disk::files::list;
use crate::disk::orphans::orphan;
use crate::error::{Error, Result};
use crate::format::Kind;
use crate::ids::{Generation, RowId, SegmentId, Seq};
use crate::segment::SegmentRecord;
use crate::segment::{Deletions, FileName, RowsFile};
use crate::version::VersionRecord;
use crate::version::clean::{is_leftover, live_batches};
use crate::version::manifest;
use crate::view::live::Live;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The segments of the database as they are on disk.
pub(super) struct Found {
    /// The segments, in the order of their `Seq`s.
    pub(super) segments: Vec<FoundSegment>,
    /// The newest version that any file mentions.
    pub(super) generation: Generation,
    /// The id of the next segment.
    pub(super) next_segment: SegmentId,
    /// Rows that any deletion file marks as dead, if the record is lost or rows were restored.
    pub(super) dead: HashSet<Seq>,
    /// Whether the list of segments differs from that of an intact record.
    pub(super) new_list: bool,
}

pub(super) struct FoundSegment {
    pub(super) id: SegmentId,
    pub(super) rows: RowsFile,
    pub(super) live: Live,
    /// The damage in the rows file.
    pub(super) damage: Vec<Error>,
    pub(super) columns: FoundColumns,
    /// The segment's entry in the record; `None` if there is none, or if it no longer holds.
    pub(super) named: Option<SegmentRecord>,
}

impl Repair<'_> {
    pub(super) fn find_segments(&mut self, base: &Base) -> Result<Found> {
        let dir = self.layout.segments();
        let mut found = Found {
            segments: Vec::new(),
            generation: (manifest::generations(&*self.disk, self.layout.dir())?.last())
                .copied()
                .max(base.hint.as_ref().map(|record| record.generation))
                .unwrap_or(Generation(0)),
            next_segment: SegmentId(1),
            dead: HashSet::new(),
            new_list: base.record.is_none(),
        };
        found.next_segment = self.next_segment(base)?;
        let mut on_disk = BTreeSet::new();
        for name in list(&*self.disk, &dir)? {
            match name.parse() {
                Ok(FileName::Rows(id)) => drop(on_disk.insert(id)),
                Ok(FileName::Deletions(_, version)) => {
                    found.generation = found.generation.max(version);
                }
                _ => {}
            }
        }
        let known = Known::of(base.hint.as_ref());
        match &base.record {
            Some(record) => {
                for segment in &record.segments {
                    on_disk.remove(&segment.id);
                    self.named_segment(segment, known, &mut found)?;
                }
                found.assume_seqs();
                // All other files are not part of this version: they move to `orphans/`, or are added if requested.
                let first_seq = record.first_seq;
                let live = self.live_ids(&found);
                for id in on_disk {
                    let adopted =
                        self.options.restore && self.adopt(id, &live, first_seq, &mut found)?;
                    if !adopted {
                        self.put_aside(id)?;
                        self.done(format!(
                            "segment {id} is not part of version {}; it was moved to orphans, and a repair with `restore` adds its rows again",
                            record.generation
                        ));
                    }
                }
            }
            None => self.all_segments(on_disk, base, &mut found)?,
        }
        found.segments.sort_by_key(|segment| {
            let seqs = segment.rows.summary().seqs;
            (seqs.is_none(), seqs)
        });
        found.assume_seqs();
        Ok(found)
    }

    /// Returns the evidence of a later version whose manifest and catalog entry are both lost, if there is any.
    pub(super) fn newer_than(&self, record: &VersionRecord) -> Result<Option<String>> {
        let dir = self.layout.segments();
        let logged = live_batches(&*self.disk, &self.layout, record)?;
        for name in list(&*self.disk, &dir)? {
            let Ok(FileName::Rows(id)) = name.parse() else {
                continue;
            };
            let named = record.segments.iter().any(|segment| segment.id == id);
            if let Ok(rows) = RowsFile::open(&*self.disk, &dir.join(&name))
                && !named
                && rows.meta().version > record.generation
                && !is_leftover(&rows, record, &logged).unwrap_or(true)
            {
                return Ok(Some(format!(
                    "segment {id} belongs to version {}, whose record is lost; the newest record is of version {}",
                    rows.meta().version,
                    record.generation
                )));
            }
        }
        Ok(None)
    }

    /// Returns the ids that live segments have, or had before a compaction.
    fn live_ids(&self, found: &Found) -> HashSet<SegmentId> {
        (found.segments.iter())
            .flat_map(|s| s.rows.meta().replaces.iter().copied().chain([s.id]))
            .collect()
    }

    /// Opens a segment that the record names.
    fn named_segment(
        &mut self,
        named: &SegmentRecord,
        known: Known,
        found: &mut Found,
    ) -> Result<()> {
        let id = named.id;
        let OpenRows { rows, damage } = match self.open_rows(id, Some(named.rows_hash), known)? {
            Ok(open) => open,
            Err(why) => {
                let alive = named.rows - named.dead;
                let what = format!("segment {id} with {alive} live rows can't be read: {why}");
                if alive == 0 {
                    self.done(what.clone());
                }
                if alive == 0 || self.lose(what, Vec::new()) {
                    found.new_list = true;
                    self.put_aside(id)?;
                }
                return Ok(());
            }
        };
        let (live, kept) = self.live_rows(named, &rows)?;
        let columns = self.find_columns(id, &rows, Some(named.columns))?;
        found.segments.push(FoundSegment {
            id,
            columns,
            rows,
            live,
            damage,
            named: kept.then(|| named.clone()),
        });
        Ok(())
    }

    /// Returns the live rows of a segment that a record names, and whether the deletions that it names are there.
    fn live_rows(&mut self, named: &SegmentRecord, rows: &RowsFile) -> Result<(Live, bool)> {
        let count = rows.row_count() as u32;
        let Some(version) = named.deletions else {
            return Ok((Live::all(count), true));
        };
        let path = FileName::Deletions(named.id, version).within(&self.layout.segments());
        let agrees = |deletions: &Deletions| {
            deletions.row_count() == count
                && deletions.dead() == named.dead
                && deletions.version() == version
                && deletions.segment() == named.id
        };
        let mut read = Deletions::read(&*self.disk, &path);
        if let Err(Error::Corrupt(_)) = &read
            && path.is_file()
            && self.correct(&path, Kind::Deletions)?
        {
            read = Deletions::read(&*self.disk, &path);
        }
        let why = match read {
            Ok(deletions) if agrees(&deletions) => {
                return Ok((Live::without(count, deletions.words()), true));
            }
            Ok(_) => "it belongs to another version".into(),
            Err(e) if is_damage(&e) => e.to_string(),
            Err(e) => return Err(e),
        };
        // Rows never become live again: a row that is dead in any deletion file of the segment is dead.
        let mut live = Live::all(count);
        for deletions in self.deletions_of(named.id)? {
            for row in deletions.iter().filter(|row| row.0 < count) {
                live.kill(row);
            }
        }
        let back = named.dead.saturating_sub(live.dead());
        let what = format!(
            "the deletions of segment {} can't be read, so up to {back} deleted rows come back: {why}",
            named.id
        );
        if back == 0 || self.lose(what, Vec::new()) {
            if path.exists() {
                orphan(&*self.disk, &self.layout, &path)?;
            }
            return Ok((live, false));
        }
        Ok((live, true))
    }

    /// Returns every intact deletion file of a segment.
    fn deletions_of(&self, id: SegmentId) -> Result<Vec<Deletions>> {
        let dir = self.layout.segments();
        let names = list(&*self.disk, &dir)?;
        let files = names.iter().filter_map(|name| name.parse().ok());
        let of =
            files.filter(|file| matches!(file, FileName::Deletions(segment, _) if *segment == id));
        Ok(of
            .filter_map(|file| Deletions::read(&*self.disk, &file.within(&dir)).ok())
            .collect())
    }

    /// Adds a segment that no record names, if it has rows that are in no other file.
    fn adopt(
        &mut self,
        id: SegmentId,
        live: &HashSet<SegmentId>,
        first_seq: Seq,
        found: &mut Found,
    ) -> Result<bool> {
        let Ok(OpenRows { rows, damage }) = self.open_rows(id, None, Known::of(None))? else {
            return Ok(false);
        };
        let inputs = &rows.meta().replaces;
        let elsewhere = live.contains(&id)
            || (!inputs.is_empty() && inputs.iter().all(|input| live.contains(input)))
            || (rows.summary().seqs).is_none_or(|(first, _)| first >= first_seq);
        if elsewhere {
            return Ok(false);
        }
        self.done(format!(
            "segment {id} with {} rows was added again",
            rows.row_count()
        ));
        let live = self.any_dead(id, &rows, found)?;
        found.new_list = true;
        found.segments.push(FoundSegment {
            id,
            columns: self.find_columns(id, &rows, None)?,
            rows,
            live,
            damage,
            named: None,
        });
        Ok(true)
    }

    /// Returns the rows of a segment that no deletion file on disk marks as dead.
    fn any_dead(&mut self, id: SegmentId, rows: &RowsFile, found: &mut Found) -> Result<Live> {
        let count = rows.row_count() as u32;
        let mut live = Live::all(count);
        for deletions in self.deletions_of(id)? {
            for row in deletions.iter().filter(|row| row.0 < count) {
                live.kill(row);
                if let Ok(seq) = rows.seq(row) {
                    found.dead.insert(seq);
                }
            }
        }
        Ok(live)
    }

    /// Finds the segments without a record: every segment that no compaction has replaced.
    fn all_segments(
        &mut self,
        on_disk: BTreeSet<SegmentId>,
        base: &Base,
        found: &mut Found,
    ) -> Result<()> {
        let known = Known::of(base.hint.as_ref());
        let mut open = BTreeMap::new();
        for id in on_disk {
            match self.open_rows(id, None, known)? {
                Ok(rows) => drop(open.insert(id, rows)),
                Err(why) => {
                    let what = format!("the rows of segment {id} can't be read: {why}");
                    if self.lose(what, Vec::new()) {
                        self.put_aside(id)?;
                    }
                }
            }
        }
        let replaced: BTreeSet<SegmentId> = (open.values())
            .filter(|open| open.damage.is_empty())
            .flat_map(|open| open.rows.meta().replaces.iter().copied())
            .collect();
        for (id, OpenRows { rows, damage }) in open {
            found.generation = found.generation.max(rows.meta().version);
            // A deletion is never undone, so every file that records one is right, even if the file belongs to an input
            // and the row is now in the output.
            let live = self.any_dead(id, &rows, found)?;
            if replaced.contains(&id) {
                self.put_aside(id)?;
                self.done(format!(
                    "segment {id} was compacted into another; it was moved to orphans"
                ));
                continue;
            }
            found.segments.push(FoundSegment {
                id,
                columns: self.find_columns(id, &rows, base.columns_of(id, &rows))?,
                rows,
                live,
                damage,
                named: None,
            });
        }
        Ok(())
    }

    /// Moves all files of a segment to `orphans/`.
    pub(super) fn put_aside(&self, id: SegmentId) -> Result<()> {
        let dir = self.layout.segments();
        for name in list(&*self.disk, &dir)? {
            if (name.parse::<FileName>()).is_ok_and(|file| file.segment() == id) {
                orphan(&*self.disk, &self.layout, &dir.join(name))?;
            }
        }
        Ok(())
    }

    /// Returns an id above all that any file has, including the orphans.
    fn next_segment(&self, base: &Base) -> Result<SegmentId> {
        let mut next = base.hint.as_ref().map_or(1, |record| record.next_segment.0);
        for dir in [self.layout.segments(), self.layout.orphans()] {
            if dir.is_dir() {
                for name in list(&*self.disk, &dir)? {
                    let digits = name.split('.').next().unwrap_or_default();
                    if let Ok(id) = digits.parse::<u64>() {
                        next = next.max(id.saturating_add(1));
                    }
                }
            }
        }
        Ok(SegmentId(next))
    }
}

impl Found {
    /// If META and SEQS are both damaged, gives the rows `Seq`s right after those of the segment before. These are at
    /// most the original ones, since `Seq`s ascend from segment to segment.
    fn assume_seqs(&mut self) {
        let mut end = Seq(0);
        for segment in &mut self.segments {
            segment.rows.assume_seqs(Seq(end.0 + 1));
            end = end.max(segment.rows.summary().seqs.map_or(end, |(_, last)| last));
        }
    }

    /// Marks rows dead if there is a newer row with the same key, or if any deletion file or log says that they are
    /// dead.
    ///
    /// Requires: all rows files are sound, and segments are in the order of their `Seq`s.
    pub(super) fn kill_older(
        segments: &mut [FoundSegment],
        dead: &HashSet<Seq>,
        tombstones: &[(String, Seq)],
    ) -> Result<()> {
        for at in 0..segments.len() {
            let (before, newer) = segments.split_at_mut(at + 1);
            let segment = &mut before[at];
            let mut killed: Vec<RowId> = Vec::new();
            let mut cursor = segment.rows.cursor();
            while let Some(row) = cursor.next()? {
                let mut gone = dead.contains(&row.seq);
                for other in newer.iter() {
                    gone = gone || other.rows.find(row.key)?.is_some();
                }
                if gone {
                    killed.push(row.row);
                }
            }
            for (key, seq) in tombstones {
                if let Some(row) = segment.rows.find(key)?
                    && segment.rows.seq(row)? < *seq
                {
                    killed.push(row);
                }
            }
            for row in killed {
                if segment.live.kill(row) {
                    segment.named = None;
                }
            }
        }
        Ok(())
    }
}
