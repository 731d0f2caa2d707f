//! k-means on the slices of one subspace: Lloyd's iteration, seeded by k-means++.
//!
//! Work is cut into pieces of a fixed size whose sums are added in order, so that the result depends on the
//! seed but not on the number of threads.

use crate::kernel::pool::Pool;
use crate::kernel::random::Random;
use crate::kernel::{Columns, Kernel};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of rows per piece of work.
const PIECE: usize = 4096;

/// The number of rows per centroid that seeding samples.
const SEEDING_ROWS: usize = 8;

/// The kernel and threads of the iterations.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) kernel: Kernel,
    pub(super) pool: Pool,
}

impl Machine {
    /// Runs `work` on each of `pieces` and returns the results in order.
    pub(super) fn map<T: Send>(&self, pieces: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let results: Vec<Mutex<Option<T>>> = (0..pieces).map(|_| Mutex::new(None)).collect();
        let next = AtomicUsize::new(0);
        self.pool.run(pieces, &|| {
            loop {
                let piece = next.fetch_add(1, Ordering::SeqCst);
                let Some(slot) = results.get(piece) else {
                    return;
                };
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(work(piece));
            }
        });
        results
            .into_iter()
            .map(|slot| {
                slot.into_inner()
                    .unwrap_or_else(PoisonError::into_inner)
                    .expect("every piece ran")
            })
            .collect()
    }
}

/// Centroids of one subspace and the rows they are fitted to.
#[derive(Debug)]
pub(super) struct KMeans {
    sub_dim: usize,
    /// (codewords, sub_dim)
    pub(super) centroids: Vec<f32>,
    /// One per row, from the latest step.
    pub(super) codes: Vec<u8>,
    /// `|z|^2` of each row, computed at the first step and again when the rows have changed.
    norms: Vec<f64>,
}

/// The result of one piece.
struct Piece {
    codes: Vec<u8>,
    distances: Vec<f32>,
    /// (codewords, sub_dim)
    sums: Vec<f64>,
    counts: Vec<u32>,
}

impl KMeans {
    /// k-means++ on a seeded sample of `rows` (n, sub_dim), n >= 1: each next centroid is drawn with
    /// probability proportional to the squared distance from those before. With fewer distinct rows than
    /// centroids the rest repeat the first, and are never chosen: ties go to the lowest.
    pub(super) fn seed(rows: &[f32], sub_dim: usize, codewords: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let n = rows.len() / sub_dim;
        let row = |i: usize| &rows[i * sub_dim..][..sub_dim];
        let sample: Vec<usize> = if n <= SEEDING_ROWS * codewords {
            (0..n).collect()
        } else {
            (0..SEEDING_ROWS * codewords)
                .map(|_| random.below(n))
                .collect()
        };
        // (sub_dim, sample): distances to a centroid are found for many rows at once.
        let mut columns = vec![0.0f32; sample.len() * sub_dim];
        for (at, &i) in sample.iter().enumerate() {
            for (d, &x) in row(i).iter().enumerate() {
                columns[d * sample.len() + at] = x;
            }
        }
        let mut centroids = row(sample[random.below(sample.len())]).to_vec();
        let mut nearest = vec![f32::INFINITY; sample.len()];
        let mut distances = vec![0.0f32; sample.len()];
        while centroids.len() < codewords * sub_dim {
            let newest = &centroids[centroids.len() - sub_dim..];
            distances.fill(0.0);
            for (&c, column) in newest.iter().zip(columns.chunks_exact(sample.len())) {
                for (distance, x) in distances.iter_mut().zip(column) {
                    *distance += (x - c) * (x - c);
                }
            }
            let mut total = 0.0;
            for (nearest, &distance) in nearest.iter_mut().zip(&distances) {
                *nearest = nearest.min(distance);
                total += f64::from(*nearest);
            }
            if total <= 0.0 {
                break;
            }
            let mut left = random.unit() * total;
            let drawn = nearest
                .iter()
                .position(|d| {
                    left -= f64::from(*d);
                    left < 0.0
                })
                .unwrap_or(sample.len() - 1);
            centroids.extend_from_slice(row(sample[drawn]));
        }
        let first = centroids[..sub_dim].to_vec();
        while centroids.len() < codewords * sub_dim {
            centroids.extend_from_slice(&first);
        }
        Self {
            sub_dim,
            centroids,
            codes: vec![0; n],
            norms: Vec::new(),
        }
    }

    /// Invalidates cached norms, because the rows change (for example by a rotation).
    pub(super) fn forget_rows(&mut self) {
        self.norms.clear();
    }

    /// Returns one step of Lloyd: assign every row, then move each centroid to the mean of its rows. An empty
    /// centroid goes to the row that is worst served. Returns the sum of squared distances before the move,
    /// which never rises from step to step but by rounding, and whether anything changed.
    pub(super) fn step(&mut self, machine: &Machine, rows: &[f32]) -> (f64, bool) {
        let (sub_dim, codewords) = (self.sub_dim, self.centroids.len() / self.sub_dim);
        let columns = self.columns();
        if self.norms.is_empty() {
            self.norms = rows.chunks_exact(sub_dim).map(square).collect();
        }
        let norms = &self.norms;
        let pieces = machine.map(self.codes.len().div_ceil(PIECE), |piece| {
            let rows = &rows[piece * PIECE * sub_dim..];
            let rows = &rows[..rows.len().min(PIECE * sub_dim)];
            assign_piece(
                machine.kernel,
                &columns,
                rows,
                &norms[piece * PIECE..],
                codewords,
            )
        });
        let mut changed = false;
        let mut distortion = 0.0;
        let mut sums = vec![0.0; codewords * sub_dim];
        let mut counts = vec![0u32; codewords];
        let mut distances = Vec::with_capacity(self.codes.len());
        for (piece, codes) in pieces.iter().zip(self.codes.chunks_mut(PIECE)) {
            changed |= piece.codes != codes;
            codes.copy_from_slice(&piece.codes);
            distortion += piece.distances.iter().map(|d| f64::from(*d)).sum::<f64>();
            distances.extend_from_slice(&piece.distances);
            for (sum, add) in sums.iter_mut().zip(&piece.sums) {
                *sum += add;
            }
            for (count, add) in counts.iter_mut().zip(&piece.counts) {
                *count += add;
            }
        }
        changed |= self.repair(rows, &mut distances, &mut sums, &mut counts);
        for ((centroid, sum), &count) in self
            .centroids
            .chunks_exact_mut(sub_dim)
            .zip(sums.chunks_exact(sub_dim))
            .zip(&counts)
        {
            if count > 0 {
                for (c, s) in centroid.iter_mut().zip(sum) {
                    *c = (s / f64::from(count)) as f32;
                }
            }
        }
        (distortion, changed)
    }

    /// Gives each empty centroid the row that is farthest from its own, which leaves that row's old centroid.
    fn repair(
        &mut self,
        rows: &[f32],
        distances: &mut [f32],
        sums: &mut [f64],
        counts: &mut [u32],
    ) -> bool {
        let empty: Vec<usize> = (0..counts.len()).filter(|&j| counts[j] == 0).collect();
        if empty.is_empty() {
            return false;
        }
        let mut worst: Vec<usize> = (0..distances.len())
            .filter(|&i| distances[i] > 0.0)
            .collect();
        worst.sort_unstable_by(|&a, &b| distances[b].total_cmp(&distances[a]).then(a.cmp(&b)));
        let mut moved = false;
        let mut worst = worst.into_iter();
        for j in empty {
            let Some(i) = worst.find(|&i| counts[usize::from(self.codes[i])] > 1) else {
                break;
            };
            let old = usize::from(self.codes[i]);
            counts[old] -= 1;
            counts[j] = 1;
            for d in 0..self.sub_dim {
                let value = f64::from(rows[i * self.sub_dim + d]);
                sums[old * self.sub_dim + d] -= value;
                sums[j * self.sub_dim + d] = value;
            }
            self.codes[i] = j as u8;
            moved = true;
        }
        moved
    }

    /// The centroids as the kernel wants them, for l2: `<z, C> - |C|^2 / 2`.
    fn columns(&self) -> Columns {
        let offsets: Vec<f32> = self
            .centroids
            .chunks_exact(self.sub_dim)
            .map(|c| -0.5 * super::selection::dot(c, c))
            .collect();
        Columns::from_rows(self.sub_dim, &self.centroids, Some(&offsets))
    }
}

fn assign_piece(
    kernel: Kernel,
    columns: &Columns,
    rows: &[f32],
    norms: &[f64],
    codewords: usize,
) -> Piece {
    let sub_dim = columns.inputs();
    let n = rows.len() / sub_dim;
    let mut piece = Piece {
        codes: vec![0; n],
        distances: vec![0.0; n],
        sums: vec![0.0; codewords * sub_dim],
        counts: vec![0; codewords],
    };
    kernel.nearest(columns, rows, &mut piece.codes, &mut piece.distances);
    kernel.accumulate(rows, sub_dim, &piece.codes, &mut piece.sums);
    for ((&code, distance), norm) in piece.codes.iter().zip(&mut piece.distances).zip(norms) {
        piece.counts[usize::from(code)] += 1;
        // |z - C|^2 = |z|^2 - 2 (<z, C> - |C|^2 / 2), never below 0 but by rounding.
        *distance = (norm - 2.0 * f64::from(*distance)).max(0.0) as f32;
    }
    piece
}

fn square(row: &[f32]) -> f64 {
    row.iter().map(|&x| f64::from(x) * f64::from(x)).sum()
}
