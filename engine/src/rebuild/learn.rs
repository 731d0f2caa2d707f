//! Learning a quantizer (PQ or OPQ) from the stored vectors of a database, without pairs.
//!
//! Nothing is trained within an insert. A program calls [`learn`] or
//! [`Database::auto_quantize`](crate::Database::auto_quantize). The maintenance thread calls the latter too, if
//! [`Options::auto_quantize`](crate::Options::auto_quantize) is set.

use crate::disk::files::{Disk, Files};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::model::bundle::{Bundle, BundleWriter};
use crate::quantizer::{TrainPq, Trained, train_opq_on_axes, train_pq};
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
    /// The memory limit for the sample and its copies, in bytes.
    pub memory_limit: usize,
}

impl Default for LearnOptions {
    fn default() -> Self {
        Self {
            rotate: true,
            projection: Projection::Full,
            pq: TrainPq::default(),
            memory_limit: crate::Options::default().memory_limit,
        }
    }
}

impl LearnOptions {
    setters!(
        rotate: bool,
        projection: Projection,
        pq: TrainPq,
        memory_limit: usize,
    );

    /// Returns the default options for vectors of `dim` values: eight bytes per row and a measured projection; for vectors
    /// of fewer than 64 values the full width, and the largest number up to eight that divides `dim`.
    pub fn automatic(dim: usize) -> Self {
        if dim >= WIDE {
            return Self {
                projection: Projection::Measured,
                ..Self::default()
            };
        }
        let subspaces = (1..=8).rev().find(|m| dim.is_multiple_of(*m));
        Self {
            pq: TrainPq {
                subspaces: subspaces.unwrap_or(1),
                ..TrainPq::default()
            },
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
    let (sample, through_seq) = sample(snapshot, options, held_out)?;
    let pq = &options.pq;
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
            "iterations": pq.iterations, "sample": pq.sample, "dim": axes,
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

/// Returns the vectors of rows chosen evenly from all rows, and the last `Seq`.
fn sample(
    snapshot: &Snapshot,
    options: &LearnOptions,
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
    let (least, wanted) = (options.pq.codewords.min(1024), options.pq.sample);
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
