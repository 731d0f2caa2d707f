//! Learning a quantizer (PQ or OPQ) from the stored vectors of a database, without pairs.
//!
//! Nothing is trained within an insert. A program calls [`learn`] or
//! [`Database::auto_quantize`](crate::Database::auto_quantize). The maintenance thread calls the latter too, if
//! [`Options::auto_quantize`](crate::Options::auto_quantize) is set.

use crate::disk::files::{Disk, Files};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::model::bundle::{Bundle, BundleWriter};
use crate::quantizer::{MAX_CELLS, TrainPq, Trained, train_opq_on_axes, train_pq};
use crate::rebuild::own_rows::{OwnRows, OwnTrial};
use crate::snapshot::Snapshot;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// The number of rows from which codes are worth training; fewer rows are searched exactly fast enough. A good value
/// for [`Database::auto_quantize`](crate::Database::auto_quantize) and
/// [`Options::auto_quantize`](crate::Options::auto_quantize).
pub const AUTO_QUANTIZE_ROWS: u64 = 65_536;

/// What [`learn`] quantizes, if it learns a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Projection {
    /// The vectors at their full width.
    #[default]
    Full,
    /// Their first so many principal axes.
    Axes(usize),
    /// Whichever of the full width and some numbers of axes finds most of the nearest rows, measured on the rows. The
    /// subspaces need not divide the dimensions then.
    Measured,
}

/// Options of [`learn`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LearnOptions {
    /// Whether to learn a rotation too (OPQ instead of PQ).
    pub rotate: bool,
    /// What is quantized, if a rotation is learned.
    pub projection: Projection,
    /// The shape of the codes, and steps, sample, seed and threads of the training.
    pub pq: TrainPq,
    /// Cells. They take precedence over those of `pq`.
    pub cells: CellCount,
    /// The memory limit for the sample and its copies, in bytes.
    pub memory_limit: usize,
}

/// How many cells a model gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CellCount {
    /// None below a million rows, which are scanned fast enough; else the power of two nearest to four times the square
    /// root of the rows.
    #[default]
    Auto,
    /// This many; 0 means none.
    Exactly(usize),
}

impl CellCount {
    /// Returns the number of cells for this many rows.
    pub fn of(self, rows: u64) -> usize {
        /// Rows from which cells are worth while.
        const LEAST: u64 = 1_000_000;
        match self {
            Self::Exactly(cells) => cells,
            Self::Auto if rows < LEAST => 0,
            Self::Auto => {
                let wanted = 4.0 * (rows as f64).sqrt();
                let below = 1_usize << (wanted.log2() as u32);
                let nearest = match wanted - below as f64 > 2.0 * below as f64 - wanted {
                    true => 2 * below,
                    false => below,
                };
                nearest.min(MAX_CELLS)
            }
        }
    }
}

impl Default for LearnOptions {
    fn default() -> Self {
        Self {
            rotate: true,
            projection: Projection::Full,
            pq: TrainPq::default(),
            cells: CellCount::Auto,
            memory_limit: crate::Options::default().memory_limit,
        }
    }
}

impl LearnOptions {
    setters!(
        rotate: bool,
        projection: Projection,
        pq: TrainPq,
        cells: CellCount,
        memory_limit: usize,
    );

    /// Returns the default options for vectors of `dim` values: eight bytes per row, a measured projection and no cells; for
    /// vectors of fewer than 64 values the full width, and the largest number up to eight that divides `dim`.
    pub fn automatic(dim: usize) -> Self {
        if dim >= WIDE {
            return Self {
                projection: Projection::Measured,
                cells: CellCount::Exactly(0),
                ..Self::default()
            };
        }
        let subspaces = (1..=8).rev().find(|m| dim.is_multiple_of(*m));
        Self {
            pq: TrainPq {
                subspaces: subspaces.unwrap_or(1),
                ..TrainPq::default()
            },
            cells: CellCount::Exactly(0),
            ..Self::default()
        }
    }
}

/// From this width on, a projection may find more than the full width.
const WIDE: usize = 64;

/// A learned quantizer. Write it with [`write`](Self::write) or [`draft`](Self::draft).
#[derive(Debug)]
pub struct Learned {
    /// The method: `pq` or `opq`.
    pub method: &'static str,
    /// The quantizer, and the record of its training.
    pub trained: Trained,
    /// How many of the nearest rows its codes find.
    pub own_rows: OwnRows,
    model: Arc<Model>,
    training: Value,
}

/// Trains a quantizer on rows chosen evenly from all rows of a snapshot. Changes nothing.
pub fn learn(snapshot: &Snapshot, options: &LearnOptions) -> Result<Learned> {
    learn_without(snapshot, options, &BTreeSet::new())
}

/// Like [`learn`], without the rows with these numbers, which are used for measuring.
pub(crate) fn learn_without(
    snapshot: &Snapshot,
    options: &LearnOptions,
    held_out: &BTreeSet<u64>,
) -> Result<Learned> {
    let model = Arc::clone(snapshot.model());
    let rows = snapshot.rows() - held_out.len() as u64;
    let cells = options.cells.of(rows);
    if cells as u64 > rows {
        return Err(Error::invalid(format!(
            "{cells} cells for {rows} rows; ask for at most as many cells as rows, better a thirtieth"
        )));
    }
    let pq = &TrainPq {
        cells,
        ..options.pq.clone()
    };
    let (sample, through_seq) = sample(snapshot, options, cells, held_out)?;
    let (dim, metric) = (model.dim(), model.metric());
    let trial = OwnTrial::new(&sample, dim, metric, pq.threads)?;
    let (method, axes) = match (options.rotate, options.projection) {
        (false, _) => ("pq", dim),
        (true, Projection::Full) => ("opq", dim),
        (true, Projection::Axes(axes)) => ("opq", axes),
        (true, Projection::Measured) => ("opq", trial.best_axes(&sample, pq)?),
    };
    let trained = match options.rotate {
        true => train_opq_on_axes(&sample, dim, axes, metric, pq)?,
        false => train_pq(&sample, dim, metric, pq)?,
    };
    let own_rows = trial.measure(&trained.quantizer)?;
    let training = json!({
        "config": {
            "method": method, "subspaces": pq.subspaces, "codewords": pq.codewords,
            "iterations": pq.iterations, "sample": pq.sample, "dim": axes, "cells": pq.cells,
        },
        "seed": pq.seed, "rows": trained.rows, "through_seq": through_seq,
        "distortions": trained.distortions,
        "own_rows": {"recall": own_rows.recall, "queries": own_rows.queries, "rows": own_rows.rows},
    });
    Ok(Learned {
        method,
        trained,
        own_rows,
        model,
        training,
    })
}

impl Learned {
    /// Writes a bundle with this quantizer and the encoder of the rows.
    pub fn write(&self, dir: impl AsRef<Path>, evaluation: Value) -> Result<Bundle> {
        self.write_on(&Disk::default(), dir.as_ref(), evaluation)
    }

    pub(crate) fn write_on(
        &self,
        files: &dyn Files,
        dir: &Path,
        evaluation: Value,
    ) -> Result<Bundle> {
        let writer = BundleWriter::new(dir)
            .method(self.method)
            .quantizer(&self.trained.quantizer)
            .training(self.training.clone())
            .evaluation(evaluation);
        let writer = match self.model.bundle() {
            Some(bundle) => writer.encoder_from(bundle),
            None => writer.metric(self.model.metric()).vectors(self.model.dim()),
        };
        writer.finish_on(files)
    }
}

/// Rows that each cell is learned from, if there are as many and memory allows.
const ROWS_PER_CELL: usize = 64;

/// Returns the vectors of rows chosen evenly from all rows, and the last `Seq`.
pub(super) fn sample(
    snapshot: &Snapshot,
    options: &LearnOptions,
    cells: usize,
    held_out: &BTreeSet<u64>,
) -> Result<(Vec<f32>, u64)> {
    let dim = snapshot.model().dim();
    let rows = snapshot.rows() - held_out.len() as u64;
    if rows == 0 {
        return Err(Error::invalid(
            "there are no rows to learn from; insert some first",
        ));
    }
    // Training holds about three copies of the sample.
    let wanted = options.pq.sample.max(ROWS_PER_CELL * cells);
    let least = options.pq.codewords.min(1024).max(cells);
    let most = (options.memory_limit / (12 * dim)).clamp(least.min(wanted), wanted);
    let most = rows.min(most as u64);
    let (mut number, mut seen, mut through) = (0_u64, 0_u64, 0);
    let mut vectors = Vec::with_capacity(most as usize * dim);
    snapshot.for_each_row(|row| {
        // The i-th of n rows is chosen if i * most / n increases there: that is evenly, and `most` in total.
        let step = |i: u64| u128::from(i) * u128::from(most) / u128::from(rows);
        if !held_out.contains(&number) {
            if step(seen + 1) > step(seen) {
                vectors.extend_from_slice(row.vector);
            }
            seen += 1;
        }
        number += 1;
        through = through.max(row.seq.0);
        Ok(())
    })?;
    Ok((vectors, through))
}

#[cfg(test)]
mod tests {
    use super::CellCount;

    #[test]
    fn cells_grow_with_the_root_of_the_rows_from_a_million_on() {
        let cells = |rows| CellCount::Auto.of(rows);
        assert_eq!((cells(0), cells(999_999)), (0, 0));
        assert_eq!(cells(1_000_000), 4_096);
        assert_eq!(cells(3_000_000), 8_192);
        assert_eq!(cells(10_000_000), 16_384);
        assert_eq!(cells(u64::MAX), 32_768);
        assert_eq!(CellCount::Exactly(7).of(10), 7);
    }
}
