//! Which rows may be returned: a bit per row, deletions and filter together.

use crate::error::Result;
use crate::row::Filter;
use crate::snapshot::Snapshot;

/// The rows of each part that may be returned.
pub(crate) struct Masks(Option<Vec<Vec<u64>>>);

/// The living rows that pass the filter; all living rows without one.
pub(super) fn masks(snapshot: &Snapshot, filter: Option<&Filter>) -> Result<Masks> {
    let masks = filter.map(|filter| snapshot.parts().map(|part| part.mask(filter)).collect());
    Ok(Masks(masks.transpose()?))
}

impl Masks {
    /// All living rows may be returned.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Rows that may be returned; `None` if all living ones may.
    pub(super) fn count(&self) -> Option<u64> {
        let masks = self.0.as_ref()?.iter().flatten();
        Some(masks.map(|word| u64::from(word.count_ones())).sum())
    }

    /// The bits of a part, of which those in `live` live; `None` if all rows may be returned.
    pub(super) fn of<'m>(&'m self, part: usize, live: Option<&'m [u64]>) -> Option<&'m [u64]> {
        match &self.0 {
            Some(masks) => Some(&masks[part]),
            None => live,
        }
    }
}
