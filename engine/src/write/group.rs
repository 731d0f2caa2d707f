//! Group commit: one sync of the log for everything that was queued meanwhile.

use super::commit::Committer;
use super::prepare::Prepared;
use super::{Store, lock};
use crate::columns::{Columns, LoggedColumns, Schema};
use crate::error::{Error, Result};
use crate::ids::Seq;
use crate::log::{Batch, Change};
use crate::model::Model;
use crate::quantizer::RowCodes;
use crate::snapshot::{Place, Snapshot};
use crate::view::tail::Run;
use std::sync::{Arc, Mutex};

/// Batches that have their `Seq`s and wait for the log.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) next_seq: Seq,
    /// Batches prepared under another model are turned away.
    pub(crate) model: Arc<Model>,
    open: Vec<Queued>,
}

#[derive(Debug)]
struct Queued {
    batch: Batch,
    codes: RowCodes,
    /// The columns of the rows put, without ids.
    columns: Columns,
    only_if_unchanged: bool,
    /// The snapshot under which it was prepared, and the rows that have its keys there.
    snapshot: Arc<Snapshot>,
    found: Vec<Option<Place>>,
    slot: Arc<Slot>,
}

/// The outcome of a batch, set by the thread that commits it.
type Slot = Mutex<Option<Result<Applied>>>;

/// What became of a batch: the number of live rows that it replaced or deleted; `None` if it was void.
type Applied = Option<u64>;

impl Queue {
    pub(crate) fn new(next_seq: Seq, model: Arc<Model>) -> Self {
        Self {
            next_seq,
            model,
            open: Vec::new(),
        }
    }
}

impl Store {
    /// Queues a batch and sees it committed. Returns `None` if the active model has changed since it was prepared, or if one of its
    /// rows has and it minds.
    pub(super) fn write(&self, prepared: Prepared) -> Result<Applied> {
        let slot = Arc::new(Slot::new(None));
        {
            let mut queue = lock(&self.queue);
            if !Arc::ptr_eq(&queue.model, &prepared.snapshot.model) {
                return Ok(None);
            }
            let first = queue.next_seq;
            queue.next_seq = Seq(first.0 + prepared.changes.len() as u64);
            queue.open.push(Queued {
                batch: Batch {
                    first,
                    encoder: prepared.snapshot.model.encoder_id(),
                    changes: prepared.changes,
                    dim: prepared.snapshot.model.dim(),
                    vectors: prepared.vectors,
                    columns: LoggedColumns::none(prepared.columns.rows()),
                },
                codes: prepared.codes,
                columns: prepared.columns,
                only_if_unchanged: prepared.only_if_unchanged,
                snapshot: prepared.snapshot,
                found: prepared.found,
                slot: Arc::clone(&slot),
            });
        }
        let mut committer = lock(&self.commit);
        // The previous holder of the committer may have committed our batch.
        if lock(&slot).is_none() {
            self.flush(&mut committer);
        }
        drop(committer);
        let outcome = lock(&slot).take();
        outcome.expect("a flush leaves an outcome for everything queued")
    }

    /// Commits everything queued: log, apply, publish. Returns the `Seq` that the next batch will have.
    pub(crate) fn flush(&self, committer: &mut Committer) -> Seq {
        let (group, next_seq) = {
            let mut queue = lock(&self.queue);
            (std::mem::take(&mut queue.open), queue.next_seq)
        };
        self.commit_group(committer, group);
        next_seq
    }

    /// Like [`flush`](Self::flush), for a caller that also holds the queue's lock.
    pub(crate) fn flush_held(&self, committer: &mut Committer, queue: &mut Queue) {
        self.commit_group(committer, std::mem::take(&mut queue.open));
    }

    fn commit_group(&self, committer: &mut Committer, group: Vec<Queued>) {
        if group.is_empty() {
            return;
        }
        if let Err(e) = self.adopt_format(committer) {
            let why = e.cause();
            for queued in group {
                *lock(&queued.slot) = Some(Err(Error::OutcomeUnknown(why.clone())));
            }
            return;
        }
        let current = self.current();
        let mut next = Snapshot::clone(&current);
        let mut outcomes = Vec::with_capacity(group.len());
        for (at, queued) in group.into_iter().enumerate() {
            let slot = Arc::clone(&queued.slot);
            let unchanged = at == 0 && Arc::ptr_eq(&queued.snapshot, &current);
            outcomes.push((slot, self.apply(committer, &mut next, queued, unchanged)));
        }
        let synced = committer.sync_log();
        if self.reserve.is_gone() {
            self.reserve.restore_if_it_fits(next.rows());
        }
        match synced {
            Ok(()) => {
                // A batch is seen by queries before its caller is told: never the other way round.
                self.versions.publish(next);
                for (slot, outcome) in outcomes {
                    *lock(&slot) = Some(outcome);
                }
            }
            Err(e) => {
                let why = e.cause();
                for (slot, outcome) in outcomes {
                    let unknown = || Error::OutcomeUnknown(why.clone());
                    *lock(&slot) = Some(outcome.and_then(|_| Err(unknown())));
                }
            }
        }
    }

    /// Adds a batch to the log's next sync and to the snapshot in the making. An error leaves both as they were.
    /// `unchanged`: that snapshot is still the one under which the batch was prepared.
    fn apply(
        &self,
        committer: &mut Committer,
        next: &mut Snapshot,
        mut queued: Queued,
        unchanged: bool,
    ) -> Result<Applied> {
        let mut places = queued.found;
        if !unchanged {
            // Segments change at a commit only: the row of one that was found then is the one to be found now.
            let known = queued.snapshot.generation == next.generation;
            for (change, place) in queued.batch.changes.iter().zip(&mut places) {
                let before = *place;
                *place = match (next.find_in_tail(change.key())?, *place) {
                    (tail @ Some(_), _) => tail,
                    (None, Some(sealed)) if known && next.is_sealed(sealed) => Some(sealed),
                    (None, None) if known => None,
                    (None, _) => next.find(change.key())?,
                };
                if queued.only_if_unchanged {
                    let before = before.map(|place| queued.snapshot.seq(place)).transpose()?;
                    let now = place.map(|place| next.seq(place)).transpose()?;
                    if before != now {
                        return Ok(None);
                    }
                }
            }
        }
        queued.batch.columns = (queued.columns.bind(&next.schema))
            .map_err(|conflict| conflict.of_key(put_key(&queued.batch, conflict.row)))?;
        let mut schema = None;
        if next.schema.lacks(&queued.batch.columns.named) {
            let mut grown = Schema::clone(&next.schema);
            (grown.merge(&queued.batch.columns.named)).map_err(Error::invalid)?;
            schema = Some(Arc::new(grown));
        }
        committer.append(&*self.files, &self.layout, &queued.batch)?;
        next.schema = schema.unwrap_or_else(|| Arc::clone(&next.schema));
        let killed = places
            .into_iter()
            .flatten()
            .filter(|&place| next.kill(place))
            .count();
        next.tail
            .push(Run::new(&queued.batch, queued.codes, next.model.shape()));
        Ok(Some(killed as u64))
    }
}

/// The key of a row that a batch puts.
fn put_key(batch: &Batch, row: usize) -> &str {
    let puts = batch.changes.iter().filter(|change| change.is_put());
    puts.map(Change::key).nth(row).map_or("", |key| key)
}
