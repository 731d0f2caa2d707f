//! Drift: whether new rows differ from the rows that the quantizer was trained on.
//!
//! A quantizer trained on old rows keeps answering without an error while its recall falls. So `stats` compares a
//! sample of the rows inserted since training with a sample of those that were there: the distance of rows from their
//! reconstructions, and the codewords that are used. [`Drift::advice`] says whether to retrain.

use crate::error::Result;
use crate::ids::Seq;
use crate::model::Model;
use crate::snapshot::Snapshot;
use serde::Serialize;

/// The sample size per side.
const SAMPLE: usize = 4096;
/// The minimum number of new rows for advice.
const ENOUGH: usize = 1000;
/// A mean error this much above that of the training rows, and beyond four standard errors, is drift.
const ERROR_RATIO: f64 = 1.15;
/// A change of codeword use above this share, beyond sampling noise, is drift.
const USE_SHIFT: f64 = 0.10;
/// Growth by this factor since training is drift.
const GROWTH: f64 = 4.0;

/// Compares the rows inserted since training with the rows that the model was trained on.
#[derive(Debug, Clone, Serialize)]
pub struct Drift {
    /// The number of live rows that were there when the model was trained.
    pub trained_rows: u64,
    /// The number of live rows inserted since.
    pub new_rows: u64,
    /// The mean squared distance between a training row and its reconstruction.
    pub trained_error: f64,
    /// The mean squared distance between a new row and its reconstruction.
    pub new_error: f64,
    /// How much the use of codewords changed: from 0 (the same) to 1 (no codeword in common), averaged over subspaces,
    /// less what two samples of the same rows would show.
    pub use_shift: f64,
    /// Cells whose share of the rows moved beyond what two samples of the same rows would show; none without cells.
    pub moved_cells: Option<usize>,
    /// How much of the rows moved to other cells, as [`use_shift`](Self::use_shift); none without cells.
    pub cell_shift: Option<f64>,
    /// Why retraining is advised; `None` if it is not.
    pub advice: Option<String>,
}

#[derive(Default)]
struct Side {
    rows: u64,
    sampled: usize,
    error: f64,
    squares: f64,
    usage: Vec<u32>,
    /// The sampled rows of each cell.
    cells: Vec<u32>,
}

impl Drift {
    /// Computes the drift. Returns `None` without a quantizer, or if the quantizer does not record which rows it was
    /// trained on.
    pub(crate) fn of(snapshot: &Snapshot) -> Result<Option<Self>> {
        let model = snapshot.model();
        let (Some(shape), Some(bundle)) = (model.shape(), model.bundle()) else {
            return Ok(None);
        };
        let Some(through) = bundle.manifest().training["through_seq"].as_u64() else {
            return Ok(None);
        };
        let mut sides = [Side::default(), Side::default()];
        for side in &mut sides {
            side.usage = vec![0; shape.subspaces() * shape.codewords()];
            side.cells = vec![0; model.cells().unwrap_or(0) as usize];
        }
        count(snapshot, Seq(through), &mut sides)?;
        let strides = [0, 1].map(|at: usize| (sides[at].rows as usize).div_ceil(SAMPLE).max(1));
        sample(snapshot, Seq(through), strides, &mut sides)?;
        let [trained, new] = sides;
        if trained.sampled == 0 {
            return Ok(None);
        }
        let mut drift = Self {
            trained_rows: trained.rows,
            new_rows: new.rows,
            trained_error: trained.mean(),
            new_error: new.mean(),
            use_shift: use_shift(&trained, &new, shape.codewords()),
            moved_cells: model.cells().map(|_| moved_cells(&trained, &new)),
            cell_shift: (model.cells()).map(|cells| {
                let [trained, new] = [&trained, &new].map(|side| (&side.cells[..], side.sampled));
                shift(trained, new, cells as usize)
            }),
            advice: None,
        };
        drift.advice = drift.advice(&trained, &new);
        Ok(Some(drift))
    }

    /// Returns advice if there are at least 1,000 new rows and one of these holds: their mean error is 15% above that
    /// of the training rows, by more than four standard errors of the difference; a tenth of the use of codewords
    /// changed, or of the use of cells; there are four times as many rows as in training.
    fn advice(&self, trained: &Side, new: &Side) -> Option<String> {
        if new.sampled < ENOUGH.min(SAMPLE) {
            return None;
        }
        let spread = (trained.variance_of_mean() + new.variance_of_mean()).sqrt();
        let gap = self.new_error - self.trained_error;
        let percent = 100.0 * (self.new_error / self.trained_error - 1.0);
        if self.new_error > ERROR_RATIO * self.trained_error && gap > 4.0 * spread {
            return Some(format!(
                "the rows inserted since training are {percent:.0}% further from their codes than those it was trained on"
            ));
        }
        if self.use_shift > USE_SHIFT {
            return Some(format!(
                "{:.0}% of the use of codewords has moved since training",
                100.0 * self.use_shift
            ));
        }
        if let Some(shift) = self.cell_shift
            && shift > USE_SHIFT
        {
            return Some(format!(
                "{:.0}% of the rows are in other cells than before training: {} cells have another share of them",
                100.0 * shift,
                self.moved_cells.unwrap_or(0)
            ));
        }
        let growth = (self.trained_rows + self.new_rows) as f64 / self.trained_rows.max(1) as f64;
        (growth > GROWTH)
            .then(|| format!("there are {growth:.1} times as many rows as when it was trained"))
    }
}

impl Side {
    fn mean(&self) -> f64 {
        self.error / self.sampled.max(1) as f64
    }

    fn variance_of_mean(&self) -> f64 {
        let n = self.sampled.max(1) as f64;
        (self.squares / n - self.mean().powi(2)).max(0.0) / n
    }
}

/// Cells whose share of the rows differs by more than five standard deviations of what sampling gives.
fn moved_cells(trained: &Side, new: &Side) -> usize {
    let (a, b) = (trained.sampled as f64, new.sampled as f64);
    if new.sampled == 0 {
        return 0;
    }
    let moved = trained.cells.iter().zip(&new.cells).filter(|(x, y)| {
        let (x, y) = (f64::from(**x), f64::from(**y));
        let p = (x + y) / (a + b);
        (x / a - y / b).powi(2) > 25.0 * p * (1.0 - p) * (1.0 / a + 1.0 / b)
    });
    moved.count()
}

/// As [`shift`], of the use of codewords.
fn use_shift(trained: &Side, new: &Side, codewords: usize) -> f64 {
    let [trained, new] = [trained, new].map(|side| (&side.usage[..], side.sampled));
    shift(trained, new, codewords)
}

/// Half the absolute difference of the frequencies, averaged over sets of `codewords`, less what sampling alone gives. Counts, and
/// rows counted.
fn shift(trained: (&[u32], usize), new: (&[u32], usize), codewords: usize) -> f64 {
    if new.1 == 0 {
        return 0.0;
    }
    let (a, b) = (trained.1 as f64, new.1 as f64);
    let mut moved = 0.0;
    let mut by_chance = 0.0;
    for (x, y) in trained.0.iter().zip(new.0) {
        moved += (f64::from(*x) / a - f64::from(*y) / b).abs() / 2.0;
        // Two samples of one frequency p differ on average by sqrt(2/pi) standard deviations.
        let p = (f64::from(*x) + f64::from(*y)) / (a + b);
        by_chance +=
            (2.0 / std::f64::consts::PI * p * (1.0 - p) * (1.0 / a + 1.0 / b)).sqrt() / 2.0;
    }
    let subspaces = (trained.0.len() / codewords) as f64;
    ((moved - by_chance) / subspaces).max(0.0)
}

fn count(snapshot: &Snapshot, through: Seq, sides: &mut [Side; 2]) -> Result<()> {
    for part in snapshot.parts() {
        let alive = part.live().alive();
        let old = match part.seqs() {
            None => 0,
            Some((_, last)) if last <= through => alive,
            Some((first, _)) if first > through => 0,
            Some(_) => {
                let mut old = 0;
                for row in part.live().iter() {
                    old += u32::from(part.seq(row)? <= through);
                }
                old
            }
        };
        sides[0].rows += u64::from(old);
        sides[1].rows += u64::from(alive - old);
    }
    Ok(())
}

/// Samples live rows of each side at equal intervals.
fn sample(
    snapshot: &Snapshot,
    through: Seq,
    strides: [usize; 2],
    sides: &mut [Side; 2],
) -> Result<()> {
    let model = snapshot.model();
    let mut seen = [0usize; 2];
    let mut vector = Vec::with_capacity(model.dim());
    for part in snapshot.parts() {
        for row in part.live().iter() {
            let side = usize::from(part.seq(row)? > through);
            seen[side] += 1;
            if seen[side] % strides[side] == 0 {
                part.vector_into(row, &mut vector)?;
                sides[side].add(model, &vector)?;
            }
        }
    }
    Ok(())
}

impl Side {
    fn add(&mut self, model: &Model, vector: &[f32]) -> Result<()> {
        let quantizer = model.quantizer().expect("drift is of a quantizer");
        let shape = quantizer.shape();
        let codes = model.quantize(vector)?;
        let mut projected = vec![0.0; quantizer.dim()];
        let mut decoded = vec![0.0; quantizer.dim()];
        quantizer.project(vector, &mut projected)?;
        quantizer.decode_rows(&codes, &mut decoded);
        let error: f64 = projected
            .iter()
            .zip(&decoded)
            .map(|(a, b)| f64::from(a - b).powi(2))
            .sum();
        self.sampled += 1;
        self.error += error;
        self.squares += error * error;
        for &cell in &codes.cells {
            self.cells[cell as usize] += 1;
        }
        for (subspace, &code) in codes.codes.iter().enumerate() {
            self.usage[subspace * shape.codewords() + code as usize] += 1;
        }
        Ok(())
    }
}
