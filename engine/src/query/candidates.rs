//! The rows among which the best are: found by codes, or by stored vectors where there is no quantizer.

use super::filter::Masks;
use crate::error::Result;
use crate::scan::{BlockSource, Found, VectorSource};
use crate::snapshot::Snapshot;
use crate::stored::StoredRef;
use crate::view::part::Part;
use std::ops::Range;

/// The candidates of one query, best first: [`Found::source`] is the part. Among them are its `depth` best rows, and
/// all that tie with the last of these.
pub(crate) type Candidates = Vec<Found>;

/// The candidates for each query, of which (queries, dim) are the vectors.
pub(super) fn of(
    snapshot: &Snapshot,
    vectors: &[f32],
    masks: &Masks,
    depth: usize,
) -> Result<Vec<Candidates>> {
    let dim = snapshot.model.dim();
    let parts: Vec<_> = (snapshot.parts().enumerate())
        .map(|(at, part)| Scanned {
            part,
            dim,
            live: masks.of(at, part.live().words()),
        })
        .collect();
    if parts.is_empty() {
        return Ok(vec![Vec::new(); vectors.len() / dim]);
    }
    let scanner = &snapshot.scanner;
    match snapshot.model.quantizer() {
        Some(quantizer) => {
            let queries: Vec<_> = vectors.chunks_exact(dim).collect();
            let tables = scanner.each(&queries, quantizer.table_cycles(), |query| {
                quantizer.table(query)
            })?;
            let sources: Vec<_> = parts.iter().map(|part| part as &dyn BlockSource).collect();
            scanner.scan(&sources, &tables, depth)
        }
        None => {
            let sources: Vec<_> = parts.iter().map(|part| part as &dyn VectorSource).collect();
            scanner.scan_exact(&sources, vectors, snapshot.model.metric(), depth)
        }
    }
}

/// A part as a scan reads it.
struct Scanned<'a> {
    part: Part<'a>,
    dim: usize,
    /// The rows that may be returned.
    live: Option<&'a [u64]>,
}

impl BlockSource for Scanned<'_> {
    fn rows(&self) -> usize {
        self.part.len()
    }

    fn blocks(&self, blocks: Range<usize>) -> Result<&[u8]> {
        self.part.blocks(blocks)
    }

    fn live(&self) -> Option<&[u64]> {
        self.live
    }
}

impl VectorSource for Scanned<'_> {
    fn rows(&self) -> usize {
        self.part.len()
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn live(&self) -> Option<&[u64]> {
        self.live
    }

    fn rows_at(&self, rows: Range<usize>) -> Result<StoredRef<'_>> {
        self.part.vectors(rows)
    }
}
