//! Rows accepted and not yet in a segment, as queries see them.
//!
//! The tail is a short list of immutable runs, each at least twice as long as the next, so that a row is copied a
//! logarithmic number of times before it is sealed, a query scans a handful of contiguous arrays, and a snapshot is a
//! handful of `Arc`s. Dead rows are dropped when runs merge.

use crate::columns::{ColumnBatch, ColumnSource};
use crate::ids::{RowId, Seq};
use crate::log::{Batch, Change};
use crate::quantizer::{CellStarts, CodeShape, RowCodes};
use crate::row::ValueRef;
use crate::segment::key_index::{KeyHash, KeyIndex};
use crate::stored::{Precision, Stored, StoredRef, known};
use crate::view::live::Live;
use crate::words::{RunWords, Tokenizer};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The runs of one snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tail {
    /// Runs that are being sealed: they no longer change, except for rows that die.
    frozen: Vec<RunView>,
    /// Runs that still merge.
    active: Vec<RunView>,
}

/// A run and which of its rows are alive.
#[derive(Debug, Clone)]
pub(crate) struct RunView {
    /// The rows.
    pub run: Arc<Run>,
    /// The live rows.
    pub live: Live,
}

/// Immutable rows, ascending by `Seq`.
#[derive(Debug)]
pub(crate) struct Run {
    dim: usize,
    seqs: Vec<Seq>,
    keys: Vec<Arc<str>>,
    /// Empty in a database of vectors.
    texts: Vec<Arc<str>>,
    vectors: Stored,
    /// The length that each vector had before it was normalised; 0 where it was not, or where that is not known.
    norms: Vec<f64>,
    columns: ColumnBatch,
    /// Codes of the rows; empty without a quantizer.
    codes: RowCodes,
    /// The same as the kernels read them: by row, or by cell where the quantizer has cells.
    blocks: Vec<u8>,
    /// Where the cells begin, and the row of each position.
    order: Option<(CellStarts, Vec<u32>)>,
    shape: Option<CodeShape>,
    index: KeyIndex,
    /// Made when a query first needs it.
    words: OnceLock<RunWords>,
}

impl Tail {
    /// Returns the runs, oldest first.
    pub(crate) fn runs(&self) -> impl DoubleEndedIterator<Item = &RunView> {
        self.frozen.iter().chain(&self.active)
    }

    /// Returns how many runs there are.
    pub(crate) fn len(&self) -> usize {
        self.frozen.len() + self.active.len()
    }

    /// Returns the run at this position of [`runs`](Self::runs).
    pub(crate) fn run(&self, at: usize) -> &RunView {
        match at.checked_sub(self.frozen.len()) {
            None => &self.frozen[at],
            Some(at) => &self.active[at],
        }
    }

    /// Returns the number of live rows.
    pub(crate) fn alive(&self) -> u64 {
        self.runs().map(|view| u64::from(view.live.alive())).sum()
    }

    /// Marks a row dead.
    pub(crate) fn kill(&mut self, at: usize, row: RowId) -> bool {
        let view = match at.checked_sub(self.frozen.len()) {
            None => &mut self.frozen[at],
            Some(at) => &mut self.active[at],
        };
        view.live.kill(row)
    }

    /// Adds a run behind the others.
    pub(crate) fn push(&mut self, run: Run) {
        if run.row_count() == 0 {
            return;
        }
        let live = Live::all(run.row_count());
        self.active.push(RunView {
            run: Arc::new(run),
            live,
        });
        while let [.., older, newer] = &self.active[..] {
            if older.run.row_count() >= 2 * newer.run.row_count() {
                break;
            }
            let merged = Run::merge(older, newer);
            self.active.truncate(self.active.len() - 2);
            let live = Live::all(merged.row_count());
            self.active.push(RunView {
                run: Arc::new(merged),
                live,
            });
        }
    }

    /// Freezes the active runs for a seal: they are not merged any more. Includes the runs of an earlier seal
    /// that failed.
    pub(crate) fn freeze(&mut self) -> Vec<RunView> {
        self.frozen.append(&mut self.active);
        self.frozen.clone()
    }

    /// Takes all runs out of the tail.
    pub(crate) fn take(&mut self) -> Vec<RunView> {
        let mut taken = std::mem::take(&mut self.frozen);
        taken.append(&mut self.active);
        taken
    }

    /// Returns the frozen runs as they are now: those that a seal took, with the rows that died
    /// since.
    pub(crate) fn frozen(&self) -> &[RunView] {
        &self.frozen
    }

    /// Drops the frozen runs: they are in a segment.
    pub(crate) fn clear_frozen(&mut self) {
        self.frozen.clear();
    }
}

impl Run {
    /// Returns the rows that a batch puts, with their codes under the model's shape.
    pub(crate) fn new(batch: &Batch, codes: RowCodes, shape: Option<CodeShape>) -> Self {
        let mut run = Self {
            vectors: batch.vectors.clone(),
            codes,
            columns: batch.columns.batch.clone(),
            ..Self::empty(batch.dim, shape, batch.vectors.as_ref().precision())
        };
        for (seq, change, _) in batch.iter() {
            if let Change::Put { key, text, norm } = change {
                run.seqs.push(seq);
                run.keys.push(key.clone());
                run.texts.extend(text.clone());
                run.norms.push(norm.unwrap_or_default());
            }
        }
        run.index = run.indexed();
        run.packed()
    }

    fn empty(dim: usize, shape: Option<CodeShape>, precision: Precision) -> Self {
        Self {
            dim,
            seqs: Vec::new(),
            keys: Vec::new(),
            texts: Vec::new(),
            vectors: Stored::none(precision),
            norms: Vec::new(),
            columns: ColumnBatch::default(),
            codes: RowCodes::default(),
            blocks: Vec::new(),
            order: None,
            shape,
            index: KeyIndex::default(),
            words: OnceLock::new(),
        }
    }

    /// The live rows of two neighbours.
    fn merge(older: &RunView, newer: &RunView) -> Self {
        let Self {
            dim,
            shape,
            ref vectors,
            ..
        } = *older.run;
        let mut merged = Self::empty(dim, shape, vectors.as_ref().precision());
        let rows = (older.live.alive() + newer.live.alive()) as usize;
        merged.seqs.reserve(rows);
        merged.keys.reserve(rows);
        merged.norms.reserve(rows);
        merged.vectors.reserve(rows, dim);
        for view in [older, newer] {
            merged.extend(view);
        }
        merged.columns = ColumnBatch::gather(&[
            (&older.run.columns, older.live.words()),
            (&newer.run.columns, newer.live.words()),
        ]);
        merged.index = if older.live.dead() + newer.live.dead() == 0 {
            KeyIndex::merged(&older.run.index, &newer.run.index, older.run.row_count())
        } else {
            merged.indexed()
        };
        merged.packed()
    }

    fn extend(&mut self, view: &RunView) {
        let run = &view.run;
        if view.live.dead() == 0 {
            self.seqs.extend_from_slice(&run.seqs);
            self.keys.extend_from_slice(&run.keys);
            self.texts.extend_from_slice(&run.texts);
            self.codes.append(&run.codes);
            self.vectors.extend(run.vectors.as_ref());
            self.norms.extend_from_slice(&run.norms);
            return;
        }
        let width = run.shape.map_or(0, |shape| shape.subspaces());
        for row in view.live.iter() {
            let at = row.0 as usize;
            self.seqs.push(run.seqs[at]);
            self.keys.push(run.keys[at].clone());
            self.texts.extend(run.texts.get(at).cloned());
            self.codes.push_row_of(&run.codes, at, width);
            self.vectors.extend(run.vectors(at..at + 1));
            self.norms.push(run.norms[at]);
        }
    }

    fn indexed(&self) -> KeyIndex {
        let entries = self.keys.iter().zip(0..);
        KeyIndex::of(
            entries
                .map(|(key, row)| KeyHash::of(key).entry(row))
                .collect(),
        )
    }

    /// Packs the codes.
    fn packed(mut self) -> Self {
        if let Some(shape) = self.shape {
            let (codes, subspaces) = (&self.codes, shape.subspaces());
            let rows = codes.codes.len() / subspaces;
            assert_eq!(rows, self.seqs.len(), "a code for every row");
            if codes.cells.is_empty() {
                shape.pack(&codes.codes, &mut self.blocks);
            } else {
                let (starts, order) = CellStarts::of(&codes.cells);
                shape.pack(&codes.gather(&order, subspaces), &mut self.blocks);
                self.order = Some((starts, order));
            }
        }
        self
    }

    /// Returns the number of rows, dead ones included.
    pub(crate) fn row_count(&self) -> u32 {
        self.seqs.len() as u32
    }

    /// Returns the sequence numbers of the first and the last row.
    pub(crate) fn seqs(&self) -> (Seq, Seq) {
        (self.seqs[0], self.seqs[self.seqs.len() - 1])
    }

    /// Returns the sequence number of the row.
    pub(crate) fn seq(&self, row: RowId) -> Seq {
        self.seqs[row.0 as usize]
    }

    /// Returns the user's key.
    pub(crate) fn key(&self, row: RowId) -> &Arc<str> {
        &self.keys[row.0 as usize]
    }

    /// Returns the text, where rows are texts.
    pub(crate) fn text(&self, row: RowId) -> Option<&Arc<str>> {
        self.texts.get(row.0 as usize)
    }

    /// Returns what the user gave: the text, or else the vector.
    pub(crate) fn value(&self, row: RowId) -> ValueRef<'_> {
        if let Some(text) = self.text(row) {
            return ValueRef::Text(text);
        }
        let at = row.0 as usize;
        ValueRef::Vector {
            stored: self.vectors(at..at + 1),
            norm: self.norm(row),
        }
    }

    /// Returns the length that the vector of a row had before it was normalised, where that is
    /// known.
    pub(crate) fn norm(&self, row: RowId) -> Option<f64> {
        known(self.norms[row.0 as usize])
    }

    /// Returns the columns of the rows.
    pub(crate) fn columns(&self) -> &dyn ColumnSource {
        &self.columns
    }

    /// Returns the keys of all rows, dead ones too, in order.
    pub(crate) fn keys(&self) -> &[Arc<str>] {
        &self.keys
    }

    /// Returns the stored vectors of a range of rows.
    pub(crate) fn vectors(&self, rows: Range<usize>) -> StoredRef<'_> {
        self.vectors.as_ref().rows(rows, self.dim)
    }

    /// Returns where the cells begin and the row of each position, if codes are ordered by cell.
    pub(crate) fn order(&self) -> Option<(&CellStarts, &[u32])> {
        let (starts, rows) = self.order.as_ref()?;
        Some((starts, rows))
    }

    /// Returns the packed codes of a range of blocks; empty without a quantizer.
    pub(crate) fn blocks(&self, blocks: Range<usize>) -> &[u8] {
        let bytes = self.shape.map_or(0, |shape| shape.block_bytes());
        &self.blocks[blocks.start * bytes..blocks.end * bytes]
    }

    /// Returns the word index of the texts, made now if it was not yet.
    pub(crate) fn words(&self, tokenizer: &Tokenizer) -> &RunWords {
        let index = || RunWords::of(tokenizer, self.texts.iter().map(|text| &**text));
        self.words.get_or_init(index)
    }

    /// Returns the row with this key, dead or alive.
    pub(crate) fn find(&self, hash: KeyHash, key: &str) -> Option<RowId> {
        let mut rows = self.index.rows_of(hash);
        rows.find(|&row| **self.key(row) == *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::LoggedColumns;
    use crate::ids::EncoderId;

    fn batch(first: u64, keys: &[&str]) -> Batch {
        let put = |key: &&str| Change::Put {
            key: (*key).into(),
            text: None,
            norm: None,
        };
        Batch {
            first: Seq(first),
            encoder: EncoderId([0; 32]),
            changes: keys.iter().map(put).collect(),
            dim: 2,
            vectors: Stored::F32([first as f32, 0.5].repeat(keys.len())),
            columns: LoggedColumns::none(keys.len()),
        }
    }

    /// The newest live row with this key.
    fn find<'t>(tail: &'t Tail, key: &str) -> Option<(&'t RunView, RowId)> {
        tail.runs().rev().find_map(|view| {
            let row = view.run.find(KeyHash::of(key), key)?;
            view.live.contains(row).then_some((view, row))
        })
    }

    #[test]
    fn a_thousand_rows_one_by_one_make_a_few_runs_in_order() {
        let mut tail = Tail::default();
        for n in 0..1000u64 {
            tail.push(Run::new(
                &batch(n + 1, &[&n.to_string()]),
                RowCodes::default(),
                None,
            ));
        }
        assert!(tail.runs().count() <= 10, "{} runs", tail.runs().count());
        let seqs: Vec<_> = tail.runs().flat_map(|v| v.run.seqs.clone()).collect();
        assert_eq!(seqs, (1..=1000).map(Seq).collect::<Vec<_>>());
        let (view, row) = find(&tail, "437").unwrap();
        assert_eq!(view.run.seq(row), Seq(438));
        assert!(matches!(
            view.run.vectors(row.0 as usize..row.0 as usize + 1),
            StoredRef::F32([438.0, 0.5])
        ));
    }

    #[test]
    fn frozen_runs_stay_apart_from_what_comes_after_and_their_rows_can_die() {
        let mut tail = Tail::default();
        tail.push(Run::new(&batch(1, &["a", "b"]), RowCodes::default(), None));
        let taken = tail.freeze();
        tail.push(Run::new(&batch(3, &["a"]), RowCodes::default(), None));
        let older = (0, RowId(0));
        assert_eq!(find(&tail, "a").unwrap().0.run.seq(RowId(0)), Seq(3));
        assert!(tail.kill(older.0, older.1));
        assert_eq!(taken[0].live.alive(), 2, "what the seal took is as it was");
        assert_eq!(tail.frozen()[0].live.alive(), 1);
        tail.clear_frozen();
        assert_eq!(tail.alive(), 1);
    }
}
