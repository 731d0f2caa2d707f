//! Cells: a coarse quantizer. Each row belongs to the cell with the nearest centroid, so that a query looks at the rows of a
//! few cells only.
//!
//! Rows are assigned by way of groups of neighbouring cells where there are many: the cells of the [`PROBED_GROUPS`] nearest
//! groups are compared, the others are not. Which cell a row belongs to is defined by that rule, so that it is the same
//! wherever it is computed. Queries compare all centroids.

use super::rough::Rough;
use super::selection::dot;
use crate::error::{Error, Result};
use crate::kernel::{Columns, Kernel, Places, Queries, Rows};
use crate::metric::Metric;

/// The most cells. Their groups have at most 256 cells each where they are trained.
pub const MAX_CELLS: usize = 32_768;

/// The most groups: a byte counts them.
const MAX_GROUPS: usize = 256;

/// Groups whose cells are compared with a row. Part of the rule that says which cell a row belongs to: another number is
/// another kind of cells.
const PROBED_GROUPS: usize = 2;

/// The most outputs of a matrix whose nearest output a kernel finds.
const OUTPUTS: usize = 256;

/// Coarse centroids, in the space of the codewords.
#[derive(Debug, Clone)]
pub struct Cells {
    dim: usize,
    /// (cells, dim)
    centroids: Vec<f32>,
    /// (groups, dim); empty if rows are compared with every cell.
    groups: Vec<f32>,
    residual: bool,
    /// The centroids as bytes, where they are many.
    rough: Option<Rough>,
    /// The groups that have cells, with the offsets of l2; `None` without groups.
    group_columns: Option<Columns>,
    /// The cells of each of these.
    members: Vec<Vec<Members>>,
}

/// Some cells of a group.
#[derive(Debug, Clone)]
struct Members {
    /// With the offsets of l2.
    columns: Columns,
    /// Ascending.
    cells: Vec<u32>,
}

impl Cells {
    /// Takes centroids (cells, dim) and groups (groups, dim), which may be none. `residual`: codes are of the difference
    /// between a row and its centroid, otherwise of the row.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are no cells or more than [`MAX_CELLS`], or more groups than 256 or than cells, or if a
    /// value is not finite.
    pub fn new(dim: usize, centroids: Vec<f32>, groups: Vec<f32>, residual: bool) -> Result<Self> {
        let (count, group_count) = (centroids.len() / dim.max(1), groups.len() / dim.max(1));
        if dim == 0 || centroids.len() != count * dim || groups.len() != group_count * dim {
            return Err(Error::invalid(format!(
                "cells of {dim} dimensions can't have {} values, and their groups {}",
                centroids.len(),
                groups.len()
            )));
        }
        if !(1..=MAX_CELLS).contains(&count) {
            return Err(Error::invalid(format!(
                "{count} cells; a model has 1 to {MAX_CELLS}, or none"
            )));
        }
        if group_count > MAX_GROUPS.min(count) {
            return Err(Error::invalid(format!(
                "{group_count} groups of {count} cells; there are at most {MAX_GROUPS} groups, and none is empty"
            )));
        }
        if centroids.iter().chain(&groups).any(|x| !x.is_finite()) {
            return Err(Error::invalid("a cell holds a value that is not finite"));
        }
        let kernel = Kernel::detect()?;
        let all: Vec<u32> = (0..count as u32).collect();
        let (group_columns, members) = match group_count {
            0 => (None, vec![members(dim, &centroids, &all)]),
            _ => {
                let nearest = with_offsets(dim, &groups);
                finite(kernel, [&nearest], dim, &centroids)
                    .map_err(|cell| Error::invalid(format!("cell {cell} is too large")))?;
                let mut of_cell = vec![0; count];
                kernel.nearest(&nearest, &centroids, &mut of_cell, &mut vec![0.0; count]);
                let mut in_group = vec![Vec::new(); group_count];
                for (&group, &cell) in of_cell.iter().zip(&all) {
                    in_group[usize::from(group)].push(cell);
                }
                let (mut used, mut lists) = (Vec::new(), Vec::new());
                for (group, cells) in in_group.iter().enumerate() {
                    if !cells.is_empty() {
                        used.extend_from_slice(&groups[group * dim..][..dim]);
                        lists.push(members(dim, &centroids, cells));
                    }
                }
                (Some(with_offsets(dim, &used)), lists)
            }
        };
        Ok(Self {
            rough: Rough::new(dim, &centroids),
            dim,
            centroids,
            groups,
            residual,
            group_columns,
            members,
        })
    }

    /// Returns the number of cells.
    #[expect(clippy::len_without_is_empty, reason = "there is always a cell")]
    pub fn len(&self) -> usize {
        self.centroids.len() / self.dim
    }

    /// Returns the width of the centroids.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Returns the centroids, (cells, dim).
    pub fn centroids(&self) -> &[f32] {
        &self.centroids
    }

    /// Returns the centroid of a cell.
    pub fn centroid(&self, cell: u32) -> &[f32] {
        &self.centroids[cell as usize * self.dim..][..self.dim]
    }

    /// Returns the centres of the groups, (groups, dim); empty if rows are compared with every cell.
    pub fn groups(&self) -> &[f32] {
        &self.groups
    }

    /// Returns `true` if codes are of the difference between a row and its centroid.
    pub fn is_residual(&self) -> bool {
        self.residual
    }

    /// The cell of each of n rows (n, dim). `Err` is the first row that is too large to be compared.
    pub(super) fn assign(
        &self,
        kernel: Kernel,
        rows: &[f32],
        out: &mut [u32],
    ) -> Result<(), usize> {
        let dim = self.dim;
        assert_eq!(rows.len(), out.len() * dim, "a cell for each row");
        let lists = self.members.iter().flatten().map(|list| &list.columns);
        finite(kernel, lists.chain(&self.group_columns), dim, rows)?;
        let mut best = vec![f32::NEG_INFINITY; out.len()];
        let Some(group_columns) = &self.group_columns else {
            let all: Vec<u32> = (0..out.len() as u32).collect();
            self.compare(kernel, 0, rows, &all, &mut best, out);
            return Ok(());
        };
        let groups = self.members.len();
        let mut logits = vec![0.0; out.len() * groups];
        kernel.affine(group_columns, rows, &mut logits);
        let mut rows_of = vec![Vec::new(); groups];
        for (row, logits) in logits.chunks_exact(groups).enumerate() {
            for group in largest_two(logits) {
                rows_of[group].push(row as u32);
            }
        }
        let mut gathered = Vec::new();
        for (group, list) in rows_of
            .iter()
            .enumerate()
            .filter(|(_, list)| !list.is_empty())
        {
            gathered.clear();
            for &row in list {
                gathered.extend_from_slice(&rows[row as usize * dim..][..dim]);
            }
            self.compare(kernel, group, &gathered, list, &mut best, out);
        }
        Ok(())
    }

    /// Compares rows (n, dim), which have these numbers, with the cells of a group.
    fn compare(
        &self,
        kernel: Kernel,
        group: usize,
        rows: &[f32],
        numbers: &[u32],
        best: &mut [f32],
        out: &mut [u32],
    ) {
        let (mut codes, mut sums) = (vec![0; numbers.len()], vec![0.0; numbers.len()]);
        for list in &self.members[group] {
            kernel.nearest(&list.columns, rows, &mut codes, &mut sums);
            for ((&row, &code), &sum) in numbers.iter().zip(&codes).zip(&sums) {
                let (row, cell) = (row as usize, list.cells[usize::from(code)]);
                if sum > best[row] || sum == best[row] && cell < out[row] {
                    (best[row], out[row]) = (sum, cell);
                }
            }
        }
    }

    /// Subtracts from each row (n, dim) its centroid.
    pub(super) fn subtract(&self, rows: &mut [f32], cells: &[u32]) {
        for (row, &cell) in rows.chunks_exact_mut(self.dim).zip(cells) {
            for (x, c) in row.iter_mut().zip(self.centroid(cell)) {
                *x -= c;
            }
        }
    }

    /// Returns the coarse score of every cell for a projected query: what its rows' scores begin with where codes are
    /// residual. Never -0.
    ///
    /// # Errors
    /// [`Error::Invalid`] if one is not finite.
    pub(super) fn scores(&self, kernel: Kernel, metric: Metric, query: &[f32]) -> Result<Vec<f32>> {
        let mut scores = vec![0.0; self.len()];
        let centroids = Rows::F32(Places::Dense(&self.centroids));
        kernel.scores_of_rows(
            metric,
            &Queries::new(query, self.dim),
            centroids,
            &mut scores,
        );
        check(scores)
    }

    /// Returns the `count` cells with the highest scores, ties to the lower number. Scores and errors are those of
    /// [`scores`](Self::scores).
    pub(super) fn best(
        &self,
        kernel: Kernel,
        metric: Metric,
        query: &[f32],
        count: usize,
    ) -> Result<Vec<ScoredCell>> {
        let rough = self.rough.as_ref();
        let near = rough.and_then(|rough| rough.candidates(kernel, metric, query, count));
        let (near, scores) = match near {
            Some(near) => {
                let rows: Vec<&[f32]> = near.iter().map(|&cell| self.centroid(cell)).collect();
                let rows = Rows::F32(Places::Scattered(&rows));
                let mut scores = vec![0.0; near.len()];
                kernel.scores_of_rows(metric, &Queries::new(query, self.dim), rows, &mut scores);
                (near, check(scores)?)
            }
            None => {
                let all = (0..self.len() as u32).collect();
                (all, self.scores(kernel, metric, query)?)
            }
        };
        let cells = near.into_iter().zip(scores);
        let mut best: Vec<_> = cells
            .map(|(cell, score)| ScoredCell { score, cell })
            .collect();
        let order =
            |a: &ScoredCell, b: &ScoredCell| b.score.total_cmp(&a.score).then(a.cell.cmp(&b.cell));
        if count < best.len() {
            best.select_nth_unstable_by(count, order);
            best.truncate(count);
        }
        best.sort_unstable_by(order);
        Ok(best)
    }
}

/// A cell and its score for a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ScoredCell {
    pub(crate) score: f32,
    pub(crate) cell: u32,
}

fn check(mut scores: Vec<f32>) -> Result<Vec<f32>> {
    if scores
        .iter()
        .fold(true, |all, x| all & (x.abs() < LARGEST_SCORE))
    {
        scores.iter_mut().for_each(|score| *score += 0.0);
        return Ok(scores);
    }
    Err(Error::invalid("the query is too large for this model"))
}

/// Coarse scores are below this, so that with the sums of a table, which stay below f32::MAX x 0.999 less this, they are finite.
pub(super) const LARGEST_SCORE: f32 = 1e37;

/// The two groups with the largest logits; ties to the lowest. One, if there is no other.
fn largest_two(logits: &[f32]) -> impl Iterator<Item = usize> {
    const { assert!(PROBED_GROUPS == 2) };
    let (mut first, mut second) = ((f32::NEG_INFINITY, None), (f32::NEG_INFINITY, None));
    for (group, &logit) in logits.iter().enumerate() {
        if first.1.is_none() || logit > first.0 {
            (first, second) = ((logit, Some(group)), first);
        } else if second.1.is_none() || logit > second.0 {
            second = (logit, Some(group));
        }
    }
    [first.1, second.1].into_iter().flatten()
}

/// A matrix whose nearest output is the one with the largest `<z, C> - |C|^2 / 2`.
fn with_offsets(dim: usize, centroids: &[f32]) -> Columns {
    let offsets: Vec<f32> = (centroids.chunks_exact(dim))
        .map(|c| -0.5 * dot(c, c))
        .collect();
    Columns::from_rows(dim, centroids, Some(&offsets))
}

fn members(dim: usize, centroids: &[f32], cells: &[u32]) -> Vec<Members> {
    let lists = cells.chunks(OUTPUTS).map(|cells| {
        let rows: Vec<f32> = (cells.iter())
            .flat_map(|&cell| &centroids[cell as usize * dim..][..dim])
            .copied()
            .collect();
        Members {
            columns: with_offsets(dim, &rows),
            cells: cells.to_vec(),
        }
    });
    lists.collect()
}

/// `Err` is the first row (n, dim) whose sums may not be finite.
fn finite<'c>(
    kernel: Kernel,
    columns: impl IntoIterator<Item = &'c Columns> + Clone,
    dim: usize,
    rows: &[f32],
) -> Result<(), usize> {
    let fits = |rows: &[f32]| {
        let largest = kernel.largest_magnitude(rows);
        (columns.clone().into_iter()).all(|columns| columns.stays_finite(largest))
    };
    if fits(rows) {
        return Ok(());
    }
    match rows.chunks_exact(dim).position(|row| !fits(row)) {
        Some(row) => Err(row),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::random::Random;

    fn nearest(centroids: &[f32], dim: usize, row: &[f32]) -> u32 {
        let score = |c: &[f32]| {
            row.iter()
                .zip(c)
                .fold(-0.5 * dot(c, c), |s, (x, c)| x.mul_add(*c, s))
        };
        let mut best = (f32::NEG_INFINITY, 0);
        for (cell, c) in centroids.chunks_exact(dim).enumerate() {
            if score(c) > best.0 {
                best = (score(c), cell as u32);
            }
        }
        best.1
    }

    #[test]
    fn a_row_belongs_to_its_nearest_cell_on_every_kernel() {
        let mut random = Random::new(5);
        for (dim, count) in [(3, 1), (8, 7), (16, 300), (5, 600)] {
            let centroids = random.normals(dim * count);
            let rows = random.normals(dim * 99);
            let cells = Cells::new(dim, centroids.clone(), Vec::new(), false).unwrap();
            let expected: Vec<u32> = (rows.chunks_exact(dim))
                .map(|row| nearest(&centroids, dim, row))
                .collect();
            for kernel in Kernel::available() {
                let mut out = vec![9; 99];
                cells.assign(kernel, &rows, &mut out).unwrap();
                assert_eq!(out, expected, "{kernel:?} {dim} {count}");
            }
        }
    }

    #[test]
    fn with_groups_every_kernel_and_batch_gives_the_same_cell_mostly_the_nearest() {
        let mut random = Random::new(6);
        let (dim, count) = (4, 500);
        let centroids = random.normals(dim * count);
        let rows = random.normals(dim * 200);
        // Some groups are far away and stay empty.
        let mut groups = random.normals(dim * 20);
        groups.extend([100.0; 4]);
        let cells = Cells::new(dim, centroids.clone(), groups, true).unwrap();
        let mut reference = vec![0; 200];
        cells
            .assign(Kernel::named("scalar").unwrap(), &rows, &mut reference)
            .unwrap();
        for kernel in Kernel::available() {
            for batch in [1, 7, 200] {
                let mut out = vec![0; 200];
                for (rows, out) in rows.chunks(batch * dim).zip(out.chunks_mut(batch)) {
                    cells.assign(kernel, rows, out).unwrap();
                }
                assert_eq!(out, reference, "{kernel:?} {batch}");
            }
        }
        let exact = (rows.chunks_exact(dim).zip(&reference))
            .filter(|(row, cell)| nearest(&centroids, dim, row) == **cell)
            .count();
        assert!(exact > 150, "{exact} of 200");
    }

    #[test]
    fn ties_go_to_the_lowest_cell_and_large_rows_are_refused() {
        let cells = Cells::new(2, vec![1.0, 0.0, 1.0, 0.0, 0.0, 1.0], Vec::new(), true).unwrap();
        let kernel = Kernel::detect().unwrap();
        let mut out = vec![9; 2];
        cells
            .assign(kernel, &[2.0, 0.0, 0.5, 0.5], &mut out)
            .unwrap();
        assert_eq!(out, [0, 0]);
        assert_eq!(
            cells.assign(kernel, &[1.0, 0.0, 3e38, 3e38], &mut out),
            Err(1)
        );
        assert!(cells.scores(kernel, Metric::Ip, &[3e38, 0.0]).is_err());
        assert!(Cells::new(2, Vec::new(), Vec::new(), true).is_err());
        assert!(Cells::new(2, vec![f32::NAN, 0.0], Vec::new(), true).is_err());
        assert!(Cells::new(2, vec![1.0, 0.0], vec![0.0; 4], true).is_err());
    }

    #[test]
    fn rough_scores_leave_the_best_cells_as_they_are() {
        let mut random = Random::new(7);
        for (dim, scale) in [(3, 1.0), (24, 1e-3), (100, 50.0)] {
            let mut centroids: Vec<f32> = random.normals(dim * 2000);
            centroids.iter_mut().for_each(|x| *x *= scale);
            // Some twice, and some near each other.
            centroids.copy_within(0..50 * dim, 700 * dim);
            for at in 0..100 * dim {
                centroids[1000 * dim + at] = centroids[at % dim] * (1.0 + 1e-6 * random.normal());
            }
            let cells = Cells::new(dim, centroids, Vec::new(), false).unwrap();
            for metric in [Metric::Ip, Metric::L2] {
                for _ in 0..20 {
                    let query = random.normals(dim);
                    for kernel in Kernel::available() {
                        let all = cells.scores(kernel, metric, &query).unwrap();
                        let mut order: Vec<u32> = (0..2000).collect();
                        order.sort_by(|&a, &b| {
                            let of = |cell: u32| all[cell as usize];
                            of(b).total_cmp(&of(a)).then(a.cmp(&b))
                        });
                        for count in [1, 17, 120, 400, 2000] {
                            let best = cells.best(kernel, metric, &query, count).unwrap();
                            let found: Vec<u32> = best.iter().map(|best| best.cell).collect();
                            assert_eq!(found, order[..count], "{dim} {metric} {count}");
                            let scores = best.iter().map(|best| all[best.cell as usize]);
                            assert!(best.iter().map(|best| best.score).eq(scores));
                        }
                    }
                }
            }
        }
    }
}
