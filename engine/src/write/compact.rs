//! Compaction: neighbouring segments become one, dead rows are dropped, their space is freed.
//!
//! Rows are read and written in passes of small steps, and pages that were read are given back, so memory does not grow
//! with the segments. Old snapshots keep
//! the inputs readable until they are dropped.

use super::commit::{Change, Room};
use super::living::Living;
use super::locks::Compacting;
use super::write_segment::NewSegment;
use super::{Store, lock};
use crate::error::Result;
use crate::ids::{Generation, RowId, SegmentId};
use crate::snapshot::Snapshot;
use crate::view::live::Live;
use crate::view::part::Part;
use crate::view::segment::{Sealed, SegmentView};
use serde::Serialize;
use std::ops::Range;
use std::sync::Arc;

/// Segments are merged up to this many rows: larger ones gain little, and need as much space again while they
/// merge.
const MAX_ROWS: u64 = 1 << 24;
/// In the background, neighbours are merged when there are this many of like size.
const TIER: usize = 4;
/// In the background, a segment is rewritten when one row in this many is dead.
const DEAD_SHARE: u32 = 4;

/// What a compaction did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Compacted {
    /// Segments that were read.
    pub inputs: usize,
    /// Segments that were written.
    pub outputs: usize,
    /// Dead rows that were dropped.
    pub dropped: u64,
    /// Whether the disk had no space for the rest of the work.
    pub out_of_room: bool,
}

impl Store {
    /// Merges all that can be merged and drops every dead row. If there is no space to merge, only drops dead rows and
    /// sets [`Compacted::out_of_room`].
    pub(crate) fn compact(&self) -> Result<Compacted> {
        let compacting = self.start_compacting();
        let mut done = Compacted::default();
        match self.merge_all(&compacting, &mut done) {
            Err(e) if e.is_full() => {
                self.drop_dead(&compacting, &mut done)?;
                // The freed space may be enough.
                match self.merge_all(&compacting, &mut done) {
                    Err(e) if e.is_full() => done.out_of_room = true,
                    outcome => outcome?,
                }
            }
            outcome => outcome?,
        }
        Ok(done)
    }

    fn merge_all(&self, compacting: &Compacting<'_>, done: &mut Compacted) -> Result<()> {
        self.seal()?;
        // From the newest on, so that earlier positions stay what they are.
        for group in groups(&sizes(&self.current())).into_iter().rev() {
            self.merge(compacting, group, Room::Reserve, done)?;
        }
        Ok(())
    }

    /// Drops the dead rows of each segment by itself. The one with the fewest live rows comes first: it needs the least
    /// space, often none, and frees space for the next.
    fn drop_dead(&self, compacting: &Compacting<'_>, done: &mut Compacted) -> Result<()> {
        loop {
            let sizes = sizes(&self.current());
            let dead = (0..sizes.len()).filter(|&at| sizes[at].1 > 0);
            let Some(at) = dead.min_by_key(|&at| alive(&sizes[at])) else {
                return Ok(());
            };
            self.merge(compacting, at..at + 1, Room::Reserve, done)?;
        }
    }

    /// Runs the most urgent compaction, if any is due. Returns `true` if it ran.
    pub(crate) fn compact_in_background(&self) -> Result<bool> {
        let Some(compacting) = self.try_compacting() else {
            return Ok(false);
        };
        let Some(group) = due(&sizes(&self.current())) else {
            return Ok(false);
        };
        let done = self.merge(&compacting, group, Room::Free, &mut Compacted::default());
        done.map(|()| true)
    }

    /// Merges a range of segments into one.
    ///
    /// Nobody else removes or reorders segments meanwhile; a seal
    /// adds one behind them.
    fn merge(
        &self,
        compacting: &Compacting<'_>,
        group: Range<usize>,
        room: Room,
        done: &mut Compacted,
    ) -> Result<()> {
        let snapshot = self.current();
        let inputs = &snapshot.segments[group.clone()];
        let ids: Vec<SegmentId> = inputs.iter().map(|view| view.sealed.id).collect();
        let new = {
            let mut committer = lock(&self.commit);
            committer.check()?;
            NewSegment {
                id: committer.take_segment(),
                generation: Generation(committer.record.generation.0 + 1),
                replaces: ids.clone(),
            }
        };
        let alive: u64 = inputs.iter().map(|view| u64::from(view.live.alive())).sum();
        let dir = self.layout.segments();
        let sealed = if alive == 0 {
            None
        } else {
            let parts = inputs.iter().map(Part::Segment).collect();
            let resident = self.options.memory_limit / 4;
            let rows = Living::new(parts, &snapshot.model, resident);
            let under = (&*snapshot.model, &*snapshot.schema);
            let columns = self.write_files(&new, under, &rows, room)?;
            Some(Arc::new(Sealed::open(
                &*self.files,
                &dir,
                new.id,
                columns,
                &snapshot.model,
            )?))
        };

        let mut committer = lock(&self.commit);
        self.flush(&mut committer);
        let mut next = Snapshot::clone(&self.current());
        let now = &next.segments[group.clone()];
        assert!(
            now.iter().map(|view| view.sealed.id).eq(ids),
            "segments move under the compaction lock only"
        );
        let output = sealed.map(|sealed| SegmentView {
            live: carry(inputs, now),
            sealed,
        });
        let outputs = usize::from(output.is_some());
        Arc::make_mut(&mut next.segments).splice(group, output);
        let (first_log, first_seq) = (committer.record.first_log, committer.record.first_seq);
        self.commit_version(
            compacting,
            &mut committer,
            Change {
                snapshot: next,
                first_log,
                first_seq,
            },
        )?;
        done.inputs += inputs.len();
        done.outputs += outputs;
        done.dropped += inputs
            .iter()
            .map(|view| u64::from(view.live.dead()))
            .sum::<u64>();
        Ok(())
    }
}

/// The live rows of the output: those that were copied and have not died since.
fn carry(before: &[SegmentView], now: &[SegmentView]) -> Live {
    let alive: u32 = before.iter().map(|view| view.live.alive()).sum();
    let mut live = Live::all(alive);
    let mut row = 0;
    for (before, now) in before.iter().zip(now) {
        for old in before.live.iter() {
            if !now.live.contains(old) {
                live.kill(RowId(row));
            }
            row += 1;
        }
    }
    live
}

/// Rows and dead rows of a segment.
type Size = (u32, u32);

fn sizes(snapshot: &Snapshot) -> Vec<Size> {
    snapshot
        .segments
        .iter()
        .map(|view| (view.live.row_count(), view.live.dead()))
        .collect()
}

fn alive(size: &Size) -> u64 {
    u64::from(size.0 - size.1)
}

/// All the merging there is to do: neighbours up to [`MAX_ROWS`], and lone segments with dead rows.
fn groups(sizes: &[Size]) -> Vec<Range<usize>> {
    let mut groups = Vec::new();
    let mut start = 0;
    while start < sizes.len() {
        let mut end = start + 1;
        let mut rows = alive(&sizes[start]);
        while end < sizes.len() && rows + alive(&sizes[end]) <= MAX_ROWS {
            rows += alive(&sizes[end]);
            end += 1;
        }
        if end - start > 1 || sizes[start].1 > 0 {
            groups.push(start..end);
        }
        start = end;
    }
    groups
}

/// The merging that is most due: a segment with many dead rows, or neighbours of like size.
fn due(sizes: &[Size]) -> Option<Range<usize>> {
    if let Some(at) = sizes
        .iter()
        .position(|&(rows, dead)| dead >= rows.div_ceil(DEAD_SHARE))
    {
        return Some(at..at + 1);
    }
    // From the newest on: take older neighbours as long as they are not much larger than all newer ones together.
    for end in (TIER..=sizes.len()).rev() {
        let mut start = end - 1;
        let mut rows = alive(&sizes[start]);
        while start > 0 {
            let older = alive(&sizes[start - 1]);
            if older > 2 * rows || rows + older > MAX_ROWS {
                break;
            }
            rows += older;
            start -= 1;
        }
        if end - start >= TIER {
            return Some(start..end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(mut groups: Vec<Range<usize>>) -> Range<usize> {
        assert_eq!(groups.len(), 1, "{groups:?}");
        groups.remove(0)
    }

    #[test]
    fn everything_that_fits_is_merged_on_call() {
        assert!(groups(&[]).is_empty());
        assert!(groups(&[(10, 0)]).is_empty());
        assert_eq!(only(groups(&[(10, 1)])), 0..1);
        assert_eq!(only(groups(&[(10, 0), (20, 5), (30, 0)])), 0..3);
        let large = MAX_ROWS as u32;
        assert_eq!(
            only(groups(&[(large, 0), (5, 0), (6, 0), (large, 0)])),
            1..3
        );
    }

    #[test]
    fn in_the_background_only_what_pays_is_merged() {
        assert_eq!(due(&[(100, 0), (100, 24)]), None);
        assert_eq!(due(&[(100, 0), (100, 25)]), Some(1..2));
        assert_eq!(due(&[(100, 0); 3]), None);
        assert_eq!(due(&[(100, 0); 4]), Some(0..4));
        assert_eq!(due(&[(1_000_000, 0), (100, 0), (100, 0), (100, 0)]), None);
        assert_eq!(
            due(&[(1_000_000, 0), (100, 0), (100, 0), (100, 0), (90, 0)]),
            Some(1..5)
        );
        // A segment of nothing but dead rows goes too.
        assert_eq!(due(&[(5, 5)]), Some(0..1));
    }

    #[test]
    fn merging_in_the_background_ends() {
        // Each seal adds 100 rows; merge whatever is due; the number of segments stays logarithmic.
        let mut sizes: Vec<Size> = Vec::new();
        let mut written = 0;
        for _ in 0..1000 {
            sizes.push((100, 0));
            while let Some(group) = due(&sizes) {
                let rows = sizes[group.clone()].iter().map(alive).sum::<u64>() as u32;
                written += u64::from(rows);
                sizes.splice(group, [(rows, 0)]);
            }
            assert!(sizes.len() < 24, "{sizes:?}");
        }
        assert!(
            written < 100 * 1000 * 12,
            "each row is rewritten a few times, not {}",
            written / 100_000
        );
    }
}
