//! Row masks: which rows may be returned, by deletions and filter.

use crate::error::Result;
use crate::row::Filter;
use crate::snapshot::Snapshot;

/// The rows of each part that may be returned.
pub(crate) struct Masks(Option<Vec<Vec<u64>>>);

/// Returns the live rows that pass the filter; all live rows without one.
pub(super) fn masks(snapshot: &Snapshot, filter: Option<&Filter>) -> Result<Masks> {
    let masks = filter.map(|filter| snapshot.parts().map(|part| part.mask(filter)).collect());
    Ok(Masks(masks.transpose()?))
}

impl Masks {
    /// Returns masks that allow all live rows.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Returns the rows that may be returned; `None` if all live ones may.
    pub(super) fn count(&self) -> Option<u64> {
        let masks = self.0.as_ref()?.iter().flatten();
        Some(masks.map(|word| u64::from(word.count_ones())).sum())
    }

    /// Returns the bits of a part, of which those in `live` live; `None` if all rows may be
    /// returned.
    pub(super) fn of<'m>(&'m self, part: usize, live: Option<&'m [u64]>) -> Option<&'m [u64]> {
        match &self.0 {
            Some(masks) => Some(&masks[part]),
            None => live,
        }
    }
}
