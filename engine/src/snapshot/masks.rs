//! The rows of each part that may be returned, by deletions and filter.

use super::{Place, Snapshot};
use crate::columns::{BoundExpr, KeyRead as _};
use crate::error::Result;
use crate::row::Filter;
use crate::segment::KeyHash;
use crate::view::part::{Part, PartRow};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// The rows of each part that may be returned.
#[derive(Debug)]
pub(crate) struct Masks(Option<Vec<Mask>>);

/// A bit for each row of a part that may be returned.
#[derive(Debug)]
enum Mask {
    /// As it is in the cache: every row of the part lives.
    Kept(Arc<[u64]>),
    Own(Vec<u64>),
}

/// A condition that knows the columns of its snapshot.
enum Condition<'f> {
    Keys(&'f BTreeSet<String>),
    Prefix(&'f str),
    Where(BoundExpr),
}

/// Returns the live rows that pass the filter; all live rows without one.
pub(crate) fn masks(snapshot: &Snapshot, filter: Option<&Filter>) -> Result<Masks> {
    let Some(filter) = filter else {
        return Ok(Masks::none());
    };
    let mut conditions = Vec::new();
    bind(snapshot, filter, &mut conditions)?;
    let parts = snapshot
        .parts()
        .map(|part| mask(snapshot, part, &conditions));
    Ok(Masks(Some(parts.collect::<Result<_>>()?)))
}

/// Appends the conditions of a filter, all of which have to hold.
fn bind<'f>(
    snapshot: &Snapshot,
    filter: &'f Filter,
    conditions: &mut Vec<Condition<'f>>,
) -> Result<()> {
    conditions.push(match filter {
        Filter::Keys(keys) => Condition::Keys(keys),
        Filter::Prefix(prefix) => Condition::Prefix(prefix),
        Filter::Where(expr) => Condition::Where(expr.bind(&snapshot.schema)?),
        Filter::All(filters) => {
            return (filters.iter()).try_for_each(|filter| bind(snapshot, filter, conditions));
        }
    });
    Ok(())
}

/// Returns the live rows of a part that pass all conditions.
fn mask(snapshot: &Snapshot, part: Part<'_>, conditions: &[Condition<'_>]) -> Result<Mask> {
    let mut passed: Option<Mask> = None;
    for condition in conditions {
        let next = condition.of(snapshot, part)?;
        passed = Some(match passed {
            None => next,
            Some(passed) => passed.and(next.words()),
        });
    }
    Ok(match (passed, part.live().words()) {
        (Some(passed), None) => passed,
        (Some(passed), Some(live)) => passed.and(live),
        (None, _) => Mask::Own(part.live().to_words()),
    })
}

impl Condition<'_> {
    /// Returns the rows of a part that pass, dead ones among them.
    fn of(&self, snapshot: &Snapshot, part: Part<'_>) -> Result<Mask> {
        let mut words = vec![0; part.len().div_ceil(64)];
        let mut set = |row: usize| words[row / 64] |= 1 << (row % 64);
        match self {
            Self::Keys(keys) => {
                for key in keys.iter() {
                    if let Some(row) = part.find(KeyHash::of(key), key)? {
                        set(row.0 as usize);
                    }
                }
            }
            Self::Prefix(prefix) => part.for_each(prefix, &mut |row, _| set(row))?,
            Self::Where(expr) => return part.passing(expr, &snapshot.masks).map(Mask::Kept),
        }
        Ok(Mask::Own(words))
    }
}

impl Mask {
    fn words(&self) -> &[u64] {
        match self {
            Self::Kept(words) => words,
            Self::Own(words) => words,
        }
    }

    fn and(self, other: &[u64]) -> Self {
        let mut words = match self {
            Self::Kept(words) => words.to_vec(),
            Self::Own(words) => words,
        };
        (words.iter_mut().zip(other)).for_each(|(word, other)| *word &= other);
        Self::Own(words)
    }
}

impl Masks {
    /// Returns masks that allow all live rows.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Returns the number of rows that may be returned; `None` if all live ones may.
    pub(crate) fn count(&self) -> Option<u64> {
        let masks = self.0.as_ref()?.iter().flat_map(Mask::words);
        Some(masks.map(|word| u64::from(word.count_ones())).sum())
    }

    /// Returns the bits of a part, of which those in `live` live; `None` if all rows may be
    /// returned.
    pub(crate) fn of<'m>(&'m self, part: usize, live: Option<&'m [u64]>) -> Option<&'m [u64]> {
        match &self.0 {
            Some(masks) => Some(masks[part].words()),
            None => live,
        }
    }

    /// Calls `each` with the live rows of a range of a part that may be returned, in `Seq` order.
    pub(crate) fn for_rows(
        &self,
        snapshot: &Snapshot,
        part: usize,
        rows: Range<u32>,
        mut each: impl FnMut(PartRow<'_>) -> Result<()>,
    ) -> Result<()> {
        /// Rows that are passed over together if none of them may be returned.
        const TOGETHER: u32 = 512;
        let of = snapshot.part(part);
        let Some(masks) = &self.0 else {
            return of.for_rows(rows, each);
        };
        let words = masks[part].words();
        for start in rows.clone().step_by(TOGETHER as usize) {
            let some = start..rows.end.min(start + TOGETHER);
            let near = start as usize / 64..(some.end as usize).div_ceil(64);
            if words[near].iter().all(|&word| word == 0) {
                continue;
            }
            of.for_rows(some, |row| match self.allow(Place { part, row: row.row }) {
                true => each(row),
                false => Ok(()),
            })?;
        }
        Ok(())
    }

    /// Returns `true` if the live row at a place may be returned.
    pub(crate) fn allow(&self, place: Place) -> bool {
        let at = place.row.0 as usize;
        let masks = self.0.as_ref();
        masks.is_none_or(|masks| masks[place.part].words()[at / 64] >> (at % 64) & 1 == 1)
    }
}

impl Snapshot {
    /// Returns the number of rows that pass a filter.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the filter asks for a column that is not there, or compares one with a value of
    /// another type.
    pub fn count_where(&self, filter: &Filter) -> Result<u64> {
        let masks = masks(self, Some(filter))?;
        Ok(masks.count().unwrap_or_else(|| self.rows()))
    }

    /// Calls `each` with the key of every row that passes a filter, in the order in which the rows were accepted.
    ///
    /// # Errors
    /// As [`count_where`](Self::count_where), and what `each` returns.
    pub fn for_each_key_where(
        &self,
        filter: &Filter,
        mut each: impl FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        let masks = masks(self, Some(filter))?;
        for (at, part) in self.parts().enumerate() {
            for row in part.live().iter() {
                if masks.allow(Place { part: at, row }) {
                    each(part.key(row)?)?;
                }
            }
        }
        Ok(())
    }
}
