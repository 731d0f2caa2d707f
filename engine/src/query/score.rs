//! The order of candidates: by the scores that found them, or scored again by their stored vectors. Ties go to the
//! lower `Seq`, so that an answer does not depend on which parts the rows are in.

use super::candidates::Candidates;
use super::explain::Counts;
use super::plan::Blend;
use super::searched::Searched;
use crate::error::Result;
use crate::ids::{RowId, Seq};
use crate::kernel::Queries;
use crate::row::FoundBy;
use crate::scan::Found;
use crate::snapshot::Place;
use crate::view::searchable::Searchable;
use crate::words::{Scorer, Terms};

/// A row that will be a hit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ranked {
    pub(crate) score: f32,
    /// The metric between the query and the stored vector; `None` where only the code was looked at.
    pub(crate) similarity: Option<f32>,
    /// The BM25 score, where words were searched.
    pub(crate) words: Option<f32>,
    pub(crate) found_by: FoundBy,
    pub(crate) seq: Seq,
    pub(crate) place: Place,
}

/// Returns the k best candidates, best first.
pub(crate) fn rank<P: Searchable>(
    searched: &Searched<'_, P>,
    candidates: &[Found],
    found_by: FoundBy,
    k: usize,
) -> Result<Vec<Ranked>> {
    let rows = candidates.iter().map(|found| Row {
        score: found.score,
        similarity: None,
        words: None,
        found_by,
        place: place(found),
    });
    let mut ranked = in_order(searched, rows.collect())?;
    ranked.truncate(k);
    Ok(ranked)
}

/// What orders the candidates of a query.
pub(crate) struct Rescored<'q> {
    pub(crate) query: &'q [f32],
    pub(crate) terms: Option<&'q Terms>,
    /// The most candidates of each source.
    pub(crate) candidates: usize,
    /// What found those that were not found by words.
    pub(crate) found_by: FoundBy,
    /// How words count, where they are searched.
    pub(crate) blend: Option<Blend>,
    /// The rows that are wanted.
    pub(crate) k: usize,
}

/// The k best candidates of both sources by the model's score, and what was read of their stored vectors.
///
/// Without a query map and words the scores are those of the exact scan, bit for bit: with as many candidates as rows the
/// order is that of an exact search.
pub(crate) fn rescore<P: Searchable>(
    searched: &Searched<'_, P>,
    asked: &Rescored<'_>,
    candidates: &Candidates,
) -> Result<(Vec<Ranked>, Counts)> {
    let listed = best(searched, &candidates.listed, asked.candidates)?;
    let by_words = match &candidates.words {
        Some(words) => best(searched, &words.listed, asked.candidates)?,
        None => Vec::new(),
    };
    let (mut found, sources) = united(listed, by_words, asked.found_by);
    let mut counts = Counts::rows(found.len());
    let rows: Vec<u32> = found.iter().map(|found| found.row).collect();
    let mut at = 0;
    for group in found.chunk_by(|a, b| a.source == b.source) {
        let part = &searched.parts[group[0].source as usize];
        part.prefetch(&rows[at..at + group.len()]);
        at += group.len();
    }
    let kernel = searched.scanner.kernel();
    let mapped = (searched.scorer).and_then(|scorer| scorer.map_query(kernel, asked.query));
    let by = Queries::new(mapped.as_deref().unwrap_or(asked.query), searched.dim);
    counts += similarities(searched, &by, &mut found)?;
    let words = match (&candidates.words, asked.terms, asked.blend) {
        (Some(words), Some(terms), Some(blend)) => {
            let scores = word_scores(searched, terms, &words.scorer, &found)?;
            Some((scores, blend))
        }
        _ => None,
    };
    let mut rows: Vec<Row> = (found.iter().zip(sources).enumerate())
        .map(|(at, (found, found_by))| Row {
            score: found.score,
            // Without a map the score so far is the similarity.
            similarity: mapped.is_none().then_some(found.score),
            words: words.as_ref().map(|(scores, _)| scores[at]),
            found_by,
            place: place(found),
        })
        .collect();
    match words {
        Some((_, Blend::Weighted(weight))) => {
            for row in &mut rows {
                row.score += weight * row.words.unwrap_or(0.0);
            }
        }
        Some((_, Blend::ReciprocalRank)) => fuse_ranks(searched, &mut rows)?,
        None => {}
    }
    // Of those that may be among the k best the `Seq`s are needed, of the others not.
    if rows.len() > asked.k {
        let by_score = |a: &Row, b: &Row| b.score.total_cmp(&a.score);
        let (_, kth, _) = rows.select_nth_unstable_by(asked.k - 1, by_score);
        let least = kth.score;
        rows.retain(|row| row.score >= least);
    }
    let mut ranked = in_order(searched, rows)?;
    ranked.truncate(asked.k);
    if mapped.is_some() {
        add_similarities(
            searched,
            &Queries::new(asked.query, searched.dim),
            &mut ranked,
        )?;
    }
    Ok((ranked, counts))
}

/// A candidate with its scores, whose `Seq` is not known.
struct Row {
    score: f32,
    similarity: Option<f32>,
    words: Option<f32>,
    found_by: FoundBy,
    place: Place,
}

/// Both lists in one, by place: rows are read in the order in which they lie on disk, and all are asked for before the
/// first is waited for. With what found each.
fn united(
    listed: Vec<Found>,
    by_words: Vec<Found>,
    found_by: FoundBy,
) -> (Vec<Found>, Vec<FoundBy>) {
    let key = |found: &Found| (found.source, found.row);
    let mut all: Vec<(Found, FoundBy)> = (listed.into_iter())
        .map(|found| (found, found_by))
        .chain((by_words.into_iter()).map(|found| (found, FoundBy::Words)))
        .collect();
    all.sort_unstable_by_key(|(found, by)| (key(found), *by == FoundBy::Words));
    all.dedup_by(|later, first| {
        let same = key(&later.0) == key(&first.0);
        if same {
            first.1 = FoundBy::Both;
        }
        same
    });
    all.into_iter().unzip()
}

/// The BM25 score of each row.
///
/// Requires: rows are sorted by place; every part has a word index.
fn word_scores<P: Searchable>(
    searched: &Searched<'_, P>,
    terms: &Terms,
    scorer: &Scorer,
    found: &[Found],
) -> Result<Vec<f32>> {
    let words = searched
        .words
        .expect("asked for words only where there are");
    let mut scores = vec![0.0; found.len()];
    let mut rows = Vec::new();
    let mut at = 0;
    for group in found.chunk_by(|a, b| a.source == b.source) {
        rows.clear();
        rows.extend(group.iter().map(|found| found.row));
        let part = &searched.parts[group[0].source as usize];
        let index = part.words(words).expect("every part has a word index");
        index.score(terms, scorer, &rows, &mut scores[at..at + rows.len()])?;
        at += rows.len();
    }
    Ok(scores)
}

/// Gives each row the sum of 1 / (60 + rank) over two orders: that of vectors, of the rows that they found, and that of
/// words, of the rows that have some. Ranks count from 1, ties go to the lower `Seq`.
fn fuse_ranks<P: Searchable>(searched: &Searched<'_, P>, rows: &mut [Row]) -> Result<()> {
    const K: f32 = 60.0;
    let seqs = rows
        .iter()
        .map(|row| searched.parts[row.place.part].seq(row.place.row));
    let seqs = seqs.collect::<Result<Vec<Seq>>>()?;
    let order = |score: &dyn Fn(&Row) -> Option<f32>| {
        let mut listed: Vec<(f32, usize)> = (rows.iter().enumerate())
            .filter_map(|(at, row)| Some((score(row)?, at)))
            .collect();
        listed.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(seqs[a.1].cmp(&seqs[b.1])));
        listed
    };
    let by_vectors = order(&|row| (row.found_by != FoundBy::Words).then_some(row.score));
    let by_words = order(&|row| row.words.filter(|&score| score > 0.0));
    rows.iter_mut().for_each(|row| row.score = 0.0);
    for listed in [by_vectors, by_words] {
        for (rank, (_, at)) in listed.into_iter().enumerate() {
            rows[at].score += 1.0 / (K + rank as f32 + 1.0);
        }
    }
    Ok(())
}

/// Rows in the order of their scores, ties by `Seq`.
fn in_order<P: Searchable>(searched: &Searched<'_, P>, rows: Vec<Row>) -> Result<Vec<Ranked>> {
    let ranked = rows.into_iter().map(|row| {
        Ok(Ranked {
            score: row.score,
            similarity: row.similarity,
            words: row.words,
            found_by: row.found_by,
            seq: searched.parts[row.place.part].seq(row.place.row)?,
            place: row.place,
        })
    });
    let mut ranked = ranked.collect::<Result<Vec<_>>>()?;
    ranked.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.seq.cmp(&b.seq)));
    Ok(ranked)
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
