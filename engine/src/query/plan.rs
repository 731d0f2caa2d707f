//! Which scores find the rows of a query, and which order them.

use super::candidates::{self, Candidates};
use super::cells::{self, Visited};
use super::explain::{Counts, Explanation, Trace};
use super::filter::Masks;
use super::score::{self, Ranked, Rescored};
use super::searched::Searched;
use super::vectors::AskedRef;
use crate::error::{Error, Result};
use crate::row::{FoundBy, Fusion, Probes, QueryOptions, Search};
use crate::view::searchable::Searchable;

/// Roughly the CPU cycles that it takes to score a candidate by its stored vector.
const RESCORE_CYCLES: f64 = 400.0;

/// What the options mean for the rows that are searched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plan {
    way: Way,
    /// Rows that are ranked.
    depth: usize,
    /// The cells that are looked at; `None` where the model has none, or they are not used.
    probes: Option<Probes>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Codes,
    Exact,
    Words,
    /// So many candidates of each source, ordered by the model's score.
    Auto {
        source: Source,
        candidates: usize,
        /// How words count, where they do.
        words: Option<Blend>,
    },
}

/// What finds candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Codes,
    Vectors,
}

/// How the words of a row become part of its score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Blend {
    /// They are added, with this weight.
    Weighted(f32),
    ReciprocalRank,
}

impl Plan {
    /// Requires: the options were checked.
    pub(crate) fn of<P: Searchable>(
        options: &QueryOptions,
        searched: &Searched<'_, P>,
    ) -> Result<Self> {
        let depth = options.depth();
        let has_codes = searched.quantizer.is_some();
        let words = blend(options, searched)?;
        let way = match options.search {
            Search::Codes if !has_codes => {
                return Err(Error::invalid(
                    "the active model has no codes to search by; train one and rebuild to it, or search with auto or exact",
                ));
            }
            Search::Codes => Way::Codes,
            Search::Words => {
                expect_words(searched)?;
                Way::Words
            }
            Search::Auto if has_codes || searched.has_map() || words.is_some() => Way::Auto {
                source: match has_codes {
                    true => Source::Codes,
                    false => Source::Vectors,
                },
                candidates: options.wanted_candidates(searched.serving),
                words,
            },
            Search::Auto | Search::Exact => Way::Exact,
        };
        let probes = match (searched.cells(), options.probes) {
            (Some(cells), _) => Some(options.wanted_probes(searched.serving, cells)?),
            (None, None) => None,
            (None, Some(_)) => {
                return Err(Error::invalid(
                    "the active model has no cells: every query looks at all rows; leave the probes out, or train with cells and rebuild",
                ));
            }
        };
        let plan = Self {
            way,
            depth,
            probes: None,
        };
        Ok(Self {
            probes: probes.filter(|_| plan.by_codes().is_some()),
            ..plan
        })
    }

    /// Returns the plan of a search whose candidates are looked at, not ranked: so many of each source, words among them
    /// wherever there are some, with a weight of 0.
    pub(crate) fn of_features<P: Searchable>(
        searched: &Searched<'_, P>,
        candidates: usize,
    ) -> Self {
        let source = match searched.quantizer {
            Some(_) => Source::Codes,
            None => Source::Vectors,
        };
        let words = searched.has_words().then_some(Blend::Weighted(0.0));
        Self {
            way: Way::Auto {
                source,
                candidates,
                words,
            },
            depth: 2 * candidates,
            probes: searched
                .cells()
                .map(|cells| Probes::Cells(QueryOptions::default_probes(cells))),
        }
    }

    /// Returns `true` if queries are compared as vectors.
    pub(crate) fn needs_vectors(self) -> bool {
        self.way != Way::Words
    }

    /// Returns `true` if queries are searched by their words.
    pub(crate) fn needs_words(self) -> bool {
        matches!(self.way, Way::Words | Way::Auto { words: Some(_), .. })
    }

    /// Returns which cells each query looks at; `None` where it looks at all rows.
    pub(crate) fn visited<P: Searchable>(
        self,
        searched: &Searched<'_, P>,
        asked: AskedRef<'_>,
        masks: &Masks,
    ) -> Result<Option<Visited>> {
        let (Some(probes), Some(depth)) = (self.probes, self.by_codes()) else {
            return Ok(None);
        };
        cells::visited(searched, asked.vectors, masks, probes, depth).map(Some)
    }

    /// Returns the candidates for each query by codes or by stored vectors.
    pub(crate) fn listed<P: Searchable>(
        self,
        searched: &Searched<'_, P>,
        asked: AskedRef<'_>,
        masks: &Masks,
        visited: Option<&Visited>,
    ) -> Result<Vec<Candidates>> {
        let listed = match (self.source(), visited) {
            (None, _) => return Ok(asked.terms.iter().map(|_| Candidates::default()).collect()),
            (Some((Source::Codes, depth)), Some(visited)) => {
                cells::candidates(searched, visited, depth)?
            }
            (Some((Source::Codes, depth)), None) => {
                let asked = candidates::asked(searched, asked.vectors)?;
                candidates::by_codes(searched, asked, masks, depth)?
            }
            (Some((Source::Vectors, depth)), _) => {
                candidates::by_vectors(searched, asked.vectors, masks, depth)?
            }
        };
        let listed = listed.into_iter().map(|listed| Candidates {
            listed,
            words: None,
        });
        Ok(listed.collect())
    }

    /// Adds the candidates by words, where these are searched.
    pub(crate) fn add_words<P: Searchable>(
        self,
        searched: &Searched<'_, P>,
        asked: AskedRef<'_>,
        masks: &Masks,
        found: &mut [Candidates],
    ) -> Result<()> {
        let depth = match self.way {
            Way::Words => self.depth,
            Way::Auto { candidates, .. } => candidates,
            Way::Codes | Way::Exact => return Ok(()),
        };
        if self.needs_words() && !asked.terms.is_empty() {
            let by_words = candidates::by_words(searched, asked.terms, masks, depth)?;
            for (found, words) in found.iter_mut().zip(by_words) {
                found.words = words;
            }
        }
        Ok(())
    }

    /// Returns all candidates of each query.
    pub(crate) fn candidates<P: Searchable>(
        self,
        searched: &Searched<'_, P>,
        asked: AskedRef<'_>,
        masks: &Masks,
    ) -> Result<Vec<Candidates>> {
        let visited = self.visited(searched, asked, masks)?;
        let mut found = self.listed(searched, asked, masks, visited.as_ref())?;
        self.add_words(searched, asked, masks, &mut found)?;
        Ok(found)
    }

    /// How many candidates codes find, where they do.
    fn by_codes(self) -> Option<usize> {
        match self.source() {
            Some((Source::Codes, depth)) => Some(depth),
            Some((Source::Vectors, _)) | None => None,
        }
    }

    /// What finds candidates that are not found by words, and how many.
    fn source(self) -> Option<(Source, usize)> {
        match self.way {
            Way::Codes => Some((Source::Codes, self.depth)),
            Way::Exact => Some((Source::Vectors, self.depth)),
            Way::Auto {
                source, candidates, ..
            } => Some((source, candidates)),
            Way::Words => None,
        }
    }

    /// Returns the best rows of each query, best first, and what was read for it.
    pub(crate) fn rank<P: Searchable>(
        self,
        searched: &Searched<'_, P>,
        asked: AskedRef<'_>,
        found: &[Candidates],
    ) -> Result<Vec<(Vec<Ranked>, Counts)>> {
        let scanner = searched.scanner;
        let (found_by, candidates, blend) = match self.way {
            Way::Auto {
                source,
                candidates,
                words,
            } => (source.found_by(), candidates, words),
            Way::Codes => (FoundBy::Codes, 0, None),
            Way::Exact => (FoundBy::Vectors, 0, None),
            Way::Words => (FoundBy::Words, 0, None),
        };
        if let Way::Auto { .. } = self.way {
            let cycles = candidates as f64 * RESCORE_CYCLES;
            let numbers: Vec<usize> = (0..found.len()).collect();
            return scanner.each(&numbers, cycles, |&number| {
                let query = &asked.vectors[number * searched.dim..][..searched.dim];
                let rescored = Rescored {
                    query,
                    terms: asked.terms.get(number),
                    candidates,
                    found_by,
                    blend,
                    k: self.depth,
                };
                score::rescore(searched, &rescored, &found[number])
            });
        }
        let cycles = self.depth as f64 * 20.0;
        scanner.each(found, cycles, |found| {
            let listed = match (&found.words, self.way) {
                (Some(words), Way::Words) => &words.listed,
                _ => &found.listed,
            };
            let mut ranked = score::rank(searched, listed, found_by, self.depth)?;
            for row in &mut ranked {
                match self.way {
                    // What orders the rows is the metric itself, or the words'.
                    Way::Exact => row.similarity = Some(row.score),
                    Way::Words => row.words = Some(row.score),
                    Way::Codes | Way::Auto { .. } => {}
                }
            }
            let counts = Counts::rows(ranked.len());
            Ok((ranked, counts))
        })
    }

    /// Returns the number of bytes that a scan for candidates reads.
    pub(super) fn scanned<P: Searchable>(
        self,
        searched: &Searched<'_, P>,
        visited: Option<&Visited>,
    ) -> Result<u64> {
        if let Some(visited) = visited {
            return Ok(visited.counts().bytes);
        }
        let bytes = match (self.source(), searched.quantizer) {
            (None, _) => 0,
            (Some((Source::Codes, _)), Some(quantizer)) => {
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
            Way::Words => (Search::Words, None),
        };
        Explanation {
            search,
            candidates,
            probes: self.probes,
            stages: trace.finish(),
        }
    }
}

impl Source {
    fn found_by(self) -> FoundBy {
        match self {
            Self::Codes => FoundBy::Codes,
            Self::Vectors => FoundBy::Vectors,
        }
    }
}

/// How words count in the answer; `None`: they do not.
fn blend<P: Searchable>(
    options: &QueryOptions,
    searched: &Searched<'_, P>,
) -> Result<Option<Blend>> {
    if options.search != Search::Auto {
        return Ok(None);
    }
    let blend = match options.fusion {
        Fusion::Weighted => Blend::Weighted(searched.weight_of_words()),
        Fusion::ReciprocalRank => {
            expect_words(searched)?;
            Blend::ReciprocalRank
        }
    };
    let Some(words) = searched.words.filter(|_| blend != Blend::Weighted(0.0)) else {
        return Ok(None);
    };
    match searched.has_words() {
        true => Ok(Some(blend)),
        false => {
            words.tell_missing();
            Ok(None)
        }
    }
}

/// Refuses a search by words where rows have none.
fn expect_words<P: Searchable>(searched: &Searched<'_, P>) -> Result<()> {
    if searched.words.is_none() {
        return Err(Error::invalid(
            "this database has no words to search by: it holds vectors, was created without words, or is older than they are; \
             a rebuild of the active model adds them to texts",
        ));
    }
    match searched.has_words() {
        true => Ok(()),
        false => Err(Error::invalid(
            "some segments have no word index, or one of another version; a rebuild of the active model writes it",
        )),
    }
}
