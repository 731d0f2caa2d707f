//! Which cells a query looks at: the best ones by the scores of their centroids, and further ones in that order until the
//! rows in them that may be returned, of the whole snapshot, are as many as candidates are wanted.
//!
//! A cell is a property of a row, so that the rows looked at do not depend on the parts that they are in.

use super::candidates::{self, Listed};
use super::explain::Counts;
use super::filter::Masks;
use super::searched::Searched;
use crate::error::Result;
use crate::quantizer::{CellStarts, LookupTable, ScoredCell};
use crate::row::Probes;
use crate::scan::{CellScores, CellSource, Looked, Visit};
use crate::view::searchable::Searchable;
use std::ops::Range;

/// Neighbouring cells are looked at together up to this many positions: each visit has a cost of its own.
const TOGETHER: usize = 512;

/// What each query looks at.
pub(crate) struct Visited {
    tables: Vec<LookupTable>,
    looks: Vec<Looks>,
    /// Of each part, which positions may be returned.
    live: Vec<Option<Vec<u64>>>,
    counts: Counts,
}

/// What one query looks at.
struct Looks {
    /// The score of each cell that it looks at, by cell.
    scores: Vec<f32>,
    /// The best of them.
    top: f32,
    /// The best first.
    visits: Vec<Visit>,
}

impl Visited {
    /// Returns the cells, their rows and the bytes of their codes.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }
}

/// Chooses the cells of each query, of which (queries, dim) are the vectors.
///
/// Requires: the model has cells.
pub(crate) fn visited<P: Searchable>(
    searched: &Searched<'_, P>,
    vectors: &[f32],
    masks: &Masks,
    probes: Probes,
    depth: usize,
) -> Result<Visited> {
    let asked = candidates::asked(searched, vectors)?;
    let mut parts: Vec<Cells<'_, P>> = (searched.parts.iter().enumerate())
        .map(|(at, part)| Cells::of(part, masks.of(at, part.live())))
        .collect();
    let quantizer = searched.quantizer.expect("cells are of a quantizer");
    let cells = quantizer.cells().expect("the model has cells");
    let block_bytes = quantizer.shape().block_bytes();
    let mut all = Vec::with_capacity(asked.len());
    let mut counts = Counts::default();
    for asked in &asked {
        let best = |count| quantizer.best_cells(&asked.query, count);
        let chosen = chosen(cells.len(), probes, depth, best, |cell| {
            let rows = parts.iter_mut().map(|part| part.enter(cell));
            rows.sum::<Result<usize>>()
        })?;
        counts.cells += chosen.len() as u64;
        let mut scores = vec![0.0; cells.len()];
        for cell in &chosen {
            scores[cell.cell as usize] = cell.score;
        }
        let own = all_visits(&parts, &chosen, &scores);
        for visit in &own {
            counts.rows += visit.positions.len() as u64;
            counts.bytes += (visit.block_count() * block_bytes) as u64;
        }
        all.push(Looks {
            top: chosen.first().map_or(0.0, |cell| cell.score),
            scores,
            visits: own,
        });
    }
    Ok(Visited {
        tables: asked.into_iter().map(|asked| asked.table).collect(),
        looks: all,
        live: parts.into_iter().map(|part| part.passing).collect(),
        counts,
    })
}

/// Returns the candidates by codes for each query, among the rows that it looks at.
pub(crate) fn candidates<P: Searchable>(
    searched: &Searched<'_, P>,
    visited: &Visited,
    depth: usize,
) -> Result<Vec<Listed>> {
    let residual = searched
        .quantizer
        .is_some_and(|quantizer| quantizer.is_residual());
    let none = CellStarts::of(&[]).0;
    let sources: Vec<Source<'_, P>> = (searched.parts.iter().zip(&visited.live))
        .map(|(part, live)| Source {
            part,
            starts: part.cell_starts().unwrap_or(&none),
            live: live.as_deref(),
        })
        .collect();
    let sources: Vec<_> = sources.iter().map(|part| part as &dyn CellSource).collect();
    let queries: Vec<Looked<'_>> = (visited.tables.iter().zip(&visited.looks))
        .map(|(table, looks)| Looked {
            table,
            cells: residual.then_some(CellScores {
                scores: &looks.scores,
                top: looks.top,
            }),
            visits: &looks.visits,
        })
        .collect();
    searched.scanner.scan_cells(&sources, &queries, depth)
}

/// The chosen cells, the best first: by score, ties to the lower number. `best` returns this many of
/// them, `rows` the number of rows of a cell that may be returned.
fn chosen(
    cells: usize,
    probes: Probes,
    depth: usize,
    best: impl Fn(usize) -> Result<Vec<ScoredCell>>,
    mut rows: impl FnMut(u32) -> Result<usize>,
) -> Result<Vec<ScoredCell>> {
    let probes = match probes {
        Probes::All => cells,
        Probes::Cells(probes) => probes.min(cells),
    };
    let mut chosen = best(probes)?;
    let mut found = 0;
    for cell in &chosen {
        found += rows(cell.cell)?;
    }
    if found < depth && probes < cells {
        for cell in best(cells)?.into_iter().skip(probes) {
            if found >= depth {
                break;
            }
            found += rows(cell.cell)?;
            chosen.push(cell);
        }
    }
    Ok(chosen)
}

/// The visits of the chosen cells in all parts: by the best score of their cells, as far as parts and positions do not say
/// otherwise.
fn all_visits<P: Searchable>(
    parts: &[Cells<'_, P>],
    chosen: &[ScoredCell],
    scores: &[f32],
) -> Vec<Visit> {
    let mut visits: Vec<(f32, Visit)> = Vec::with_capacity(chosen.len() * parts.len());
    let mut entries: Vec<u32> = Vec::with_capacity(chosen.len());
    for (part, source) in parts.iter().zip(0..) {
        let Some(starts) = part.starts else {
            continue;
        };
        entries.clear();
        entries.extend((chosen.iter()).filter_map(|cell| Some(starts.find(cell.cell)? as u32)));
        entries.sort_unstable();
        let mut at = 0;
        while at < entries.len() {
            let first = entries[at];
            let mut positions = starts.positions(first as usize);
            let mut best = scores[starts.cell(first as usize) as usize];
            at += 1;
            while let Some(&next) = entries.get(at)
                && next == entries[at - 1] + 1
                && positions.len() + starts.positions(next as usize).len() <= TOGETHER
            {
                positions.end = starts.positions(next as usize).end;
                best = best.max(scores[starts.cell(next as usize) as usize]);
                at += 1;
            }
            let last = entries[at - 1];
            for start in positions.clone().step_by(Visit::MOST) {
                let visit = Visit {
                    source,
                    entries: first..last + 1,
                    positions: start..(start + Visit::MOST).min(positions.end),
                };
                visits.push((best, visit));
            }
        }
    }
    visits.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    visits.into_iter().map(|(_, visit)| visit).collect()
}

/// The cells of a part, and which of their positions may be returned.
struct Cells<'a, P> {
    part: &'a P,
    starts: Option<&'a CellStarts>,
    /// Rows that may be returned; `None`: all.
    mask: Option<&'a [u64]>,
    /// The same by position, of the entries that were looked at; `None`: all.
    passing: Option<Vec<u64>>,
    /// The rows of each entry that may be returned, once it was looked at.
    counts: Vec<Option<u32>>,
}

impl<'a, P: Searchable> Cells<'a, P> {
    fn of(part: &'a P, mask: Option<&'a [u64]>) -> Self {
        let starts = part.cell_starts();
        debug_assert!(
            starts.is_some() || part.len() == 0,
            "codes are ordered by cell"
        );
        let words = part.len().div_ceil(64);
        let entries = starts.map_or(0, CellStarts::len);
        Self {
            part,
            starts,
            mask,
            passing: mask.map(|_| vec![0; words]),
            counts: vec![None; if mask.is_some() { entries } else { 0 }],
        }
    }

    /// Returns the rows of a cell that may be returned, and notes their positions.
    fn enter(&mut self, cell: u32) -> Result<usize> {
        let Some((starts, entry)) = self.starts.and_then(|s| Some((s, s.find(cell)?))) else {
            return Ok(0);
        };
        let positions = starts.positions(entry);
        let (Some(mask), Some(passing)) = (self.mask, &mut self.passing) else {
            return Ok(positions.len());
        };
        if let Some(count) = self.counts[entry] {
            return Ok(count as usize);
        }
        let mut count = 0;
        for (&row, position) in self.part.rows_at(positions.clone())?.iter().zip(positions) {
            let bit = mask[row as usize / 64] >> (row % 64) & 1;
            passing[position / 64] |= bit << (position % 64);
            count += bit as u32;
        }
        self.counts[entry] = Some(count);
        Ok(count as usize)
    }
}

/// A part as a scan of cells reads it.
struct Source<'a, P> {
    part: &'a P,
    starts: &'a CellStarts,
    live: Option<&'a [u64]>,
}

impl<P: Searchable> CellSource for Source<'_, P> {
    fn starts(&self) -> &CellStarts {
        self.starts
    }

    fn blocks(&self, blocks: Range<usize>) -> Result<&[u8]> {
        self.part.blocks(blocks)
    }

    fn rows_at(&self, positions: Range<usize>) -> Result<&[u32]> {
        self.part.rows_at(positions)
    }

    fn live(&self) -> Option<&[u64]> {
        self.live
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(scores: &[f32], probes: usize, depth: usize, rows: &[usize]) -> Vec<u32> {
        let rows = |cell: u32| Ok(rows[cell as usize]);
        let best = |count| {
            let cells = scores.iter().zip(0..);
            let mut all: Vec<_> = cells
                .map(|(&score, cell)| ScoredCell { score, cell })
                .collect();
            all.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.cell.cmp(&b.cell)));
            all.truncate(count);
            Ok(all)
        };
        let chosen = chosen(scores.len(), Probes::Cells(probes), depth, best, rows).unwrap();
        chosen.into_iter().map(|cell| cell.cell).collect()
    }

    #[test]
    fn the_best_cells_come_first_and_more_follow_while_rows_are_missing() {
        let scores = [0.5, -1.0, 2.0, 0.5, -3.0];
        assert_eq!(choose(&scores, 1, 1, &[1; 5]), [2]);
        assert_eq!(choose(&scores, 3, 1, &[1; 5]), [2, 0, 3]);
        assert_eq!(choose(&scores, 1, 3, &[1; 5]), [2, 0, 3]);
        assert_eq!(choose(&scores, 1, 3, &[0, 3, 0, 0, 9]), [2, 0, 3, 1]);
        assert_eq!(choose(&scores, 2, 99, &[1; 5]), [2, 0, 3, 1, 4]);
        assert_eq!(choose(&scores, 9, 0, &[1; 5]), [2, 0, 3, 1, 4]);
    }
}
