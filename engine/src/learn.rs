//! A quantizer from the rows alone: pq or opq over a database's own vectors.
//!
//! Nothing is trained inside an insert. `mopqdb train --method opq` calls [`learn`]; the maintenance thread does so
//! too, where [`Options::auto_quantize`](crate::Options::auto_quantize) asks for it.

use crate::disk::files::{Disk, Files};
use crate::error::{Error, Result};
use crate::ids::ModelId;
use crate::model::Model;
use crate::model::bundle::{Bundle, BundleWriter};
use crate::model::registry;
use crate::quantizer::{TrainPq, Trained, train_opq, train_pq};
use crate::rebuild::{self, RebuildOptions};
use crate::snapshot::Snapshot;
use crate::watch::Watch;
use crate::write::Store;
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// From this many rows on codes are worth training: the program then advises it, and a good value for
/// [`Options::auto_quantize`](crate::Options::auto_quantize). Fewer are searched exactly in no time.
pub const AUTO_QUANTIZE_ROWS: u64 = 65_536;

/// How [`learn`] learns.
#[derive(Debug, Clone)]
pub struct LearnOptions {
    /// Learn a rotation too: opq, not pq.
    pub rotate: bool,
    /// Shape, steps, sample, seed and threads.
    pub pq: TrainPq,
    /// Memory for the sample and its copies, in bytes.
    pub memory_limit: usize,
}

impl Default for LearnOptions {
    fn default() -> Self {
        Self {
            rotate: true,
            pq: TrainPq::default(),
            memory_limit: crate::Options::default().memory_limit,
        }
    }
}

impl LearnOptions {
    /// What is trained when nobody says what: eight codes a row, or the nearest number that divides the width.
    pub fn automatic(dim: usize) -> Self {
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

/// What was learned, for [`write`](Self::write).
#[derive(Debug)]
pub struct Learned {
    /// `pq` or `opq`.
    pub method: &'static str,
    /// The quantizer, and how its training went.
    pub trained: Trained,
    model: Arc<Model>,
    training: Value,
}

/// Trains a quantizer on rows chosen evenly among all of a snapshot. Changes nothing.
pub fn learn(snapshot: &Snapshot, options: &LearnOptions) -> Result<Learned> {
    let model = Arc::clone(snapshot.model());
    let (sample, through_seq) = sample(snapshot, options)?;
    let pq = &options.pq;
    let (method, trained) = match options.rotate {
        true => ("opq", train_opq(&sample, model.dim(), model.metric(), pq)?),
        false => ("pq", train_pq(&sample, model.dim(), model.metric(), pq)?),
    };
    let training = json!({
        "config": {
            "method": method, "subspaces": pq.subspaces, "codewords": pq.codewords,
            "iterations": pq.iterations, "sample": pq.sample,
        },
        "seed": pq.seed, "rows": trained.rows, "through_seq": through_seq,
        "distortions": trained.distortions,
    });
    Ok(Learned {
        method,
        trained,
        model,
        training,
    })
}

impl Learned {
    /// Writes a bundle: this quantizer behind the encoder that the rows have already.
    pub fn write(&self, dir: impl AsRef<Path>, evaluation: Value) -> Result<Bundle> {
        self.write_on(&Disk::default(), dir.as_ref(), evaluation)
    }

    fn write_on(&self, files: &dyn Files, dir: &Path, evaluation: Value) -> Result<Bundle> {
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

/// Vectors of rows chosen evenly among all, and the last `Seq` there is.
fn sample(snapshot: &Snapshot, options: &LearnOptions) -> Result<(Vec<f32>, u64)> {
    let (rows, dim) = (snapshot.rows(), snapshot.model().dim());
    if rows == 0 {
        return Err(Error::invalid(
            "there are no rows to learn from; insert some first",
        ));
    }
    // Training holds the sample about three times over.
    let (least, wanted) = (options.pq.codewords.min(1024), options.pq.sample);
    let most = (options.memory_limit / (12 * dim)).clamp(least.min(wanted), wanted);
    let most = rows.min(most as u64);
    let (mut seen, mut through) = (0_u64, 0);
    let mut vectors = Vec::with_capacity(most as usize * dim);
    snapshot.for_each_row(|row| {
        // The i-th of n rows is taken where i * most / n steps: evenly, and `most` of them.
        let step = |i: u64| u128::from(i) * u128::from(most) / u128::from(rows);
        if step(seen + 1) > step(seen) {
            vectors.extend_from_slice(row.vector);
        }
        seen += 1;
        through = through.max(row.seq.0);
        Ok(())
    })?;
    Ok((vectors, through))
}

/// What became of training a first quantizer.
pub(crate) enum First {
    /// Not asked for, or too few rows.
    NotDue,
    /// The database has one already. If rows are searched exactly all the same, somebody chose that.
    Had,
    /// It was trained and switched to.
    Trained(ModelId),
}

/// Trains opq and switches to it, where the options ask for it and it is due.
pub(crate) fn quantize_if_due(store: &Store, stop: &Arc<AtomicBool>) -> Result<First> {
    let snapshot = store.current();
    let due = store
        .options
        .auto_quantize
        .is_some_and(|rows| snapshot.rows() >= rows.max(1));
    if !due {
        return Ok(First::NotDue);
    }
    let registered = registry::models(store.layout.dir())?;
    if registered.iter().any(|model| model.shape.is_some()) {
        return Ok(First::Had);
    }
    let mut options = LearnOptions::automatic(snapshot.model().dim());
    options.pq.threads = store.options.threads;
    options.pq.watch = Watch::new().stop_when(Arc::clone(stop));
    options.memory_limit = store.options.memory_limit;
    let learned = learn(&snapshot, &options)?;
    drop(snapshot);
    let scratch = store.layout.runs().join("auto");
    let files = &*store.files;
    let remove = || match files.remove_dir(&scratch) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("removing", &scratch)(e)),
        _ => Ok(()),
    };
    remove()?;
    let bundle = learned.write_on(files, &scratch, Value::Null)?;
    let id = registry::register(files, &store.layout, &bundle)?;
    remove()?;
    rebuild::rebuild_store(
        store,
        &RebuildOptions {
            model: Some(id),
            threads: store.options.threads,
            memory_limit: store.options.memory_limit,
            watch: Watch::new().stop_when(Arc::clone(stop)),
            ..RebuildOptions::default()
        },
    )?;
    Ok(First::Trained(id))
}
