//! Which scores find the rows of a query, and which order them.

use super::candidates::{self, Candidates};
use super::explain::{Counts, Explanation, Trace};
use super::filter::Masks;
use super::hits::Scored;
use super::score::{self, Ranked};
use super::searched::Searched;
use crate::error::{Error, Result};
use crate::row::{QueryOptions, Search};
use crate::view::searchable::Searchable;

/// Roughly the CPU cycles that it takes to score a candidate by its stored vector.
const RESCORE_CYCLES: f64 = 400.0;

/// What the options mean for rows with codes, or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    way: Way,
    /// Rows that are ranked.
    depth: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Codes,
    /// So many candidates by codes, ordered by their stored vectors.
    Rescored {
        candidates: usize,
    },
    Exact,
}

impl Plan {
    /// Requires: the options were checked.
    pub(crate) fn of(options: &QueryOptions, has_codes: bool) -> Result<Self> {
        let depth = options.depth();
        let way = match options.search {
            Search::Codes if !has_codes => {
                return Err(Error::invalid(
                    "the active model has no codes to search by; train one and rebuild to it, or search with auto or exact",
                ));
            }
            Search::Codes => Way::Codes,
            Search::Auto if has_codes => Way::Rescored {
                candidates: options.wanted_candidates(),
            },
            Search::Auto | Search::Exact => Way::Exact,
        };
        Ok(Self { way, depth })
    }

    /// The candidates for each query, of which (queries, dim) are the vectors.
    pub(crate) fn candidates<P: Searchable>(
        self,
        searched: &Searched<'_, P>,
        vectors: &[f32],
        masks: &Masks,
    ) -> Result<Vec<Candidates>> {
        match self.way {
            Way::Codes => candidates::by_codes(searched, vectors, masks, self.depth),
            Way::Rescored { candidates } => {
                candidates::by_codes(searched, vectors, masks, candidates)
            }
            Way::Exact => candidates::by_vectors(searched, vectors, masks, self.depth),
        }
    }

    /// The best rows of each query, best first, and what was read for it.
    pub(crate) fn rank<P: Searchable>(
        self,
        searched: &Searched<'_, P>,
        vectors: &[f32],
        found: &[Candidates],
    ) -> Result<Vec<(Vec<Ranked>, Counts)>> {
        let queries: Vec<_> = vectors.chunks_exact(searched.dim).zip(found).collect();
        let scanner = searched.scanner;
        match self.way {
            Way::Codes | Way::Exact => {
                let cycles = self.depth as f64 * 20.0;
                scanner.each(&queries, cycles, |(_, found)| {
                    let ranked = score::rank(searched, found, self.depth)?;
                    let counts = Counts::rows(ranked.len());
                    Ok((ranked, counts))
                })
            }
            Way::Rescored { candidates } => {
                let cycles = candidates as f64 * RESCORE_CYCLES;
                scanner.each(&queries, cycles, |(query, found)| {
                    score::rescore(searched, query, found, candidates, self.depth)
                })
            }
        }
    }

    /// Bytes that a scan for candidates reads.
    pub(super) fn scanned<P: Searchable>(self, searched: &Searched<'_, P>) -> Result<u64> {
        let bytes = match (self.way, searched.quantizer) {
            (Way::Codes | Way::Rescored { .. }, Some(quantizer)) => {
                let shape = quantizer.shape();
                let blocks = searched.parts.iter().map(|part| shape.blocks(part.len()));
                blocks.sum::<usize>() * shape.block_bytes()
            }
            _ => {
                let rows: usize = searched.parts.iter().map(|part| part.len()).sum();
                match searched.parts.iter().find(|part| part.len() > 0) {
                    Some(part) => rows * part.vectors(0..1)?.bytes(),
                    None => 0,
                }
            }
        };
        Ok(bytes as u64)
    }

    pub(super) fn scored(self) -> Scored {
        match self.way {
            Way::Codes => Scored::Codes,
            Way::Rescored { .. } | Way::Exact => Scored::Vectors,
        }
    }

    pub(super) fn explained(self, trace: Trace) -> Explanation {
        let (search, candidates) = match self.way {
            Way::Codes => (Search::Codes, None),
            Way::Rescored { candidates } => (Search::Auto, Some(candidates)),
            Way::Exact => (Search::Exact, None),
        };
        Explanation {
            search,
            candidates,
            stages: trace.finish(),
        }
    }
}
