//! Rows accepted and not yet in a segment, as queries see them.
//!
//! The tail is a short list of immutable runs, each at least twice as long as the next, so that a row is copied a
//! logarithmic number of times before it is sealed, a query scans a handful of contiguous arrays, and a snapshot is a
//! handful of `Arc`s. Dead rows are dropped when runs merge.

use crate::error::Result;
use crate::ids::{RowId, Seq};
use crate::log::{Batch, Change, StoredVector};
use crate::quantizer::CodeShape;
use crate::scan::{BlockSource, VectorSource, Vectors};
use crate::segment::key_index::{KeyHash, KeyIndex};
use crate::view::live::Live;
use half::f16;
use std::ops::Range;
use std::sync::Arc;

/// The runs of one snapshot.
#[derive(Debug, Clone, Default)]
pub struct Tail {
    /// Runs that are being sealed: they change no more, but for rows that die.
    frozen: Vec<RunView>,
    /// Runs that still merge.
    active: Vec<RunView>,
}

/// A run and which of its rows are alive.
#[derive(Debug, Clone)]
pub struct RunView {
    /// The rows.
    pub run: Arc<Run>,
    /// Those that count.
    pub live: Live,
}

/// Immutable rows, ascending by `Seq`.
#[derive(Debug)]
pub struct Run {
    dim: usize,
    seqs: Vec<Seq>,
    keys: Vec<Arc<str>>,
    /// Empty in a database of vectors.
    texts: Vec<Arc<str>>,
    vectors: RunVectors,
    /// Codes of the rows, row-major; empty without a quantizer.
    codes: Vec<u8>,
    /// The same as the kernels read them.
    blocks: Vec<u8>,
    shape: Option<CodeShape>,
    index: KeyIndex,
}

#[derive(Debug)]
enum RunVectors {
    F32(Vec<f32>),
    F16(Vec<f16>),
}

impl Tail {
    /// The runs, oldest first.
    pub fn runs(&self) -> impl DoubleEndedIterator<Item = &RunView> {
        self.frozen.iter().chain(&self.active)
    }

    /// The run at this position of [`runs`](Self::runs).
    pub fn run(&self, at: usize) -> &RunView {
        match at.checked_sub(self.frozen.len()) {
            None => &self.frozen[at],
            Some(at) => &self.active[at],
        }
    }

    /// Living rows.
    pub fn alive(&self) -> u64 {
        self.runs().map(|view| u64::from(view.live.alive())).sum()
    }

    /// The living row with this key: which run, which row.
    pub fn find(&self, key: &str) -> Option<(usize, RowId)> {
        let hash = KeyHash::of(key);
        let runs = self.frozen.len() + self.active.len();
        (0..runs).rev().find_map(|at| {
            let view = self.run(at);
            let row = view.run.find(hash, key)?;
            view.live.contains(row).then_some((at, row))
        })
    }

    /// Ends a row.
    pub fn kill(&mut self, at: usize, row: RowId) -> bool {
        let view = match at.checked_sub(self.frozen.len()) {
            None => &mut self.frozen[at],
            Some(at) => &mut self.active[at],
        };
        view.live.kill(row)
    }

    /// Adds a run behind the others.
    pub fn push(&mut self, run: Run) {
        if run.rows() == 0 {
            return;
        }
        let live = Live::all(run.rows());
        self.active.push(RunView {
            run: Arc::new(run),
            live,
        });
        while let [.., older, newer] = &self.active[..] {
            if older.run.rows() >= 2 * newer.run.rows() {
                break;
            }
            let merged = Run::merge(older, newer);
            self.active.truncate(self.active.len() - 2);
            let live = Live::all(merged.rows());
            self.active.push(RunView {
                run: Arc::new(merged),
                live,
            });
        }
    }

    /// What a seal takes: from here on these runs merge no more. A seal that failed before left its runs here.
    pub fn freeze(&mut self) -> Vec<RunView> {
        self.frozen.append(&mut self.active);
        self.frozen.clone()
    }

    /// The frozen runs as they are now: those that a seal took, with the rows that died since.
    pub fn frozen(&self) -> &[RunView] {
        &self.frozen
    }

    /// Forgets the frozen runs: they are in a segment.
    pub fn thaw(&mut self) {
        self.frozen.clear();
    }
}

impl Run {
    /// The rows that a batch puts, with their codes (row-major) under the model's shape.
    pub fn new(batch: &Batch, dim: usize, codes: Vec<u8>, shape: Option<CodeShape>) -> Self {
        let mut run = Self::empty(
            dim,
            shape,
            batch.changes.iter().find_map(|change| match change {
                Change::Put { vector, .. } => Some(matches!(vector, StoredVector::F16(_))),
                Change::Delete { .. } => None,
            }) == Some(true),
        );
        for (seq, change) in (batch.first.0..).map(Seq).zip(&batch.changes) {
            let Change::Put { key, text, vector } = change else {
                continue;
            };
            run.seqs.push(seq);
            run.keys.push(key.clone());
            run.texts.extend(text.clone());
            match (&mut run.vectors, vector) {
                (RunVectors::F32(all), StoredVector::F32(one)) => all.extend_from_slice(one),
                (RunVectors::F16(all), StoredVector::F16(one)) => all.extend_from_slice(one),
                _ => unreachable!("a database stores vectors of one kind"),
            }
        }
        run.codes = codes;
        run.index = run.indexed();
        run.packed()
    }

    fn empty(dim: usize, shape: Option<CodeShape>, half: bool) -> Self {
        Self {
            dim,
            seqs: Vec::new(),
            keys: Vec::new(),
            texts: Vec::new(),
            vectors: if half {
                RunVectors::F16(Vec::new())
            } else {
                RunVectors::F32(Vec::new())
            },
            codes: Vec::new(),
            blocks: Vec::new(),
            shape,
            index: KeyIndex::default(),
        }
    }

    /// The living rows of two neighbours.
    fn merge(older: &RunView, newer: &RunView) -> Self {
        let half = matches!(older.run.vectors, RunVectors::F16(_));
        let mut merged = Self::empty(older.run.dim, older.run.shape, half);
        let rows = (older.live.alive() + newer.live.alive()) as usize;
        merged.seqs.reserve(rows);
        merged.keys.reserve(rows);
        match &mut merged.vectors {
            RunVectors::F32(v) => v.reserve(rows * older.run.dim),
            RunVectors::F16(v) => v.reserve(rows * older.run.dim),
        }
        for view in [older, newer] {
            merged.extend(view);
        }
        merged.index = if older.live.dead() + newer.live.dead() == 0 {
            KeyIndex::merged(&older.run.index, &newer.run.index, older.run.rows())
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
            self.codes.extend_from_slice(&run.codes);
            match (&mut self.vectors, &run.vectors) {
                (RunVectors::F32(all), RunVectors::F32(some)) => all.extend_from_slice(some),
                (RunVectors::F16(all), RunVectors::F16(some)) => all.extend_from_slice(some),
                _ => unreachable!("a database stores vectors of one kind"),
            }
            return;
        }
        let width = run.shape.map_or(0, |shape| shape.subspaces());
        for row in view.live.iter() {
            let at = row.0 as usize;
            self.seqs.push(run.seqs[at]);
            self.keys.push(run.keys[at].clone());
            self.texts.extend(run.texts.get(at).cloned());
            self.codes
                .extend_from_slice(&run.codes[at * width..(at + 1) * width]);
            let span = at * run.dim..(at + 1) * run.dim;
            match (&mut self.vectors, &run.vectors) {
                (RunVectors::F32(all), RunVectors::F32(some)) => all.extend_from_slice(&some[span]),
                (RunVectors::F16(all), RunVectors::F16(some)) => all.extend_from_slice(&some[span]),
                _ => unreachable!("a database stores vectors of one kind"),
            }
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
            assert_eq!(
                self.codes.len(),
                self.seqs.len() * shape.subspaces(),
                "a code for every row"
            );
            shape.pack(&self.codes, &mut self.blocks);
        }
        self
    }

    /// Rows, dead ones included.
    pub fn rows(&self) -> u32 {
        self.seqs.len() as u32
    }

    /// When the row was accepted.
    pub fn seq(&self, row: RowId) -> Seq {
        self.seqs[row.0 as usize]
    }

    /// The user's key.
    pub fn key(&self, row: RowId) -> &Arc<str> {
        &self.keys[row.0 as usize]
    }

    /// The text, where rows are texts.
    pub fn text(&self, row: RowId) -> Option<&Arc<str>> {
        self.texts.get(row.0 as usize)
    }

    /// The stored vectors of a range of rows.
    pub fn vectors(&self, rows: Range<usize>) -> Vectors<'_> {
        let span = rows.start * self.dim..rows.end * self.dim;
        match &self.vectors {
            RunVectors::F32(v) => Vectors::F32(&v[span]),
            RunVectors::F16(v) => Vectors::F16(&v[span]),
        }
    }

    /// The codes of one row; empty without a quantizer.
    pub fn code(&self, row: RowId) -> &[u8] {
        let width = self.shape.map_or(0, |shape| shape.subspaces());
        &self.codes[row.0 as usize * width..][..width]
    }

    fn find(&self, hash: KeyHash, key: &str) -> Option<RowId> {
        let mut rows = self.index.rows(hash);
        rows.find(|&row| **self.key(row) == *key)
    }
}

/// A run's codes as a scan reads them, with what may be returned.
#[derive(Debug)]
pub struct RunCodes<'a> {
    /// The run.
    pub run: &'a Run,
    /// Its rows that count.
    pub live: Option<&'a [u64]>,
}

impl BlockSource for RunCodes<'_> {
    fn rows(&self) -> usize {
        self.run.rows() as usize
    }

    fn blocks(&self, blocks: Range<usize>) -> Result<&[u8]> {
        let bytes = self
            .run
            .shape
            .expect("a run that is scanned by codes has them")
            .block_bytes();
        Ok(&self.run.blocks[blocks.start * bytes..blocks.end * bytes])
    }

    fn live(&self) -> Option<&[u64]> {
        self.live
    }
}

/// A run's vectors as an exact scan reads them, with what may be returned.
#[derive(Debug)]
pub struct RunExact<'a> {
    /// The run.
    pub run: &'a Run,
    /// Its rows that count.
    pub live: Option<&'a [u64]>,
}

impl VectorSource for RunExact<'_> {
    fn rows(&self) -> usize {
        self.run.rows() as usize
    }

    fn dim(&self) -> usize {
        self.run.dim
    }

    fn live(&self) -> Option<&[u64]> {
        self.live
    }

    fn rows_at(&self, rows: Range<usize>) -> Result<Vectors<'_>> {
        Ok(self.run.vectors(rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::EncoderId;

    fn batch(first: u64, keys: &[&str]) -> Batch {
        let put = |key: &&str| Change::Put {
            key: (*key).into(),
            text: None,
            vector: StoredVector::F32(vec![first as f32, 0.5].into()),
        };
        Batch {
            first: Seq(first),
            encoder: EncoderId([0; 32]),
            changes: keys.iter().map(put).collect(),
        }
    }

    #[test]
    fn a_thousand_rows_one_by_one_make_a_few_runs_in_order() {
        let mut tail = Tail::default();
        for n in 0..1000u64 {
            tail.push(Run::new(
                &batch(n + 1, &[&n.to_string()]),
                2,
                Vec::new(),
                None,
            ));
        }
        assert!(tail.runs().count() <= 10, "{} runs", tail.runs().count());
        let seqs: Vec<_> = tail.runs().flat_map(|v| v.run.seqs.clone()).collect();
        assert_eq!(seqs, (1..=1000).map(Seq).collect::<Vec<_>>());
        let (at, row) = tail.find("437").unwrap();
        let view = tail.run(at);
        assert_eq!(view.run.seq(row), Seq(438));
        assert!(matches!(
            view.run.vectors(row.0 as usize..row.0 as usize + 1),
            Vectors::F32([438.0, 0.5])
        ));
    }

    #[test]
    fn frozen_runs_stay_apart_from_what_comes_after_and_their_rows_can_die() {
        let mut tail = Tail::default();
        tail.push(Run::new(&batch(1, &["a", "b"]), 2, Vec::new(), None));
        let taken = tail.freeze();
        tail.push(Run::new(&batch(3, &["a"]), 2, Vec::new(), None));
        let older = (0, RowId(0));
        assert_eq!(
            tail.find("a"),
            Some((1, RowId(0))),
            "the newest row of a key is found first"
        );
        assert!(tail.kill(older.0, older.1));
        assert_eq!(taken[0].live.alive(), 2, "what the seal took is as it was");
        assert_eq!(tail.frozen()[0].live.alive(), 1);
        tail.thaw();
        assert_eq!(tail.alive(), 1);
    }
}
