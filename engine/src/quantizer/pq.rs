//! Product quantization from vectors alone: k-means in each subspace.

use super::cells::Cells;
use super::cluster::cluster;
use super::codebook::Codebook;
use super::kmeans::{KMeans, Machine};
use super::quantizer::Quantizer;
use super::shape::CodeShape;
use crate::error::{Error, Result};
use crate::kernel::pool::Pool;
use crate::kernel::random::Random;
use crate::kernel::{Columns, Kernel};
use crate::metric::Metric;
use crate::threads;
use crate::watch::Watch;

/// How [`train_pq`] and [`train_opq`](super::train_opq) train.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TrainPq {
    /// Codes per row; must divide the dimensions.
    pub subspaces: usize,
    /// Codewords per subspace, 2 to 256.
    pub codewords: usize,
    /// Steps of k-means, or of OPQ's alternation; fewer if nothing changes any more.
    pub iterations: usize,
    /// At most this many rows, drawn with the seed, are trained on. 256 per codeword is usual; more rows
    /// reduce the error by well under one percent.
    pub sample: usize,
    /// The same seed and rows give the same quantizer, on any number of threads.
    pub seed: u64,
    /// Cells; 0 means none. For ip and cosine codes are then of the difference between a row and its cell. All rows that
    /// are given train the cells, so that there should be some thirty for each.
    pub cells: usize,
    /// Threads; 0 means one for each core.
    pub threads: usize,
    /// Counts steps. If it stops the training, the current step is finished first.
    pub watch: Watch,
}

impl Default for TrainPq {
    fn default() -> Self {
        Self {
            subspaces: 8,
            codewords: 256,
            iterations: 25,
            sample: 65_536,
            seed: 42,
            cells: 0,
            threads: 0,
            watch: Watch::new(),
        }
    }
}

impl TrainPq {
    setters!(
        subspaces: usize,
        codewords: usize,
        iterations: usize,
        sample: usize,
        seed: u64,
        cells: usize,
        threads: usize,
        watch: Watch,
    );

    /// Reports that a step begins. Returns an error if the training should stop.
    pub(super) fn begin_step(&self, done: usize, total: usize) -> Result<()> {
        if self.watch.is_stopped() {
            return Err(Error::Cancelled("nothing was changed"));
        }
        self.watch.report(done as u64, total as u64);
        Ok(())
    }
}

/// A quantizer and how its training went.
#[derive(Debug, Clone)]
pub struct Trained {
    /// The quantizer.
    pub quantizer: Quantizer,
    /// The mean squared error per row after each step. It never rises except by rounding.
    pub distortions: Vec<f64>,
    /// Rows that were trained on.
    pub rows: usize,
}

/// Learns codewords by k-means in each subspace of `vectors` (n, dim). With fewer rows than codewords each
/// distinct slice gets its own codeword. Returns an error if there are no rows or a value is not finite.
pub fn train_pq(vectors: &[f32], dim: usize, metric: Metric, options: &TrainPq) -> Result<Trained> {
    if options.cells > 0 {
        return in_cells(vectors, dim, metric, options, train_pq);
    }
    let setup = Setup::new(vectors, dim, options)?;
    let n = setup.rows.len() / dim;
    let mut courses = Vec::with_capacity(options.subspaces);
    let mut values = Vec::with_capacity(options.codewords * dim);
    for m in 0..options.subspaces {
        let slices = slices(&setup.rows, dim, m, setup.sub_dim);
        let mut means = KMeans::seed(
            &slices,
            setup.sub_dim,
            options.codewords,
            options.seed ^ (m as u64 + 1),
        );
        let mut course = Vec::new();
        while course.len() < options.iterations {
            let steps = m * options.iterations + course.len();
            options.begin_step(steps, options.subspaces * options.iterations)?;
            let (distortion, changed) = means.step(&setup.machine, &slices);
            course.push(distortion / n as f64);
            if !changed && course.len() > 1 {
                break;
            }
        }
        courses.push(course);
        values.extend_from_slice(&means.centroids);
    }
    let all = options.subspaces * options.iterations;
    options.begin_step(all, all)?;
    // A subspace that came to rest early counts with its last error from then on.
    let steps = courses.iter().map(Vec::len).max().unwrap_or(0);
    let distortions = (0..steps)
        .map(|step| {
            courses
                .iter()
                .map(|course| course[step.min(course.len() - 1)])
                .sum()
        })
        .collect();
    let codebook = Codebook::new(setup.shape, setup.sub_dim, values)?;
    Ok(Trained {
        quantizer: Quantizer::builder(codebook, metric).build()?.arranged()?,
        distortions,
        rows: n,
    })
}

/// Learns cells first, and the codewords of what they leave.
pub(super) fn in_cells(
    vectors: &[f32],
    dim: usize,
    metric: Metric,
    options: &TrainPq,
    train: impl Fn(&[f32], usize, Metric, &TrainPq) -> Result<Trained>,
) -> Result<Trained> {
    let Setup {
        mut rows, machine, ..
    } = Setup::new(vectors, dim, options)?;
    let residual = metric != Metric::L2;
    let cells = cluster(&machine, vectors, dim, residual, options)?;
    if residual {
        let mut of_row = vec![0; rows.len() / dim];
        (cells.assign(machine.kernel, &rows, &mut of_row)).map_err(|row| {
            Error::invalid(format!(
                "row {row} of the sample is too large to have a cell"
            ))
        })?;
        cells.subtract(&mut rows, &of_row);
    }
    let options = TrainPq {
        cells: 0,
        ..options.clone()
    };
    let trained = train(&rows, dim, metric, &options)?;
    let cells = match trained.quantizer.rotation() {
        Some(rotation) => {
            let columns = Columns::from_columns(dim, dim, rotation);
            let rotate = |rows: &[f32]| {
                let mut rotated = vec![0.0; rows.len()];
                machine.kernel.affine(&columns, rows, &mut rotated);
                rotated
            };
            let (centroids, groups) = (rotate(cells.centroids()), rotate(cells.groups()));
            Cells::new(dim, centroids, groups, residual)?
        }
        None => cells,
    };
    Ok(Trained {
        quantizer: trained.quantizer.in_cells(cells),
        ..trained
    })
}

/// Returns the same quantizer with cells, learned from `vectors` (n, input_dim) as many as the options say: codes stay what they
/// are, and queries look at a part of them only. For quantizers that were learned otherwise.
///
/// # Errors
/// [`Error::Invalid`] if there are more cells than vectors, or a vector is not finite, or too large for the quantizer.
pub fn add_cells(quantizer: &Quantizer, vectors: &[f32], options: &TrainPq) -> Result<Quantizer> {
    let (inputs, dim) = (quantizer.input_dim(), quantizer.dim());
    if !vectors.len().is_multiple_of(inputs) {
        return Err(Error::invalid(format!(
            "{} values are no whole number of rows of {inputs}",
            vectors.len()
        )));
    }
    let mut rows = vec![0.0; vectors.len() / inputs * dim];
    quantizer.project(vectors, &mut rows)?;
    let machine = Machine {
        kernel: Kernel::detect()?,
        pool: Pool::new(threads::count(options.threads)?)?,
    };
    let cells = cluster(&machine, &rows, dim, false, options)?;
    Ok(quantizer.clone().in_cells(cells))
}

/// The common setup of PQ and OPQ: options checked, rows sampled.
pub(super) struct Setup {
    pub(super) shape: CodeShape,
    pub(super) sub_dim: usize,
    /// (rows, dim)
    pub(super) rows: Vec<f32>,
    pub(super) machine: Machine,
}

impl Setup {
    pub(super) fn new(vectors: &[f32], dim: usize, options: &TrainPq) -> Result<Self> {
        let shape = CodeShape::new(options.subspaces, options.codewords)?;
        if dim == 0 || !dim.is_multiple_of(options.subspaces) {
            return Err(Error::invalid(format!(
                "{dim} dimensions can't be cut into {} subspaces of one size",
                options.subspaces
            )));
        }
        if !vectors.len().is_multiple_of(dim) {
            return Err(Error::invalid(format!(
                "{} values are no whole number of rows of {dim}",
                vectors.len()
            )));
        }
        if options.iterations == 0 || options.sample == 0 {
            return Err(Error::invalid(
                "training needs an iteration and a sample of at least 1",
            ));
        }
        if vectors.is_empty() {
            return Err(Error::invalid("there are no rows to train on"));
        }
        // Beyond this, squares of differences leave f32.
        const LARGEST: f32 = 1e15;
        if let Some(at) = vectors.iter().position(|v| v.is_nan() || v.abs() > LARGEST) {
            return Err(Error::invalid(format!(
                "row {} holds {}: training needs finite values of at most {LARGEST:e}",
                at / dim,
                vectors[at]
            )));
        }
        Ok(Self {
            shape,
            sub_dim: dim / options.subspaces,
            rows: sample(vectors, dim, options),
            machine: Machine {
                kernel: Kernel::detect()?,
                pool: Pool::new(threads::count(options.threads)?)?,
            },
        })
    }
}

/// A seeded choice of rows without repetition, in their order.
fn sample(vectors: &[f32], dim: usize, options: &TrainPq) -> Vec<f32> {
    let n = vectors.len() / dim;
    if n <= options.sample {
        return vectors.to_vec();
    }
    let mut random = Random::new(options.seed);
    let mut rows = Vec::with_capacity(options.sample * dim);
    let mut wanted = options.sample;
    for (i, row) in vectors.chunks_exact(dim).enumerate() {
        if random.below(n - i) < wanted {
            rows.extend_from_slice(row);
            wanted -= 1;
        }
    }
    rows
}

/// Returns one subspace of every row, (n, sub_dim).
pub(super) fn slices(rows: &[f32], dim: usize, subspace: usize, sub_dim: usize) -> Vec<f32> {
    rows.chunks_exact(dim)
        .flat_map(|row| &row[subspace * sub_dim..][..sub_dim])
        .copied()
        .collect()
}
