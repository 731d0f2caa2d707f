//! Which scores find the rows of a query, and which order them.

use super::candidates::{self, Candidates};
use super::explain::{Counts, Explanation, Trace};
use super::filter::Masks;
use super::score::{self, Ranked};
use super::searched::Searched;
use crate::error::{Error, Result};
use crate::row::{QueryOptions, Search};
use crate::view::searchable::Searchable;

/// Roughly the CPU cycles that it takes to score a candidate by its stored vector.
const RESCORE_CYCLES: f64 = 400.0;

/// What the options mean for the rows that are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    way: Way,
    /// Rows that are ranked.
    depth: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Codes,
    Exact,
    /// So many candidates, ordered by the model's score.
    Auto {
        source: Source,
        candidates: usize,
    },
}

/// What finds candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Codes,
    Vectors,
}

impl Plan {
    /// Requires: the options were checked.
    pub(crate) fn of<P: Searchable>(
        options: &QueryOptions,
        searched: &Searched<'_, P>,
    ) -> Result<Self> {
        let depth = options.depth();
        let has_codes = searched.quantizer.is_some();
        let way = match options.search {
            Search::Codes if !has_codes => {
                return Err(Error::invalid(
                    "the active model has no codes to search by; train one and rebuild to it, or search with auto or exact",
                ));
            }
            Search::Codes => Way::Codes,
            Search::Auto if has_codes || searched.has_map() => Way::Auto {
                source: match has_codes {
                    true => Source::Codes,
                    false => Source::Vectors,
                },
                candidates: options.wanted_candidates(searched.serving),
            },
            Search::Auto | Search::Exact => Way::Exact,
        };
        Ok(Self { way, depth })
    }

    /// Returns the candidates for each query, of which (queries, dim) are the vectors.
    pub(crate) fn candidates<P: Searchable>(
        self,
        searched: &Searched<'_, P>,
        vectors: &[f32],
        masks: &Masks,
    ) -> Result<Vec<Candidates>> {
        let (source, depth) = self.source();
        match source {
            Source::Codes => candidates::by_codes(searched, vectors, masks, depth),
            Source::Vectors => candidates::by_vectors(searched, vectors, masks, depth),
        }
    }

    /// What finds candidates, and how many.
    fn source(self) -> (Source, usize) {
        match self.way {
            Way::Codes => (Source::Codes, self.depth),
            Way::Exact => (Source::Vectors, self.depth),
            Way::Auto { source, candidates } => (source, candidates),
        }
    }

    /// Returns the best rows of each query, best first, and what was read for it.
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
                    let mut ranked = score::rank(searched, found, self.depth)?;
                    if self.way == Way::Exact {
                        // What orders the rows is the metric itself.
                        (ranked.iter_mut()).for_each(|row| row.similarity = Some(row.score));
                    }
                    let counts = Counts::rows(ranked.len());
                    Ok((ranked, counts))
                })
            }
            Way::Auto { candidates, .. } => {
                let cycles = candidates as f64 * RESCORE_CYCLES;
                scanner.each(&queries, cycles, |(query, found)| {
                    score::rescore(searched, query, found, candidates, self.depth)
                })
            }
        }
    }

    /// Returns the number of bytes that a scan for candidates reads.
    pub(super) fn scanned<P: Searchable>(self, searched: &Searched<'_, P>) -> Result<u64> {
        let bytes = match (self.source().0, searched.quantizer) {
            (Source::Codes, Some(quantizer)) => {
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

    pub(super) fn explained(self, trace: Trace) -> Explanation {
        let (search, candidates) = match self.way {
            Way::Codes => (Search::Codes, None),
            Way::Auto { candidates, .. } => (Search::Auto, Some(candidates)),
            Way::Exact => (Search::Exact, None),
        };
        Explanation {
            search,
            candidates,
            stages: trace.finish(),
        }
    }
}
