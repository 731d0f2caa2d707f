//! The centroids of cells, by k-means: at once where there are few, else in groups.

use super::cells::{Cells, MAX_CELLS};
use super::kmeans::{KMeans, Machine};
use super::pq::TrainPq;
use crate::error::{Error, Result};
use crate::watch::Watch;

/// The most cells that are trained without groups.
const UNGROUPED: usize = 256;
/// The most cells of a group.
const MOST_IN_GROUP: usize = 256;
/// Steps of k-means of groups, and of the cells of a group.
const STEPS: usize = 10;
/// Steps over all rows once each group has its cells.
const COMMON_STEPS: usize = 2;
/// The rows per piece of work.
const PIECE: usize = 4096;

/// Learns as many cells as the options say from rows (n, dim). All values are finite and of moderate size.
///
/// # Errors
/// [`Error::Invalid`] if there are more cells than rows, or than [`MAX_CELLS`]; [`Error::Cancelled`] if the watch stops it.
pub(super) fn cluster(
    machine: &Machine,
    rows: &[f32],
    dim: usize,
    residual: bool,
    options: &TrainPq,
) -> Result<Cells> {
    let TrainPq {
        cells,
        seed,
        ref watch,
        ..
    } = *options;
    let n = rows.len() / dim;
    if cells > MAX_CELLS {
        return Err(Error::invalid(format!(
            "{cells} cells; a model has at most {MAX_CELLS}"
        )));
    }
    if cells > n {
        return Err(Error::invalid(format!(
            "{cells} cells for {n} rows to learn from; ask for at most as many cells as rows, better a thirtieth"
        )));
    }
    if cells <= UNGROUPED {
        let means = means(machine, rows, dim, cells, seed, watch)?;
        return Cells::new(dim, means.centroids, Vec::new(), residual);
    }
    let top = means(machine, rows, dim, groups(cells), seed, watch)?;
    let mut in_group = vec![Vec::new(); top.centroids.len() / dim];
    for (row, &group) in rows.chunks_exact(dim).zip(&top.codes) {
        in_group[usize::from(group)].extend_from_slice(row);
    }
    let sizes: Vec<usize> = in_group.iter().map(|rows| rows.len() / dim).collect();
    let mut centroids = Vec::with_capacity(cells * dim);
    for ((rows, shares), number) in in_group.iter().zip(shares(&sizes, cells)).zip(1..) {
        if shares > 0 {
            let means = means(machine, rows, dim, shares, seed ^ number, watch)?;
            centroids.extend_from_slice(&means.centroids);
        }
    }
    let mut found = Cells::new(dim, centroids, top.centroids, residual)?;
    for _ in 0..COMMON_STEPS {
        watch_for(watch)?;
        found = moved(machine, rows, found)?;
    }
    Ok(found)
}

fn watch_for(watch: &Watch) -> Result<()> {
    match watch.is_stopped() {
        true => Err(Error::Cancelled("nothing was changed")),
        false => Ok(()),
    }
}

fn means(
    machine: &Machine,
    rows: &[f32],
    dim: usize,
    count: usize,
    seed: u64,
    watch: &Watch,
) -> Result<KMeans> {
    let mut means = KMeans::seed(rows, dim, count, seed);
    for step in 0..STEPS {
        watch_for(watch)?;
        let (_, changed) = means.step(machine, rows);
        if !changed && step > 0 {
            break;
        }
    }
    Ok(means)
}

/// The number of groups: about as many as a group has cells.
fn groups(cells: usize) -> usize {
    let most = cells.div_ceil(MOST_IN_GROUP);
    ((cells as f64).sqrt() as usize).max(2 * most).min(256)
}

/// How many cells each group gets: in proportion to its rows, at most as many as it has rows.
fn shares(sizes: &[usize], cells: usize) -> Vec<usize> {
    let mut shares: Vec<usize> = sizes.iter().map(|&size| size.min(1)).collect();
    let mut left = cells.saturating_sub(shares.iter().sum());
    while left > 0 {
        let crowded = (0..sizes.len())
            .filter(|&g| shares[g] < sizes[g].min(MOST_IN_GROUP))
            .max_by(|&a, &b| {
                // Rows per cell, compared without rounding; ties to the lowest group.
                (sizes[a] * shares[b])
                    .cmp(&(sizes[b] * shares[a]))
                    .then(b.cmp(&a))
            });
        match crowded {
            Some(group) => shares[group] += 1,
            None => break,
        }
        left -= 1;
    }
    // What the groups can't take stays with the largest: a cell twice is never chosen, and does no harm.
    shares
}

/// Moves each centroid to the mean of its rows; one without rows stays.
fn moved(machine: &Machine, rows: &[f32], cells: Cells) -> Result<Cells> {
    let dim = cells.dim();
    let pieces = machine.map((rows.len() / dim).div_ceil(PIECE), |piece| {
        let rows = &rows[piece * PIECE * dim..];
        let rows = &rows[..rows.len().min(PIECE * dim)];
        let mut assigned = vec![0; rows.len() / dim];
        (cells.assign(machine.kernel, rows, &mut assigned)).map(|()| assigned)
    });
    let mut sums = vec![0.0f64; cells.centroids().len()];
    let mut counts = vec![0u32; cells.len()];
    for (piece, assigned) in pieces.into_iter().enumerate() {
        let assigned = assigned
            .map_err(|row| Error::invalid(format!("row {} is too large", piece * PIECE + row)))?;
        let rows = rows[piece * PIECE * dim..].chunks_exact(dim);
        for (row, cell) in rows.zip(assigned) {
            let cell = cell as usize;
            counts[cell] += 1;
            for (sum, &x) in sums[cell * dim..][..dim].iter_mut().zip(row) {
                *sum += f64::from(x);
            }
        }
    }
    let mut centroids = cells.centroids().to_vec();
    for ((centroid, sum), &count) in (centroids.chunks_exact_mut(dim))
        .zip(sums.chunks_exact(dim))
        .zip(&counts)
        .filter(|(_, count)| **count > 0)
    {
        for (c, s) in centroid.iter_mut().zip(sum) {
            *c = (s / f64::from(count)) as f32;
        }
    }
    Cells::new(dim, centroids, cells.groups().to_vec(), cells.is_residual())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_share_cells_by_their_rows() {
        assert_eq!(shares(&[10, 30, 0], 4), [1, 3, 0]);
        assert_eq!(shares(&[2, 1000], 300), [2, 256]);
        assert_eq!(shares(&[1, 1, 1], 3), [1, 1, 1]);
        assert_eq!(groups(4096), 64);
        assert_eq!(groups(32_768), 256);
        assert_eq!(groups(300), 17);
    }
}
