//! The order of candidates: by score, ties by `Seq`.

use super::candidates::Candidates;
use crate::error::Result;
use crate::ids::{RowId, Seq};
use crate::snapshot::{Place, Snapshot};

/// A row that will be a hit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ranked {
    pub(super) score: f32,
    pub(super) seq: Seq,
    pub(super) place: Place,
}

/// The k best candidates, best first.
pub(super) fn rank(snapshot: &Snapshot, candidates: &Candidates, k: usize) -> Result<Vec<Ranked>> {
    let ranked = candidates.iter().map(|found| {
        let place = Place {
            part: found.source as usize,
            row: RowId(found.row),
        };
        Ok(Ranked {
            score: found.score,
            seq: snapshot.seq(place)?,
            place,
        })
    });
    let mut ranked = ranked.collect::<Result<Vec<_>>>()?;
    ranked.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.seq.cmp(&b.seq)));
    ranked.truncate(k);
    Ok(ranked)
}
