//! The order of candidates: by the scores that found them, or scored again by their stored vectors. Ties go to the
//! lower `Seq`, so that an answer does not depend on which parts the rows are in.

use super::explain::Counts;
use super::searched::Searched;
use crate::error::Result;
use crate::ids::{RowId, Seq};
use crate::kernel::Queries;
use crate::scan::Found;
use crate::snapshot::Place;
use crate::view::searchable::Searchable;

/// A row that will be a hit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ranked {
    pub(crate) score: f32,
    pub(crate) seq: Seq,
    pub(crate) place: Place,
}

/// The k best candidates, best first.
pub(crate) fn rank<P: Searchable>(
    searched: &Searched<'_, P>,
    candidates: &[Found],
    k: usize,
) -> Result<Vec<Ranked>> {
    let ranked = candidates.iter().map(|found| {
        let place = place(found);
        Ok(Ranked {
            score: found.score,
            seq: searched.parts[place.part].seq(place.row)?,
            place,
        })
    });
    let mut ranked = ranked.collect::<Result<Vec<_>>>()?;
    ranked.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.seq.cmp(&b.seq)));
    ranked.truncate(k);
    Ok(ranked)
}

/// The k best of the `depth` best candidates, scored by their stored vectors, and what was read of these.
///
/// The scores are those of the exact scan, bit for bit: with as many candidates as rows the order is that of an exact
/// search.
pub(crate) fn rescore<P: Searchable>(
    searched: &Searched<'_, P>,
    query: &[f32],
    candidates: &[Found],
    depth: usize,
    k: usize,
) -> Result<(Vec<Ranked>, Counts)> {
    let mut found = best(searched, candidates, depth)?;
    // By place: rows are read in the order in which they lie on disk, and all are asked for before the first is waited for.
    found.sort_unstable_by_key(|found| (found.source, found.row));
    let mut counts = Counts {
        rows: found.len() as u64,
        ..Counts::default()
    };
    let rows: Vec<u32> = found.iter().map(|found| found.row).collect();
    let mut at = 0;
    for group in found.chunk_by(|a, b| a.source == b.source) {
        let part = &searched.parts[group[0].source as usize];
        part.prefetch(&rows[at..at + group.len()]);
        at += group.len();
    }
    let query = Queries::new(query, searched.dim);
    let mut scores = Vec::new();
    let mut rows = rows.as_slice();
    for group in found.chunk_by_mut(|a, b| a.source == b.source) {
        let (own, others) = rows.split_at(group.len());
        rows = others;
        scores.resize(own.len(), 0.0);
        let read = searched.similarities(group[0].source as usize, &query, own, &mut scores)?;
        counts.bytes += read.bytes;
        counts.pages += read.pages;
        for (found, &score) in group.iter_mut().zip(&scores) {
            found.score = score;
        }
    }
    // Of those that may be among the k best the `Seq`s are needed, of the others not.
    if found.len() > k {
        let by_score = |a: &Found, b: &Found| b.score.total_cmp(&a.score);
        let (_, kth, _) = found.select_nth_unstable_by(k - 1, by_score);
        let least = kth.score;
        found.retain(|found| found.score >= least);
    }
    Ok((rank(searched, &found, k)?, counts))
}

/// The `depth` best candidates in any order: by score, ties by `Seq`.
///
/// Requires: candidates come best first.
fn best<P: Searchable>(
    searched: &Searched<'_, P>,
    candidates: &[Found],
    depth: usize,
) -> Result<Vec<Found>> {
    if candidates.len() <= depth {
        return Ok(candidates.to_vec());
    }
    let last = candidates[depth - 1].score;
    let above = candidates.partition_point(|found| found.score > last);
    let mut best = candidates[..above].to_vec();
    let tied = candidates[above..]
        .iter()
        .take_while(|found| found.score == last);
    let tied = tied.map(|found| {
        let place = place(found);
        Ok((searched.parts[place.part].seq(place.row)?, *found))
    });
    let mut tied = tied.collect::<Result<Vec<_>>>()?;
    tied.sort_unstable_by_key(|(seq, _)| *seq);
    best.extend(tied.into_iter().take(depth - above).map(|(_, found)| found));
    Ok(best)
}

fn place(found: &Found) -> Place {
    Place {
        part: found.source as usize,
        row: RowId(found.row),
    }
}
