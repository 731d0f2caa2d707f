//! Sealing: the tail becomes a segment, its logs are retired.

use super::commit::{Change, Committer, Room, remove_segment};
use super::living::Living;
use super::locks::Sealing;
use super::write_segment::NewSegment;
use super::{Store, lock};
use crate::error::Result;
use crate::ids::{Generation, RowId};
use crate::model::Model;
use crate::options::Options;
use crate::snapshot::Snapshot;
use crate::view::live::Live;
use crate::view::part::Part;
use crate::view::segment::{Sealed, SegmentView};
use crate::view::tail::RunView;
use std::sync::Arc;

/// A log of this many bytes or rows is sealed when its writer has finished. Opening one takes about 50 ms, of every
/// process and again each time; a sealed one 5 ms. A seal costs some syncs, 0.1 to 0.2 s, so smaller logs are left to
/// grow: small inserts share the next seal.
const LARGE_BYTES: u64 = 8 << 20;
const LARGE_ROWS: u64 = 1 << 16;

/// A tail of texts with words is sealed at this many rows at the latest.
const WORDS_SEAL_ROWS: usize = 1 << 14;

impl Store {
    /// Triggers a seal if the tail or its logs have reached the limits. If they have grown to twice that, waits, so
    /// that writers never outrun the seals for long.
    pub(super) fn seal_if_due(&self) -> Result<()> {
        if !self.is_due(1) {
            return Ok(());
        }
        if self.is_due(2) {
            return self.seal_due(2);
        }
        if self.options.seal_in_background {
            self.bell.ring();
            return Ok(());
        }
        match self.try_sealing() {
            Some(sealing) => self.seal_locked(&sealing).map(drop),
            None => Ok(()),
        }
    }

    /// Seals if the tail is still this many times what is due once the seal that is under way has ended.
    pub(crate) fn seal_due(&self, times: u64) -> Result<()> {
        let sealing = self.start_sealing();
        match self.is_due(times) {
            true => self.seal_locked(&sealing).map(drop),
            false => Ok(()),
        }
    }

    fn is_due(&self, times: u64) -> bool {
        let Options {
            seal_rows,
            seal_bytes,
            ..
        } = self.options;
        let rows = match self.current().model.words() {
            // Each process that searches the tail for words indexes it first.
            Some(_) => seal_rows.min(WORDS_SEAL_ROWS),
            None => seal_rows,
        };
        self.has_grown_to(times * rows as u64, times * seal_bytes)
    }

    fn has_grown_to(&self, rows: u64, bytes: u64) -> bool {
        self.current().tail.alive() >= rows || lock(&self.commit).log_bytes() >= bytes
    }

    /// Makes a segment of a tail that has grown large. Returns `true` if it did.
    pub(crate) fn seal_if_large(&self) -> Result<bool> {
        // First: a seal that is under way may leave nothing to do.
        let sealing = self.start_sealing();
        match self.has_grown_to(LARGE_ROWS, LARGE_BYTES) {
            true => self.seal_locked(&sealing),
            false => Ok(false),
        }
    }

    /// Seals the tail into a segment. Returns `true` if there was anything to seal.
    pub(crate) fn seal(&self) -> Result<bool> {
        let sealing = self.start_sealing();
        self.seal_locked(&sealing)
    }

    /// Like [`seal`](Self::seal), for a caller that holds the lock.
    pub(crate) fn seal_locked(&self, sealing: &Sealing<'_>) -> Result<bool> {
        // Freeze: from here on new rows go to other runs and to another log.
        let (taken, new, first_log, first_seq, model, schema) = {
            let mut committer = lock(&self.commit);
            let first_seq = self.flush(&mut committer);
            if committer.log_bytes() == 0 {
                return Ok(false);
            }
            let first_log = committer.rotate()?;
            let mut next = Snapshot::clone(&self.current());
            let taken = next.tail.freeze();
            let new = NewSegment {
                id: committer.take_segment(),
                generation: Generation(committer.record.generation.0 + 1),
                replaces: Vec::new(),
            };
            let (model, schema) = (Arc::clone(&next.model), Arc::clone(&next.schema));
            self.versions.publish(next);
            (taken, new, first_log, first_seq, model, schema)
        };

        // Write: without a lock that readers or writers need.
        let dir = self.layout.segments();
        let alive: u64 = taken.iter().map(|view| u64::from(view.live.alive())).sum();
        let sealed = if alive == 0 {
            None
        } else {
            let rows = living(&taken, &model);
            let columns = self.write_files(&new, (&model, &schema), &rows, Room::Reserve)?;
            let sealed = Sealed::open(&*self.files, &dir, new.id, columns, &model)?;
            Some(Arc::new(sealed))
        };

        // Commit: the rows that died meanwhile are dead in the segment too.
        let mut committer = lock(&self.commit);
        self.flush(&mut committer);
        let mut next = Snapshot::clone(&self.current());
        let mut needless = false;
        if let Some(sealed) = sealed {
            let mut live = Live::all(alive as u32);
            let mut row = 0;
            for (before, now) in taken.iter().zip(next.tail.frozen()) {
                for old in before.live.iter() {
                    if !now.live.contains(old) {
                        live.kill(RowId(row));
                    }
                    row += 1;
                }
            }
            needless = live.alive() == 0;
            if !needless {
                Arc::make_mut(&mut next.segments).push(SegmentView { sealed, live });
            }
        }
        next.tail.clear_frozen();
        self.commit_version(
            sealing,
            &mut committer,
            Change {
                snapshot: next,
                first_log,
                first_seq,
            },
        )?;
        if needless {
            remove_segment(&*self.files, &self.layout, new.id);
        }
        Ok(true)
    }
}

impl Store {
    /// Seals the few rows of a tail at once, for a caller that holds the committer and is about to commit: the segment
    /// is for it to name, the snapshot's tail is empty after.
    pub(crate) fn seal_last(
        &self,
        committer: &mut Committer,
        next: &mut Snapshot,
    ) -> Result<Option<SegmentView>> {
        let taken = next.tail.take();
        let alive: u32 = taken.iter().map(|view| view.live.alive()).sum();
        if alive == 0 {
            return Ok(None);
        }
        let new = NewSegment {
            id: committer.take_segment(),
            generation: Generation(committer.record.generation.0 + 1),
            replaces: Vec::new(),
        };
        let dir = self.layout.segments();
        let rows = living(&taken, &next.model);
        let under = (&*next.model, &*next.schema);
        let columns = self.write_files(&new, under, &rows, Room::Reserve)?;
        let sealed = Sealed::open(&*self.files, &dir, new.id, columns, &next.model)?;
        Ok(Some(SegmentView {
            sealed: Arc::new(sealed),
            live: Live::all(alive),
        }))
    }
}

/// The live rows of the runs that a seal took.
fn living<'a>(taken: &'a [RunView], model: &'a Model) -> Living<'a> {
    Living::new(taken.iter().map(Part::Run).collect(), model, usize::MAX)
}
