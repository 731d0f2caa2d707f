//! Hits: ranked rows with their keys and texts.

use super::score::Ranked;
use crate::error::Result;
use crate::row::{Hit, QueryOptions};
use crate::snapshot::Snapshot;

/// What gave the scores of ranked rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scored {
    /// The rows' codes.
    Codes,
    /// Their stored vectors.
    Vectors,
}

/// Roughly the CPU cycles that it takes to read a hit's key and text.
pub(super) const CYCLES: f64 = 1000.0;

/// The ranked rows that the options let through.
pub(super) fn page<'r>(ranked: &'r [Ranked], options: &QueryOptions) -> &'r [Ranked] {
    // What orders the hits is the similarity too, wherever there is one.
    let least = [options.min_score, options.min_similarity];
    let least = least
        .into_iter()
        .flatten()
        .fold(f32::NEG_INFINITY, f32::max);
    let enough = ranked.partition_point(|row| row.score >= least);
    &ranked[options.offset.min(enough)..enough]
}

/// Reads what the user sees of each row.
pub(super) fn take(snapshot: &Snapshot, ranked: &[Ranked], scored: Scored) -> Result<Vec<Hit>> {
    let hit = |row: &Ranked| {
        Ok(Hit {
            key: snapshot.key(row.place)?.to_owned(),
            score: row.score,
            similarity: match scored {
                Scored::Codes => None,
                Scored::Vectors => Some(row.score),
            },
            text: snapshot.text(row.place)?,
            seq: row.seq,
        })
    };
    ranked.iter().map(hit).collect()
}
