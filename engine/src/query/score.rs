//! The order of candidates: by score, ties by `Seq`.

use super::searched::Searched;
use crate::error::Result;
use crate::ids::{RowId, Seq};
use crate::scan::Found;
use crate::snapshot::Place;
use crate::view::searchable::Searchable;

/// A row that will be a hit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ranked {
    pub(super) score: f32,
    pub(super) seq: Seq,
    pub(super) place: Place,
}

/// The k best candidates, best first.
pub(super) fn rank<P: Searchable>(
    searched: &Searched<'_, P>,
    candidates: &[Found],
    k: usize,
) -> Result<Vec<Ranked>> {
    let ranked = candidates.iter().map(|found| {
        let row = RowId(found.row);
        let part = found.source as usize;
        Ok(Ranked {
            score: found.score,
            seq: searched.parts[part].seq(row)?,
            place: Place { part, row },
        })
    });
    let mut ranked = ranked.collect::<Result<Vec<_>>>()?;
    ranked.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.seq.cmp(&b.seq)));
    ranked.truncate(k);
    Ok(ranked)
}
