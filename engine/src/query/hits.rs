//! Hits: ranked rows with their keys and texts.

use super::score::Ranked;
use crate::error::Result;
use crate::row::Hit;
use crate::snapshot::Snapshot;

/// Roughly the CPU cycles that it takes to read a hit's key and text.
pub(super) const CYCLES: f64 = 1000.0;

/// Reads what the user sees of each row.
pub(super) fn take(snapshot: &Snapshot, ranked: &[Ranked]) -> Result<Vec<Hit>> {
    let hit = |row: &Ranked| {
        Ok(Hit {
            key: snapshot.key(row.place)?.to_owned(),
            score: row.score,
            text: snapshot.text(row.place)?,
            seq: row.seq,
        })
    };
    ranked.iter().map(hit).collect()
}
