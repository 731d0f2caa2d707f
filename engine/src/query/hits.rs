//! Hits: ranked rows with their keys, texts and columns.

use super::score::Ranked;
use crate::columns::Column;
use crate::error::Result;
use crate::row::{Hit, QueryOptions};
use crate::snapshot::Snapshot;
use std::collections::BTreeMap;

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

/// Reads keys, texts and columns of the hits.
pub(super) fn take<'r>(
    snapshot: &Snapshot,
    columns: &[&Column],
    ranked: impl Iterator<Item = &'r Ranked>,
) -> Result<Vec<Hit>> {
    let hit = |row: &Ranked| {
        let part = snapshot.part(row.place.part);
        let value = |column: &&Column| {
            let value = part.value(column, row.place.row)?;
            Ok((column.name.clone(), value))
        };
        Ok(Hit {
            key: snapshot.key(row.place)?.to_owned(),
            score: row.score,
            similarity: row.similarity,
            words: row.words,
            found_by: row.words.map(|_| row.found_by),
            text: snapshot.text(row.place)?,
            columns: columns
                .iter()
                .map(value)
                .collect::<Result<BTreeMap<_, _>>>()?,
            seq: row.seq,
        })
    };
    ranked.map(hit).collect()
}
