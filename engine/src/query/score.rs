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
    /// The metric between the query and the stored vector; `None` where only the code was looked at.
    pub(crate) similarity: Option<f32>,
    pub(crate) seq: Seq,
    pub(crate) place: Place,
}

/// Returns the k best candidates, best first.
pub(crate) fn rank<P: Searchable>(
    searched: &Searched<'_, P>,
    candidates: &[Found],
    k: usize,
) -> Result<Vec<Ranked>> {
    let ranked = candidates.iter().map(|found| {
        let place = place(found);
        Ok(Ranked {
            score: found.score,
            similarity: None,
            seq: searched.parts[place.part].seq(place.row)?,
            place,
        })
    });
    let mut ranked = ranked.collect::<Result<Vec<_>>>()?;
    ranked.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.seq.cmp(&b.seq)));
    ranked.truncate(k);
    Ok(ranked)
}

/// The k best of the `depth` best candidates, by the model's score of their stored vectors, and what was read of these.
///
/// Without a query map the scores are those of the exact scan, bit for bit: with as many candidates as rows the order is
/// that of an exact search.
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
    let mut counts = Counts::rows(found.len());
    let rows: Vec<u32> = found.iter().map(|found| found.row).collect();
    let mut at = 0;
    for group in found.chunk_by(|a, b| a.source == b.source) {
        let part = &searched.parts[group[0].source as usize];
        part.prefetch(&rows[at..at + group.len()]);
        at += group.len();
    }
    let mapped =
        (searched.scorer).and_then(|scorer| scorer.map_query(searched.scanner.kernel(), query));
    let by = Queries::new(mapped.as_deref().unwrap_or(query), searched.dim);
    counts += similarities(searched, &by, &mut found)?;
    // Of those that may be among the k best the `Seq`s are needed, of the others not.
    if found.len() > k {
        let by_score = |a: &Found, b: &Found| b.score.total_cmp(&a.score);
        let (_, kth, _) = found.select_nth_unstable_by(k - 1, by_score);
        let least = kth.score;
        found.retain(|found| found.score >= least);
    }
    let mut ranked = rank(searched, &found, k)?;
    match mapped {
        None => (ranked.iter_mut()).for_each(|row| row.similarity = Some(row.score)),
        Some(_) => add_similarities(searched, &Queries::new(query, searched.dim), &mut ranked)?,
    }
    Ok((ranked, counts))
}

/// Gives each row its score: the metric between its stored vector and the query.
///
/// Requires: rows are sorted by place.
fn similarities<P: Searchable>(
    searched: &Searched<'_, P>,
    query: &Queries<'_>,
    found: &mut [Found],
) -> Result<Counts> {
    let mut counts = Counts::default();
    let (mut rows, mut scores) = (Vec::new(), Vec::new());
    for group in found.chunk_by_mut(|a, b| a.source == b.source) {
        rows.clear();
        rows.extend(group.iter().map(|found| found.row));
        scores.resize(rows.len(), 0.0);
        let read = searched.similarities(group[0].source as usize, query, &rows, &mut scores)?;
        counts.bytes += read.bytes;
        counts.pages += read.pages;
        for (found, &score) in group.iter_mut().zip(&scores) {
            found.score = score;
        }
    }
    Ok(counts)
}

/// Gives each row its similarity, where the order is by another score.
fn add_similarities<P: Searchable>(
    searched: &Searched<'_, P>,
    query: &Queries<'_>,
    ranked: &mut [Ranked],
) -> Result<()> {
    let mut found: Vec<Found> = (ranked.iter())
        .map(|row| Found {
            score: 0.0,
            source: row.place.part as u32,
            row: row.place.row.0,
        })
        .collect();
    found.sort_unstable_by_key(|found| (found.source, found.row));
    similarities(searched, query, &mut found)?;
    for row in ranked {
        let place = (row.place.part as u32, row.place.row.0);
        let at = found.binary_search_by_key(&place, |found| (found.source, found.row));
        row.similarity = Some(found[at.expect("it was asked for")].score);
    }
    Ok(())
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
