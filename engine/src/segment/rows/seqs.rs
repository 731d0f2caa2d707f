//! The `Seq`s of rows, as runs of consecutive numbers. A bulk load is one run, and compaction rarely leaves many.

use crate::format::{Check, Part, Put, Section};
use crate::segment::file::SegmentFile;
use crate::{Error, Result, RowId, Seq};

const RUN_BYTES: usize = 16;

/// Collects `Seq`s.
#[derive(Debug, Default)]
pub(super) struct SeqsWriter {
    runs: Vec<u8>,
    rows: u32,
    range: Option<(Seq, Seq)>,
}

impl SeqsWriter {
    /// Appends the `Seq` of the next row.
    #[inline]
    pub(super) fn push(&mut self, seq: Seq) {
        let last = self.range.map(|(_, last)| last);
        assert!(
            last.is_none_or(|last| last < seq),
            "rows ascend by Seq: {seq} after {last:?}"
        );
        if last.map(Seq::next) != Some(seq) {
            self.runs.put_u32(self.rows);
            self.runs.put_u32(0);
            self.runs.put_u64(seq.0);
        }
        self.rows += 1;
        self.range = Some((self.range.map_or(seq, |(first, _)| first), seq));
    }

    pub(super) fn rows(&self) -> u32 {
        self.rows
    }

    pub(super) fn range(&self) -> Option<(Seq, Seq)> {
        self.range
    }

    /// Returns the bytes of the section.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.runs
    }
}

/// The runs of a file.
#[derive(Debug)]
pub(super) struct Seqs {
    part: Part,
    runs: usize,
    rows: u32,
}

/// A run of rows with consecutive `Seq`s.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) row: u32,
    pub(super) seq: u64,
    /// The row after the last one of the run.
    pub(super) end: u32,
}

impl Seqs {
    pub(super) fn open(file: &SegmentFile, rows: u32) -> Result<Self> {
        let part = file.part(Section::Seqs, Check::Chunks)?;
        let runs = part.len() / RUN_BYTES;
        if part.len() % RUN_BYTES != 0 || (runs == 0) != (rows == 0) || runs > rows as usize {
            let what = format!("{} bytes of runs for {rows} rows", part.len());
            return Err(file.wrong(part.wrong(0, what)));
        }
        Ok(Self { part, runs, rows })
    }

    pub(super) fn runs(&self) -> usize {
        self.runs
    }

    /// Returns a run, which lies within the rows.
    pub(super) fn run(&self, file: &SegmentFile, index: usize) -> Result<Run> {
        let (row, seq) = self.start(file, index)?;
        let end = match index + 1 {
            next if next == self.runs => self.rows,
            next => self.start(file, next)?.0,
        };
        let last = end.checked_sub(row).filter(|&len| len > 0);
        let last = last.and_then(|len| seq.checked_add(u64::from(len) - 1));
        if last.is_none() || end > self.rows {
            let what = format!("run {index} is of rows {row} to {end} from Seq {seq}");
            return Err(file.wrong(self.part.wrong(index * RUN_BYTES, what)));
        }
        Ok(Run { row, seq, end })
    }

    /// Returns the `Seq` of a row. Requires: the row is in the file.
    pub(super) fn seq(&self, file: &SegmentFile, row: RowId) -> Result<Seq> {
        let (_, run) = self.run_of(file, row)?;
        self.in_run(file, run, row)
    }

    /// Returns the run that should contain a row, and its index.
    pub(super) fn run_of(&self, file: &SegmentFile, row: RowId) -> Result<(usize, Run)> {
        match self.run_before(file, |first, _| first <= row.0)? {
            Some(found) => Ok(found),
            None => Err(self.not_held(file, row)),
        }
    }

    /// Returns the `Seq` of a row of a run.
    pub(super) fn in_run(&self, file: &SegmentFile, run: Run, row: RowId) -> Result<Seq> {
        if (run.row..run.end).contains(&row.0) {
            Ok(Seq(run.seq + u64::from(row.0 - run.row)))
        } else {
            Err(self.not_held(file, row))
        }
    }

    /// Returns the last run for which `before(row, seq)` holds, by binary search. It must hold for the first runs and
    /// no others.
    fn run_before(
        &self,
        file: &SegmentFile,
        before: impl Fn(u32, u64) -> bool,
    ) -> Result<Option<(usize, Run)>> {
        let (mut low, mut high) = (0, self.runs);
        while low < high {
            let middle = low + (high - low) / 2;
            let (row, seq) = self.start(file, middle)?;
            if before(row, seq) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        match low.checked_sub(1) {
            None => Ok(None),
            Some(index) => Ok(Some((index, self.run(file, index)?))),
        }
    }

    fn not_held(&self, file: &SegmentFile, row: RowId) -> Error {
        file.wrong(self.part.wrong(0, format!("no run contains row {row}")))
    }

    fn start(&self, file: &SegmentFile, index: usize) -> Result<(u32, u64)> {
        let at = index * RUN_BYTES;
        let words: &[u64] = bytemuck::cast_slice(file.checked(&self.part, at..at + RUN_BYTES)?);
        let (row, seq) = (words[0], words[1]);
        let row = u32::try_from(row).map_err(|_| {
            file.wrong(
                self.part
                    .wrong(at, format!("run {index} begins at row {row}")),
            )
        })?;
        Ok((row, seq))
    }

    /// Checks that every run follows the previous one.
    pub(super) fn verify(&self, file: &SegmentFile, range: Option<(Seq, Seq)>) -> Result<()> {
        let mut next = (0, range.map_or(0, |(first, _)| first.0));
        for index in 0..self.runs {
            let run = self.run(file, index)?;
            let starts = index > 0 || run.seq == next.1;
            if run.row != next.0 || run.seq < next.1 || !starts {
                let what = format!("run {index} begins at row {} and Seq {}", run.row, run.seq);
                return Err(file.wrong(self.part.wrong(index * RUN_BYTES, what)));
            }
            next = (
                run.end,
                run.seq.saturating_add(u64::from(run.end - run.row)),
            );
        }
        let last = range.map_or(next.1, |(_, last)| last.0.saturating_add(1));
        if next != (self.rows, last) {
            let what = format!("runs end at row {} and Seq {}", next.0, next.1);
            return Err(file.wrong(self.part.wrong(0, what)));
        }
        Ok(())
    }
}
