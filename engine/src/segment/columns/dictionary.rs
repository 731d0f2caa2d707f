//! Merges the strings of several sources into one sorted list of distinct strings.

use crate::columns::{Codes, ColumnRead, ColumnType, Piece, StringsRef};
use crate::{Error, Result};

/// The strings of the live rows of one source, and what their codes become.
struct Source<'a> {
    column: &'a dyn ColumnRead,
    /// The codes of the strings, in their order.
    sorted: Vec<u32>,
    /// The index of the next of them.
    at: usize,
    /// The string at that index.
    next: Option<&'a [u8]>,
    /// The new codes, indexed by the old ones.
    codes: Vec<u32>,
}

/// The distinct strings of all sources, and their codes.
pub(super) struct Dictionary<'a> {
    sources: Vec<Option<Source<'a>>>,
    /// The number of strings.
    pub(super) strings: u32,
    /// The total size of the strings in bytes.
    pub(super) bytes: u64,
    /// The position of each string, and the end of the last.
    pub(super) offsets: Vec<u64>,
}

impl<'a> Dictionary<'a> {
    /// Merges the strings of the live rows, and calls `each` with them in order.
    pub(super) fn merge(
        pieces: &[Piece<'a>],
        mut each: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<Self> {
        let sources = pieces.iter().map(|&piece| Source::new(piece));
        let mut merged = Self {
            sources: sources.collect::<Result<_>>()?,
            strings: 0,
            bytes: 0,
            offsets: vec![0],
        };
        loop {
            let nexts = merged
                .sources
                .iter()
                .flatten()
                .filter_map(|source| source.next);
            let Some(least) = nexts.min() else {
                return Ok(merged);
            };
            each(least)?;
            for source in merged.sources.iter_mut().flatten() {
                // A source that is a batch may have equal strings.
                while source.next == Some(least) {
                    source.pass(merged.strings)?;
                }
            }
            merged.bytes += least.len() as u64;
            merged.offsets.push(merged.bytes);
            let strings = merged.strings.checked_add(1);
            merged.strings = strings.ok_or_else(|| {
                Error::invalid("a segment can't have 2^32 different strings in one column")
            })?;
        }
    }

    /// Returns the new code of a string of one source.
    pub(super) fn code(&self, source: usize, code: usize) -> u32 {
        let source = self.sources[source]
            .as_ref()
            .expect("a source with strings");
        source.codes[code]
    }
}

impl<'a> Source<'a> {
    fn new(piece: Piece<'a>) -> Result<Option<Self>> {
        let Some(column) = piece.column else {
            return Ok(None);
        };
        let count = column.string_count();
        let mut is_used = vec![false; count];
        for_each_code(piece, |code| {
            match is_used.get_mut(code) {
                Some(is) => *is = true,
                None => return Err(column.wrong(format!("string {code} of {count}"))),
            }
            Ok(())
        })?;
        let used = (0..count as u32).filter(|&code| is_used[code as usize]);
        let mut sorted: Vec<u32> = used.collect();
        if !column.is_sorted() {
            let strings = column.strings(0..count)?;
            sorted.sort_unstable_by_key(|&code| strings.get(code as usize));
        }
        let mut source = Self {
            column,
            sorted,
            at: 0,
            next: None,
            codes: vec![0; count],
        };
        source.look()?;
        Ok(Some(source))
    }

    /// Gives the next string its new code.
    fn pass(&mut self, code: u32) -> Result<()> {
        self.codes[self.sorted[self.at] as usize] = code;
        self.at += 1;
        self.look()
    }

    fn look(&mut self) -> Result<()> {
        self.next =
            match self.sorted.get(self.at) {
                None => None,
                Some(&code) => {
                    let code = code as usize;
                    let strings: StringsRef<'a> = self.column.strings(code..code + 1)?;
                    let string = strings.get(0);
                    Some(string.ok_or_else(|| {
                        self.column.wrong(format!("string {code} has no position"))
                    })?)
                }
            };
        Ok(())
    }
}

/// Calls `each` with the codes of the live rows that have values, in order; for lists, with those of their items.
pub(super) fn for_each_code(
    piece: Piece<'_>,
    mut each: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    let Some(column) = piece.column else {
        return Ok(());
    };
    for row in piece.living() {
        if !crate::columns::is_valid(column, row)? {
            continue;
        }
        let items = match column.kind() {
            ColumnType::Strings => crate::columns::items(column, row..row + 1)?,
            _ => row..row + 1,
        };
        let codes: Codes<'_> = column.codes(items.clone())?;
        (0..items.len()).try_for_each(|at| each(codes.get(at)))?;
    }
    Ok(())
}
