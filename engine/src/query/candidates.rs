//! Finding candidates, by codes or by stored vectors.

use super::cells;
use super::filter::Masks;
use super::searched::Searched;
use crate::error::Result;
use crate::quantizer::Asked;
use crate::row::Probes;
use crate::scan::{BlockSource, Found, VectorSource};
use crate::stored::StoredRef;
use crate::view::searchable::Searchable;
use crate::words::{self, Indexed, Scorer, Terms};
use std::collections::HashMap;
use std::ops::Range;

/// The candidates of one query, best first: [`Found::source`] is the part. Among them are its `depth` best rows, and
/// all that tie with the last of these.
pub(crate) type Listed = Vec<Found>;

/// The candidates of one query.
#[derive(Default)]
pub(crate) struct Candidates {
    /// By codes or by stored vectors.
    pub(crate) listed: Listed,
    /// By words, where these are searched and the query has some.
    pub(crate) words: Option<ByWords>,
}

/// The candidates of one query by words, and what scores any row for them.
pub(crate) struct ByWords {
    pub(crate) listed: Listed,
    pub(crate) scorer: Scorer,
}

impl Candidates {
    pub(crate) fn len(&self) -> usize {
        let words = self.words.as_ref().map_or(0, |words| words.listed.len());
        self.listed.len() + words
    }

    /// Returns the place of each candidate, by part and row, among those of its source: the better one, if both sources
    /// found it.
    pub(crate) fn places(&self) -> HashMap<(u32, u32), u32> {
        let by_words = self.words.iter().flat_map(|words| (0..).zip(&words.listed));
        let mut places = HashMap::with_capacity(self.len());
        for (place, found) in (0..).zip(&self.listed).chain(by_words) {
            let least = places.entry((found.source, found.row)).or_insert(place);
            *least = place.min(*least);
        }
        places
    }
}

/// Returns the candidates by words for each query. The statistics are those of the model, or else of all live rows, whatever
/// the masks.
///
/// Requires: every part has a word index.
pub(crate) fn by_words<P: Searchable>(
    searched: &Searched<'_, P>,
    queries: &[Terms],
    masks: &Masks,
    depth: usize,
) -> Result<Vec<Option<ByWords>>> {
    let words = searched
        .words
        .expect("asked for words only where there are");
    let index = |part| P::words(part, words).expect("every part has a word index");
    let parts: Vec<&dyn Indexed> = searched.parts.iter().map(index).collect();
    let rows: usize = searched.parts.iter().map(P::len).sum();
    // Few rows have a term of a query; how few is known only afterwards.
    let cycles = rows as f64;
    searched.scanner.each(queries, cycles, |terms| {
        if terms.is_empty() {
            return Ok(None);
        }
        let counts = match searched.statistics {
            Some(statistics) => statistics.counts(terms),
            None => {
                let mut counts = words::Counts::none(terms);
                for (part, rows) in parts.iter().zip(&searched.parts) {
                    counts += &part.count(terms, rows.live())?;
                }
                counts
            }
        };
        let scorer = Scorer::new(&counts);
        let masked = parts.iter().enumerate().map(|(at, part)| {
            let live = searched.parts[at].live();
            (*part, masks.of(at, live))
        });
        let listed = words::best(masked, terms, &scorer, depth)?;
        Ok(Some(ByWords { listed, scorer }))
    })
}

/// What queries are for a scan of codes, of which (queries, dim) are the vectors.
///
/// Requires: rows have codes.
pub(crate) fn asked<P: Searchable>(
    searched: &Searched<'_, P>,
    vectors: &[f32],
) -> Result<Vec<Asked>> {
    let quantizer = searched.quantizer.expect("rows have codes");
    let queries: Vec<_> = vectors.chunks_exact(searched.dim).collect();
    (searched.scanner).each(&queries, quantizer.table_cycles(), |query| {
        quantizer.ask(query)
    })
}

/// Returns the candidates by codes for each query, of which (queries, dim) are the vectors, among all rows, whether the model has
/// cells or not.
///
/// Requires: rows have codes.
pub(crate) fn by_all_codes<P: Searchable>(
    searched: &Searched<'_, P>,
    vectors: &[f32],
    masks: &Masks,
    depth: usize,
) -> Result<Vec<Listed>> {
    match searched.cells() {
        None => by_codes(searched, asked(searched, vectors)?, masks, depth),
        Some(_) => {
            let visited = cells::visited(searched, vectors, masks, Probes::All, depth)?;
            cells::candidates(searched, &visited, depth)
        }
    }
}

/// Returns the candidates by codes for each query, among all rows.
///
/// Requires: the model has no cells.
pub(crate) fn by_codes<P: Searchable>(
    searched: &Searched<'_, P>,
    asked: Vec<Asked>,
    masks: &Masks,
    depth: usize,
) -> Result<Vec<Listed>> {
    let tables: Vec<_> = asked.into_iter().map(|asked| asked.table).collect();
    let parts = scanned(searched, masks);
    let sources: Vec<_> = parts.iter().map(|part| part as &dyn BlockSource).collect();
    searched.scanner.scan(&sources, &tables, depth)
}

/// Returns the candidates by stored vectors for each query, of which (queries, dim) are the
/// vectors.
pub(crate) fn by_vectors<P: Searchable>(
    searched: &Searched<'_, P>,
    vectors: &[f32],
    masks: &Masks,
    depth: usize,
) -> Result<Vec<Listed>> {
    let parts = scanned(searched, masks);
    if parts.is_empty() {
        return Ok(vec![Vec::new(); searched.queries(vectors)]);
    }
    let sources: Vec<_> = parts.iter().map(|part| part as &dyn VectorSource).collect();
    (searched.scanner).scan_exact(&sources, vectors, searched.metric, depth)
}

fn scanned<'a, P: Searchable>(
    searched: &'a Searched<'_, P>,
    masks: &'a Masks,
) -> Vec<Scanned<'a, P>> {
    let parts = searched.parts.iter().enumerate();
    let scanned = parts.map(|(at, part)| Scanned {
        part,
        dim: searched.dim,
        live: masks.of(at, part.live()),
    });
    scanned.collect()
}

/// A part as a scan reads it.
struct Scanned<'a, P> {
    part: &'a P,
    dim: usize,
    /// The rows that may be returned.
    live: Option<&'a [u64]>,
}

impl<P: Searchable> BlockSource for Scanned<'_, P> {
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

impl<P: Searchable> VectorSource for Scanned<'_, P> {
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
