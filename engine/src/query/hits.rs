//! Hits: ranked rows with their keys and texts.

use super::score::Ranked;
use crate::error::Result;
use crate::row::{Hit, QueryOptions};
use crate::snapshot::Snapshot;

/// Roughly the CPU cycles that it takes to read a hit's key and text.
pub(super) const CYCLES: f64 = 1000.0;

/// Returns the ranked rows that the options let through.
pub(super) fn page<'r>(
    ranked: &'r [Ranked],
    options: &QueryOptions,
) -> impl Iterator<Item = &'r Ranked> {
    let enough = |found: Option<f32>, least: Option<f32>| match (found, least) {
        (Some(found), Some(least)) => found >= least,
        _ => true,
    };
    let (min_score, min_similarity) = (options.min_score, options.min_similarity);
    let through = ranked.iter().filter(move |row| {
        enough(Some(row.score), min_score) && enough(row.similarity, min_similarity)
    });
    through.skip(options.offset)
}

/// Reads keys and texts of the hits.
pub(super) fn take<'r>(
    snapshot: &Snapshot,
    ranked: impl Iterator<Item = &'r Ranked>,
) -> Result<Vec<Hit>> {
    let hit = |row: &Ranked| {
        Ok(Hit {
            key: snapshot.key(row.place)?.to_owned(),
            score: row.score,
            similarity: row.similarity,
            words: row.words,
            found_by: row.words.map(|_| row.found_by),
            text: snapshot.text(row.place)?,
            seq: row.seq,
        })
    };
    ranked.map(hit).collect()
}
